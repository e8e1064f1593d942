"""Run a trained policy as it is deployed: no exploration noise, screen on."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.evaluation.critic_quality import CriticSteps, critic_quality, critic_steps
from safecritic.run.episode import Episode, episode_row, over_known
from safecritic.run.folder import finite_or_none, write_json


class Policy:
    """A deployed policy, obs -> action in [-1, 1]^A.

    `acting` holds q_cost, screened and changed of the last action.
    """

    def __init__(self, act: Any, state: Any, action_dim: int, seed: int):
        import jax

        self._act = act
        self._state = state._replace(key=jax.random.fold_in(state.key, seed))
        self._action_dim = action_dim
        self.acting: tuple[float, ...] = ()

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        carry, packed = self._act(self._state, np.array(obs, np.float32))
        self._state = self._state._replace(**carry)
        packed = np.asarray(packed)
        self.acting = tuple(packed[self._action_dim :].tolist())
        return np.array(packed[: self._action_dim])


def run_episode(
    env: Any, policy: Policy, seed: int | None
) -> tuple[Episode, np.ndarray, np.ndarray]:
    """Run one episode; return its record, observations (N, O) and actions (N, A)."""
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
    """Deployment episodes: a row for each, their means, and the quality of the safety critic."""

    episodes: list[dict[str, float]]
    means: dict[str, float]
    critic: dict[str, float]  # empty for a method without a safety critic
    seed: int
    traces: list[Episode] = field(repr=False)  # the steps of each episode
    steps: CriticSteps = field(repr=False)  # those on which Q_C can be compared with the outcome
    observations: np.ndarray = field(repr=False)  # (N, O), adapted, of all steps

    def save(self, path: str | Path) -> None:
        """Write everything but the steps as JSON."""
        content = {
            "policy": "deployed: no exploration noise, screen on",
            "seed": self.seed,
            "means": self.means,
            "safety_critic": self.critic,
            "episodes": self.episodes,
        }
        write_json(Path(path), finite_or_none(content))  # whole or not at all: a report may look


def evaluate(
    env: Any, policy: Policy, values: Any, config: Any, episodes: int, seed: int
) -> Evaluation:
    """Run deployment episodes, number i from seed + i, and compare Q_C with what followed.

    `values(obs, action)` gives the influence of a batch where the method has one.
    """
    runs = [run_episode(env, policy, seed + number) for number in range(episodes)]
    traces, observations, actions = (list(parts) for parts in zip(*runs, strict=True))
    obs, action = np.concatenate(observations), np.concatenate(actions)
    rows = [
        {"episode": number, **episode_row(trace, config.gamma, env)}
        for number, trace in enumerate(traces)
    ]
    influence = influence_of(values, obs, action, config.batch_size)
    steps = critic_steps(traces, config.gamma, influence)
    return Evaluation(rows, mean_row(rows), critic_quality(steps), seed, traces, steps, obs)


def mean_row(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the means over episodes, where known; of the nearest hazard the minimum."""
    columns = {
        name: np.array([row[name] for row in rows], np.float64)
        for name in rows[0]
        if name != "episode"
    }
    means = {name: over_known(np.mean, column) for name, column in columns.items()}
    nearest = "hazard_distance_min"
    return means | {nearest: over_known(np.min, columns[nearest])}


def influence_of(
    values: Any, obs: np.ndarray, action: np.ndarray, batch_size: int
) -> np.ndarray | None:
    """Return the influence of every step, or None if the method has none.

    It is taken in random batches of the size it is taken in during training.
    """
    order = np.random.default_rng(0).permutation(len(obs))
    influence = np.empty(len(obs))
    for start in range(0, len(obs), batch_size):
        batch = np.take(order, range(start, start + batch_size), mode="wrap")
        batch_influence = values(obs[batch], action[batch]).get("influence")
        if batch_influence is None:
            return None
        influence[batch] = batch_influence
    return influence
