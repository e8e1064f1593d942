"""What each mechanism of a trained safety critic does: influence and refinement, in figures.

    safecritic train usc CarGoal1
    python benchmarks/mechanisms.py runs/usc-CarGoal1-seed0

RUN is the folder of a run or of `agent.save`, of SC, CSC, USC (NR) or USC. The policy is deployed
in fresh episodes, and what the method computes there is compared with the discounted cost that
followed (gamma per decision, as Q_C has it). All values are in the task's unit of cost.

    influence    does u rank decisions by the error of Q_C? Beside it, Q_C and the |TD error|
    refinement   is the neighbours' target (Eq. 8) closer to the truth than Q_C, where u is highest?
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from safecritic import api, replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.cost_critic import batch_targets, critic_inputs, q_cost
from safecritic.cli.printing import plain_table
from safecritic.evaluation.critic_quality import rank_correlation, usable_steps
from safecritic.evaluation.evaluate import Policy, influence_of, run_episode
from safecritic.replay import Batch, Replay, Transition
from safecritic.run.episode import Episode, discounted_sums

SEED = 30_000  # of the first scene: far from those of training, evaluation and cost maps


class Figure(NamedTuple):
    """A line of the table."""

    name: str
    value: float
    form: str  # how the value is printed
    about: str


Figures = dict[str, list[Figure]]  # by mechanism


class Recorder(gymnasium.Wrapper):
    """An environment that keeps the observation after every step."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.after: list[np.ndarray] = []

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.after.append(np.array(result[0], np.float32))
        return result


class Deployed(NamedTuple):
    """Episodes of the deployed policy; N is the number of all their decisions."""

    episodes: list[Episode]
    rows: Transition  # (N, ...)
    realised: np.ndarray  # (N,) discounted cost that followed
    usable: np.ndarray  # (N,) whether all of it was seen
    number: np.ndarray  # (N,) of the episode


def deploy(env: Any, policy: Policy, gamma: float, episodes: int, seed: int) -> Deployed:
    """Run episodes, number i from seed + i."""
    recorder = Recorder(env)
    runs = [run_episode(recorder, policy, seed + number) for number in range(episodes)]
    traces = [trace for trace, _, _ in runs]

    def last(mark: str) -> np.ndarray:
        ends = [np.arange(len(t.steps)) == len(t.steps) - 1 for t in traces]
        marks = [end & getattr(t, mark) for end, t in zip(ends, traces, strict=True)]
        return np.concatenate(marks)

    def column(name: str) -> np.ndarray:
        return np.concatenate([trace.column(name) for trace in traces])

    rows = Transition(
        obs=np.concatenate([obs for _, obs, _ in runs]),
        action=np.concatenate([action for _, _, action in runs]),
        reward=column("reward").astype(np.float32),
        cost=column("cost").astype(np.float32),
        next_obs=np.stack(recorder.after),
        terminated=last("terminated"),
        truncated=last("truncated"),
    )
    return Deployed(
        traces,
        rows,
        np.concatenate([discounted_sums(t.column("cost"), gamma) for t in traces]),
        np.concatenate([usable_steps(t, gamma) for t in traces]),
        np.repeat(np.arange(episodes), [len(t.steps) for t in traces]),
    )


@jax.jit
def insert_all(store: Replay, rows: Transition) -> Replay:
    """Return a replay with more rows."""
    return jax.lax.scan(lambda ring, row: (replay.insert(ring, row), None), store, rows)[0]


def own_units(state: Any, batch: Batch, config: Any) -> tuple[Any, Batch, jax.Array]:
    """Return agent and batch in the agent's units, as `update` has them, and the unit of cost."""
    sizes = scaling.unit_sizes(state.units, config)
    state = state._replace(cost_bound=state.cost_bound / sizes.cost)
    return state, scaling.in_units(batch, sizes), sizes.cost


# ---------------------------------------------------------------- influence


