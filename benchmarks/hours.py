"""How long 2,000 training episodes take, beside the hours that the paper names for its runs.

    python benchmarks/hours.py results/tasks      # the committed runs
    python benchmarks/hours.py runs/tasks --method usc

A run's speed is the median over its log intervals, on one core beside another run; "episodes" is
how many it had. Where they are fewer than 2,000, the others are counted as long as its last 100.
The paper trained on two H100 GPUs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from safecritic.study import table as tables

EPISODES, LAST = 2_000, 100
PAPER = {"CarGoal1": 12, "CarGoal2": 20, "CarButton1": 20, "CarButton2": 20}
PAPER |= {"FetchReach": 1, "HalfCheetah": 12}
HEADER = ("task", "runs", "episodes", "steps of 2,000", "steps/s", "minutes of 2,000")
HEADER += ("the paper's hours", "times sooner")


def steps_of(lengths: np.ndarray) -> float:
    """Return the environment steps of 2,000 episodes of a run."""
    more = max(EPISODES - len(lengths), 0)
    return float(lengths[:EPISODES].sum() + more * lengths[-LAST:].mean())


def rows_of(table: tables.StudyTable, method: str = "usc") -> list[list[str]]:
    """Return the cells of the table, medians over the seeds."""
    rows = []
    for task in table.tasks:
        runs = table.of(method, task)
        if not runs:
            continue
        steps = np.array([steps_of(run.episodes["length"]) for run in runs])
        rate = np.array([run.rate for run in runs])
        minutes = float(np.median(steps / rate)) / 60
        episodes = float(np.median([len(run.episodes["length"]) for run in runs]))
        rows.append(
            [
                *(task, f"{len(runs)}", f"{episodes:,.0f}", f"{np.median(steps):,.0f}"),
                *(f"{np.median(rate):,.0f}", f"{minutes:.1f}", f"{PAPER[task]}"),
                f"{60 * PAPER[task] / minutes:.0f}",
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--method", default="usc")
    chosen = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |")
    print("|---" * len(HEADER) + "|")
    for row in rows_of(tables.read(chosen.study), chosen.method):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
