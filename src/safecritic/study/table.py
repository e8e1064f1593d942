"""From the runs of a study to its numbers: the one place where runs become a table.

`read` gives a `StudyTable`: a row of numbers for each finished run (runs.csv), and a `Summary` of
each column over the runs of a method on a task, which differ in their seed (summary.csv). The
command line and the report take their cells from here.

If a task is run at several cost limits, each of them is a case of its own (`CarGoal2-limit0.5`);
otherwise the task is the case. The runs of a method that looks at reward alone belong to every case
of their task.

Training columns are means over *all* training episodes of a run, warm-up and exploration included
(the paper's Table 1); `late_` columns over its last 100; `deployed_` columns over its deployment
episodes (the paper's Tables 3 and 4). Cost is undiscounted, per episode.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluation import statistics
from safecritic.evaluation.measures import read_arrays, read_measures
from safecritic.files import FileError, damaged, is_there, write_text
from safecritic.methods import METHODS
from safecritic.run.episode import over_known
from safecritic.run.folder import read_config, read_episodes, read_json, read_table
from safecritic.run.records import EvaluationFile, Resources, SummaryFile
from safecritic.study import grid
from safecritic.study.grid import Job
from safecritic.study.resources import training_seconds
from safecritic.tasks.registry import TASKS

TRAINING = ("reward", "cost", "contacts", "success", "length")
DEPLOYED = ("reward", "cost", "contacts", "success", "length", "hazard_distance_mean")
CRITIC = ("auc", "ratio", "influence_error_correlation")
LATE = 100  # episodes
LABELS = ("run", "method", "task", "limit", "seed", "steps")  # the columns that are not results
NONE = "–"  # a cell without a number
ROUNDING = 1e-6  # five costs of 0.2 are a little more than 1
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a formula may begin in some spreadsheet
_CHANGE = r"(?:[+-]\d+%|[<>]?-?\d+ times)"
_NUMBERS = re.compile(
    r"-?[\d.,]+( ± [\d.,]+)?( \[-?[\d.]+, -?[\d.]+\])?"
    rf"|{_CHANGE}( \[{_CHANGE}, {_CHANGE}\])?"
)
OVERVIEW = {
    "reward": "late_reward",
    "cost": "late_cost",
    "success": "late_success",
    "deployed reward": "deployed_reward",
    "deployed cost": "deployed_cost",
    "deployed success": "deployed_success",
}

Row = dict[str, Any]


# ---------------------------------------------------------------- one run


@dataclass
class Run:
    """One run of a study, finished or not; its files are read when they are first needed."""

    job: Job
    path: Path
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
        """The cost limit."""
        return self.job.limit

    @property
    def rate(self) -> float:
        """Environment steps per second: the median over the intervals of its log."""
        return float(np.nanmedian(read_table(self.path / "updates.csv")["time/steps_per_second"]))

    @cached_property
    def row(self) -> Row:
        """The numbers of a finished run; NaN where its task or method has none."""
        job, episodes = self.job, self.episodes
        evaluation = read_json(self.path / "evaluation.json", EvaluationFile)
        row: Row = {"run": job.name, "method": job.label, "task": job.task, "seed": job.seed}
        row |= {"steps": job.steps, "episodes": len(episodes["episode"])}
        row |= {name: over_known(np.mean, episodes[name]) for name in TRAINING}
        row |= {f"late_{name}": over_known(np.mean, episodes[name][-LATE:]) for name in TRAINING}
        row |= {f"deployed_{name}": _number(evaluation["means"].get(name)) for name in DEPLOYED}
        row |= {f"critic_{name}": _number(evaluation["safety_critic"].get(name)) for name in CRITIC}
        return row

    @cached_property
    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of episodes.csv so far; empty if there is no such file yet."""
        try:
            table = read_episodes(self.path, self._cut("episodes"), whole=self.done)
        except FileNotFoundError:
            if self.done:
                raise damaged(self.path / "episodes.csv", "it is missing") from None
            return {name: np.zeros(0) for name in ("episode", "step", *TRAINING)}
        except FileError:
            if self.done:
                raise
            return {name: np.zeros(0) for name in ("episode", "step", *TRAINING)}  # being written
        return {name: np.array(column) for name, column in table.items()}

    def _cut(self, table: str) -> dict[str, Any] | None:
        """Return what a finished run's summary says of a table."""
        if not self.done:
            return None
        return read_json(self.path / "summary.json", SummaryFile)["tables"][table]

    @cached_property
    def deployment(self) -> list[dict[str, Any]]:
        """The rows of the deployment episodes."""
        return read_json(self.path / "evaluation.json", EvaluationFile).get("episodes", [])

    @cached_property
    def measures(self) -> dict[str, Any]:
        """The numbers of measures.json."""
        return read_measures(self.path)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of measures.safetensors."""
        return read_arrays(self.path)

    @cached_property
    def steps(self) -> int:
        """The steps it was given; fewer if its episodes ended it early."""
        if not self.done:
            return self.job.steps
        taken = int(read_json(self.path / "summary.json", SummaryFile)["steps"])
        return min(taken, self.job.steps)  # the last decision may last beyond the budget

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions with which a finished run was begun."""
        if not self.done or not is_there(self.path / "config.json"):
            return {}
        return read_config(self.path)["versions"]

    @cached_property
    def seconds(self) -> float:
        """The time spent on training; NaN if it is not known."""
        try:
            return training_seconds(self.path, self._cut("updates"))
        except FileNotFoundError:
            return float("nan")
        except FileError:
            if self.done:
                raise
            return float("nan")

    @cached_property
    def memory(self) -> float:
        """The peak memory in bytes; NaN if it is not known."""
        content = read_json(self.path / "resources.json", Resources)
        return _number(content.get("peak_memory_bytes"))

    @cached_property
    def failure(self) -> grid.Failure | None:
        """Why the run failed, if it did."""
        return None if self.done else grid.failure(self.path)

    @property
    def state(self) -> str:
        """How far the run is, in a few words."""
        if self.done:
            return "done"
        if self.failure is not None:
            return "failed"
        steps = self.episodes["step"]
        return f"at step {int(steps[-1]):,}" if len(steps) else "not begun"


