"""Where the conservative term (Eq. 3) is placed, compared at equal strength on the same data.

    safecritic train usc CarButton1
    python benchmarks/caution.py runs/usc-CarButton1-seed0

Fits the safety critic anew on the run's replay, its policy held fixed, once without the term and
once for each way to weight it: equally (CSC with uniform alternatives), by u alone, by u and the
indicator of Eq. 2, by the spread of two critics or the |TD error| in the place of u, by chance.
The strength is set: the term's gradient has the same share of the Bellman term's in all of them
(`conservative_weight_in = "gradient"`). Refinement is off.

On fresh episodes: AUC of Q_C, and Q_C over the realised discounted cost. In simulated states the
environment is put back and uniform actions are held for one decision, then the policy is followed:

    too low     mean of what Q_C misses of the true cost of these actions: optimism
    too high    mean of what Q_C adds to it: caution where there is no need
    agreement   correlation of both over the actions of a state

Means over fits with other random numbers, with the half width of their 95% interval; beside them
the difference from equal weights, fit by fit.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.stats import t

from mechanisms import HELD, SEED, Deployed, agreement, deploy, held_cost, over_actions
from safecritic import api, replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.cost_critic import critic_inputs, q_cost
from safecritic.agents.safety_critic import SafetyCriticSettings
from safecritic.critics.conservative import Conservative
from safecritic.critics.influence import Influence
from safecritic.evaluation.critic_quality import auc, cost_within, discount_horizon
from safety_critic import updated

EQUAL = "equal weights"
WAYS: dict[str, dict[str, Any]] = {
    EQUAL: {"influence": None},
    "u": {"influence": Influence(caution_indicator=False)},
    "u and indicator": {"influence": Influence()},
    "spread of two": {
        "influence": Influence(caution_from="spread"),
        "safety_critics": 2,
        "safety_value": "mean",  # the larger of two is a caution of its own
    },
    "|TD error|": {"influence": Influence(caution_from="error")},
    "chance": {"influence": Influence(caution_from="chance")},
}
COLUMNS = ("AUC", "Q_C / realised", "too low", "too high", "agreement")


def fits(agent: api.Agent, config: SafetyCriticSettings, updates: int, number: int) -> list[Any]:
    """Return agents whose safety critic was fitted to the replay, all else as in the run."""
    device, spec = agent.training.device, agent.training.spec
    ours = device.agent
    sizes = scaling.unit_sizes(ours.units, config)

    def step(carry: tuple[Any, Any], key: jax.Array) -> tuple[Any, None]:
        state, store = carry
        state = updated(state, replay.sample(store, key, config), sizes, config)
        return (state, store), None

    @jax.jit
    def run(state: Any, store: Any, key: jax.Array) -> Any:
        return jax.lax.scan(step, (state, store), jax.random.split(key, updates))[0][0]

    def fit(seed: int) -> Any:
        state = safety_critic.init(jax.random.PRNGKey(seed), spec, config)
        bound = state.cost_bound
        state = state._replace(actor=ours.actor, target_actor=ours.actor, scaler=ours.scaler)
        state = state._replace(units=ours.units, cost_bound=bound / sizes.cost)
        fitted = run(state, device.replay, jax.random.PRNGKey(1000 + seed))
        return fitted._replace(cost_bound=bound)

    return [fit(seed) for seed in range(number)]


class Truth:
    """What followed in fresh episodes, and the true cost of other actions in some states."""

    def __init__(self, agent: api.Agent, episodes: int, states: int, seed: int):
        gamma = agent.config.gamma
        with agent.lent_env("this") as (env, _):
            policy = agent.policy(seed=seed)
            self.fresh: Deployed = deploy(env, policy, gamma, episodes, seed)
            if not self.fresh.states:
                raise ValueError("the environment cannot be put back into a state")
            usable = np.flatnonzero(self.fresh.usable)
            high = self.fresh.costly()
            rng = np.random.default_rng(seed)
            # half of them where cost is near: elsewhere no action costs anything
            parts = [rng.choice(usable, states // 2), rng.choice(high, states - states // 2)]
            self.states = np.concatenate(parts)
            shape = (states, HELD, agent.training.spec.action_dim)
            self.actions = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
            self.costs = np.array(
                [
                    [held_cost(env, policy, self.fresh, at, action, gamma) for action in some]
                    for at, some in zip(self.states, self.actions, strict=True)
                ]
            )
        ends = np.flatnonzero(np.diff(self.fresh.number)) + 1
        costs = np.split(self.fresh.transitions.cost, ends)
        soon = np.concatenate([cost_within(cost, discount_horizon(gamma)) for cost in costs])
        self.usable, self.soon = usable, soon[usable]

    def figures(self, state: Any, config: SafetyCriticSettings) -> list[float]:
        """Return the columns of the table for a fitted agent."""
        size = scaling.unit_sizes(state.units, config).cost

        @jax.jit
        def predict(obs: jax.Array, action: jax.Array) -> jax.Array:
            inputs = critic_inputs(state, obs, config)
            return size * q_cost(state.safety, inputs, action, state.cost_bound / size, config)

        rows = self.fresh.transitions
        q = np.asarray(predict(rows.obs[self.usable], rows.action[self.usable]))
        tried = over_actions(predict, rows.obs[self.states], self.actions)
        gap = tried - self.costs
        realised = self.fresh.realised[self.usable].mean()
        return [
            auc(q, self.soon),
            float(q.mean() / realised) if realised > 0 else float("nan"),
            float(np.maximum(-gap, 0.0).mean()),
            float(np.maximum(gap, 0.0).mean()),
            agreement(tried, self.costs, self.fresh.number[self.states]).value,
        ]


def text(values: np.ndarray) -> str:
    """Return a mean with half the width of its 95% interval."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} ± {half:.3f}" if len(values) > 1 else f"{values[0]:+.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run of usc")
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--updates", type=int, default=8_000)
    parser.add_argument("--fits", type=int, default=5, help="of each row (default 5)")
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--states", type=int, default=80, help="simulated states (default 80)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"first scene (default {SEED})")
    options = parser.parse_args()
    agent = api.Agent.load(options.run)
    config = agent.config
    if not isinstance(config, SafetyCriticSettings):
        parser.error(f"{options.run} holds an agent of {agent.method}, which has no safety critic")
    config = dataclasses.replace(config, refinement=None)
    truth = Truth(agent, options.episodes, options.states, options.seed)
    print(
        f"{agent!r}\n{options.episodes} fresh episodes from scene {options.seed}, "
        f"{options.states} simulated states, {HELD} actions each; "
        f"mean true cost {truth.costs.mean():.3f}"
    )
    print("| strength | weights | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")

    def row(strength: str, way: str, settings: Any, than: np.ndarray | None) -> np.ndarray:
        fitted = fits(agent, settings, options.updates, options.fits)
        values = np.array([truth.figures(state, settings) for state in fitted])
        cells = [text(column) for column in values.T]
        if than is not None:
            pairs = zip(cells, (values - than).T, strict=True)
            cells = [f"{cell} ({text(gap)})" for cell, gap in pairs]
        print(f"| {strength} | {way} | " + " | ".join(cells) + " |", flush=True)
        return values

    row("0", "no term (SC)", dataclasses.replace(config, conservative=None, influence=None), None)
    for strength in options.strengths:
        part = dataclasses.replace(
            config.conservative or Conservative(),
            conservative_weight=strength,
            conservative_weight_in="gradient",
        )
        equal = None
        for way, changes in WAYS.items():
            settings = dataclasses.replace(config, conservative=part, **changes)
            values = row(f"{strength:g}", way, settings, equal)
            equal = values if equal is None else equal


if __name__ == "__main__":
    main()
