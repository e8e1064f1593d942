"""A table of a report as it is shown: on the page and as CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safecritic.study.table import write_csv

TEXTS = ("claim", "here", "because", "because of")  # columns of sentences
WORDS = ("task", "method", "run", "state", "setting", "package", "verdict", "critic", *TEXTS)


@dataclass
class Table:
    """A table whose cells are text, so that page and file show the same."""

    name: str  # of its file
    title: str
    caption: str
    header: list[str]
    rows: list[list[str]]
    section: str = ""
    folded: bool = False  # hidden until clicked: long, and of interest to few
    warning: str = ""  # above the table
    # by (row, column): best, worse, or differs (from the paper)
    marks: dict[tuple[int, int], str] = field(default_factory=dict)
    links: dict[tuple[int, int], str] = field(default_factory=dict)  # to a folder

    @property
    def empty(self) -> bool:
        return not self.rows

    def add(self, name: str, cells: Sequence[str]) -> None:
        """Append a column."""
        self.header.append(name)
        for row, cell in zip(self.rows, cells, strict=True):
            row.append(cell)

    def write_csv(self, path: Path) -> None:
        write_csv(path, self.header, self.rows)
