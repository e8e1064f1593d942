"""What each mechanism of a trained safety critic really does, in figures.

    safecritic train usc CarGoal1
    python benchmarks/mechanisms.py runs/usc-CarGoal1-seed0

RUN is the folder of a run or of `agent.save`, of SC, CSC, USC (NR) or USC. The policy is deployed
in fresh episodes, and what the method computes there is compared with the discounted cost that
followed (gamma per decision, as Q_C has it). Only the conservative term is measured on batches of
the run's own replay, as in training. Costs and values are in the task's unit.

    conservative   how large is the term's gradient beside the Bellman term's, what is the part of
                   the influence in it, and what does it do to the actions not taken?
    influence      does u rank decisions by the error of Q_C? Beside it, Q_C and the |TD error|
    refinement     is the neighbours' target (Eq. 8) closer to the truth than Q_C, where u is high?
    screen         how often does it act, and what do the same scenes cost without it?
    sensitivity    does Q_C depend on the action as much as the true cost does? The truth is
                   simulated: the environment is put back, another action held for one decision,
                   then the policy followed
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from rich.console import Console

from safecritic import api, replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.cost_critic import batch_targets, critic_inputs, q_cost
from safecritic.agents.safety_critic import SafetyCriticSettings
from safecritic.agents.settings import replace
from safecritic.cli.printing import plain_table
from safecritic.critics import influence
from safecritic.critics.conservative import Conservative
from safecritic.evaluation.critic import Critic
from safecritic.evaluation.critic_quality import rank_correlation, usable_steps
from safecritic.evaluation.evaluate import (
    Policy,
    influence_of,
    rollout_costs,
    rollout_horizon,
    run_episode,
)
from safecritic.evaluation.statistics import Interval, bootstrap
from safecritic.replay import Batch, Replay, Transition
from safecritic.run import env_state
from safecritic.run.compiled import compile_agent
from safecritic.run.episode import Episode, discounted_sums, episode_row
from safecritic.run.folder import finite_or_none

SEED = 30_000  # of the first scene: far from those of training, evaluation and cost maps
AMOUNT = 0.25  # change of an action, of which each number is in [-1, 1], that counts as one
VISITED, ACTIONS = 512, 64  # states and uniform actions at which Q_C is looked at
HELD = 8  # uniform actions that are simulated in each state


class Figure(NamedTuple):
    """A line of the table."""

    name: str
    value: float | Interval
    form: str  # how a number is printed
    about: str

    def text(self) -> str:
        """Return the value as it is printed."""
        if not isinstance(self.value, Interval):
            return self.form.format(self.value)
        value, low, high = (self.form.format(x) for x in self.value)
        return f"{value} [{low}, {high}]"

    def plain(self) -> Any:
        """Return the value as JSON has it."""
        value = self.value
        return finite_or_none(value._asdict() if isinstance(value, Interval) else value)


Figures = dict[str, list[Figure]]  # by mechanism


# ---------------------------------------------------------------- fresh episodes


class Recorder(gymnasium.Wrapper):
    """An environment that keeps what follows every step, and the state before it if it can."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.next_obs: list[np.ndarray] = []
        self.states: list[Any] = []
        self.keeps = env_state.is_restorable(env)

    def step(self, action: Any) -> Any:
        if self.keeps:
            self.states.append(env_state.capture(self.env))
        result = self.env.step(action)
        self.next_obs.append(np.array(result[0], np.float32))
        return result


class Deployed(NamedTuple):
    """Episodes of a deployed policy; N is the number of all their decisions."""

    episodes: list[Episode]
    transitions: Transition  # (N, ...)
    spent: np.ndarray  # (N,) cost of the episode before
    realised: np.ndarray  # (N,) discounted cost that followed
    usable: np.ndarray  # (N,) whether all of it was seen
    number: np.ndarray  # (N,) of the episode
    states: list[Any]  # N of the environment, or none

    def column(self, name: str) -> np.ndarray:
        """Return a column of the episodes' records, (N,)."""
        return np.concatenate([episode.column(name) for episode in self.episodes])

    def costly(self) -> np.ndarray:
        """Return which of the usable decisions have a Q_C in the highest quarter of theirs."""
        usable = np.flatnonzero(self.usable)
        q = self.column("q_cost")[usable]
        return usable[q >= np.quantile(q, 0.75)]


