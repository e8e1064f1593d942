"""Environments as users write them: a cost under another name, an image, no end, no cost."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Hall(gymnasium.Env):
    """A point between two walls: reward x, `damage` 1 beyond 0.8, two lidars; 20 steps."""

    observation_space = Dict(
        {"lidar": Box(0.0, 1.0, (2,), np.float32), "speed": Box(-2.0, 2.0, (1,), np.float32)}
    )
    action_space = Box(-2.0, 2.0, (1,), np.float32)
    least_damage = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._obs(0.0), {}

    def _obs(self, speed: float) -> dict[str, np.ndarray]:
        near = np.clip([1.0 + self.x, 1.0 - self.x], 0.0, 1.0)
        return {"lidar": near.astype(np.float32), "speed": np.array([speed], np.float32)}

    def step(self, action: np.ndarray) -> Any:
        self.x = float(np.clip(self.x + 0.1 * action[0], -1.0, 1.0))
        self.steps += 1
        info = {"damage": self.least_damage + float(abs(self.x) > 0.8), "note": "text"}
        return self._obs(float(action[0])), self.x, False, self.steps >= 20, info


class Harmful(Hall):
    """Every step costs at least 1: no policy keeps a limit below 20."""

    least_damage = 1.0


class Endless(Hall):
    """Never ends an episode."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *_, info = super().step(action)
        return obs, reward, False, False, info


class Harmless(Hall):
    """Reports a cost that is always 0."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *ends, _ = super().step(action)
        return obs, reward, *ends, {"cost": 0.0}


class Brittle(Hall):
    """Ends by itself after five steps; `goal` says whether that is success, None says nothing."""

    def __init__(self, goal: bool | None = None) -> None:
        self.goal = goal

    def step(self, action: np.ndarray) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        ended = self.steps == 5
        if self.goal is not None:
            info["success"] = ended and self.goal
        return obs, reward, ended, truncated, info


class Camera(Hall):
    """Observes an image."""

    observation_space = Box(0, 255, (8, 8, 3), np.uint8)

    def _obs(self, speed: float) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


class Sixfold(Hall):
    """Returns six values, the cost third, and leaves its end to a time limit."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *_, info = super().step(action)
        return obs, reward, info.pop("damage"), False, False, info


class Sparing(Hall):
    """Reports `damage` only where there is some."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, *ends, info = super().step(action)
        return obs, reward, *ends, {key: x for key, x in info.items() if x}


class Levers(Hall):
    """Takes one of three actions."""

    action_space = Discrete(3)


for name in ("Hall", "Harmful", "Endless", "Harmless", "Camera", "Sparing", "Levers"):
    gymnasium.register(f"{name}-v0", f"own_envs:{name}")
gymnasium.register("Sixfold-v0", "own_envs:Sixfold", max_episode_steps=20)
