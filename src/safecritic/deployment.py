"""A trained policy as it is deployed: no exploration noise, screen on; and what its episodes show.

`Episode` keeps one row of numbers per step; training uses it too. `episode_row` turns it into a
line of a table, `critic_figures` asks whether the safety critic means something: does Q_C rank the
steps that lead to cost above the others (AUC), is its mean the realised discounted cost, and does
the influence point at its errors. Everything but `Policy` is plain NumPy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.run_folder import write_json

ACTING = ("q_cost", "screened", "changed")  # of acting: NaN where no safety critic did
STEP_COLUMNS = ("reward", "cost", "success", "hazard_distance", *ACTING)  # what is kept of a step


@dataclass
class Episode:
    """The steps of one episode (rows in the order of STEP_COLUMNS) and how it ended."""

    steps: list[tuple[float, ...]] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    def add(self, reward: float, info: dict[str, Any], acting: tuple[float, ...]) -> None:
        self.steps.append(
            (
                float(reward),
                float(info.get("cost", 0.0)),
                float(info.get("success", np.nan)),
                float(info.get("hazard_distance", np.nan)),
                *acting,
            )
        )

    def column(self, name: str) -> np.ndarray:
        at = STEP_COLUMNS.index(name)
        return np.array([step[at] for step in self.steps], dtype=np.float64)


def episode_row(episode: Episode, gamma: float, env: Any) -> dict[str, float]:
    """One line of the episodes table; a quantity the environment does not report is NaN."""
    cost = episode.column("cost")
    hazard = episode.column("hazard_distance")
    success = over_known(np.max, episode.column("success"))
    return {
        "length": len(episode.steps),
        "reward": episode.column("reward").sum(),
        "cost": cost.sum(),
        "contacts": cost.sum() / float(getattr(env.unwrapped, "cost_unit", 1.0)),
        "discounted_cost": discounted_sums(cost, gamma)[0],
        "success": success if getattr(env.unwrapped, "has_goal", True) else float("nan"),
        "hazard_distance_mean": over_known(np.mean, hazard),
        "hazard_distance_min": over_known(np.min, hazard),
        "q_cost": over_known(np.mean, episode.column("q_cost")),
        "screened": over_known(np.mean, episode.column("screened")),
        "screen_changed": over_known(np.mean, episode.column("changed")),
        "terminated": float(episode.terminated),
    }


def over_known(function: Any, values: np.ndarray) -> float:
    """Of the values that are not NaN; NaN if none is."""
    known = values[~np.isnan(values)]
    return float(function(known)) if known.size else float("nan")


# ---------------------------------------------------------------- does the safety critic mean it?


def discounted_sums(costs: np.ndarray, gamma: float) -> np.ndarray:
    """The realised sum of gamma^k cost[t+k] to the end of the episode, for every step t."""
    sums, ahead = np.empty(len(costs)), 0.0
    for t in range(len(costs) - 1, -1, -1):
        ahead = costs[t] + gamma * ahead
        sums[t] = ahead
    return sums


def cost_within(costs: np.ndarray, horizon: int) -> np.ndarray:
    """Whether any of the steps t .. t + horizon - 1 costs something, for every step t."""
    seen = np.concatenate([[0], np.cumsum(costs > 0)])
    ends = np.minimum(np.arange(len(costs)) + horizon, len(costs))
    return seen[ends] > seen[:-1]


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Chance that a positive outranks a negative, ties counting half; NaN without one of each."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return float("nan")
    excess = ranks(scores)[positive].sum() - n_positive * (n_positive + 1) / 2
    return float(excess / (n_positive * n_negative))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's: the correlation of the ranks; NaN if one of the two is constant."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def horizon_of(gamma: float) -> int:
    return round(1.0 / (1.0 - gamma)) if gamma < 1 else 10**9


def judged(episode: Episode, gamma: float) -> np.ndarray:
    """Which steps have a prediction and an outcome that was seen."""
    known = ~np.isnan(episode.column("q_cost"))
    if not episode.terminated:
        known[max(len(known) - horizon_of(gamma), 0) :] = False
    return known


class JudgedSteps(NamedTuple):
    """The steps of some episodes that have a prediction and an outcome, each array (N,)."""

    q_cost: np.ndarray
    realised: np.ndarray  # discounted cost that followed
    costly: np.ndarray  # whether any of the next 1/(1-gamma) steps cost something
    influence: np.ndarray | None = None

    @property
    def error(self) -> np.ndarray:
        return np.abs(self.q_cost - self.realised)


def judged_steps(
    episodes: Sequence[Episode], gamma: float, influence: Sequence[np.ndarray] | None = None
) -> JudgedSteps:
    """Q_C at the steps taken, and the costs that followed them.

    Steps without a prediction are left out, and the last 1/(1-gamma) steps of an episode cut off
    by a time limit, whose outcome was not seen.
    """
    known = [judged(episode, gamma) for episode in episodes]

    def gathered(columns: Iterable[np.ndarray], kind: type = float) -> np.ndarray:
        parts = [column[k] for column, k in zip(columns, known, strict=True)]
        return np.concatenate([np.zeros(0, kind), *parts])

    costs = [episode.column("cost") for episode in episodes]
    return JudgedSteps(
        gathered(episode.column("q_cost") for episode in episodes),
        gathered(discounted_sums(cost, gamma) for cost in costs),
        gathered((cost_within(cost, horizon_of(gamma)) for cost in costs), bool),
        None if influence is None else gathered(np.asarray(u, np.float64) for u in influence),
    )


def critic_figures(steps: JudgedSteps) -> dict[str, float]:
    """Does Q_C mean the cost? Nothing if no step was judged."""
    q, truth = steps.q_cost, steps.realised
    if not len(q):
        return {}
    figures = {
        "auc": auc(q, steps.costly),
        "q_mean": float(q.mean()),
        "realised_mean": float(truth.mean()),
        "ratio": float(q.mean() / truth.mean()) if truth.mean() > 0 else float("nan"),
        "error_mean": float(steps.error.mean()),
        "steps": float(len(q)),
    }
    if steps.influence is not None:
        figures["influence_error_correlation"] = rank_correlation(steps.influence, steps.error)
    return figures


# ---------------------------------------------------------------- running it


class Policy:
    """obs -> action in [-1, 1]^A, as deployed; `acting`: the last q_cost, screened, changed."""

    def __init__(self, act: Any, state: Any, action_dim: int, seed: int):
        import jax

        self._act = act
        self._state = state._replace(key=jax.random.fold_in(state.key, seed))
        self._action_dim = action_dim
        self.acting: tuple[float, ...] = ()

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        small, packed = self._act(self._state, np.array(obs, np.float32))
        self._state = self._state._replace(**small)
        packed = np.asarray(packed)
        self.acting = tuple(packed[self._action_dim :].tolist())
        return np.array(packed[: self._action_dim])


def run_episode(
    env: Any, policy: Policy, seed: int | None
) -> tuple[Episode, np.ndarray, np.ndarray]:
    """One episode with its observations and actions (for the critic's influence)."""
    episode, observations, actions = Episode(), [], []
    obs, _ = env.reset(seed=seed)
    while not (episode.terminated or episode.truncated):
        action = policy(obs)
        observations.append(np.array(obs, np.float32))
        actions.append(action)
        obs, reward, episode.terminated, episode.truncated, info = env.step(action)
        episode.add(float(reward), info, policy.acting)
    return episode, np.stack(observations), np.stack(actions)


@dataclass
class Evaluation:
    """What `evaluate` found: a row per episode, their means, and the safety critic's figures."""

    episodes: list[dict[str, float]]
    means: dict[str, float]
    critic: dict[str, float]
    seed: int
    traces: list[Episode] = field(repr=False)  # their steps
    steps: JudgedSteps = field(repr=False)  # those the safety critic judged
    observations: np.ndarray = field(repr=False)  # (N, O), adapted, of all steps

    def save(self, path: str | Path) -> None:
        content = {
            "policy": "deployed: no exploration noise, screen on",
            "seed": self.seed,
            "means": self.means,
            "safety_critic": self.critic,
            "episodes": self.episodes,
        }
        write_json(Path(path), finite_or_none(content))  # whole or not at all: a report may look


def finite_or_none(value: Any) -> Any:
    """For JSON, which has no NaN."""
    if isinstance(value, dict):
        return {k: finite_or_none(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite_or_none(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def evaluate(
    env: Any, policy: Policy, values: Any, config: Any, episodes: int, seed: int
) -> Evaluation:
    """Deployment episodes, number i from seed + i; `values(obs, action)` gives the influence."""
    rows, traces, observations, actions = [], [], [], []
    for number in range(episodes):
        episode, seen, done = run_episode(env, policy, seed + number)
        traces.append(episode)
        observations.append(seen)
        actions.append(done)
        rows.append({"episode": number, **episode_row(episode, config.gamma, env)})
    means = {
        key: over_known(np.mean, np.array([row[key] for row in rows], dtype=np.float64))
        for key in rows[0]
        if key != "episode"
    }
    lowest = np.array([row["hazard_distance_min"] for row in rows], dtype=np.float64)
    means["hazard_distance_min"] = over_known(np.min, lowest)
    u = influence_of(
        values, np.concatenate(observations), np.concatenate(actions), config.batch_size
    )
    ends = np.cumsum([len(seen) for seen in observations])[:-1]
    influence = None if u is None else np.split(u, ends)
    steps = judged_steps(traces, config.gamma, influence)
    seen = np.concatenate(observations)
    return Evaluation(rows, means, critic_figures(steps), seed, traces, steps, seen)


def influence_of(
    values: Any, obs: np.ndarray, action: np.ndarray, batch_size: int
) -> np.ndarray | None:
    """Influence of every step, taken in random batches of the size it is taken in training."""
    order = np.random.default_rng(0).permutation(len(obs))
    found = np.empty(len(obs))
    for start in range(0, len(obs), batch_size):
        batch = np.take(order, range(start, start + batch_size), mode="wrap")
        influence = values(obs[batch], action[batch]).get("influence")
        if influence is None:
            return None
        found[batch] = influence
    return found
