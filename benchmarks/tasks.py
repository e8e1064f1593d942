"""Measure the speed of the tasks: steps per second, and steps and resets relative to bare physics.

    python benchmarks/tasks.py [--tasks CarGoal1 ...] [--blocks 60] [--action-repeat 4]

Blocks of environment steps alternate with blocks of bare physics (`mj_step` with the same number
of substeps, on the same model, from the same state, with the same actions), and the medians over
the blocks are printed: machines are noisy, so trust the ratios within one run. An action that is
held counts as so many steps.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import time
from typing import Any

import mujoco
import numpy as np

import safecritic

# Steps per second of Safety Gymnasium 1.0.0 and gymnasium-robotics' FetchReach-v2, both on MuJoCo
# 2.3.3, recorded once on one core of a shared AMD EPYC. Its car tasks took 1,090 to 1,300 ms to
# reset.
ORIGINAL = {
    "CarGoal1": 1290,
    "CarGoal2": 430,
    "CarButton1": 510,
    "CarButton2": 390,
    "FetchReach": 720,
    "HalfCheetah": 25500,
}
# Recorded later on another machine, on which CarGoal1 had 1,890.
LATER = {
    "CarPush1": 1530, "CarPush2": 1270, "CarCircle1": 4460, "CarCircle2": 4330, "CarRun0": 5040,
    "PointGoal1": 3170, "PointGoal2": 890, "PointButton1": 1005, "PointButton2": 650,
    "PointPush1": 2330, "PointPush2": 1590, "PointCircle1": 9200, "PointCircle2": 8970,
    "PointRun0": 12800,
}  # fmt: skip
SAME = {name: rate for name, rate in ORIGINAL.items() if name.startswith("Car")}
SAME |= {name: rate * 1290 / 1890 for name, rate in LATER.items()}
ORIGINAL |= {f"Safety{name}-v0": rate for name, rate in SAME.items()}
BLOCK = 50


class Timing:
    """The times of one task; its blocks alternate with those of the other tasks."""

    def __init__(self, name: str, action_repeat: int) -> None:
        self.name, self.action_repeat = name, action_repeat
        self.env = safecritic.make(name, action_repeat=action_repeat)
        self.env.reset(seed=0)
        self.rng = np.random.default_rng(0)
        self.steps: list[float] = []
        self.bare: list[float] = []
        self.resets: list[float] = []

    def block(self) -> None:
        """Time bare physics, then as many steps, both from the current state."""
        task: Any = self.env.unwrapped
        substeps = {"FetchReach": 20}.get(self.name, 10)
        if hasattr(task, "robot") and hasattr(task.robot, "substeps"):
            substeps = task.robot.substeps
        substeps *= self.action_repeat
        actions = self.rng.uniform(-1, 1, (BLOCK, *self.env.action_space.shape))
        actions *= self.env.action_space.high
        shadow = copy.copy(task.data)
        start = time.process_time()
        for action in actions:
            if shadow.ctrl.size:
                shadow.ctrl[:] = action
            mujoco.mj_step(task.model, shadow, substeps)
        physics = (time.process_time() - start) / (BLOCK * self.action_repeat)
        start = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:
                pause = time.process_time()
                self.env.reset()
                start += time.process_time() - pause
        self.steps.append((time.process_time() - start) / (BLOCK * self.action_repeat))
        self.bare.append(physics)

    def reset(self, times: int = 10) -> None:
        """Time resets."""
        start = time.process_time()
        for _ in range(times):
            self.env.reset()
        self.resets.append((time.process_time() - start) / times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", default=list(safecritic.tasks.TASKS))
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--action-repeat", type=int, default=1)
    options = parser.parse_args()
    timings = [Timing(name, options.action_repeat) for name in options.tasks]
    for _ in range(max(2, options.blocks // 15)):
        for timing in timings:
            timing.reset()
        for _ in range(15):
            for timing in timings:
                timing.block()

    print(f"MuJoCo {mujoco.__version__}, random actions, CPU seconds on one core, medians")
    print(
        f"{'task':28} {'steps/s':>8} {'/original':>9} {'step/physics':>12} "
        f"{'reset ms':>9} {'reset/step':>10}"
    )
    step = {}
    for timing in timings:
        step[timing.name] = statistics.median(timing.steps)
        ratio = statistics.median(s / b for s, b in zip(timing.steps, timing.bare, strict=True))
        rate, reset = 1 / step[timing.name], statistics.median(timing.resets)
        original = rate / ORIGINAL.get(timing.name, math.nan)
        print(
            f"{timing.name:28} {rate:8.0f} {original:9.1f} {ratio:12.2f} "
            f"{1e3 * reset:9.2f} {reset / step[timing.name]:10.1f}"
        )
    if {"CarGoal1", "CarGoal2"} <= step.keys():
        print(f"a step of CarGoal2 costs {step['CarGoal2'] / step['CarGoal1']:.2f} of CarGoal1's")


if __name__ == "__main__":
    main()
