"""What stands in an arena: kinds of objects as numbers, and how many of each a task places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

GOAL_RADIUS = 0.3
HAZARD_RADIUS = 0.2
BUTTON_RADIUS = 0.1
PILLAR_RADIUS = 0.2
BOX_HALF = 0.1  # half side of a vase and of a gremlin
GREMLIN_PATH = 0.35  # radius of the circle it runs on
CIRCLE_RADIUS = 1.5  # of the circle to drive on

VASE_HEIGHT = 0.1 - 4e-5  # where a vase settles under its own weight
GREMLIN_HEIGHT = 0.1
BUTTON_HEIGHT = 0.1
PILLAR_HEIGHT = 0.5
GOAL_HEIGHT = 0.16  # counts where distances are three-dimensional


class Kind(NamedTuple):
    """A kind of object."""

    keepout: float  # radius that placement keeps free around it
    footprint: float  # radius on the floor
    columns: int = 2  # in a layout: x, y and perhaps a rotation


KINDS = {
    "agent": Kind(0.4, 0.216, 3),
    "buttons": Kind(0.2, BUTTON_RADIUS),
    "hazards": Kind(0.18, HAZARD_RADIUS),
    "vases": Kind(0.15, 0.1414, 3),
    "pillars": Kind(0.3, PILLAR_RADIUS),
    "gremlins": Kind(0.4, 0.1414, 3),  # its place is the centre of its circle
    "push_box": Kind(0.2, 0.3, 3),
}
MOVABLE = ("vases", "gremlins", "push_box")  # an arena has one of these at most
SEEN = ("buttons", "goal", "circle", "hazards", "vases", "pillars", "gremlins", "push_box")


@dataclass(frozen=True)
class Arena:
    """What a task places: half side of the square, the goal's keepout, number of each kind."""

    extent: float
    goal_keepout: float = 0.0  # 0: there is no goal
    hazards: int = 0
    vases: int = 0
    buttons: int = 0
    gremlins: int = 0
    pillars: int = 0
    push_box: int = 0
    box: float = 0.2  # half side of the push box
    hazard_radius: float = HAZARD_RADIUS
    hazard_keepout: float = KINDS["hazards"].keepout
    start: tuple[tuple[float, float], tuple[float, float]] | None = None  # x and y of the robot
    circle: bool = False  # to drive on, around the origin
    walls: tuple[float, ...] = ()  # at +-x, and at +-y; crossing them costs

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects of each kind, in the order of placement, without the goal."""
        counts = {name: getattr(self, name) for name in KINDS if name != "agent"}
        return {name: n for name, n in counts.items() if n}

    @property
    def boxes(self) -> str:
        """The kind of the light boxes that can be pushed; none is ""."""
        return next((kind for kind in MOVABLE if getattr(self, kind)), "")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of object the robot sees, in the order of their lidars."""
        there = {"goal": self.goal_keepout > 0, "circle": self.circle, **self.counts}
        return tuple(kind for kind in SEEN if there.get(kind))

    @property
    def fixed(self) -> int:
        """Objects that always stand in the same place, yet use the original's random numbers."""
        return self.circle + 2 * len(self.walls)

    def keepout(self, kind: str) -> float:
        """Return the radius that placement keeps free around an object of this kind."""
        sizes = {
            "goal": self.goal_keepout,
            "hazards": self.hazard_keepout,
            "push_box": self.box,
        }
        return sizes[kind] if kind in sizes else KINDS[kind].keepout

    def footprint(self, kind: str) -> float:
        """Return the radius of an object of this kind on the floor."""
        sizes = {"hazards": self.hazard_radius, "push_box": 1.5 * math.sqrt(2.0) * self.box}
        return sizes[kind] if kind in sizes else KINDS[kind].footprint

    def placement_order(self) -> list[str]:
        """Return the kind of every object in the order of placement."""
        goal = int(self.goal_keepout > 0)
        numbers = {"agent": 1, "buttons": self.buttons, "goal": goal, **self.counts}
        return [kind for kind, number in numbers.items() for _ in range(number)]
