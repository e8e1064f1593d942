"""What each part of a method is worth: a study's other methods minus the whole one.

    python benchmarks/parts.py results/ablations
    python benchmarks/parts.py results/ablations --base results/critics   # which has more seeds

Differences of the means over seeds with their 95% intervals (Welch's t), in bold where that leaves
out 0. Runs of one seed are not paired: what two methods make of it is hardly correlated. Success,
reward and cost are deployed; cost over training is the mean over all training episodes, late cost
over the last 100; AUC says how well Q_C ranks what will cost, and "u and error" is the rank
correlation of its uncertainty with its error |Q_C - realised discounted cost|, of which the last
two columns are the means over the fifths of the deployed steps with the least and the largest u.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from safecritic.evaluation.statistics import interval_of_difference
from safecritic.study import table as tables

COLUMNS = {
    "success %": ("deployed_success", 100.0, 1),
    "reward": ("deployed_reward", 1.0, 2),
    "cost": ("deployed_cost", 1.0, 2),
    "cost over training": ("cost", 1.0, 2),
    "late cost": ("late_cost", 1.0, 2),
    "AUC": ("critic_auc", 1.0, 2),
    "u and error": ("critic_influence_error_correlation", 1.0, 2),
    "error, least u": ("error_low", 1.0, 2),
    "error, most u": ("error_high", 1.0, 2),
}
HEADER = ("task", "limit", "method", "seeds", *COLUMNS)


def difference(own: np.ndarray, whole: np.ndarray, digits: int) -> str:
    """Difference of the means and its 95% interval, in bold where the interval leaves out 0."""
    found = interval_of_difference(own, whole)
    if np.isnan(found[0]):
        return ""
    mean, low, high = (f"{round(x, digits) + 0.0:+.{digits}f}" for x in found)
    if np.isnan(found[1]):
        return mean
    text = f"{mean} [{low}, {high}]"
    return f"**{text}**" if found[1] > 0 or found[2] < 0 else text


def errors(run: tables.Run) -> dict[str, float]:
    """Return the critic's mean error where it is least and most uncertain; NaN without u."""
    arrays = run.arrays
    if "steps/influence" not in arrays:
        return {"error_low": np.nan, "error_high": np.nan}
    error = np.abs(arrays["steps/q_cost"] - arrays["steps/realised"])
    fifths = np.array_split(error[np.argsort(arrays["steps/influence"], kind="stable")], 5)
    return {"error_low": float(fifths[0].mean()), "error_high": float(fifths[-1].mean())}


def rows_of(
    table: tables.StudyTable, whole: str = "usc", base_of: tables.StudyTable | None = None
) -> list[list[str]]:
    """Return the cells of the table: every method but the whole one, on every task.

    The runs of the whole one are those of the study `base_of`, on the same task at the same limit.
    """
    all_whole = [run for run in (base_of or table).runs if run.method == whole and run.done]
    rows = []
    for case, (task, *_) in table.case_of.items():
        limit = table.limit(case, whole)
        same = [run for run in all_whole if (run.task, run.limit) == (task, limit)]
        base = [run.row | errors(run) for run in same]
        for method in table.methods:
            own = [run.row | errors(run) for run in table.of(method, case)]
            if method == whole or not own or not base:
                continue
            row = [task, f"{table.limit(case, method):g}", method, f"{len(own)}, {len(base)}"]
            for name, scale, digits in COLUMNS.values():
                values = (scale * np.array([run[name] for run in runs]) for runs in (own, base))
                row.append(difference(*values, digits))
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--whole", default="usc", help="the method the others are compared with")
    parser.add_argument("--base", type=Path, help="folder of a study with other runs of it")
    options = parser.parse_args()
    base = tables.read(options.base) if options.base else None
    rows = rows_of(tables.read(options.study), options.whole, base)
    print("| " + " | ".join(HEADER) + " |")
    print("|---" * len(HEADER) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