# ---------------------------------------------------------------- many runs


class Summary(NamedTuple):
    """One number of several runs: mean, standard error, interquartile mean with its interval."""

    n: int  # runs that have the number
    mean: float
    standard_error: float
    iqm: statistics.Interval

    def mean_text(self, digits: int = 2, scale: float = 1.0, sign: str = " ± ") -> str:
        """Return `mean ± standard error`; one run has no standard error."""
        error = number_text(scale * self.standard_error, digits)
        spread = "" if math.isnan(self.standard_error) else f"{sign}{error}"
        return f"{number_text(scale * self.mean, digits)}{spread}"

    def iqm_text(self, digits: int = 2, scale: float = 1.0) -> str:
        """Return `IQM [low, high]`; one run has no interval."""
        return NONE if self.n < 2 else interval_text(self.iqm, digits, scale)


def summarise(values: np.ndarray) -> Summary:
    """Summarise one number per run; NaN is left out."""
    values = np.asarray(values, np.float64)
    n = int((~np.isnan(values)).sum())
    return Summary(n, *statistics.mean_and_error(values), statistics.interval_of_iqm(values))


def number_text(value: float, digits: int = 2) -> str:
    """Return a number as a cell shows it."""
    return NONE if math.isnan(value) else f"{value:z.{digits}f}"


