"""A study's runs as one tidy table, and its summary over seeds with intervals.

Training columns are means over *all* training episodes of a run, warm-up and exploration included
(the paper's Table 1); `late_` columns over its last 100; `deployed_` columns over its deployment
episodes (the paper's Tables 3 and 4). Cost is undiscounted, per episode.
"""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.evaluation import statistics
from safecritic.run.episode import over_known
from safecritic.run.folder import read_table
from safecritic.study import grid as study
from safecritic.study.grid import Job

TRAINING = ("reward", "cost", "contacts", "success", "length")
DEPLOYED = ("reward", "cost", "contacts", "success", "length", "hazard_distance_mean")
CRITIC = ("auc", "ratio", "influence_error_correlation")
LATE = 100  # episodes

Row = dict[str, Any]


def run_row(out: Path, job: Job) -> Row:
    """One finished run; NaN for what its task or method does not have."""
    run = out / "runs" / job.name
    episodes = read_table(run / "episodes.csv")
    found = json.loads((run / "evaluation.json").read_text())
    row: Row = {"run": job.name, "method": job.method, "task": job.task, "seed": job.seed}
    row |= {"steps": job.steps, "episodes": len(episodes["episode"])}
    columns = {name: np.array(episodes[name]) for name in TRAINING}
    row |= {name: over_known(np.mean, column) for name, column in columns.items()}
    row |= {f"late_{name}": over_known(np.mean, x[-LATE:]) for name, x in columns.items()}
    row |= {f"deployed_{name}": _number(found["means"].get(name)) for name in DEPLOYED}
    row |= {f"critic_{name}": _number(found["safety_critic"].get(name)) for name in CRITIC}
    return row


def runs_table(out: Path) -> list[Row]:
    """A row for every finished run of a study."""
    return [run_row(out, job) for job in study.read_folder(out) if study.done(out, job)]


def summary_table(rows: Sequence[Row]) -> list[Row]:
    """For every method, task and column: mean, standard error, IQM and its 95% interval."""
    if not rows:
        return []
    columns = [name for name in rows[0] if name not in ("run", "method", "task", "seed", "steps")]
    found = []
    for method, task in dict.fromkeys((row["method"], row["task"]) for row in rows):
        group = [row for row in rows if (row["method"], row["task"]) == (method, task)]
        for name in columns:
            values = np.array([row[name] for row in group], np.float64)
            if np.isnan(values).all():
                continue
            mean, error = statistics.mean_and_error(values)
            middle = statistics.interval_of_iqm(values)
            found.append(
                {
                    "method": method,
                    "task": task,
                    "column": name,
                    "seeds": int((~np.isnan(values)).sum()),
                    "mean": mean,
                    "standard_error": error,
                    "iqm": middle.value,
                    "iqm_low": middle.low,
                    "iqm_high": middle.high,
                }
            )
    return found


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Empty cells where a number does not exist."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if _unknown(x) else x for name, x in row.items()})


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