def deploy(env: Any, policy: Policy, gamma: float, episodes: int, seed: int) -> Deployed:
    """Run episodes, number i from seed + i."""
    recorder = Recorder(env)
    runs = [run_episode(recorder, policy, seed + number) for number in range(episodes)]
    traces = [trace for trace, _, _ in runs]
    costs = [trace.column("cost") for trace in traces]
    lengths = [len(cost) for cost in costs]
    last = np.zeros(sum(lengths), bool)
    last[np.cumsum(lengths) - 1] = True
    number = np.repeat(np.arange(episodes), lengths)
    transitions = Transition(
        obs=np.concatenate([obs for _, obs, _ in runs]),
        action=np.concatenate([action for _, _, action in runs]),
        reward=np.concatenate([trace.column("reward") for trace in traces]).astype(np.float32),
        cost=np.concatenate(costs).astype(np.float32),
        next_obs=np.stack(recorder.next_obs),
        terminated=last & np.array([trace.terminated for trace in traces])[number],
        truncated=last & np.array([trace.truncated for trace in traces])[number],
        success=np.concatenate([trace.column("success") for trace in traces]) == 1.0,
    )
    return Deployed(
        traces,
        transitions,
        np.concatenate([np.cumsum(cost) - cost for cost in costs]),
        np.concatenate([discounted_sums(cost, gamma) for cost in costs]),
        np.concatenate([usable_steps(trace, gamma) for trace in traces]),
        number,
        recorder.states,
    )


@jax.jit
def replay_of(transitions: Transition) -> Replay:
    """Return a replay of these transitions alone."""
    (number, obs_dim), action_dim = transitions.obs.shape, transitions.action.shape[1]
    empty = replay.init(number, obs_dim, action_dim)
    return jax.lax.scan(lambda ring, row: (replay.insert(ring, row), None), empty, transitions)[0]


def own_units(state: Any, batch: Batch, config: Any) -> tuple[Any, Batch, jax.Array]:
    """Return agent and batch in the agent's units, as `update` has them, and the unit of cost."""
    sizes = scaling.unit_sizes(state.units, config)
    state = state._replace(cost_bound=state.cost_bound / sizes.cost)
    return state, scaling.in_units(batch, sizes), sizes.cost


# ---------------------------------------------------------------- conservative term


class Sample(NamedTuple):
    """A batch of the run's replay in the agent's units, with all its alternatives."""

    state: Any
    batch: Batch
    size: jax.Array  # of the unit of cost
    critic_obs: jax.Array
    terms: safety_critic.SafetyTerms


def sample(state: Any, store: Replay, key: jax.Array, config: Any) -> Sample:
    """Draw a batch as training does."""
    batch = replay.sample(store, key, config)
    state, batch, size = own_units(state._replace(key=key), batch, config)
    critic_obs = critic_inputs(state, batch.obs, config)
    terms, _ = safety_critic.safety_terms(state, batch, critic_obs, config)
    return Sample(state, batch, size, critic_obs, terms)


def contrast(drawn: Sample, members: Any, config: Any) -> jax.Array:
    """Return mean Q_C of the alternatives minus that of the data's actions."""
    assert drawn.terms.alternatives is not None
    actions = drawn.terms.alternatives.actions
    obs = jnp.repeat(drawn.critic_obs, actions.shape[1], axis=0)
    bound = drawn.state.cost_bound
    others = q_cost(members, obs, actions.reshape(len(obs), -1), bound, config)
    q = q_cost(members, drawn.critic_obs, drawn.batch.action, bound, config)
    return drawn.size * (others.mean() - q.mean())


