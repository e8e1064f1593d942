"""One run of a study: its numbers, from its folder or from a packed study (`pack`)."""

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.core.files import FileError, is_there
from safecritic.evaluate.measures import read_arrays, read_measures
from safecritic.run.episode import over_known
from safecritic.run.failure import Failure
from safecritic.run.folder import read_config, read_episodes, read_json, read_run_table, write_json
from safecritic.run.records import EvaluationFile, Resources, SummaryFile
from safecritic.study import grid
from safecritic.study.grid import Job

TRAINING = ("reward", "cost", "contacts", "success", "length")
DEPLOYED = ("reward", "cost", "contacts", "success", "length", "hazard_distance_mean")
CRITIC = ("auc", "ratio", "influence_error_correlation")
NUMBERS = (*TRAINING, *(f"late_{name}" for name in TRAINING))  # of a run, with `episodes`
NUMBERS += (*(f"deployed_{name}" for name in DEPLOYED), *(f"critic_{name}" for name in CRITIC))
NUMBERS += ("error_least_u", "error_most_u", "seconds", "rate", "memory")
COLUMNS = {  # of the tables of a run
    "episodes": ("episode", "step", *TRAINING),
    "updates": ("step", "time/steps_per_second"),
}
LATE = 100  # episodes
FIFTHS = 5
PEAK = "peak_memory_bytes"  # in resources.json

Row = dict[str, Any]


class Case(NamedTuple):
    """What the methods of a study are compared on: a task at a cost limit."""

    task: str
    limit: float
    swept: bool  # one of several limits

    @property
    def name(self) -> str:
        """The task's name, followed by the limit if there are several."""
        return f"{self.task}-limit{grid.limit_text(self.limit)}" if self.swept else self.task


@dataclass
class Run:
    """One run of a study, finished or not; its files are read when they are first needed.

    A packed run has no folder: what is cached here is set when its study is read.
    """

    job: Job
    path: Path | None
    done: bool

    @property
    def method(self) -> str:
        """The method, or the study's name of it with other settings."""
        return self.job.label

    @property
    def task(self) -> str:
        """The task's name without the module it is imported from."""
        return self.job.task.rpartition(":")[2]

    @property
    def limit(self) -> float:
        return self.job.limit

    @property
    def case(self) -> Case:
        return Case(self.task, self.limit, self.job.swept)

    @property
    def folder(self) -> Path:
        assert self.path is not None, "a packed run has no folder"
        return self.path

    @cached_property
    def row(self) -> Row:
        """What it was and the numbers of a finished run; NaN where its task or method has none."""
        job = self.job
        row: Row = {"run": job.name, "method": job.label, "task": job.task, "seed": job.seed}
        return row | {"steps": job.steps} | self.numbers

    @cached_property
    def numbers(self) -> dict[str, float]:
        episodes, evaluation = self.episodes, self._evaluation
        numbers: dict[str, float] = {"episodes": len(episodes["episode"])}
        numbers |= {name: over_known(np.mean, episodes[name]) for name in TRAINING}
        for name in TRAINING:
            numbers[f"late_{name}"] = over_known(np.mean, episodes[name][-LATE:])
        means, critic = evaluation["means"], evaluation["safety_critic"]
        numbers |= {f"deployed_{name}": _number(means.get(name)) for name in DEPLOYED}
        numbers |= {f"critic_{name}": _number(critic.get(name)) for name in CRITIC}
        numbers |= self._errors() | self._times()
        resources = read_json(self.folder / "resources.json", Resources)
        return numbers | {"memory": _number(resources.get(PEAK))}

    def _errors(self) -> dict[str, float]:
        """Return the mean error of Q_C in the fifths of the steps with the least and most u."""
        arrays, error = self.arrays, np.full(FIFTHS, np.nan)
        if "steps/influence" in arrays:
            error = np.abs(arrays["steps/q_cost"] - arrays["steps/realised"])
            error = error[np.argsort(arrays["steps/influence"], kind="stable")]
        least, *_, most = np.array_split(error, FIFTHS)
        return {"error_least_u": float(least.mean()), "error_most_u": float(most.mean())}

    def _times(self) -> dict[str, float]:
        """Return the seconds of training, by all processes that trained it, and steps a second."""
        table = self._table("updates")
        taken, rates = np.diff(table["step"], prepend=0.0), table["time/steps_per_second"]
        known = rates > 0
        seconds = float((taken[known] / rates[known]).sum()) if known.any() else math.nan
        return {"seconds": seconds, "rate": over_known(np.median, rates)}

    @cached_property
    def _evaluation(self) -> dict[str, Any]:
        return read_json(self.folder / "evaluation.json", EvaluationFile)

    @cached_property
    def _summary(self) -> dict[str, Any]:
        return read_json(self.folder / "summary.json", SummaryFile)

    @cached_property
    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of the training episodes so far; empty if none has ended."""
        return self._table("episodes")

    def _table(self, name: str) -> dict[str, np.ndarray]:
        """Return columns of a table; of a finished run it must be what its summary says."""
        table: dict[str, list[float]] = {}
        try:
            cut = self._summary["tables"][name] if self.done else None
            if name == "episodes":
                table = read_episodes(self.folder, cut, whole=self.done)
            else:
                table = read_run_table(self.folder / f"{name}.csv", COLUMNS[name], cut)
        except (FileNotFoundError, FileError):
            if self.done:  # else it has not begun, or is being written
                raise
        return {column: np.array(table.get(column, []), np.float64) for column in COLUMNS[name]}

    @cached_property
    def deployment(self) -> list[dict[str, Any]]:
        """The rows of the deployment episodes."""
        return self._evaluation.get("episodes", [])

    @cached_property
    def measures(self) -> dict[str, Any]:
        return read_measures(self.folder)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return read_arrays(self.folder)

    @cached_property
    def steps(self) -> int:
        """The steps it was given; fewer if its episodes ended it early."""
        # the last decision may last beyond the budget
        return min(int(self._summary["steps"]), self.job.steps) if self.done else self.job.steps

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions with which a finished run was begun."""
        known = self.done and is_there(self.folder / "config.json")
        return read_config(self.folder)["versions"] if known else {}

    @cached_property
    def failure(self) -> Failure | None:
        """Why the run failed, if it did."""
        return None if self.done else grid.failure(self.folder)

    @property
    def diverged(self) -> bool:
        """Whether it ended with a number that is not finite."""
        return self.failure is not None and self.failure.diverged

    @property
    def ended(self) -> bool:
        """Whether it is a result: finished, or diverged."""
        return self.done or self.diverged

    @property
    def state(self) -> str:
        """How far the run is, in a few words."""
        if self.done:
            return "done"
        if self.failure is not None:
            return "failed"
        if text := grid.lost(self.folder, self.job):
            return f"to be made again: {text}"
        steps = self.episodes["step"]
        return f"at step {int(steps[-1]):,}" if len(steps) else "not begun"


def note_memory(run: Path) -> None:
    """Write the peak memory of this process and of the largest it started to resources.json."""
    try:
        import resource
    except ImportError:  # Windows
        return
    unit = 1 if sys.platform == "darwin" else 1024
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = unit * sum(resource.getrusage(which).ru_maxrss for which in processes)
    path = run / "resources.json"
    write_json(path, {PEAK: max(read_json(path, Resources).get(PEAK, 0), peak)})


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
