"""Figures as plain data, which Matplotlib draws as PNG and PDF and Plotly on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    across: np.ndarray | None = None  # half length of a horizontal one
    names: Sequence[str] = ()  # shown on hovering


@dataclass
class Bars:
    """Upright bars, each with its own style."""

    x: np.ndarray
    height: np.ndarray
    styles: Sequence[Style]
    error: np.ndarray | None = None


class Scale(NamedTuple):
    """The colours of one or more maps, which share a colour bar."""

    label: str
    low: float
    high: float


@dataclass
class Heat:
    """Values (H, W) over a square from -extent to extent."""

    z: np.ndarray
    extent: float
    scale: Scale


Mark = Line | Points | Bars | Heat


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
    yroot: bool = False  # by the square root, so that small values beside large ones are seen
    xticks: tuple[Sequence[float], Sequence[str]] | None = None
    named: bool = True  # if there are ticks, they name the methods
    xrange: tuple[float, float] | None = None
    yrange: tuple[float, float] | None = None
    square: bool = False  # the same scale on both axes
    note: str = ""  # in small letters under the title, one line or two

    @property
    def scale(self) -> Scale | None:
        """The colours of its map, if it is one."""
        return next((mark.scale for mark in self.marks if isinstance(mark, Heat)), None)


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
    def scales(self) -> dict[Scale, list[int]]:
        """The colour bars, each with the panels that share it."""
        scales: dict[Scale, list[int]] = {}
        for number, panel in enumerate(self.panels):
            if panel.scale is not None:
                scales.setdefault(panel.scale, []).append(number)
        return scales

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
        return bool(self.legend) and not along


def root_ticks(high: float) -> list[float]:
    """Return the ticks of an axis by the square root, from 0 to `high`: not too close.

    >>> root_ticks(12.0)
    [0.0, 0.5, 2.0, 5.0, 10.0]
    """
    nice = [m * 10.0**e for e in range(-3, 7) for m in (1, 2, 5)]
    ticks = [0.0]
    for tick in nice:
        if tick <= high and np.sqrt(tick) - np.sqrt(ticks[-1]) >= 0.17 * np.sqrt(high):
            ticks.append(tick)
    return ticks


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
        Style("#ffffff", width=0.7),
    )


def outline(inside: np.ndarray, extent: float) -> Line:
    """Return the border of the cells (H, W) that are inside, as one broken line."""
    from contourpy import contour_generator

    size = len(inside)
    # a border of its own, so that what reaches the edge is closed too
    middles = (np.arange(-1, size + 1) + 0.5) / size * 2 * extent - extent
    padded = np.pad(inside.astype(float), 1)
    pieces = contour_generator(middles, middles, padded).lines(0.5)
    broken = [np.vstack([np.asarray(piece), np.full((1, 2), np.nan)]) for piece in pieces]
    x, y = np.vstack(broken).T if broken else np.zeros((2, 0))
    return Line(x, y, Style("#ff3b6b", width=1.3))