def term_numbers(drawn: Sample, config: Any, exact: Any) -> tuple[dict[str, jax.Array], Any]:
    """Take the gradient of Eq. 3 on a batch apart; return numbers, and both terms' gradients.

    `exact` are the settings with which the batch was drawn: all states, all alternatives. The
    step and its gradient are those of `config`.
    """
    state, terms = drawn.state, drawn.terms
    data = (drawn.critic_obs, drawn.batch.action, terms.targets)

    def step(alternatives: Any, passes: Any) -> Any:
        return safety_critic.safety_step(state, *data, alternatives, passes, config)[0]

    def gradient(alternatives: Any, passes: Any, settings: Any) -> jax.Array:
        given = (*data, alternatives, passes, state.cost_bound, settings)
        slope, _ = jax.grad(safety_critic.safety_loss, has_aux=True)(state.safety, *given)
        return ravel_pytree(slope)[0]

    own, _ = safety_critic.safety_terms(state, drawn.batch, drawn.critic_obs, config)
    bellman = gradient(None, None, config)
    term = gradient(own.alternatives, own.passes, config) - bellman
    plain, stepped = step(None, None), step(own.alternatives, own.passes)
    start, without, with_term = (ravel_pytree(x)[0] for x in (state.safety, plain, stepped))
    contrasts = [contrast(drawn, members, config) for members in (state.safety, plain, stepped)]
    numbers = {
        "gradient": length(term) / length(bellman),
        "cosine": term @ bellman / (length(term) * length(bellman)),
        "step": length(with_term - without) / length(without - start),
        "moved by Bellman": contrasts[1] - contrasts[0],
        "moved by the term": contrasts[2] - contrasts[1],
    }
    if terms.influence is None or terms.alternatives is None:
        return numbers, (bellman, term)
    alternatives, u = terms.alternatives, terms.influence.u
    whole = gradient(alternatives, None, exact) - bellman

    def changed(caution: jax.Array) -> jax.Array:
        other = gradient(alternatives._replace(caution=caution), None, exact) - bellman
        return length(other - whole) / length(whole)

    caution = alternatives.caution
    even = jnp.full_like(u, jnp.expm1(jnp.log1p(u).mean()))  # the mean of log(1 + u) everywhere
    return numbers | {
        "spread": caution.std() / caution.mean(),
        "caution": changed(jnp.full_like(caution, caution.mean())),
        "u": changed(influence.caution(even, terms.influence.q)),
    }, (bellman, term)


def conservative_figures(agent: api.Agent, batches: int) -> list[Figure]:
    """Compare the two terms of Eq. 3, on batches of the run's replay.

    SC, which has one of them, has the contrast alone, at uniform actions.
    """
    config, device = agent.config, agent.training.device
    part = dataclasses.replace(
        config.conservative or Conservative(), conservative_share=1.0, conservative_gradient="exact"
    )
    exact = dataclasses.replace(config, conservative=part)
    keys = jax.random.split(jax.random.PRNGKey(0), batches)

    @jax.jit
    def mean_contrast(state: Any, store: Replay, members: Any) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            return contrast(sample(state, store, key, exact), members, config)

        return jax.lax.map(one, keys).mean()

    @jax.jit
    def terms(state: Any, store: Replay) -> tuple[dict[str, jax.Array], Any]:
        def add(sums: Any, key: jax.Array) -> Any:
            numbers, gradients = term_numbers(sample(state, store, key, exact), config, exact)
            return jax.tree.map(jnp.add, sums, gradients), numbers

        zero = jnp.zeros_like(ravel_pytree(state.safety)[0])
        sums, numbers = jax.lax.scan(add, (zero, zero), keys)
        return jax.tree.map(jnp.mean, numbers), sums

    def updated(settings: Any) -> float:
        """Return the contrast after further updates of the whole agent, without new data."""

        def update(state: Any, key: jax.Array) -> Any:
            return safety_critic.update(state, replay.sample(store, key, settings), settings)[0], 0

        members = jax.jit(lambda s: jax.lax.scan(update, s, keys)[0].safety)(state)
        return float(mean_contrast(state, store, members))

    state, store = device.agent, device.replay
    now = float(mean_contrast(state, store, state.safety))
    figures = [Figure("contrast", now, "{:+.3g}", "mean Q_C of alternatives minus the data's")]
    if config.conservative is None:
        return figures
    means, sums = terms(state, store)
    mean = {name: float(x) for name, x in means.items()}
    bellman, term = (np.asarray(x, np.float64) for x in sums)
    sizes = np.linalg.norm(bellman), np.linalg.norm(term)
    ratio, cosine = float(sizes[1] / sizes[0]), float(bellman @ term / (sizes[0] * sizes[1]))
    further = f"after {batches} further updates of the agent"
    without = updated(replace(config, conservative_weight=0.0))
    figures = [
        Figure("gradient", mean["gradient"], "{:.1%}", "norm beside the Bellman term's, per batch"),
        Figure("cosine", mean["cosine"], "{:+.2f}", "of the two gradients, per batch"),
        Figure("mean gradient", ratio, "{:.1%}", f"the same, of the means over {batches} batches"),
        Figure("mean cosine", cosine, "{:+.2f}", "-1: the term holds Q_C away from its targets"),
        Figure("change of the step", mean["step"], "{:.1%}", "of Adam's, by this one gradient"),
        *figures,
        Figure(
            "moved by Bellman", mean["moved by Bellman"], "{:+.1e}", "contrast, by a step without"
        ),
        Figure(
            "moved by the term", mean["moved by the term"], "{:+.1e}", "contrast, by what it adds"
        ),
        Figure("contrast later", updated(config), "{:+.3g}", further),
        Figure("contrast later without", without, "{:+.3g}", "the same with a weight of 0"),
    ]
    if "caution" in mean:
        figures += [
            Figure("spread of the caution", mean["spread"], "{:.0%}", "over a batch, of its mean"),
            Figure("due to the caution", mean["caution"], "{:.0%}", "of the gradient, by Eq. 2"),
            Figure("due to u", mean["u"], "{:.0%}", "of the gradient, by u within Eq. 2"),
        ]
    return figures