def interval_text(interval: statistics.Interval, digits: int = 2, scale: float = 1.0) -> str:
    """Return `value [low, high]`."""
    if math.isnan(interval.value):
        return NONE
    value, low, high = (number_text(scale * x, digits) for x in interval)
    return f"{value} [{low}, {high}]"


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
class StudyTable:
    """The runs of a study, grouped by method and case."""

    out: Path
    runs: list[Run]

    @cached_property
    def case_of(self) -> dict[str, Case]:
        """The cases by name: in the order of the table of tasks, then by limit."""
        found: dict[str, list[Case]] = {task: [] for task in self.tasks}
        for run in self.runs:
            found[run.task].append(Case(run.task, run.limit, run.job.swept))
        cases = []
        for of_task in found.values():
            swept = sorted({case for case in of_task if case.swept})
            cases += swept or of_task[:1]
        return {case.name: case for case in cases}

    @cached_property
    def cases(self) -> list[str]:
        """The names of the cases."""
        return list(self.case_of)

    @cached_property
    def swept(self) -> bool:
        """Whether some task is run at several limits."""
        return any(case.swept for case in self.case_of.values())

    @cached_property
    def groups(self) -> dict[tuple[str, str], list[Run]]:
        """All runs by method and case, in the order of the study."""
        groups: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            own = Case(run.task, run.limit, run.job.swept).name
            for name, case in self.case_of.items():
                if name == own or (case.task == run.task and not run.job.swept):
                    groups.setdefault((run.method, name), []).append(run)
        return groups

    @cached_property
    def methods(self) -> list[str]:
        """The study's methods, in the order of the table of methods."""
        return in_order((run.method for run in self.runs), METHODS)

    @cached_property
    def tasks(self) -> list[str]:
        """The study's tasks, in the order of the table of tasks."""
        return in_order((run.task for run in self.runs), TASKS)

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each finished run; if there are several limits, with its own."""
        if not self.swept:
            return [run.row for run in self.runs if run.done]
        rows = []
        for run in self.runs:
            if run.done:
                labels = {name: run.row[name] for name in ("run", "method", "task")}
                limit = run.limit if run.job.swept else math.nan
                rows.append(labels | {"limit": limit} | run.row)
        return rows

    def limit(self, case: str, method: str = "") -> float:
        """Return the cost limit of a case; a method's own if the study gives it one."""
        runs = self.groups.get((method, case), [])
        own = runs and not self.case_of[case].swept
        return runs[0].limit if own else self.case_of[case].limit

    def within(self, method: str, case: str, column: str = "deployed_cost") -> tuple[int, int]:
        """Return how many runs have a mean cost within the limit, and of how many.

        Finished runs and those that diverged, which are not within it: they have no policy.
        """
        costs = self.values(method, case, column)
        costs = costs[~np.isnan(costs)]
        number = len(costs) + len(self.diverged(method, case))
        return int((costs <= self.limit(case, method) + ROUNDING).sum()), number

    def diverged(self, method: str, case: str) -> list[Run]:
        """Return the runs of a method in a case that ended with a number that is not finite."""
        runs = self.groups.get((method, case), [])
        return [run for run in runs if run.failure and run.failure.diverged]

    def keeps(self, method: str, case: str, column: str = "deployed_cost") -> bool:
        """Return whether a method keeps the limit: on average, and in more than half of its runs.

        One run far below the limit could carry the average of many above it.
        """
        kept, number = self.within(method, case, column)
        mean = self.summary(method, case, column).mean
        return mean <= self.limit(case, method) + ROUNDING and 2 * kept > number

    def on(self, case: str) -> list[Run]:
        """Return all runs of a case, finished or not."""
        return [run for (_, name), runs in self.groups.items() if name == case for run in runs]

    def of(self, method: str, case: str, done: bool = True) -> list[Run]:
        """Return the finished runs of a method in a case; all of them with `done=False`."""
        return [run for run in self.groups.get((method, case), []) if run.done or not done]

    def measured(self, method: str, case: str, name: str) -> list[Any]:
        """Return one entry of measures.json of each finished run that has it."""
        entries = [run.measures.get(name) for run in self.of(method, case)]
        return [entry for entry in entries if entry]

    def values(self, method: str, case: str, column: str) -> np.ndarray:
        """Return one number for each finished run.

        `column` is a column of runs.csv, or a path into measures.json such as
        `calibration/excess`; runs without that measure are left out.
        """
        name, *keys = column.split("/")
        if not keys:
            return np.array([run.row[name] for run in self.of(method, case)], np.float64)
        entries = self.measured(method, case, name)
        for key in keys:
            entries = [entry.get(key) if isinstance(entry, dict) else None for entry in entries]
        numbers = [x if isinstance(x, int | float) else math.nan for x in entries]
        return np.array(numbers, np.float64)

    def summary(self, method: str, case: str, column: str) -> Summary:
        """Summarise a column (see `values`) over the finished runs of a method in a case."""
        return summarise(self.values(method, case, column))

    def summary_rows(self) -> list[Row]:
        """Return a row for every method, case and column of runs.csv that has numbers."""
        columns = [name for row in self.rows[:1] for name in row if name not in LABELS]
        rows = []
        for (method, case), runs in self.groups.items():
            limit = {"limit": self.limit(case)} if self.swept else {}
            for column in columns:
                summary = self.summary(method, case, column)
                if not summary.n:
                    continue
                rows.append(
                    {"method": method, "task": runs[0].job.task}
                    | limit
                    | {
                        "column": column,
                        "seeds": summary.n,
                        "mean": summary.mean,
                        "standard_error": summary.standard_error,
                        "iqm": summary.iqm.value,
                        "iqm_low": summary.iqm.low,
                        "iqm_high": summary.iqm.high,
                    }
                )
        return rows

    def overview(self) -> dict[str, list[list[str]]]:
        """Return for each case the cells of a small table: method, n, the columns of OVERVIEW."""
        tables: dict[str, list[list[str]]] = {}
        for (method, name), runs in self.groups.items():
            if number := len(self.of(method, name)):
                summaries = {key: self.summary(method, name, key) for key in OVERVIEW.values()}
                cells = [_overview_cell(key, summary) for key, summary in summaries.items()]
                case = self.case_of[name]
                limit = f", limit {grid.limit_text(case.limit)}" if case.swept else ""
                heading = f"{runs[0].job.task}{limit}"
                tables.setdefault(heading, []).append([method, str(number), *cells])
        return tables


