"""The table of docs/results/tasks.md: methods x tasks of a study, with limit and seeds within it.

    safecritic study tasks.toml --out runs/tasks
    python benchmarks/tasks_table.py runs/tasks
    python benchmarks/tasks_table.py results/tasks      # the runs behind the page

Success, reward and cost are deployed: means over fresh episodes and then over seeds, with half the
width of the 95% interval over the seeds; of two seeds, both numbers. "of DDPG's" is the reward
beside that of DDPG; "within" counts the seeds whose mean deployed cost is at most the limit, of all
that were finished or that diverged (a second table lists these); cost over training is the mean
over all training episodes, exploration included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from safecritic.evaluation.statistics import interval_of_mean
from safecritic.study import table as tables

HEADER = ("task", "limit", "steps", "method", "success %", "reward", "of DDPG's", "cost", "within")
HEADER += ("cost over training", "AUC", "Q_C / realised", "minutes")
DIVERGED = ("task", "limit", "method", "seed", "diverged")


def interval(values: np.ndarray, digits: int, scale: float = 1.0) -> str:
    """Mean and half the width of its 95% interval over the seeds (Student's t); of two, both."""
    if len(values) == 2 and not np.isnan(values).any():  # an interval of two is many times as wide
        return " / ".join(f"{scale * x:.{digits}f}" for x in values)
    mean, low, high = (scale * x for x in interval_of_mean(values))
    if np.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if np.isnan(low) else f" ± {(high - low) / 2:.{digits}f}")


def rows_of(table: tables.StudyTable) -> list[list[str]]:
    """Return the cells of the table, tasks and methods in the order of the package."""
    rows = []
    for case, (task, *_) in table.case_of.items():
        peers = table.of("ddpg", case)
        best = np.mean([run.row["deployed_reward"] for run in peers]) if peers else np.nan
        for method in table.methods:
            runs = table.of(method, case)
            if not runs and not table.diverged(method, case):
                continue

            def column(name: str, runs: list[tables.Run] = runs) -> np.ndarray:
                return np.array([run.row[name] for run in runs])

            share = column("deployed_reward").mean() / best if runs else np.nan
            kept, number = table.within(method, case)
            steps = (runs or table.diverged(method, case))[0].job.steps
            rows.append(
                [
                    *(task, f"{table.limit(case, method):g}", f"{steps:,}", method),
                    interval(column("deployed_success"), 1, 100.0),
                    interval(column("deployed_reward"), 2),
                    f"{share:.0%}" if method != "ddpg" and np.isfinite(share) else "",
                    interval(column("deployed_cost"), 2),
                    f"{kept} of {number}",
                    interval(column("cost"), 2),
                    interval(column("critic_auc"), 2),
                    interval(column("critic_ratio"), 2),
                    interval(np.array([run.seconds for run in runs]) / 60, 1),
                ]
            )
    return rows


def diverged_rows(table: tables.StudyTable) -> list[list[str]]:
    """Return the runs that diverged, each with what was not finite and when."""
    return [
        [
            *(run.task, f"{run.limit:g}", run.method, str(run.job.seed)),
            run.failure.text if run.failure else "",
        ]
        for case in table.cases
        for method in table.methods
        for run in table.diverged(method, case)
    ]


def show(header: tuple[str, ...], rows: list[list[str]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the study")
    table = tables.read(parser.parse_args().study)
    show(HEADER, rows_of(table))
    if lost := diverged_rows(table):
        print()
        show(DIVERGED, lost)


if __name__ == "__main__":
    main()
