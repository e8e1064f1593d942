"""Time and memory that a run's training took."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.run.folder import read_json, read_run_table, write_json
from safecritic.run.records import Resources

TIME_COLUMNS = ("step", "time/steps_per_second")  # of updates.csv


def note_memory(run: Path) -> None:
    """Write the peak memory of this process and of the largest it started to resources.json."""
    try:
        import resource
    except ImportError:  # Windows
        return
    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    known = read_json(run / "resources.json", Resources).get("peak_memory_bytes", 0)
    write_json(run / "resources.json", {"peak_memory_bytes": max(known, unit * sum(peaks))})


def training_seconds(run: Path, cut: dict[str, Any] | None = None) -> float:
    """Return the seconds of training, over all processes that trained the run (updates.csv).

    `cut` is what its summary says of that table.
    """
    table = read_run_table(run / "updates.csv", TIME_COLUMNS, cut)
    steps = np.diff(np.array([0.0, *table["step"]]))
    rates = np.array(table["time/steps_per_second"])
    known = rates > 0
    return float((steps[known] / rates[known]).sum()) if known.any() else float("nan")
