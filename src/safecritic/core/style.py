"""The one palette: colours and lines that every picture shares, and one look for every method."""

import functools
import itertools
from typing import Any, NamedTuple

INK, SOFT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
STYLE: dict[Any, Any] = {  # of Matplotlib
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
# What stands in an arena, in films and in the explorer; mostly Okabe and Ito's colours. What costs
# is vermilion: hazards, and the trail of a step with a cost.
SCENE = {
    "goal": "#009e73",
    "hazards": COLOURS["cost"],
    "vases": "#56b4e9",
    "buttons": "#e69f00",
    "gremlins": "#cc79a7",
    "pillars": "#969aa0",
    "push_box": "#a47c54",
    "circle": "#009e73",
    "walls": "#e69f00",
    "body": "#5c6370",  # of the robot
    "front": "#f0e442",
}
PREDICTED = "#6a3d9a"  # what a critic expects to cost: no colour of the arena is near it
# What the maps of the explorer show; with their colour at the highest value.
QUANTITIES = {"q_cost": PREDICTED, "influence": "#8f5a14", "q_reward": COLOURS["reward"]}
MAPS = "viridis"  # the colours of a cost map
OUTLINE = "#ff3b6b"  # on a cost map, around what costs


class Style(NamedTuple):
    """The look of a line and its points."""

    colour: str
    dash: str = "solid"  # solid, dash, dot, dashdot
    marker: str = "circle"  # circle, square, diamond, triangle, cross
    width: float = 1.8


# Mostly Okabe and Ito's colours, which stay apart for the common kinds of colour blindness; dash
# and marker are for print without colours. A package with a method of its own may add a row.
METHODS = {
    "ddpg": Style("#606060", "dot", "circle"),
    "pid-lag": Style("#56b4e9", "dashdot", "square"),
    "cpo": Style("#6b3e26", "dash", "diamond"),
    "rcpo": Style("#cc79a7", "dot", "triangle"),
    "sc": Style("#e69f00", "dashdot", "square"),
    "csc": Style("#d55e00", "dash", "diamond"),
    "usc-nr": Style("#009e73", "solid", "triangle"),
    "usc": Style("#0072b2", "solid", "circle", 2.8),
}

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
    return METHODS.get(name) or next(_SPARE)
