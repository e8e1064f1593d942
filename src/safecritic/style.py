"""Colours and lines that every picture shares, and one look for every method."""

import functools
import itertools
from typing import Any, NamedTuple

INK, SOFT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {"reward": "#0072b2", "cost": "#d55e00", "success": "#009e73", "multiplier": "#7b4fa3"}


class Style(NamedTuple):
    """The look of a line and its points."""

    colour: str
    dash: str = "solid"  # solid, dash, dot, dashdot
    marker: str = "circle"  # circle, square, diamond, triangle, cross
    width: float = 1.8


PLAIN = Style(INK)
LIMIT = Style(INK, "dash", width=1.2)

# In turn for methods without a look of their own: what no method of the table combines.
_SPARE_COLOURS = ("#7b4fa3", "#8c564b", "#b8a800", "#1b7837", "#e7298a", "#4d4dff")
_SPARE = itertools.cycle(
    Style(colour, dash, marker)
    for dash, marker in (("solid", "cross"), ("dash", "square"), ("dashdot", "triangle"))
    for colour in _SPARE_COLOURS
)


@functools.cache
def method_style(name: str) -> Style:
    """Return the look of a method, the same wherever it is drawn; a spare one if it has none."""
    from safecritic.methods import METHODS  # the table needs `Style` first

    row = METHODS.get(name)
    return (row and row.style) or next(_SPARE)