def length(x: jax.Array) -> jax.Array:
    """Return a norm that one can divide by."""
    return jnp.maximum(jnp.linalg.norm(x), 1e-12)


# ---------------------------------------------------------------- influence


def influence_figures(agent: api.Agent, fresh: Deployed, store: Replay) -> list[Figure]:
    """Compare what could rank decisions by the error of Q_C; `store` has the fresh ones alone."""
    config = agent.config

    @jax.jit
    def td_errors(state: Any, store: Replay) -> tuple[jax.Array, jax.Array]:
        rows = jnp.arange(len(store.cost))
        state, batch, size = own_units(state, replay.batch_of(store, rows, config), config)
        critic_obs = critic_inputs(state, batch.obs, config)
        q = q_cost(state.safety, critic_obs, batch.action, state.cost_bound, config)
        return size * q, size * jnp.abs(batch_targets(state, batch, state.cost_bound, config) - q)

    seen = fresh.usable
    q, td = (np.asarray(x, np.float64)[seen] for x in td_errors(agent.training.device.agent, store))
    error = np.abs(q - fresh.realised[seen])
    ranked = "rank correlation with the error"
    figures = [
        Figure("Q_C", rank_correlation(q, error), "{:+.2f}", ranked),
        Figure("|TD error|", rank_correlation(td, error), "{:+.2f}", ranked),
        Figure("error", float(error.mean()), "{:.3g}", "mean |Q_C - realised discounted cost|"),
        Figure(
            "cost", float(fresh.realised[seen].mean()), "{:.3g}", "mean realised discounted cost"
        ),
    ]
    transitions = fresh.transitions
    u = influence_of(agent.values, transitions.obs, transitions.action, config.batch_size)
    if u is None:
        return figures
    return [Figure("u", rank_correlation(u[seen], error), "{:+.2f}", ranked), *figures]


# ---------------------------------------------------------------- refinement


