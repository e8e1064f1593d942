"""What a report is made of: the runs of a study as far as they are, and the paper's numbers."""

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluation.measures import read_arrays, training_seconds
from safecritic.methods import METHODS
from safecritic.run.folder import read_json, read_table
from safecritic.study import grid as study
from safecritic.study import table as tables
from safecritic.study.grid import Job
from safecritic.tasks.registry import TASKS


class Printed(NamedTuple):
    """A number of the paper, with what it prints after the sign +-."""

    mean: float
    spread: float

    def text(self, digits: int = 2) -> str:
        spread = "" if np.isnan(self.spread) else f" ± {self.spread:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


@dataclass
class Run:
    """One run of a study, finished or not."""

    job: Job
    path: Path
    done: bool

    @property
    def method(self) -> str:
        return self.job.method

    @property
    def task(self) -> str:
        return plain(self.job.task)

    @cached_property
    def episodes(self) -> dict[str, np.ndarray]:
        """The table of training episodes so far; empty columns if there is none yet."""
        try:
            found = read_table(self.path / "episodes.csv")
        except (FileNotFoundError, ValueError, IndexError):  # not begun, or a line half written
            found = {name: [] for name in ("step", "reward", "cost", "success")}
        return {name: np.array(column) for name, column in found.items()}

    @cached_property
    def deployment(self) -> list[dict[str, Any]]:
        return read_json(self.path / "evaluation.json").get("episodes", [])

    @cached_property
    def measures(self) -> dict[str, Any]:
        return read_json(self.path / "measures.json")

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return read_arrays(self.path)

    @cached_property
    def seconds(self) -> float:
        try:
            return training_seconds(self.path)
        except (FileNotFoundError, ValueError, IndexError):
            return float("nan")

    @cached_property
    def memory(self) -> float:
        """Peak, in bytes; NaN if it was not noted."""
        found = read_json(self.path / "resources.json").get("peak_memory_bytes")
        return float("nan") if found is None else float(found)

    @property
    def state(self) -> str:
        if self.done:
            return "done"
        if (self.path / "error.txt").is_file():
            return "failed"
        steps = self.episodes["step"]
        return f"at step {int(steps[-1]):,}" if len(steps) else "not begun"


@dataclass
class Study:
    """A study's folder, read."""

    out: Path
    source: str
    runs: list[Run]
    paper: dict[tuple[str, str, str, str], Printed] = field(default_factory=dict)

    @cached_property
    def methods(self) -> list[str]:
        """In the order of the table of methods."""
        found = {run.method for run in self.runs}
        return [name for name in METHODS if name in found]

    @cached_property
    def tasks(self) -> list[str]:
        found = dict.fromkeys(run.task for run in self.runs)
        ours = [name for name in TASKS if name in found]
        return ours + [name for name in found if name not in TASKS]

    @cached_property
    def rows(self) -> list[tables.Row]:
        """A row for each finished run."""
        found = [tables.run_row(self.out, run.job) for run in self.runs if run.done]
        return [row | {"task": plain(row["task"])} for row in found]

    def of(self, method: str, task: str, done: bool = True) -> list[Run]:
        return [
            run
            for run in self.runs
            if run.method == method and run.task == task and (run.done or not done)
        ]

    def values(self, method: str, task: str, column: str) -> np.ndarray:
        """One number for each finished run."""
        rows = [row for row in self.rows if row["method"] == method and row["task"] == task]
        return np.array([row[column] for row in rows], np.float64)

    def measured(self, method: str, task: str, name: str) -> list[Any]:
        """A part of measures.json of each finished run that has it."""
        found = [run.measures.get(name) for run in self.of(method, task)]
        return [part for part in found if part]

    def limit(self, task: str) -> float:
        found = [run.job.settings["cost_limit"] for run in self.runs if run.task == task]
        return float(found[0])

    def printed(self, table: str, method: str, task: str, metric: str) -> Printed | None:
        return self.paper.get((table, method, task, metric))


def plain(task: str) -> str:
    """A task's name for people: without the module it is imported from."""
    return task.rpartition(":")[2]


def title(method: str) -> str:
    return METHODS[method].title


def read(out: Path) -> Study:
    """The study in a folder, in whatever state it is."""
    jobs = study.read_folder(out)
    source = json.loads((out / "study.json").read_text())["source"]
    runs = [Run(job, out / "runs" / job.name, study.done(out, job)) for job in jobs]
    return Study(out, source, runs, read_paper())


def read_paper() -> dict[tuple[str, str, str, str], Printed]:
    """The paper's Tables 1 to 4 by (table, method, task, metric)."""
    text = (resources.files("safecritic") / "report" / "paper.csv").read_text()
    found = {}
    for row in csv.DictReader(text.splitlines()):
        spread = float(row["spread"]) if row["spread"] else float("nan")
        key = (row["table"], row["method"], row["task"], row["metric"])
        found[key] = Printed(float(row["mean"]), spread)
    return found