def read(out: str | Path) -> StudyTable:
    """Read the runs of a study's folder, in whatever state they are."""
    return StudyTable(Path(out), read_runs(Path(out)))


def read_runs(out: Path) -> list[Run]:
    """Return every run of a study's folder, finished or not."""
    return [Run(job, out / "runs" / job.name, grid.done(out, job)) for job in grid.read_folder(out)]


def write_tables(table: StudyTable) -> None:
    """Write runs.csv and summary.csv into the study's folder; nothing if no run has finished."""
    if table.rows:
        write_csv(table.out / "runs.csv", table.rows)
        write_csv(table.out / "summary.csv", table.summary_rows())


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV, with an empty cell where a number does not exist."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [])
    writer.writeheader()
    for row in rows:
        cells = {name: "" if _unknown(x) else x for name, x in row.items()}
        writer.writerow({name: plain_cell(x) for name, x in cells.items()})
    write_text(path, text.getvalue())


def plain_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: such a text gets a quote before it."""
    if not isinstance(value, str) or value[:1] not in FORMULA or _NUMBERS.fullmatch(value):
        return value
    return f"'{value}"


def _overview_cell(column: str, summary: Summary) -> str:
    digits, scale = (0, 100.0) if "success" in column else (2, 1.0)
    return summary.mean_text(digits, scale, sign="±") if summary.n else "-"


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return each name once: the known ones in their own order, then the others."""
    present = dict.fromkeys(names)
    return list(dict.fromkeys([name for name in known if name in present] + list(present)))


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