def influence_figures(agent: api.Agent, fresh: Deployed, store: Replay) -> list[Figure]:
    """Compare what could rank decisions by the error of Q_C; `store` has the fresh ones alone."""
    config, state = agent.config, agent.training.device.agent

    @jax.jit
    def td_errors(state: Any, store: Replay) -> tuple[jax.Array, jax.Array]:
        rows = jnp.arange(len(store.cost))
        state, batch, size = own_units(state, replay.batch_of(store, rows, config), config)
        critic_obs = critic_inputs(state, batch.obs, config)
        q = q_cost(state.safety, critic_obs, batch.action, state.cost_bound, config)
        return size * q, size * jnp.abs(batch_targets(state, batch, state.cost_bound, config) - q)

    q, td = (np.asarray(x, np.float64)[fresh.usable] for x in td_errors(state, store))
    error = np.abs(q - fresh.realised[fresh.usable])
    influence = influence_of(agent.values, fresh.rows.obs, fresh.rows.action, config.batch_size)
    ranked = "rank correlation with |Q_C - realised discounted cost|"
    figures = [
        Figure("mean error of Q_C", float(error.mean()), "{:.3g}", "|Q_C - realised|, mean"),
        Figure("Q_C and error", rank_correlation(q, error), "{:.2f}", f"{ranked}, of Q_C"),
        Figure("|TD error| and error", rank_correlation(td, error), "{:.2f}", f"{ranked}, of TD"),
    ]
    if influence is None:
        return figures
    u = influence[fresh.usable]
    return [
        Figure("u and error", rank_correlation(u, error), "{:.2f}", f"{ranked}, of u"),
        *figures,
    ]


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
    capacity = len(device.replay.cost)
    first = device.replay.cursor
    every = insert_all(device.replay, fresh.rows)
    number = np.full(capacity, -1)
    number[(int(first) + np.arange(len(fresh.number))) % capacity] = fresh.number

    def refine(state: Any, store: Replay, every: Replay, key: jax.Array) -> dict[str, jax.Array]:
        key, key_block = jax.random.split(key)
        drawn = replay.sample(store, key, config)
        bits = jax.random.bits(key_block, (), jnp.uint32)
        batch = drawn._replace(
            index=(first + drawn.index) % capacity,
            neighbours=replay.neighbourhood(every, bits, config.neighbour_block),
        )
        state, batch, size = own_units(state, batch, config)
        critic_obs = critic_inputs(state, batch.obs, config)
        learned, _ = safety_critic.update_safety(state, batch, critic_obs, config)
        ours = (batch, critic_obs, learned.rank, size, config)
        refined = safety_critic.refinement_targets(state, *ours)
        safety, _ = safety_critic.refine(state, state.safety, *ours)

        def q(members: Any) -> jax.Array:
            return q_cost(members, critic_obs, batch.action, state.cost_bound, config)

        before, top = q(state.safety), refined.top
        return {
            "rows": drawn.index,
            "top": top,
            "all": size * before,
            "q": size * before[top],
            "target": size * refined.target,
            "own": size * batch_targets(state, batch, state.cost_bound, config)[top],
            "after": size * q(safety)[top],
            "sample": batch.index[top],
            "neighbours": refined.neighbours.rows,
            "valid": refined.neighbours.valid,
        }

    keys = jax.random.split(jax.random.PRNGKey(0), batches)
    run = jax.jit(lambda *given: jax.lax.map(lambda key: refine(*given, key), keys))
    out = {name: np.asarray(x) for name, x in run(device.agent, store, every).items()}

    def errors(name: str, rows: np.ndarray) -> float:
        seen = fresh.usable[rows]
        return float(np.abs(out[name].astype(np.float64) - fresh.realised[rows])[seen].mean())

    top = np.take_along_axis(out["rows"], out["top"], axis=1)
    apart = np.abs(out["neighbours"] - out["sample"][..., None])
    same = number[out["neighbours"]] == number[out["sample"]][..., None]
    stretch = (same & (apart <= config.refinement.refine_reach))[out["valid"]].mean()
    moved, gap = out["after"] - out["q"], out["target"] - out["q"]
    truth = "mean |x - realised| of the refined samples"
    n_step = f"of the sample's own {config.safety_n_step}-step target"
    return [
        Figure("Q_C, all samples", errors("all", out["rows"]), "{:.3g}", "the same of all samples"),
        Figure("Q_C", errors("q", top), "{:.3g}", f"{truth}, of Q_C"),
        Figure("target of Eq. 8", errors("target", top), "{:.3g}", f"{truth}, of the neighbours'"),
        Figure("own target", errors("own", top), "{:.3g}", f"{truth}, {n_step}"),
        Figure("Q_C after a step", errors("after", top), "{:.5g}", f"{truth}, after Eq. 10"),
        Figure("target - Q_C", float(gap.mean()), "{:+.3g}", "mean over the refined samples"),
        Figure("step", float(np.abs(moved).mean()), "{:.2g}", "mean |change| of Q_C by Eq. 10"),
        Figure(
            "neighbours from the same stretch",
            float(stretch),
            "{:.0%}",
            f"within {config.refinement.refine_reach} decisions of the same episode",
        ),
    ]


# ---------------------------------------------------------------- all of them


def measure(agent: api.Agent, episodes: int, batches: int, seed: int) -> Figures:
    """Return the figures of every mechanism that the agent has."""
    with agent.lent_env("this") as (env, _):
        fresh = deploy(env, agent.policy(seed=seed), agent.config.gamma, episodes, seed)
    spec = agent.training.spec
    store = insert_all(replay.init(len(fresh.number), spec.obs_dim, spec.action_dim), fresh.rows)
    figures = {
        "influence": influence_figures(agent, fresh, store),
        "refinement": refinement_figures(agent, fresh, store, batches),
    }
    return {name: lines for name, lines in figures.items() if lines}


def print_figures(figures: Figures) -> None:
    from rich.console import Console

    for name, lines in figures.items():
        table = plain_table(title=name, title_justify="left", show_header=False)
        for line in lines:
            table.add_row(line.name, line.form.format(line.value), line.about)
        Console(width=110).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a run of sc, csc, usc-nr or usc")
    parser.add_argument("--episodes", type=int, default=40, help="fresh episodes (default 40)")
    parser.add_argument("--batches", type=int, default=200, help="batches (default 200)")
    parser.add_argument("--seed", type=int, default=SEED, help="scene of the first episode")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(arguments)
    agent = api.Agent.load(options.run)
    figures = measure(agent, options.episodes, options.batches, options.seed)
    print_figures(figures)
    if options.json is not None:
        content = {
            name: {line.name: line.value for line in lines} for name, lines in figures.items()
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
