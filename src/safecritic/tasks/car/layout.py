"""What a car task places, and checks of a layout and a state that the caller gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from safecritic.tasks.car.model import CAR_NQ
from safecritic.tasks.common import check_array, check_options

# radius that placement keeps free around an object, and radius of its footprint on the floor
KEEPOUT = {"agent": 0.4, "hazards": 0.18, "vases": 0.15, "buttons": 0.2, "gremlins": 0.4}
FOOTPRINT = {"agent": 0.216, "hazards": 0.2, "vases": 0.1414, "buttons": 0.1, "gremlins": 0.1414}
GOAL_RADIUS = 0.3
HAZARD_RADIUS = 0.2

Layout = dict[str, Any]


@dataclass(frozen=True)
class Arena:
    """What a task places: half side of the square, the goal's keepout, number of each kind."""

    extent: float
    goal_keepout: float
    hazards: int
    vases: int = 0
    buttons: int = 0
    gremlins: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects of each kind, in the order of placement, without the goal."""
        counts = {name: getattr(self, name) for name in ("buttons", "hazards", "vases", "gremlins")}
        return {name: n for name, n in counts.items() if n}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of object the car sees, in the order of their lidars."""
        return (
            ("buttons", "goal", "hazards", "gremlins")
            if self.buttons
            else ("goal", "hazards", "vases")
        )

    def keepout(self, kind: str) -> float:
        """Return the radius that placement keeps free around an object of this kind."""
        return self.goal_keepout if kind == "goal" else KEEPOUT[kind]

    def placement_order(self) -> list[str]:
        """Return the kind of every object in the order of placement."""
        return (
            ["agent"]
            + ["buttons"] * self.buttons
            + ["goal"]
            + ["hazards"] * self.hazards
            + ["vases"] * self.vases
            + ["gremlins"] * self.gremlins
        )


def check_start(
    arena: Arena, options: Mapping[str, Any] | None, nq: int, nv: int
) -> tuple[Layout | None, dict[str, Any]]:
    """Return the layout and the state inside `reset(options=...)`, both checked."""
    layout_keys = ["agent", "goal", *arena.counts]
    state_keys = ["qpos", "qvel", "time", "goal"]
    if arena.buttons:
        layout_keys += ["goal_button"]
        state_keys += ["goal_button", "button_timer"]
    given, state = check_options(options, layout_keys, state_keys)
    layout = None
    if options and options.get("layout") is not None:
        layout = check_layout(arena, given)
    for name, shape in (("qpos", (nq,)), ("qvel", (nv,)), ("goal", (2,))):
        if name in state:
            state[name] = check_array(f"state[{name!r}]", state[name], shape)
    for name in ("time", "button_timer"):
        if name in state and not 0 <= float(state[name]) < math.inf:
            raise ValueError(f"state[{name!r}] must be finite and >= 0, got {state[name]!r}")
    if "goal_button" in state:
        state["goal_button"] = check_button(arena, state["goal_button"])
    if "qpos" in state:
        for start in (3, 9, *range(CAR_NQ + 3, nq, 7)):
            if not np.linalg.norm(state["qpos"][start : start + 4]) > 1e-6:
                raise ValueError(
                    f"state['qpos'][{start}:{start + 4}] must be a rotation (a unit quaternion), "
                    "got zeros: start from env.unwrapped.state['qpos']"
                )
    return layout, state


def check_layout(arena: Arena, layout: Layout) -> Layout:
    """Return the layout as arrays of the right shape; a wrong one is a ValueError."""
    shapes: dict[str, tuple[int, ...]] = {"agent": (3,)}
    for name, n in arena.counts.items():
        shapes[name] = (n, 3 if name in ("vases", "gremlins") else 2)
    if not arena.buttons:
        shapes["goal"] = (2,)
    optional = {"goal"} if arena.buttons else set()
    known = [*shapes, *(["goal_button"] if arena.buttons else []), *optional]
    missing = sorted(set(known) - set(layout) - optional)
    if missing:
        raise ValueError(f"layout lacks {missing}: give all of {known}")

    checked: Layout = {
        name: check_array(f"layout[{name!r}]", layout[name], s) for name, s in shapes.items()
    }
    if arena.buttons:
        checked["goal_button"] = check_button(arena, layout["goal_button"])
        if "goal" in layout:
            goal = check_array("layout['goal']", layout["goal"], (2,))
            button = checked["buttons"][checked["goal_button"]]
            if not np.allclose(goal, button, atol=1e-6):
                raise ValueError(
                    f"layout['goal'] must be where button {checked['goal_button']} is, {button}, "
                    f"got {goal}: in Button tasks the goal is a button, leave 'goal' out"
                )
    _refuse_overlap(arena, checked)
    return checked


def check_button(arena: Arena, index: Any) -> int:
    """Return the index of a button of this arena; another one is a ValueError."""
    if not 0 <= int(index) < arena.buttons or int(index) != index:
        raise ValueError(f"goal_button must be 0 to {arena.buttons - 1}, got {index!r}")
    return int(index)


def _refuse_overlap(arena: Arena, layout: Layout) -> None:
    """Refuse two objects that are nearer than placement allows and whose footprints meet."""
    # plain numbers, because a cost map checks thousands of layouts
    x, y, _ = layout["agent"].tolist()
    things = [("agent", x, y, FOOTPRINT["agent"], KEEPOUT["agent"])]
    for name in arena.counts:
        for i, (x, y, *_) in enumerate(layout[name].tolist()):
            things.append((f"{name}[{i}]", x, y, FOOTPRINT[name], KEEPOUT[name]))
    if "goal" in layout and not arena.buttons:
        things.append(("goal", *layout["goal"].tolist(), GOAL_RADIUS, arena.goal_keepout))
    for i, (name, x, y, size, keepout) in enumerate(things):
        for other, other_x, other_y, other_size, other_keepout in things[:i]:
            distance = math.hypot(x - other_x, y - other_y)
            if distance < min(size + other_size, keepout + other_keepout) - 1e-9:
                raise ValueError(
                    f"layout: {other} and {name} overlap ({distance:.3f} m between their centres); "
                    "move one of them (to start the car inside something, use state['qpos'], which "
                    "is not checked)"
                )
