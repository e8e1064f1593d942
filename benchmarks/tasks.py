"""Speed of the tasks: steps per second, and what a step and a reset cost beside bare physics.

    python benchmarks/tasks.py [--tasks CarGoal1 ...] [--blocks 40]

Blocks of environment steps alternate with blocks of bare physics (`mj_step` with the same number
of substeps, on the same model, from the same state, with the same actions), and medians are taken
over the blocks: machines are noisy, so ratios within one run are what counts.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import mujoco
import numpy as np

import safecritic

# Safety Gymnasium 1.0.0 on MuJoCo 2.3.3, and gymnasium-robotics' FetchReach-v2 on the same;
# recorded once on one core of a shared AMD EPYC: steps per second, milliseconds per reset
ORIGINAL = {
    "CarGoal1": (1290, 1090),
    "CarGoal2": (430, 1120),
    "CarButton1": (510, 1270),
    "CarButton2": (390, 1300),
    "FetchReach": (720, None),
    "HalfCheetah": (25500, 0.1),
}
SUBSTEPS = {"FetchReach": 20, "HalfCheetah": 5}
BLOCK = 50


def measure(name: str, blocks: int) -> dict[str, float]:
    """Median seconds of a step, of bare physics and of a reset."""
    env = safecritic.make(name)
    task = env.unwrapped
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    steps, bare, resets = [], [], []
    for _ in range(blocks):
        # one long episode after another: what is measured is the running, not the start
        actions = rng.uniform(-1, 1, (BLOCK, *env.action_space.shape))
        shadow = copy.copy(task.data)
        start = time.process_time()
        for action in actions:
            if shadow.ctrl.size:
                shadow.ctrl[:] = action
            mujoco.mj_step(task.model, shadow, SUBSTEPS.get(name, 10))
        physics = (time.process_time() - start) / BLOCK
        start = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
                break
        else:
            steps.append((time.process_time() - start) / BLOCK)
            bare.append(physics)
    for _ in range(max(5, blocks // 4)):
        start = time.process_time()
        for _ in range(20):
            env.reset()
        resets.append((time.process_time() - start) / 20)
    env.close()
    return {
        "step": statistics.median(steps),
        "ratio": statistics.median(s / b for s, b in zip(steps, bare, strict=True)),
        "reset": statistics.median(resets),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", default=list(safecritic.tasks.TASKS))
    parser.add_argument("--blocks", type=int, default=60)
    options = parser.parse_args()
    print(f"MuJoCo {mujoco.__version__}, random actions, CPU seconds on one core")
    print(
        f"{'task':12} {'steps/s':>8} {'/original':>9} {'step/physics':>12} "
        f"{'reset ms':>9} {'reset/step':>10}"
    )
    results = {}
    for name in options.tasks:
        result = results[name] = measure(name, options.blocks)
        rate = 1 / result["step"]
        print(
            f"{name:12} {rate:8.0f} {rate / ORIGINAL[name][0]:9.1f} {result['ratio']:12.2f} "
            f"{1e3 * result['reset']:9.2f} {result['reset'] / result['step']:10.1f}"
        )
    if {"CarGoal1", "CarGoal2"} <= results.keys():
        ratio = results["CarGoal2"]["step"] / results["CarGoal1"]["step"]
        print(f"a step of CarGoal2 costs {ratio:.2f} of CarGoal1's")


if __name__ == "__main__":
    main()
