"""Figures as plain data, drawn twice: by Matplotlib as PNG and PDF, by Plotly on the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safecritic.style import PLAIN, Style


@dataclass
class Line:
    x: np.ndarray
    y: np.ndarray
    style: Style = PLAIN
    label: str = ""
    low: np.ndarray | None = None  # band
    high: np.ndarray | None = None
    marked: bool = False  # a marker at every point


@dataclass
class Points:
    x: np.ndarray
    y: np.ndarray
    style: Style = PLAIN
    label: str = ""
    size: float = 5.0  # pt
    opacity: float = 1.0
    error: np.ndarray | None = None  # half length of a vertical bar
    names: Sequence[str] = ()  # shown on hovering


@dataclass
class Area:
    """A filled polygon."""

    x: np.ndarray
    y: np.ndarray
    style: Style = PLAIN


@dataclass
class Bars:
    x: np.ndarray
    height: np.ndarray
    styles: Sequence[Style]
    error: np.ndarray | None = None


@dataclass
class Heat:
    """Values (H, W) over a square from -extent to extent."""

    z: np.ndarray
    extent: float


Mark = Line | Points | Area | Bars | Heat


@dataclass
class Panel:
    title: str
    marks: list[Mark]
    xlabel: str = ""
    ylabel: str = ""
    level: float | None = None  # a horizontal line: the limit
    upright: float | None = None  # a vertical one
    xlog: bool = False
    ylog: bool = False
    xticks: tuple[Sequence[float], Sequence[str]] | None = None
    xrange: tuple[float, float] | None = None
    yrange: tuple[float, float] | None = None
    square: bool = False  # the same scale on both axes
    note: str = ""  # in small letters under the title


@dataclass
class Figure:
    name: str  # of its files
    title: str
    caption: str
    panels: list[Panel]
    most_columns: int = 3
    section: str = ""

    @property
    def empty(self) -> bool:
        return not any(panel.marks for panel in self.panels)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        columns = min(self.most_columns, len(self.panels))
        return -(-len(self.panels) // columns), columns

    @property
    def has_maps(self) -> bool:
        return any(panel.square for panel in self.panels)

    @property
    def legend(self) -> dict[str, Style]:
        """Every method drawn, with its look."""
        return {
            mark.label: mark.style
            for panel in self.panels
            for mark in panel.marks
            if isinstance(mark, Line | Points) and mark.label
        }

    @property
    def shows_legend(self) -> bool:
        """Not where the methods stand along the axis."""
        along = any(panel.xticks and not panel.xlog for panel in self.panels)
        return len(self.legend) > 1 and not along


def arrows(x: np.ndarray, y: np.ndarray, u: np.ndarray, v: np.ndarray) -> Line:
    """Arrows from (x, y) along (u, v), as one broken line."""
    tip_x, tip_y = x + u, y + v
    gap = np.full(len(x), np.nan)
    head = 0.35
    wings = []
    for side in (1.0, -1.0):
        wings.append((tip_x - head * (u - side * 0.6 * v), tip_y - head * (v + side * 0.6 * u)))
    (ax, ay), (bx, by) = wings
    return Line(
        np.column_stack([x, tip_x, ax, gap, tip_x, bx, gap]).ravel(),
        np.column_stack([y, tip_y, ay, gap, tip_y, by, gap]).ravel(),
        Style("#ffffff", width=1.0),
    )


def ellipse(x: float, y: float, width: float, height: float) -> tuple[np.ndarray, np.ndarray]:
    """Outline with these half axes."""
    angle = np.linspace(0, 2 * np.pi, 65)
    return x + width * np.cos(angle), y + height * np.sin(angle)