def refinement_figures(
    agent: api.Agent, fresh: Deployed, store: Replay, batches: int
) -> list[Figure]:
    """Compare the refinement's target with the truth, in batches of fresh decisions.

    Neighbours come from the run's replay with the fresh decisions behind it, as in training, where
    a sample is in the replay itself.
    """
    config, device = agent.config, agent.training.device
    if config.refinement is None:
        return []
    size = int(device.replay.size)
    before = replay.transitions(device.replay, jnp.arange(size))
    every = replay_of(jax.tree.map(lambda *x: jnp.concatenate(x), before, fresh.transitions))
    number = np.concatenate([np.full(size, -1), fresh.number])

    def one(state: Any, store: Replay, every: Replay, key: jax.Array) -> dict[str, jax.Array]:
        key, key_block = jax.random.split(key)
        drawn = replay.sample(store, key, config)
        bits = jax.random.bits(key_block, (), jnp.uint32)
        batch = drawn._replace(
            index=size + drawn.index,
            neighbours=replay.neighbourhood(every, bits, config.neighbour_block),
        )
        state, batch, unit = own_units(state, batch, config)
        critic_obs = critic_inputs(state, batch.obs, config)
        learned, _ = safety_critic.update_safety(state, batch, critic_obs, config)
        given = (batch, critic_obs, learned.rank, unit, config)
        refined = safety_critic.refinement_targets(state, *given)
        safety, metrics = safety_critic.refine(state, state.safety, *given)

        def q(members: Any) -> jax.Array:
            return unit * q_cost(members, critic_obs, batch.action, state.cost_bound, config)

        now, top = q(state.safety), refined.top
        return {
            "rows": drawn.index,
            "top": top,
            "all": now,
            "q": now[top],
            "target": unit * refined.target,
            "own": unit * batch_targets(state, batch, state.cost_bound, config)[top],
            "after": q(safety)[top],
            "clipped": metrics["refine/clipped"],
            "sample": batch.index[top],
            "neighbours": refined.neighbours.rows,
            "valid": refined.neighbours.valid,
        }

    keys = jax.random.split(jax.random.PRNGKey(0), batches)
    run = jax.jit(lambda *given: jax.lax.map(lambda key: one(*given, key), keys))
    out = {name: np.asarray(x) for name, x in run(device.agent, store, every).items()}

    def error(name: str, rows: np.ndarray) -> float:
        seen = fresh.usable[rows]
        return float(np.abs(out[name].astype(np.float64) - fresh.realised[rows])[seen].mean())

    reach = config.refinement.refine_reach
    top = np.take_along_axis(out["rows"], out["top"], axis=1)
    apart = np.abs(out["neighbours"] - out["sample"][..., None])
    same = number[out["neighbours"]] == number[out["sample"]][..., None]
    stretch = float((same & (apart <= reach))[out["valid"]].mean())
    gap = float((out["target"] - out["q"]).mean())
    moved = float(np.abs(out["after"] - out["q"]).mean())
    own = f"of the sample's own {config.safety_n_step}-step target"
    clip = f"share of steps whose gradient is longer than {config.refinement.refine_clip:g}"
    return [
        Figure("error of Q_C", error("q", top), "{:.4g}", "mean |Q_C - realised|, refined samples"),
        Figure("of all samples", error("all", out["rows"]), "{:.4g}", "the same of whole batches"),
        Figure("error of Eq. 8", error("target", top), "{:.4g}", "of the neighbours' target"),
        Figure("error of own target", error("own", top), "{:.4g}", own),
        Figure("error after a step", error("after", top), "{:.4g}", "of Q_C after Eq. 10"),
        Figure("target - Q_C", gap, "{:+.3g}", "mean over the refined samples"),
        Figure("step", moved, "{:.2g}", "mean |change| of Q_C by Eq. 10"),
        Figure("clipped", float(out["clipped"].mean()), "{:.0%}", clip),
        Figure(
            "same stretch",
            stretch,
            "{:.0%}",
            f"neighbours within {reach} decisions in the same episode",
        ),
    ]


# ---------------------------------------------------------------- screen


def screen_figures(
    agent: api.Agent, env: Any, fresh: Deployed, seed: int, amount: float
) -> list[Figure]:
    """Count what the screen did in the fresh episodes, and deploy in the same scenes without."""
    config, state = agent.config, agent.training.device.agent
    if config.screen is None:
        return []
    size = scaling.unit_sizes(state.units, config).cost
    spent = jnp.asarray(fresh.spent, jnp.float32)
    tolerance = safety_critic.screen_tolerance(state, spent, size, config, explore=False)
    tolerance = float(size) * np.asarray(tolerance)
    proposed = Critic(agent).actions(fresh.transitions.obs)
    far = np.abs(fresh.transitions.action - proposed).max(axis=1) > amount
    fired = fresh.column("screened") > 0
    # The action taken is within if any is.
    empty = fired & (fresh.column("q_cost") > (1 + 1e-5) * tolerance)
    number = len(fresh.episodes)
    without = deploy(env, policy_of(agent, seed, screen=False), config.gamma, number, seed)
    figures = [
        Figure("fires", float(fired.mean()), "{:.1%}", "share of decisions"),
        Figure(
            "changes",
            float((fired & far).mean()),
            "{:.1%}",
            f"share of decisions, action changed by more than {amount:g}",
        ),
        Figure(
            "nothing within",
            float(empty.sum() / max(fired.sum(), 1)),
            "{:.0%}",
            "share of its firings, no action within the tolerance",
        ),
    ]
    scores = [
        [episode_row(episode, config.gamma, env) for episode in deployed.episodes]
        for deployed in (fresh, without)
    ]
    for name, form in (("cost", "{:.2f}"), ("success", "{:.0%}"), ("reward", "{:.2f}")):
        on, off = (np.array([row[name] for row in rows]) for rows in scores)
        if np.isnan(on - off).any():
            continue
        saved = bootstrap([off - on], lambda parts: parts[0].mean(axis=1))
        more = form.replace("{:", "{:+")
        about = f"off minus on: {number} paired scenes, 95% interval"
        figures += [
            Figure(name, float(on.mean()), form, "mean of an episode, with the screen"),
            Figure(f"{name} without", saved, more, about),
        ]
    return figures


