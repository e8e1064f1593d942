"""Steps and minutes to a solved task, at the defaults and as it was before them, in one run.

    python benchmarks/solved.py --tasks CarGoal1 CarButton1 --seeds 0 1 2
    python benchmarks/solved.py --study results/tasks     # every method, from runs that are done

Solved is the end of the first 50 training episodes in a row with at least 95% success and a mean
cost within the limit (on HalfCheetah, which has no goal, a mean of 25 m in the place of success);
exploration noise is on. "before" are the settings of the version whose numbers had the scale of
CarGoal1: the task's own units, the printed multiplier from 0.5, lidars sharpened for Q_C alone, a
decision in every step, plain layers, constant noise, and a screen at 3.0 by the least Q_C. Minutes
of a study's runs are those of their steps at their median speed, on one core beside another run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import safecritic
from safecritic import methods
from safecritic.run.callbacks import BaseCallback
from safecritic.study import table as tables
from safecritic.tasks.registry import TASKS

BEFORE: dict[str, Any] = {
    "units": "task",
    "sharpening_for": "critic",
    "action_repeat": 1,
    "layer_norm": "none",
    "noise_half_life": 0.0,
    "multiplier_rule": "printed",
    "multiplier_init": 0.5,
    "multiplier_lr": 1e-3,
    "tolerance": 3.0,
    "training_tolerance": 3.0,
    "quiet_every": 0,
    "multiplier_max": 100.0,
    "tolerance_in": "cost",
    "screen_choice": "cost",
    "screen_from": "ou",
}
STEPS = {"CarGoal1": 60_000, "FetchReach": 40_000}
WINDOW, SUCCESS, DISTANCE = 50, 0.95, 25.0
HEADER = ("task", "method", "solved", "steps (median)", "minutes (median)", "steps of each seed")


def solves(rows: Mapping[str, Sequence[float]], limit: float, has_goal: bool) -> bool:
    """Return whether these episodes, the columns of which are given, solve a task."""
    name, least = ("success", SUCCESS) if has_goal else ("reward", DISTANCE)
    return bool(np.mean(rows[name]) >= least and np.mean(rows["cost"]) <= limit)


class Solved(BaseCallback):
    """Stops a run when its task is solved."""

    def __init__(self, limit: float, has_goal: bool) -> None:
        super().__init__()
        self.limit, self.has_goal = limit, has_goal
        self.rows: list[dict[str, float]] = []
        self.solved = False

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self.rows = [*self.rows[-WINDOW + 1 :], dict(row)]
        if len(self.rows) == WINDOW:
            columns = {name: [row[name] for row in self.rows] for name in self.rows[0]}
            self.solved = solves(columns, self.limit, self.has_goal)

    def _on_step(self) -> bool:
        return not self.solved


def run(method: str, task: str, seed: int, steps: int, settings: dict[str, Any]) -> Any:
    """Train until the task is solved; return steps and minutes, or None if it never was."""
    known = methods.get(method).setting_names()
    settings = {name: x for name, x in settings.items() if name in known}
    kind = getattr(safecritic, methods.get(method).class_name)
    agent = kind(task, seed=seed, **settings)
    watch = Solved(agent.config.cost_limit, TASKS[task].has_goal)
    started = time.perf_counter()
    agent.learn(steps, callback=watch)
    return (agent.num_timesteps, (time.perf_counter() - started) / 60) if watch.solved else None


def solved_in(run: tables.Run) -> tuple[float, float] | None:
    """Return steps and minutes after which a run of a study had solved its task, or None."""
    columns = run.episodes
    for end in range(WINDOW, len(columns["step"]) + 1):
        rows = {name: columns[name][end - WINDOW : end] for name in ("success", "reward", "cost")}
        if solves(rows, run.limit, TASKS[run.task].has_goal):
            steps = float(columns["step"][end - 1])
            return steps, steps / run.rate / 60
    return None


def cells(found: Sequence[Any]) -> tuple[str, ...]:
    """Return how many solved it, the medians, and the steps of each."""
    each = ", ".join("–" if one is None else f"{one[0]:,.0f}" for one in found)
    count = sum(one is not None for one in found)
    return (f"{count} of {len(found)}", text(found, 0, 0), text(found, 1, 1), each)


def rows_of(table: tables.StudyTable) -> list[list[str]]:
    """Return the cells of the table for the runs of a study."""
    return [
        [task, method, *cells([solved_in(run) for run in table.of(method, task)])]
        for task in table.cases
        for method in table.methods
        if table.of(method, task)
    ]


def text(found: Sequence[Any], part: int, digits: int) -> str:
    """The median over the seeds, a run that never solved its task counting as the longest."""
    values = sorted(np.inf if one is None else one[part] for one in found)
    median = float(np.median(values))
    return "–" if np.isinf(median) else f"{median:,.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--method", default="usc")
    parser.add_argument("--no-before", action="store_true", help="the defaults alone")
    parser.add_argument("--study", type=Path, help="a study's folder: its runs, nothing is trained")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n{'|---' * len(HEADER)}|", flush=True)
    if options.study:
        for row in rows_of(tables.read(options.study)):
            print(f"| {' | '.join(row)} |")
        return
    for task in options.tasks:
        for name, settings in {"defaults": {}, "before": BEFORE}.items():
            if name == "before" and options.no_before:
                continue
            steps = STEPS.get(task, 100_000)
            found = [run(options.method, task, seed, steps, settings) for seed in options.seeds]
            row = (task, f"{options.method}, {name}", *cells(found))
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
