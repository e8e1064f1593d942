"""What each part of a method is worth: a study's other methods minus the whole one, by seed.

    python benchmarks/parts.py results/ablations

Runs of one seed begin with the same networks and are deployed in the same scenes, so each is
compared with its like: the mean of the differences, with its 95% interval over the seeds
(Student's t), in bold where that leaves out 0. Success, reward and cost are deployed; cost over
training is the mean over all training episodes, late cost over the last 100; AUC says how well Q_C
ranks what will cost.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from safecritic.evaluation.statistics import interval_of_mean
from safecritic.study import table as tables

COLUMNS = {
    "success %": ("deployed_success", 100.0, 1),
    "reward": ("deployed_reward", 1.0, 2),
    "cost": ("deployed_cost", 1.0, 2),
    "cost over training": ("cost", 1.0, 2),
    "late cost": ("late_cost", 1.0, 2),
    "AUC": ("critic_auc", 1.0, 2),
}
HEADER = ("task", "limit", "method", "seeds", *COLUMNS)


def difference(values: np.ndarray, digits: int) -> str:
    """Mean and 95% interval of differences, in bold where the interval leaves out 0."""
    mean, low, high = interval_of_mean(values)
    if np.isnan(mean):
        return ""
    if not np.any(values):
        return "0"
    texts = [f"{round(x, digits) + 0.0:+.{digits}f}" for x in (mean, low, high)]
    if np.isnan(low):
        return texts[0]
    text = f"{texts[0]} [{texts[1]}, {texts[2]}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def rows_of(table: tables.StudyTable, whole: str = "usc") -> list[list[str]]:
    """Return the cells of the table: every method but the whole one, on every task."""
    rows = []
    for case, (task, *_) in table.case_of.items():
        base = {run.job.seed: run.row for run in table.of(whole, case)}
        for method in table.methods:
            own = {run.job.seed: run.row for run in table.of(method, case)}
            seeds = sorted(set(own) & set(base))
            if method == whole or not seeds:
                continue
            row = [task, f"{table.limit(case, method):g}", method, str(len(seeds))]
            for name, scale, digits in COLUMNS.values():
                found = np.array([own[seed][name] - base[seed][name] for seed in seeds])
                row.append(difference(scale * found, digits))
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--whole", default="usc", help="the method the others are compared with")
    options = parser.parse_args()
    rows = rows_of(tables.read(options.study), options.whole)
    print("| " + " | ".join(HEADER) + " |")
    print("|---" * len(HEADER) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