def policy_of(agent: api.Agent, seed: int, **changes: Any) -> Policy:
    """Return the deployed policy with other settings."""
    training: Any = agent.training
    config = replace(agent.config, **changes)
    compiled = compile_agent(safety_critic, config, training.spec)
    return Policy(compiled.deploy, training.device.agent, training.spec.action_dim, seed)


# ---------------------------------------------------------------- sensitivity


def sensitivity_figures(
    agent: api.Agent, env: Any, fresh: Deployed, seed: int, number: int
) -> list[Figure]:
    """Compare how much Q_C and the true cost depend on the action, in `number` simulated states.

    The measure is the spread over uniform actions (standard deviation, its root mean square over
    states) divided by the spread over all decisions at the actions taken.
    """
    critic, rng = Critic(agent), np.random.default_rng(seed)
    obs, q = fresh.transitions.obs, fresh.column("q_cost")
    usable = np.flatnonzero(fresh.usable)
    if not len(usable):
        return []
    costly = fresh.costly()

    def uniform(states: np.ndarray, actions: int) -> np.ndarray:
        shape = (len(states), actions, fresh.transitions.action.shape[1])
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32)

    def predicted(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return over_actions(critic.q_cost, obs[states], actions)

    def compared(values: np.ndarray, spread: float) -> Interval:
        if spread == 0:
            return Interval(np.nan, np.nan, np.nan)
        variances = values.var(axis=1)
        return bootstrap([variances], lambda parts: np.sqrt(parts[0].mean(axis=1)) / spread)

    spread, true_spread = float(q[usable].std()), float(fresh.realised[usable].std())
    figures = []
    q_seen, true_seen, numbers = [], [], []
    for name, rows in (("all", usable), ("top", costly)):
        visited = rng.choice(rows, VISITED)
        ratio = compared(predicted(visited, uniform(visited, ACTIONS)), spread)
        about = "spread over uniform actions / over visited states"
        if rows is costly:
            about = "the same where Q_C is above its 75% quantile"
        figures.append(Figure(f"{name}: Q_C", ratio.value, "{:.2f}", about))
        if not fresh.states:
            continue
        chosen = rng.choice(rows, min(max(number // 2, 1), len(rows)), replace=False)
        actions = uniform(chosen, HELD)
        policy = agent.policy(seed=seed)
        truth = np.array(
            [
                [held_cost(env, policy, fresh, at, action, agent.config.gamma) for action in some]
                for at, some in zip(chosen, actions, strict=True)
            ]
        )
        q_seen.append(predicted(chosen, actions))
        true_seen.append(truth)
        numbers.append(fresh.number[chosen])
        figures += [
            Figure(
                f"{name}: Q_C, simulated",
                compared(q_seen[-1], spread),
                "{:.2f}",
                f"in {len(chosen)} simulated states, 95% interval",
            ),
            Figure(
                f"{name}: truth",
                compared(truth, true_spread),
                "{:.2f}",
                f"of the true cost: {HELD} actions, held for a decision",
            ),
        ]
    if not q_seen:
        return figures
    both = [np.concatenate(x) for x in (q_seen, true_seen)]
    matters = float((np.ptp(both[1], axis=1) > 0).mean())
    return [
        *figures,
        Figure(
            "agreement",
            agreement(*both, np.concatenate(numbers)),
            "{:+.2f}",
            "correlation of both over the actions of a state, 95% interval over episodes",
        ),
        Figure(
            "action matters", matters, "{:.0%}", "share of simulated states where truth differs"
        ),
    ]


def over_actions(critic: Any, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return what a critic, (obs, action) -> (N,), says of A actions in each of S states."""
    rows = np.repeat(obs, actions.shape[1], axis=0)
    return np.asarray(critic(rows, actions.reshape(len(rows), -1))).reshape(actions.shape[:2])


def agreement(said: np.ndarray, truth: np.ndarray, number: np.ndarray) -> Interval:
    """Return the correlation of both, (S, A), over the actions of a state; `number` of an episode.

    Episodes are drawn, not states: a stuck one may have many of them.
    """
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (said, truth))
    products = np.stack([(x * y).sum(axis=1), (x**2).sum(axis=1), (y**2).sum(axis=1)], axis=1)
    episodes = [products[number == one].sum(axis=0) for one in np.unique(number)]

    def correlation(parts: list[np.ndarray]) -> np.ndarray:
        together, *alone = parts[0].sum(axis=1).T
        size = np.sqrt(alone[0] * alone[1])
        return np.divide(together, size, out=np.zeros(len(size)), where=size > 0)

    return bootstrap([np.array(episodes)], correlation)


def held_cost(
    env: Any, policy: Policy, fresh: Deployed, at: int, action: np.ndarray, gamma: float
) -> float:
    """Return the discounted cost of an action held for decision `at`, then of the policy."""
    env_state.restore(env, *fresh.states[at], seed=0)
    obs, _, terminated, truncated, info = env.step(action)
    costs = [info["cost"]]
    if not (terminated or truncated):
        spent = float(fresh.spent[at]) + costs[0]
        costs += rollout_costs(env, policy, obs, rollout_horizon(gamma) - 1, spent)
    return float(discounted_sums(np.array(costs), gamma)[0])


# ---------------------------------------------------------------- all of them


def measure(
    agent: api.Agent,
    episodes: int = 40,
    batches: int = 200,
    states: int = 48,
    seed: int = SEED,
    amount: float = AMOUNT,
) -> Figures:
    """Return the figures of every mechanism that the agent has."""
    with agent.lent_env("this") as (env, _):
        fresh = deploy(env, agent.policy(seed=seed), agent.config.gamma, episodes, seed)
        store = replay_of(fresh.transitions)
        figures = {
            "conservative": conservative_figures(agent, batches),
            "influence": influence_figures(agent, fresh, store),
            "refinement": refinement_figures(agent, fresh, store, batches),
            "screen": screen_figures(agent, env, fresh, seed, amount),
            "sensitivity": sensitivity_figures(agent, env, fresh, seed, states),
        }
    return {name: lines for name, lines in figures.items() if lines}


def print_figures(figures: Figures) -> None:
    """Print a table of all mechanisms."""
    table = plain_table()
    for name in ("mechanism", "figure", "value", "meaning"):
        table.add_column(name, no_wrap=name != "meaning")
    for mechanism, lines in figures.items():
        for at, line in enumerate(lines):
            last = at == len(lines) - 1
            first = mechanism if at == 0 else ""
            table.add_row(first, line.name, line.text(), line.about, end_section=last)
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a run of sc, csc, usc-nr or usc")
    parser.add_argument("--episodes", type=int, default=40, help="fresh episodes (default 40)")
    parser.add_argument("--batches", type=int, default=200, help="batches (default 200)")
    parser.add_argument("--states", type=int, default=48, help="simulated states (default 48)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"first scene (default {SEED})")
    parser.add_argument(
        "--amount",
        type=float,
        default=AMOUNT,
        help=f"change of an action that counts as one (default {AMOUNT})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(arguments)
    agent = api.Agent.load(options.run)
    if not isinstance(agent.config, SafetyCriticSettings):
        parser.error(
            f"{options.run} holds an agent of {agent.method}, which has no such mechanisms"
        )
    start = time.perf_counter()
    figures = measure(
        agent, options.episodes, options.batches, options.states, options.seed, options.amount
    )
    print(f"{agent!r}\n{options.episodes} fresh episodes from scene {options.seed}")
    print_figures(figures)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.json is not None:
        content = {
            mechanism: {line.name: line.plain() for line in lines}
            for mechanism, lines in figures.items()
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
