"""Checks of a layout and a state that the caller gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from safecritic.tasks.common import check_options
from safecritic.tasks.navigation.objects import GOAL_RADIUS, KINDS, Arena
from safecritic.tasks.navigation.robots import Robot

Layout = dict[str, Any]


def check_start(
    arena: Arena, robot: Robot, options: Mapping[str, Any] | None, nq: int, nv: int
) -> tuple[Layout | None, dict[str, Any]]:
    """Return the layout and the state inside `reset(options=...)`, both checked."""
    buttons: dict[str, tuple[int, ...]] = {"goal_button": ()} if arena.buttons else {}
    placed = {name: (n, KINDS[name].columns) for name, n in arena.counts.items()}
    goal: dict[str, tuple[int, ...]] = {"goal": (2,)} if arena.goal_keepout else {}
    layout, state = check_options(
        options,
        {"agent": (3,), **goal, **placed, **buttons},
        {"qpos": (nq,), "qvel": (nv,), "time": (), **goal}
        | (buttons | {"button_timer": ()} if arena.buttons else {}),
    )
    if layout is not None:
        _check_layout(arena, layout)
    for name in ("time", "button_timer"):
        if state.get(name, 0.0) < 0:
            raise ValueError(f"state[{name!r}] must be >= 0, got {state[name]}")
    if "goal_button" in state:
        state["goal_button"] = _check_button(arena, state["goal_button"])
    if "qpos" in state:
        for start in (*robot.rotations, *range(robot.nq + 3, nq, 7)):
            if not np.linalg.norm(state["qpos"][start : start + 4]) > 1e-6:
                raise ValueError(
                    f"state['qpos'][{start}:{start + 4}] must be a rotation (a unit quaternion), "
                    "got zeros: start from env.unwrapped.state['qpos']"
                )
    return layout, state


def _check_layout(arena: Arena, layout: Layout) -> None:
    goal = ["goal_button" if arena.buttons else "goal"] if arena.goal_keepout else []
    known = ["agent", *arena.counts, *goal]
    missing = sorted(set(known) - set(layout))
    if missing:
        raise ValueError(f"layout lacks {missing}: give all of {known}")
    if arena.buttons:
        index = layout["goal_button"] = _check_button(arena, layout["goal_button"])
        button, goal = layout["buttons"][index], layout.pop("goal", None)
        if goal is not None and not np.allclose(goal, button, atol=1e-6):
            raise ValueError(
                f"layout['goal'] must be where button {index} is, {button}, got {goal}: in Button "
                "tasks the goal is a button, leave 'goal' out"
            )
    _refuse_overlap(arena, layout)


def _check_button(arena: Arena, index: np.ndarray) -> int:
    if not 0 <= int(index) < arena.buttons or int(index) != index:
        raise ValueError(f"goal_button must be 0 to {arena.buttons - 1}, got {float(index):g}")
    return int(index)


def _refuse_overlap(arena: Arena, layout: Layout) -> None:
    """Refuse two objects that are nearer than placement allows and whose footprints meet."""
    # plain numbers, because a cost map checks thousands of layouts
    things: list[tuple[str, float, float, float, float]] = []
    for name in ("agent", *arena.counts):
        keepout, footprint = arena.keepout(name), arena.footprint(name)
        for i, (x, y, *_) in enumerate(np.atleast_2d(layout[name]).tolist()):
            label = name if name == "agent" else f"{name}[{i}]"
            things.append((label, x, y, footprint, keepout))
    if "goal" in layout:
        things.append(("goal", *layout["goal"].tolist(), GOAL_RADIUS, arena.goal_keepout))
    for i, (name, x, y, size, keepout) in enumerate(things):
        for other, other_x, other_y, other_size, other_keepout in things[:i]:
            distance = math.hypot(x - other_x, y - other_y)
            if distance < min(size + other_size, keepout + other_keepout) - 1e-9:
                raise ValueError(
                    f"layout: {other} and {name} overlap ({distance:.3f} m between their centres); "
                    "move one of them (to start inside something, use state['qpos'], which "
                    "is not checked)"
                )
