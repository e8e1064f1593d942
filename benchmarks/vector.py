"""Measure many environments at once: threads against one thread and against processes.

    python benchmarks/vector.py [SafetyAntVelocity-v1 ...] [--envs 8] [--blocks 12]

Blocks of the three alternate. Printed are steps per second of the median block, their ratio to
one thread, and the CPU time of a step, in which processes show what their messages cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import safecritic
from safecritic.tasks import make

DEFAULT = ("CarGoal2", "SafetySwimmerVelocity-v1", "SafetyAntVelocity-v1")
STEPS = 50  # of a block


def cpu(envs: Any) -> float:
    """Return the CPU seconds used so far by this process and those of the environments."""
    ticks = 0
    for pid in [os.getpid(), *(process.pid for process in getattr(envs, "processes", ()))]:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=DEFAULT)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=12)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{options.envs} environments, {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'task':28} {'by':12} {'steps/s':>8} {'/one thread':>11} {'CPU us/step':>11}")
    for name in options.tasks:
        fns = [partial(make, name)] * options.envs
        vectors: dict[str, Any] = {
            "one thread": SyncVectorEnv(fns),
            "threads": safecritic.make_vec(name, options.envs),
            "processes": AsyncVectorEnv(fns, context="spawn"),
        }
        space = vectors["threads"].action_space
        space.seed(0)
        actions = [space.sample() for _ in range(STEPS)]
        rates: dict[str, list[float]] = {by: [] for by in vectors}
        used = dict.fromkeys(vectors, 0.0)
        for envs in vectors.values():
            envs.reset(seed=0)
        for block in range(options.blocks + 1):
            for by, envs in vectors.items():
                before, start = cpu(envs), time.perf_counter()
                for action in actions:
                    envs.step(action)
                if block:  # the first one warms up
                    rates[by].append(STEPS * options.envs / (time.perf_counter() - start))
                    used[by] += cpu(envs) - before
        for by, envs in vectors.items():
            ratio = statistics.median(np.divide(rates[by], rates["one thread"]))
            each = 1e6 * used[by] / (options.blocks * STEPS * options.envs)
            rate = statistics.median(rates[by])
            print(f"{name:28} {by:12} {rate:8.0f} {ratio:11.2f} {each:11.0f}", flush=True)
            envs.close()


if __name__ == "__main__":
    main()
