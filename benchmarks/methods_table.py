"""Every method on one task over several seeds: trains what is missing, then prints the table.

    python benchmarks/methods_table.py --out runs/table

A study (docs/study.md) with more deployment episodes and the safety critic's figures beside its
columns; running it again goes on where it stopped. Training columns are means over the last 100
training episodes (with exploration noise), deployment columns over fresh episodes without it; then
mean and standard error over the seeds. Q_C / realised is the quotient of the means over all seeds'
steps, beside the smallest of any seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.methods import METHODS
from safecritic.study import driver as study_driver
from safecritic.study import grid as study
from safecritic.study import table as tables

COLUMNS = {
    "success %": "late_success",
    "reward": "late_reward",
    "cost": "late_cost",
    "deployed success %": "deployed_success",
    "deployed cost": "deployed_cost",
    "AUC": "critic_auc",
}


def cell(rows: list[tables.Row], name: str) -> str:
    """Mean and standard error."""
    scale, digits = (100.0, 1) if "success" in name else (1.0, 2)
    summary = tables.summarise(np.array([row[name] for row in rows]))
    return summary.mean_text(digits, scale) if summary.n else ""


def ratio(out: Path, rows: list[tables.Row]) -> str:
    found = [
        json.loads((out / "runs" / row["run"] / "evaluation.json").read_text()) for row in rows
    ]
    critics = [about["safety_critic"] for about in found if about["safety_critic"]]
    if not critics:
        return ""
    sums = {k: sum(c["steps"] * c[k] for c in critics) for k in ("q_mean", "realised_mean")}
    least = min(critic["ratio"] for critic in critics)
    return f"{sums['q_mean'] / sums['realised_mean']:.2f} ({least:.2f})"


def print_table(out: Path) -> None:
    header = ["method", "steps", *COLUMNS, "Q_C / realised (least seed)", "u against error"]
    print("\nmean ± standard error over seeds\n| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    table = tables.read(out)
    for method in table.methods:
        rows = [run.row for task in table.tasks for run in table.of(method, task)]
        if not rows:
            continue
        cells = [cell(rows, name) for name in COLUMNS.values()]
        cells += [ratio(out, rows), cell(rows, "critic_influence_error_correlation")]
        print(f"| {method} | {rows[0]['steps']:,} | {' | '.join(cells)} |")
        for row in rows:
            known = {k: v for k, v in row.items() if isinstance(v, float) and not np.isnan(v)}
            figures = ", ".join(f"{name} {value:.3g}" for name, value in known.items())
            print(f"    seed {row['seed']}: {figures}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/table"))
    parser.add_argument("--task", default="CarGoal1")
    parser.add_argument("--steps", type=int, help="default: what the method needs")
    parser.add_argument("--episodes", type=int, default=100, help="deployment episodes per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--workers", type=int, help="default: one per core")
    options = parser.parse_args()
    content: dict[str, Any] = {"methods": options.methods, "tasks": [options.task]}
    content |= {"seeds": options.seeds, "deployment_episodes": options.episodes}
    if options.steps:
        content["steps"] = options.steps

    def show(driver: study_driver.Driver, ended: list[study_driver.Progress]) -> None:
        for one in ended:
            line = f"{one.state}: {one.job.name} {one.seconds:.0f} s {one.error}"
            print(line.rstrip(), file=sys.stderr, flush=True)

    jobs = study.jobs_of(content)
    found = study_driver.run(options.out, jobs, "methods_table.py", options.workers, show)
    print_table(options.out)
    sys.exit(1 if any(one.state == "failed" for one in found) else 0)


if __name__ == "__main__":
    main()
