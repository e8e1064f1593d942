"""One look for every method in every figure: a colour, a dash and a marker.

The colours are those of Okabe and Ito, which stay apart for the common kinds of colour blindness;
dash and marker are for print without colours.
"""

from typing import NamedTuple

from safecritic.style import GRID, INK, SOFT

__all__ = ["GRID", "INK", "LIMIT", "PLAIN", "SOFT", "STYLES", "Style"]


class Style(NamedTuple):
    colour: str
    dash: str = "solid"  # solid, dash, dot, dashdot
    marker: str = "circle"  # circle, square, diamond, triangle, cross
    width: float = 1.8


PLAIN = Style(INK)
LIMIT = Style(INK, "dash", width=1.2)
STYLES = {
    "ddpg": Style("#8c8c8c", "dot", "circle"),
    "pid-lag": Style("#56b4e9", "dashdot", "square"),
    "cpo": Style("#0072b2", "dash", "diamond"),
    "rcpo": Style("#cc79a7", "dot", "triangle"),
    "sc": Style("#e69f00", "dashdot", "square"),
    "csc": Style("#d55e00", "dash", "diamond"),
    "usc-nr": Style("#009e73", "solid", "triangle"),
    "usc": Style("#000000", "solid", "circle", 2.4),
}
