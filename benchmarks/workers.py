"""Runs per hour of a study with two workers against one, on two cores.

    python benchmarks/workers.py

The same short study (four runs of DDPG on CarGoal1) with one worker and with two, in turn, so that
a change of the machine's mood meets both. Prints the seconds and the ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from safecritic.study import driver as study_driver
from safecritic.study import grid as study


def seconds(jobs: list[study.Job], workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = study_driver.run(Path(folder), jobs, "benchmark", workers)
        if any(run.state != "done" for run in found):
            raise RuntimeError([run.error for run in found])
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="ddpg")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    content = {"methods": [options.method], "tasks": ["CarGoal1"], "seeds": [0, 1, 2, 3]}
    content |= {"steps": options.steps, "deployment_episodes": 1}
    jobs = study.jobs_of(content)
    seconds(jobs[:1], 1)  # compiled steps are kept from here on
    ratios = []
    for number in range(options.repeats):
        alone, both = seconds(jobs, 1), seconds(jobs, 2)
        ratios.append(alone / both)
        print(f"{number}: one worker {alone:.1f} s, two {both:.1f} s, ratio {ratios[-1]:.2f}")
    print(f"runs per hour with two workers against one: {sorted(ratios)[len(ratios) // 2]:.2f}")


if __name__ == "__main__":
    main()
