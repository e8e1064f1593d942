"""Run a trained policy as it is deployed: no exploration noise, screen on."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.evaluation.critic_quality import JudgedSteps, critic_figures, judged_steps
from safecritic.run.episode import Episode, episode_row, over_known
from safecritic.run.folder import finite_or_none, write_json


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
