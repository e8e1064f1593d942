"""Small environments with a known answer, for the loop, the command line and the Python classes."""

import math
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Point(gymnasium.Env):
    """A point on a line runs from 0 to the goal at 1; the stretch from 0.4 to 0.6 costs 0.5 a step.

    The observation is the position and a distractor; an episode ends at the goal or after 50 steps.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    cost_unit = 0.5
    cost_max = 0.5

    def __init__(self, bad_step: int | None = None) -> None:
        self.bad_step = bad_step  # the step whose reward is NaN, counted over all episodes
        self.total = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-0.2, 0.2)), 0
        return self._obs(), {}

    def _obs(self) -> np.ndarray:
        return np.array([self.x, self.np_random.normal()], np.float32)

    def step(self, action: np.ndarray) -> Any:
        before = self.x
        self.x = max(self.x + 0.1 * float(np.clip(action[0], -1.0, 1.0)), -1.0)
        self.steps += 1
        self.total += 1
        reached = self.x >= 1.0
        reward = self.x - before + float(reached)
        if self.total == self.bad_step:
            reward = float("nan")
        inside = 0.4 <= self.x <= 0.6
        info = {
            "cost": 0.5 * inside,
            "success": reached,
            "hazard_distance": abs(self.x - 0.5),
        }
        return self._obs(), reward, reached, self.steps >= 50, info


class KeptPoint(Point):
    """The same with its state in a checkpoint, as the tasks of the package have it."""

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        state = self.np_random.bit_generator.state["state"]
        words = [state["state"] >> 64, state["state"] % 2**64]
        words += [state["inc"] >> 64, state["inc"] % 2**64]
        return {
            "name": np.array("point"),
            "x": np.array(self.x),
            "steps": np.array([self.steps, self.total]),
            "rng": np.array(words, np.uint64),
        }

    def set_checkpoint(self, kept: dict[str, np.ndarray]) -> None:
        assert str(kept["name"]) == "point"
        self.x = float(kept["x"])
        self.steps, self.total = kept["steps"].tolist()
        high, low, inc_high, inc_low = (int(word) for word in kept["rng"])
        bits: Any = np.random.PCG64()
        state = bits.state
        state["state"] = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
        bits.state = state
        self.np_random = np.random.Generator(bits)


class Wide(gymnasium.Env):
    """Observations in a dict, actions in a box of its own; the middle action costs nothing."""

    observation_space = gymnasium.spaces.Dict(
        {"a": Box(-1.0, 1.0, (2,), np.float32), "b": Box(-1.0, 1.0, (1,), np.float32)}
    )
    action_space = Box(np.array([0.0, -4.0]), np.array([2.0, 4.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        cost = float(abs(action[1]))
        return self.observation_space.sample(), 0.0, False, self.steps >= 10, {"cost": cost}


class Road(gymnasium.Env):
    """Ten steps on a road of changing grip: speed v in [0, 1] earns v and costs g v^2.

    The action a gives v = (a + 1) / 2; g is drawn uniformly from [0.5, 1.5] each step and observed.
    Without a limit v = 1 is best: reward 10, cost 10. With a limit of L per episode the best policy
    is v = 1 / (2 lam g), where E[g v^2] = ln(3) / (4 lam^2) = L / 10; for L = 2.5 that is
    lam = sqrt(ln 3) = 1.048 and a reward of 10 ln(3) / (2 lam) = 5.24, with no v above 1.
    """

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    cost_max = 1.5
    LIMIT = 2.5
    MULTIPLIER = math.sqrt(math.log(3.0))
    BEST = 5.0 * math.sqrt(math.log(3.0))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def _look(self) -> np.ndarray:
        self.grip = self.np_random.uniform(0.5, 1.5)
        return np.array([2.0 * (self.grip - 1.0)], np.float32)

    def step(self, action: np.ndarray) -> Any:
        speed = (float(np.clip(action[0], -1.0, 1.0)) + 1.0) / 2.0
        cost = self.grip * speed**2
        self.steps += 1
        return self._look(), speed, self.steps >= 10, False, {"cost": cost, "success": True}


# reachable as "probes:Point-v0" from any process that has this folder on its path
for name in ("Point", "KeptPoint", "Road"):
    gymnasium.register(f"{name}-v0", f"probes:{name}")

gymnasium.register("BadPoint-v0", "probes:Point", kwargs={"bad_step": 150})

# compiled steps are shared by all tests and the processes they start
os.environ.setdefault("SAFECRITIC_CACHE", str(Path(tempfile.gettempdir()) / "safecritic-tests"))

SMALL: dict[str, Any] = {
    "hidden": (16, 16),
    "batch_size": 16,
    "buffer_size": 400,
    "learning_starts": 60,
}


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk of that size in an empty folder; skips the test where none may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        allowed = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        import pytest

        pytest.skip("may not mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
