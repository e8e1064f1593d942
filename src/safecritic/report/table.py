"""A table of a report as it is shown: on the page, as CSV and in LaTeX."""

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

from safecritic.files import write_text
from safecritic.study.table import plain_cell

TEXTS = ("claim", "here")  # columns of sentences
WORDS = ("task", "method", "against", "run", "state", "setting", "package", "verdict", *TEXTS)


@dataclass
class Table:
    """A table as it is shown."""

    name: str  # of its files
    title: str
    caption: str
    header: list[str]
    rows: list[list[str]]
    section: str = ""
    folded: bool = False  # hidden until clicked: long, and of interest to few
    warning: str = ""  # above the table
    marks: dict[tuple[int, int], str] = field(default_factory=dict)  # (row, column): best, worse
    links: dict[tuple[int, int], str] = field(default_factory=dict)  # to a folder

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.rows

    def write_csv(self, path: Path) -> None:
        """Write header and cells as CSV."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        for row in (self.header, *self.rows):
            writer.writerow(map(plain_cell, row))
        write_text(path, text.getvalue())

    def write_latex(self, path: Path) -> None:
        """Write a LaTeX table, which needs the package booktabs; best cells are bold."""
        columns = "".join("l" if name in WORDS else "r" for name in self.header)
        text = [f"{self.title}.", self.caption, self.warning]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(' '.join(filter(None, text)))}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(_latex(name) for name in self.header) + r" \\",
            r"\midrule",
        ]
        for number, row in enumerate(self.rows):
            if number and row[0] != self.rows[number - 1][0] and _labels(self) > 1:
                lines.append(r"\addlinespace")
            cells = [_latex(cell) for cell in row]
            for at in range(len(cells)):
                if self.marks.get((number, at)) == "best":
                    cells[at] = rf"\textbf{{{cells[at]}}}"
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        write_text(path, "\n".join(lines) + "\n")


def _labels(table: Table) -> int:
    """Return the number of columns that are words."""
    return sum(name in WORDS for name in table.header)


def _latex(text: str) -> str:
    plain = {
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "≠": r"$\neq$",
        "≥": r"$\geq$",
        "–": "--",
        "²": r"$^2$",
        "→": r"$\to$",
        "<": r"$<$",
        ">": r"$>$",
        "^": r"\^{}",
        "~": r"\~{}",
        **{sign: "\\" + sign for sign in "%&_#{}$"},
    }
    return "".join(plain.get(sign, sign) for sign in text)
