"""What can be known of an action's cost: by Q_C, by looking ahead, and by a network that was told.

    safecritic train usc CarButton1
    python benchmarks/actions.py runs/usc-CarButton1-seed0

A limit is kept through what Q_C says of actions. In a state of each fresh episode that has any with
a high Q_C, the environment is put back, each of eight uniform actions is held for a decision and
the policy (without its screen) is followed. What that costs, discounted, is the truth, with which
each row of the table is compared:

    Q_C                       of state and action: what the actor's gradient and the screen go by
    N decisions, then Q_C     the true cost of N decisions and Q_C of where they led
    N decisions               the true cost of these alone
    told, N decisions         a network like Q_C, fitted to the realised costs of N other decisions
                              of this policy, a share of them uniform (--told)
    disturbed                 the truth once more, with noise in all later actions: what is the
                              action's own, and not chance

    rank    mean over states of the rank correlation over the actions, 95% interval over states
    cost    mean true cost of the action that the row says costs least
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from scipy.stats import rankdata

from mechanisms import HELD, SEED, Deployed, deploy, over_actions
from safecritic import api, networks
from safecritic.agents.cost_critic import critic_inputs
from safecritic.agents.safety_critic import SafetyCriticSettings
from safecritic.evaluation.critic import Critic
from safecritic.evaluation.evaluate import Policy, rollout_horizon
from safecritic.evaluation.statistics import Interval, bootstrap
from safecritic.run import env_state
from safecritic.run.episode import discounted_sums
from told import told

AHEAD = (1, 2, 5, 10, 20)  # decisions that are simulated
NOISE = 0.2  # of a disturbed action, of which each number is in [-1, 1]
UNIFORM = 0.15  # share of uniform actions among those that the told network sees
TOLD_SEED = 600_000  # of its first scene
HELD_OUT = 0.1  # share of the episodes that it is judged by
UPDATES = 10_000  # of the told network


class Tried(NamedTuple):
    """What followed on each action; S states, A actions each, at most T decisions."""

    obs: np.ndarray  # (S, O) of the states
    actions: np.ndarray  # (S, A, D)
    costs: np.ndarray  # (S, A, T), 0 after the end
    reached: np.ndarray  # (S, A, T, O) after each decision
    ended: np.ndarray  # (S, A, T) whether the episode had ended by then


def states_of(fresh: Deployed, rng: np.random.Generator) -> np.ndarray:
    """Return a state of each episode in which Q_C is among its highest quarter, (S,).

    One of each: a stuck episode has so many that a few would be most of them.
    """
    high = fresh.costly()
    number = fresh.number[high]
    return np.array([rng.choice(high[number == one]) for one in np.unique(number)])


def follow(
    env: Any,
    policy: Policy,
    fresh: Deployed,
    states: np.ndarray,
    actions: np.ndarray,
    horizon: int,
    noise: float = 0.0,
) -> Tried:
    """Try the actions in the states, with noise in all later ones."""
    shape = (*actions.shape[:2], horizon)
    costs, ended = np.zeros(shape), np.ones(shape, bool)
    reached = np.zeros((*shape, fresh.transitions.obs.shape[1]), np.float32)
    rng = np.random.default_rng(0)
    for at in np.ndindex(shape[:2]):
        state = states[at[0]]
        env_state.restore(env, *fresh.states[state], seed=0)
        policy.reset()
        action, spent = actions[at], float(fresh.spent[state])
        for step in range(horizon):
            obs, _, terminated, truncated, info = env.step(action)
            costs[*at, step] = info["cost"]
            if terminated or truncated:
                break
            reached[*at, step], ended[*at, step] = obs, False
            spent += info["cost"]
            policy.spent = spent
            action = policy(obs)
            if noise:
                action = action + noise * rng.standard_normal(action.shape)
                action = np.clip(action, -1.0, 1.0).astype(np.float32)
    return Tried(fresh.transitions.obs[states], actions, costs, reached, ended)


def ahead(critic: Critic, tried: Tried, decisions: int, gamma: float) -> np.ndarray:
    """Return gamma^n Q_C of where n decisions lead; 0 where the episode ended, (S, A)."""
    obs = tried.reached[:, :, decisions - 1].reshape(-1, tried.obs.shape[1])
    q = critic.q_cost(obs, critic.actions(obs)).reshape(tried.actions.shape[:2])
    return np.where(tried.ended[:, :, decisions - 1], 0.0, gamma**decisions * q)


def rank(said: np.ndarray, truth: np.ndarray) -> Interval:
    """Return the mean rank correlation over the actions of a state, of states where they differ."""
    differ = np.ptp(truth, axis=1) > 0
    x, y = (rankdata(values[differ], axis=1) for values in (said, truth))
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (x, y))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    each = np.divide((x * y).sum(axis=1), size, out=np.zeros(len(size)), where=size > 0)
    return bootstrap([each], lambda parts: parts[0].mean(axis=1))


class Outcomes(NamedTuple):
    """Decisions of a policy and the discounted cost that followed."""

    obs: np.ndarray  # (N, O)
    action: np.ndarray  # (N, D)
    realised: np.ndarray  # (N,)
    episode: np.ndarray  # (N,)


def outcomes(env: Any, policy: Policy, gamma: float, number: int) -> Outcomes:
    """Let the policy decide `number` times or a little more; return those of known outcome."""
    rng, horizon = np.random.default_rng(1), rollout_horizon(gamma)
    rows: list[tuple[np.ndarray, np.ndarray, float, int]] = []
    episode = taken = 0
    while taken < number:
        obs, _ = env.reset(seed=TOLD_SEED + episode)
        policy.reset()
        seen, costs, over = [], [], False
        while not over:
            action = policy(obs)
            if rng.random() < UNIFORM:
                action = rng.uniform(-1.0, 1.0, action.shape).astype(np.float32)
            seen.append((obs, action))
            obs, _, terminated, truncated, info = env.step(action)
            costs.append(info["cost"])
            policy.spent += info["cost"]
            over = terminated or truncated
        # what would have followed on the last decisions before a time limit was not seen
        known = len(seen) if terminated else max(len(seen) - horizon, 0)
        sums = discounted_sums(np.array(costs), gamma)
        rows += [(*seen[at], float(sums[at]), episode) for at in range(known)]
        taken += len(seen)
        episode += 1
    if not rows:
        raise ValueError(f"no episode is longer than {horizon} decisions, or ends by itself")
    columns = zip(*rows, strict=True)
    obs, action, realised, number_of = (np.array(column, np.float32) for column in columns)
    return Outcomes(obs, action, realised, number_of)


def taught(agent: api.Agent, seen: Outcomes, number: int) -> tuple[Any, float]:
    """Return a network like Q_C, told the first of them, and its R2 in other episodes."""
    state, config = agent.training.device.agent, agent.config
    inputs = jax.jit(lambda o, a: networks.join(critic_inputs(state, o, config), a))
    rows = np.asarray(inputs(seen.obs, seen.action))
    held = seen.episode >= np.quantile(seen.episode, 1.0 - HELD_OUT)
    first, truth = np.flatnonzero(~held)[:number], seen.realised[held]

    def r2(values: np.ndarray) -> float:
        return 1.0 - float(np.mean((values - truth) ** 2) / truth.var())

    network = told(
        rows[first],
        seen.realised[first],
        rows[held],
        r2,
        optax.squared_error,
        config.hidden,
        UPDATES,
    )
    return lambda o, a: network.predict(np.asarray(inputs(o, a))), r2(network.held)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run with a safety critic")
    parser.add_argument("--episodes", type=int, default=240, help="fresh ones (default 240)")
    parser.add_argument("--told", type=int, nargs="*", default=[], help="decisions to learn from")
    parser.add_argument("--seed", type=int, default=SEED, help=f"first scene (default {SEED})")
    options = parser.parse_args()
    agent = api.Agent.load(options.run)
    if not isinstance(agent.config, SafetyCriticSettings):
        parser.error(f"{options.run} holds an agent of {agent.method}, which has no safety critic")
    gamma, critic = agent.config.gamma, Critic(agent)
    horizon, rng = rollout_horizon(gamma), np.random.default_rng(options.seed)
    with agent.lent_env("this") as (env, _):
        policy = agent.policy(seed=options.seed, screen=False)
        fresh = deploy(env, policy, gamma, options.episodes, options.seed)
        if not fresh.states:
            parser.error("the environment cannot be put back into a state")
        states = states_of(fresh, rng)
        shape = (len(states), HELD, agent.training.spec.action_dim)
        actions = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        tried = follow(env, policy, fresh, states, actions, horizon)
        again = follow(env, policy, fresh, states, actions, horizon, NOISE)
        number = int(max(options.told, default=0) / (1.0 - 2 * HELD_OUT))
        seen = outcomes(env, policy, gamma, number) if number else None
    weights = gamma ** np.arange(horizon)
    truth = (weights * tried.costs).sum(axis=2)
    proposed = fresh.realised[states].mean()
    print(
        f"{agent!r}\n{len(states)} states of {options.episodes} episodes from scene "
        f"{options.seed}, {HELD} actions each; {(np.ptp(truth, axis=1) > 0).mean():.0%} of the "
        f"states differ by the action\nmean true cost: the policy's own action {proposed:.2f}, "
        f"a uniform one {truth.mean():.2f}, the best {truth.min(axis=1).mean():.2f}"
    )
    print("| row | rank | cost |\n|---|---|---|")

    def row(name: str, said: np.ndarray) -> None:
        found, chosen = rank(said, truth), np.take_along_axis(truth, said.argmin(1)[:, None], 1)
        cells = f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}] | {chosen.mean():.2f}"
        print(f"| {name} | {cells} |", flush=True)

    row("Q_C", over_actions(critic.q_cost, tried.obs, actions))
    for decisions in AHEAD:
        paid = (weights * tried.costs)[:, :, :decisions].sum(axis=2)
        name = f"{decisions} decision{'s' if decisions > 1 else ''}"
        row(f"{name}, then Q_C", paid + ahead(critic, tried, decisions, gamma))
        row(name, paid)
    for number in options.told:
        assert seen is not None
        network, r2 = taught(agent, seen, number)
        row(f"told, {number:,} decisions (R2 {r2:.2f})", over_actions(network, tried.obs, actions))
    row(f"disturbed by {NOISE:g}", (weights * again.costs).sum(axis=2))


if __name__ == "__main__":
    main()
