"""Figures as plain data, which Matplotlib draws as PNG and PDF and Plotly on the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safecritic.style import PLAIN, Style


@dataclass
class Line:
    """A line, with a band around it or with markers."""

    x: np.ndarray
    y: np.ndarray
    style: Style = PLAIN
    label: str = ""
    low: np.ndarray | None = None  # band
    high: np.ndarray | None = None
    marked: bool = False  # a marker at every point
    error: np.ndarray | None = None  # half length of a vertical bar at every point


@dataclass
class Points:
    """Points, with error bars or names."""

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
    """Upright bars, each with its own style."""

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
    """One pair of axes and what is drawn in it."""

    title: str
    marks: list[Mark]
    xlabel: str = ""
    ylabel: str = ""
    level: float | None = None  # height of a horizontal line: the limit
    upright: float | None = None  # place of a vertical one
    xlog: bool = False
    ylog: bool = False
    xticks: tuple[Sequence[float], Sequence[str]] | None = None
    named: bool = True  # if there are ticks, they name the methods
    xrange: tuple[float, float] | None = None
    yrange: tuple[float, float] | None = None
    square: bool = False  # the same scale on both axes
    note: str = ""  # in small letters under the title


@dataclass
class Figure:
    """Panels under one title."""

    name: str  # of its files
    title: str
    caption: str
    panels: list[Panel]
    most_columns: int = 3
    section: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(panel.marks for panel in self.panels)

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of panels."""
        columns = min(self.most_columns, len(self.panels))
        return -(-len(self.panels) // columns), columns

    @property
    def has_maps(self) -> bool:
        """Whether some panel is a map."""
        return any(panel.square for panel in self.panels)

    @property
    def legend(self) -> dict[str, Style]:
        """The label and style of every method drawn."""
        return {
            mark.label: mark.style
            for panel in self.panels
            for mark in panel.marks
            if isinstance(mark, Line | Points) and mark.label
        }

    @property
    def shows_legend(self) -> bool:
        """Whether a legend is needed: not where the methods are named along the axis."""
        along = any(panel.xticks and panel.named for panel in self.panels)
        return len(self.legend) > 1 and not along


def arrows(x: np.ndarray, y: np.ndarray, u: np.ndarray, v: np.ndarray) -> Line:
    """Return arrows from (x, y) along (u, v), as one broken line."""
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
    """Return the outline of an ellipse with these half axes."""
    angle = np.linspace(0, 2 * np.pi, 65)
    return x + width * np.cos(angle), y + height * np.sin(angle)
