"""What a lower limit does to training: before the task is learned, and after.

    python benchmarks/phases.py results/critics

A task is learned at the end of the first 50 training episodes in a row with at least 95% success; a
run that never learned it has been learning to its end. The first table has means over runs with
half the width of their 95% intervals. The second is of a study with several limits, its methods one
by one and together: runs at a task's lowest limit minus runs at its highest, with 95% intervals
(Welch's t), in bold where that leaves out 0, and in brackets the mean at the highest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from parts import difference
from solved import SUCCESS, WINDOW
from tasks_table import interval

from safecritic.study import table as tables
from safecritic.tasks.registry import TASKS

COLUMNS = {  # digits of each
    "steps until learned": 0,
    "cost per episode before": 1,
    "cost per episode after": 1,
    "steps per episode after": 0,
    "cost per 1,000 steps after": 1,
}
MEANS = ("task", "limit", "method", "runs", *COLUMNS)
HEADER = ("task", "method", "limits", "runs", *COLUMNS)


def learned(success: np.ndarray) -> int:
    """Return the number of episodes until the task was learned; all of them if it never was."""
    mean = np.convolve(success, np.full(WINDOW, 1.0 / WINDOW), "valid")
    good = np.flatnonzero(mean >= SUCCESS - 1e-9)
    return int(good[0]) + WINDOW if len(success) >= WINDOW and len(good) else len(success)


def phases(run: tables.Run) -> list[float]:
    """Return the columns of a run; NaN of what it has not got."""
    step, success, cost = (
        np.asarray(run.episodes[name], float) for name in ("step", "success", "cost")
    )
    end = learned(success)
    steps, paid, number = step[-1] - step[end - 1], cost[end:].sum(), len(cost) - end
    after = [paid / number, steps / number, 1e3 * paid / steps] if number else [np.nan] * 3
    return [step[end - 1], cost[:end].mean(), *after]


def means_of(table: tables.StudyTable) -> list[list[str]]:
    """Return the cells of the first table, of the tasks that have a goal."""
    rows = []
    for case, (task, *_) in table.case_of.items():
        for method in table.methods if TASKS[task].has_goal else ():
            runs = table.of(method, case)
            if runs:
                columns = np.array([phases(run) for run in runs]).T
                digits = COLUMNS.values()
                cells = [interval(*pair) for pair in zip(columns, digits, strict=True)]
                rows.append([task, f"{runs[0].limit:g}", method, str(len(runs)), *cells])
    return rows


def rows_of(table: tables.StudyTable) -> list[list[str]]:
    """Return the cells of the second table; none of a study with a single limit."""
    rows = []
    for task in table.tasks:
        runs = [run for run in table.runs if run.task == task and run.done]
        ends = sorted({run.limit for run in runs})
        if len(ends) < 2 or not TASKS[task].has_goal:
            continue
        limits = f"{ends[0]:g}, {ends[-1]:g}"
        found = [(run.method, run.limit, phases(run)) for run in runs]
        for method in ("all", *table.methods):
            own = [one for one in found if method in ("all", one[0])]
            low, high = ([of for _, at, of in own if at == limit] for limit in (ends[0], ends[-1]))
            if not low or not high:
                continue
            row = [task, method, limits, f"{len(low)}, {len(high)}"]
            columns = zip(COLUMNS.values(), np.array(low).T, np.array(high).T, strict=True)
            for digits, tight, lax in columns:
                text = difference(tight, lax, digits)
                row.append(f"{text} ({np.nanmean(lax):,.{digits}f})" if text else "")
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the study")
    table = tables.read(parser.parse_args().study)
    for header, rows in ((MEANS, means_of(table)), (HEADER, rows_of(table))):
        if rows:
            print(f"| {' | '.join(header)} |\n{'|---' * len(header)}|")
            print("".join(f"| {' | '.join(row)} |\n" for row in rows))


if __name__ == "__main__":
    main()
