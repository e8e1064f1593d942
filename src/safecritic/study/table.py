"""From the runs of a study to its numbers: the one place where runs become a table.

A `StudyTable` has a row of numbers for each finished run (runs.csv), and a `Summary` of each column
over the runs of a method in a case, which differ in their seed (summary.csv). The runs of a method
that looks at reward alone belong to every case of their task.
"""

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.agents.methods import METHODS
from safecritic.core import statistics
from safecritic.core.files import write_text
from safecritic.evaluate.verdict import KEPT, OPEN, ROUNDING, Verdict, of_costs, of_critic
from safecritic.study import grid, pack
from safecritic.study.runs import Case, Row, Run
from safecritic.tasks.registry import TASKS

LABELS = ("run", "method", "task", "limit", "seed", "steps")  # the columns that are not results
NONE = "–"  # a cell without a number
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
    return NONE if math.isnan(value) else f"{value:z.{digits}f}"


def interval_text(interval: statistics.Interval, digits: int = 2, scale: float = 1.0) -> str:
    """Return `value [low, high]`."""
    if math.isnan(interval.value):
        return NONE
    value, low, high = (number_text(scale * x, digits) for x in interval)
    return f"{value} [{low}, {high}]"


@dataclass
class StudyTable:
    """The runs of a study, grouped by method and case."""

    out: Path
    runs: list[Run]
    _summaries: dict[tuple[str, str, str], Summary] = field(default_factory=dict, kw_only=True)

    @cached_property
    def case_of(self) -> dict[str, Case]:
        """The cases by name: in the order of the table of tasks, then by limit."""
        found: list[Case] = []
        for task in self.tasks:
            cases = [run.case for run in self.runs if run.task == task]
            found += sorted({case for case in cases if case.swept}) or cases[:1]
        return {case.name: case for case in found}

    @cached_property
    def cases(self) -> list[str]:
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
            for name, case in self.case_of.items():
                if case == run.case or (case.task == run.task and not run.job.swept):
                    groups.setdefault((run.method, name), []).append(run)
        return groups

    @cached_property
    def methods(self) -> list[str]:
        """The study's methods, in the order of the table of methods."""
        return in_order((run.method for run in self.runs), METHODS)

    @cached_property
    def tasks(self) -> list[str]:
        return in_order((run.task for run in self.runs), TASKS)

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each finished run; if there are several limits, with its own."""
        rows = []
        for run in self.runs:
            if run.done:
                labels = {name: run.row[name] for name in LABELS[:3]}
                if self.swept:
                    labels["limit"] = run.limit if run.job.swept else math.nan
                rows.append(labels | run.row)
        return rows

    def limit(self, case: str, method: str = "") -> float:
        """Return the cost limit of a case; a method's own if the study gives it one."""
        runs = [] if self.case_of[case].swept else self.of(method, case, done=False)
        return runs[0].limit if runs else self.case_of[case].limit

    def within(self, method: str, case: str, column: str = "deployed_cost") -> tuple[int, int]:
        """Return how many runs have a mean cost within the limit, and of how many.

        Finished runs and those that diverged, which are not within it: they have no policy.
        """
        costs = self.known(method, case, column)
        number = len(costs) + len(self.diverged(method, case))
        return int((costs <= self.limit(case, method) + ROUNDING).sum()), number

    def diverged(self, method: str, case: str) -> list[Run]:
        """Return the runs of a method in a case that ended with a number that is not finite."""
        return [run for run in self.of(method, case, done=False) if run.diverged]

    def keeps(self, method: str, case: str, column: str = "deployed_cost") -> bool:
        """Return whether a method keeps the limit: on average, and in more than half of its runs.

        One run far below the limit could carry the average of many above it.
        """
        kept, number = self.within(method, case, column)
        mean = self.summary(method, case, column).mean
        return mean <= self.limit(case, method) + ROUNDING and 2 * kept > number

    def verdict(self, method: str, case: str) -> Verdict | None:
        """Judge the deployed cost of a method over its seeds; None if nothing is known of it."""
        costs, diverged = self.known(method, case, "deployed_cost"), self.diverged(method, case)
        if not len(costs) and not diverged:
            return None
        found = of_costs(costs, self.limit(case, method), of="seeds")
        if diverged and found.word == KEPT:  # those have no policy that could keep it
            number = len(costs) + len(diverged)
            found = Verdict(OPEN, f"{len(diverged)} of {number} seeds diverged; {found.reason}")
        return found

    def critic_verdict(self, method: str, case: str) -> Verdict | None:
        """Judge the safety critics of a method by the medians over its seeds; None without any."""
        known = [self.known(method, case, name) for name in ("critic_auc", "critic_ratio")]
        if not all(map(len, known)):
            return None
        return of_critic(*(float(np.median(x)) for x in known))

    def on(self, case: str) -> list[Run]:
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

    def known(self, method: str, case: str, column: str) -> np.ndarray:
        """Return those of the values that are known."""
        values = self.values(method, case, column)
        return values[~np.isnan(values)]

    def summary(self, method: str, case: str, column: str) -> Summary:
        """Summarise a column (see `values`) over the finished runs of a method in a case."""
        key = (method, case, column)
        if key not in self._summaries:  # its interval takes thousands of draws
            self._summaries[key] = summarise(self.values(*key))
        return self._summaries[key]

    def summary_rows(self) -> list[Row]:
        """Return a row for every method, case and column of runs.csv that has numbers."""
        rows = []
        for (method, case), runs in self.groups.items():
            labels: Row = {"method": method, "task": runs[0].job.task}
            labels |= {"limit": self.limit(case)} if self.swept else {}
            for column in (name for name in self.rows[0] if name not in LABELS):
                n, mean, error, (iqm, low, high) = self.summary(method, case, column)
                numbers = {"seeds": n, "mean": mean, "standard_error": error}
                numbers |= {"iqm": iqm, "iqm_low": low, "iqm_high": high}
                if n:
                    rows.append(labels | {"column": column} | numbers)
        return rows

    def overview(self) -> dict[str, list[list[str]]]:
        """Return for each case the cells of a small table: method, n, the columns of OVERVIEW."""
        tables: dict[str, list[list[str]]] = {}
        for (method, name), runs in self.groups.items():
            if number := len(self.of(method, name)):
                cells = [
                    _overview_cell(column, self.summary(method, name, column))
                    for column in OVERVIEW.values()
                ]
                case = self.case_of[name]
                limit = f", limit {grid.limit_text(case.limit)}" if case.swept else ""
                heading = f"{runs[0].job.task}{limit}"
                tables.setdefault(heading, []).append([method, str(number), *cells])
        return tables


def read(study: str | Path) -> StudyTable:
    """Read the runs of a study's folder, in whatever state they are, or of a packed study."""
    return StudyTable(Path(study), pack.load(Path(study))[1])


def write_tables(table: StudyTable) -> None:
    """Write runs.csv and summary.csv into the study's folder; nothing if no run has finished."""
    tables = {"runs": table.rows, "summary": table.summary_rows()} if table.rows else {}
    for name, rows in tables.items():
        write_csv(table.out / f"{name}.csv", rows[0], [row.values() for row in rows])


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table as CSV, with an empty cell where a number does not exist."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        ["" if cell != cell else plain_cell(cell) for cell in row] for row in (header, *rows)
    )
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
