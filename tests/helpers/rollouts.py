"""Rollouts of an environment as arrays that tests compare."""

from typing import Any

import numpy as np


def actions_for(env: Any, steps: int, seed: int = 0) -> np.ndarray:
    """Draw random actions in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *env.action_space.shape))


def rollout(env: Any, actions: Any) -> np.ndarray:
    """Return observation, reward, cost and ends of each step, and of each reset after an end."""
    rows = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        rows.append(np.concatenate([obs, [reward, info["cost"], terminated, truncated]]))
        if terminated or truncated:
            obs, _ = env.reset()
            rows.append(np.concatenate([obs, np.zeros(4)]))
    return np.array(rows)
