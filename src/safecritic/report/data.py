"""What a report is made of: the runs of a study as far as they are, and the paper's numbers."""

import csv
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.agents.methods import METHODS
from safecritic.core.statistics import can_be_told_apart
from safecritic.study import pack
from safecritic.study.grid import shipped
from safecritic.study.table import StudyTable
from safecritic.tasks.registry import TASKS


class PaperValue(NamedTuple):
    """A number of the paper, with the number after its ± sign (NaN if there is none)."""

    mean: float
    spread: float

    def text(self, digits: int = 2) -> str:
        spread = "" if np.isnan(self.spread) else f" ± {self.spread:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


@dataclass
class Study(StudyTable):
    """A study as read from its folder or file, with the paper's numbers."""

    source: str = ""  # the file that described it
    paper: dict[tuple[str, str, str, str], PaperValue] = field(default_factory=dict)

    @property
    def of_the_paper(self) -> bool:
        """Whether the paper has numbers for some task of the study."""
        return not {task for _, _, task, _ in self.paper}.isdisjoint(self.tasks)

    def paper_value(self, table: str, method: str, case: str, metric: str) -> PaperValue | None:
        """Return the paper's number, or None if it gives none at this limit."""
        task, limit, swept = self.case_of[case]
        if swept and (task not in TASKS or TASKS[task].cost_limit != limit):
            return None
        return self.paper.get((table, method, task, metric))

    def steps(self, method: str, case: str) -> tuple[int, int]:
        """Return the fewest and the most steps of the finished runs of a method in a case."""
        steps = [run.steps for run in self.of(method, case)]
        return min(steps, default=0), max(steps, default=0)

    def comparable(self, case: str) -> tuple[list[str], list[str]]:
        """Return the methods with runs in a case, and after them those with too few to compare.

        Too few is what no result could tell from the method of most runs, while others have
        enough; where nobody has enough, all are in the first list.
        """
        count = {method: len(self.of(method, case)) for method in self.methods}
        run = [method for method in self.methods if count[method]]
        most = max(count.values(), default=0)
        enough = [method for method in run if can_be_told_apart(count[method], most)]
        return (enough, [x for x in run if x not in enough]) if enough else (run, [])

    def shorter_than_the_paper(self, method: str, case: str) -> bool:
        """Return whether the paper has such runs and some here have fewer steps than its grid."""
        known = any(key[1:3] == (method, self.case_of[case].task) for key in self.paper)
        return known and 0 < self.steps(method, case)[0] < self.paper_steps(method)

    def paper_steps(self, method: str) -> int:
        """Return the steps that paper.toml gives a method; the paper itself names no number."""
        content = self._paper_grid
        return content["method"].get(method, {}).get("steps", content["steps"])

    @cached_property
    def _paper_grid(self) -> dict[str, Any]:
        return tomllib.loads(shipped()["paper.toml"].read_text("utf-8"))


def title(method: str) -> str:
    """Return a method's name as the paper writes it."""
    return METHODS[method].title if method in METHODS else method


def read(study: Path) -> Study:
    """Read a study in whatever state it is: its folder, or the file it was packed into."""
    about, runs = pack.load(study)
    return Study(study, runs, about["source"], read_paper())


def read_paper() -> dict[tuple[str, str, str, str], PaperValue]:
    """Return the paper's Tables 1 to 4 by (table, method, task, metric)."""
    text = (resources.files("safecritic") / "report" / "paper.csv").read_text("utf-8")
    paper = {}
    for row in csv.DictReader(text.splitlines()):
        table, metric, method = (row.pop(name) for name in ("table", "metric", "method"))
        for task, cell in row.items():
            mean, _, spread = cell.partition(" ± ")
            if mean:
                paper[table, method, task, metric] = PaperValue(float(mean), float(spread or "nan"))
    return paper


def listed(names: list[str], last: str = "and") -> str:
    """Return names in a row: `SC, CSC and USC`."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def steps_text(fewest: int, most: int) -> str:
    """Return a number of steps, or a range."""
    return f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
