"""Pictures of the tasks: the car from above, the cheetah from the side, the arm from both."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np
from PIL import Image, ImageDraw

from safecritic.tasks.car.gremlins import RADIUS as GREMLIN_PATH
from safecritic.tasks.car.layout import GOAL_RADIUS, HAZARD_RADIUS
from safecritic.tasks.car.model import CAR_BOXES
from safecritic.tasks.drawing.canvas import (
    ARENA,
    BLUE,
    BORDER,
    COST_ENTRY,
    FINE,
    GREEN,
    GRID,
    INK,
    ORANGE,
    PINK,
    RED,
    SKY,
    SOFT_INK,
    YELLOW,
    Colour,
    Entry,
    Paint,
    Panel,
    Points,
    compose,
    draw_legend,
    rectangle,
    round_to_even,
    strip_height,
    to_world,
    write_text,
)

BUTTON_RADIUS = 0.1
BOX_HALF = 0.1


def _from_above(*names: str) -> list[tuple[float, ...]]:
    """Return the car's boxes seen from above: centre x, y and half sizes."""
    return [(*centre[:2], *size[:2]) for size, centre in (CAR_BOXES[name] for name in names)]


# the car drives towards -y
CAR_WHEELS = [(-0.13, 0.1, 0.025, 0.05), (0.13, 0.1, 0.025, 0.05)]
CAR_BODY = _from_above("agent", "back_connector", "back_bumper")
CAR_FRONT = _from_above("front_connector", "front_bumper")
CAR_ARROW = ((0.0, -0.075), (0.055, 0.03), (-0.055, 0.03))


@dataclass(frozen=True, eq=False)
class Scene:
    """A car task at one moment, in metres and radians, as in the tasks' layout."""

    extent: float
    agent: Sequence[float] | np.ndarray
    """x, y, rotation about z; the car drives towards its own -y."""
    goal: Sequence[float] | np.ndarray | None = None
    """x, y of the goal disc; a task with buttons has `goal_button` instead."""
    hazards: Points = ()
    vases: Points = ()
    """x, y, rotation of each."""
    buttons: Points = ()
    goal_button: int | None = None
    gremlins: Points = ()
    """x, y, rotation of each, where they are now."""
    gremlin_centres: Points | None = None
    trail: Points = ()
    """Past positions of the car, oldest first."""
    trail_cost: Sequence[float] | np.ndarray = ()
    """Cost of the step that led to each point of the trail."""
    shade: np.ndarray | None = None
    """Values in [0, 1] over the arena, (rows, columns), the first row at the least y."""
    caption: str = ""
    goal_radius: float = GOAL_RADIUS


def draw_scene(scene: Scene, size: int = 480) -> np.ndarray:
    """Draw a car task from above: `size` wide, a little higher for caption and legend, uint8."""
    size = round_to_even(size)
    x, y, rotation = (float(v) for v in scene.agent)
    # the car may leave the arena: then show more, in steps, so that a film rarely changes scale
    farthest = max(abs(x), abs(y), float(np.abs(np.asarray(scene.trail)).max(initial=0.0)))
    half = max(1.12 * scene.extent, np.ceil(2 * (farthest + 0.25)) / 2)
    panel = Panel(size, size, (0.0, 0.0), size / 2 / half)
    _arena(panel, scene.extent, half)
    if scene.shade is not None:
        panel.shade(0.6 * scene.shade, scene.extent, RED)
    for centre in scene.hazards:
        panel.disc(centre, HAZARD_RADIUS, (*BLUE, 70), (*BLUE, 200), 1.2)
    if scene.goal is not None:
        _goal(panel, scene.goal, scene.goal_radius)
    if scene.gremlin_centres is not None:
        for centre in scene.gremlin_centres:
            _dotted_circle(panel, centre, GREMLIN_PATH)
    for index, centre in enumerate(scene.buttons):
        if index == scene.goal_button:
            panel.disc(centre, BUTTON_RADIUS + 0.1, (*GREEN, 60), (*GREEN, 255), 2.0)
            panel.disc(centre, BUTTON_RADIUS, GREEN, INK, 1.0)
        else:
            panel.disc(centre, BUTTON_RADIUS, ORANGE, INK, 1.0)
    for vase in scene.vases:
        _square(panel, vase, SKY)
    for gremlin in scene.gremlins:
        _square(panel, gremlin, PINK)
    panel.trail(scene.trail, scene.trail_cost)
    draw_car(panel, x, y, rotation)

    image = panel.image()
    metre = f"{2 * scene.extent:g} m"
    corner = panel.pixels((scene.extent, -scene.extent))[0]
    at = (corner[0] / FINE - 3, corner[1] / FINE + 4)
    write_text(image, at, metre, round(size * 0.024), SOFT_INK, "rt")
    strip = strip_height(size)
    return compose([image], scene.caption, strip, draw_legend(_scene_legend(scene), size, strip))


def _arena(panel: Panel, extent: float, half: float) -> None:
    panel.polygon(rectangle(0, 0, extent, extent), ARENA)
    for at in np.arange(np.ceil(-half / 0.5), np.floor(half / 0.5) + 1) * 0.5:
        for line in ([(at, -half), (at, half)], [(-half, at), (half, at)]):
            panel.line(line, GRID, 1.0)
    panel.polygon(rectangle(0, 0, extent, extent), None, BORDER, 1.5)


def _goal(panel: Panel, centre: Any, radius: float) -> None:
    panel.disc(centre, radius, (*GREEN, 80), (*GREEN, 255), 2.0)
    panel.disc(centre, radius * 0.12, GREEN)


def _square(panel: Panel, pose: Any, colour: Colour) -> None:
    corners = to_world(rectangle(0, 0, BOX_HALF, BOX_HALF), *(float(v) for v in pose))
    panel.polygon(corners, colour, INK, 1.0)


def _dotted_circle(panel: Panel, centre: Any, radius: float) -> None:
    for angle in np.linspace(0, 2 * np.pi, 36, endpoint=False):
        point = np.asarray(centre)[:2] + radius * np.array([np.cos(angle), np.sin(angle)])
        panel.disc(point, 1.1 * FINE / panel.scale, PINK)


def draw_car(panel: Panel, x: float, y: float, rotation: float) -> None:
    """Draw the car; the yellow side with the arrow is its front, its own -y."""
    for wheel in CAR_WHEELS:
        panel.polygon(to_world(rectangle(*wheel), x, y, rotation), INK)
    for part in CAR_FRONT:
        panel.polygon(to_world(rectangle(*part), x, y, rotation), YELLOW, INK, 1.0)
    for part in reversed(CAR_BODY):
        panel.polygon(to_world(rectangle(*part), x, y, rotation), (92, 99, 112), INK, 1.0)
    panel.polygon(to_world(CAR_ARROW, x, y, rotation), YELLOW)


def _scene_legend(scene: Scene) -> list[Entry]:
    def disc(fill: Colour, outline: Colour) -> Paint:
        return lambda panel, at: panel.disc(at, 0.9, fill, outline, 1.2)

    def square(colour: Colour) -> Paint:
        return lambda panel, at: panel.polygon(rectangle(0, 0, 0.75, 0.75), colour, INK)

    def car(panel: Panel, at: Any) -> None:
        panel.scale *= 5.0
        draw_car(panel, 0.0, 0.0, np.pi / 2)

    entries: list[Entry] = [("car", car)]
    if scene.goal is not None or scene.goal_button is not None:
        entries.append(("goal", disc((*GREEN, 80), GREEN)))
    if len(scene.buttons):
        entries.append(("button", disc(ORANGE, INK)))
    if len(scene.hazards):
        entries.append(("hazard", disc((*BLUE, 70), BLUE)))
    if len(scene.vases):
        entries.append(("vase", square(SKY)))
    if len(scene.gremlins):
        entries.append(("gremlin", square(PINK)))
    entries.append(COST_ENTRY)
    return entries


def draw_cheetah(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    trail: np.ndarray | None = None,
    trail_cost: np.ndarray | None = None,
    caption: str = "",
    speed: float | None = None,
    limit: float | None = None,
    size: int = 480,
) -> np.ndarray:
    """Draw the runner from the side, with metre marks and its speed against the limit.

    `data` needs up-to-date positions (`mujoco.mj_kinematics`); `trail` holds (x, z) of the torso.
    """
    width, height = round_to_even(size), round_to_even(size * 0.6)
    metres = 3.6
    scale = width / metres
    torso_x, torso_z = data.xpos[1, 0], data.xpos[1, 2]
    floor_at = 0.2 * height / scale
    # the view follows the torso, and rises only when it leaps out of it
    centre = (torso_x, height / scale / 2 - floor_at + max(0.0, torso_z - 1.4))
    panel = Panel(width, height, centre, scale, ARENA)
    left, right, bottom, _ = panel.edges
    marks = np.arange(np.ceil(left / 0.5), np.floor(right / 0.5) + 1) * 0.5
    for x in marks:
        panel.line([(x, 0), (x, bottom + 2 * metres)], GRID, 1.0)
    panel.polygon([(left, 0), (right, 0), (right, bottom - 1), (left, bottom - 1)], (240, 238, 231))
    panel.line([(left, 0), (right, 0)], BORDER, 2.0)
    for x in marks:
        if x == round(x):
            panel.line([(x, 0), (x, -0.07)], SOFT_INK, 1.5)
    if trail is not None:
        panel.trail(trail, trail_cost)
    # back leg, then front leg, then the trunk on top
    shades = {"b": BLUE, "f": GREEN}
    order = sorted(range(model.ngeom), key=lambda i: model.geom(i).name in ("torso", "head"))
    for i in order:
        if model.geom_type[i] == mujoco.mjtGeom.mjGEOM_CAPSULE:
            name = model.geom(i).name
            colour = INK if name in ("torso", "head") else shades.get(name[0], SOFT_INK)
            along = data.geom_xmat[i].reshape(3, 3)[:, 2] * model.geom_size[i, 1]
            ends = data.geom_xpos[i] + np.outer((-1, 1), along)
            panel.capsule(ends[0, [0, 2]], ends[1, [0, 2]], model.geom_size[i, 0], ARENA)
            panel.capsule(
                ends[0, [0, 2]], ends[1, [0, 2]], model.geom_size[i, 0] - 1.2 / scale, colour
            )
    image = panel.image()
    for x in marks:
        if x == round(x):
            px, py = panel.pixels((x, -0.09))[0]
            write_text(
                image, (px / FINE, py / FINE), f"{x:g} m", round(size * 0.027), SOFT_INK, "mt"
            )
    if speed is not None:
        _speed_bar(image, speed, limit, size)
    return compose([image], caption, strip_height(size))


def _speed_bar(image: Image.Image, speed: float, limit: float | None, size: int) -> None:
    width, height, edge = size * 0.3, size * 0.026, size * 0.03
    text = f"{speed:.2f} m/s" + (f", limit {limit:.2f}" if limit is not None else "")
    over = limit is not None and abs(speed) > limit
    draw = ImageDraw.Draw(image)
    left, top = image.width - edge - width, edge
    draw.rounded_rectangle((left, top, left + width, top + height), height / 2, GRID)
    full = 2 * limit if limit is not None else 6.4
    share = min(abs(speed) / full, 1.0)
    if share * width > height:
        draw.rounded_rectangle(
            (left, top, left + share * width, top + height), height / 2, RED if over else BLUE
        )
    if limit is not None:
        middle = left + width / 2
        draw.line((middle, top - 3, middle, top + height + 3), INK, 2)
    at = (left + width, top + height + size * 0.014)
    write_text(image, at, text, round(size * 0.029), RED if over else INK, "rt")


ARM = (
    "torso_lift_link",
    "shoulder_pan_link",
    "shoulder_lift_link",
    "upperarm_roll_link",
    "elbow_flex_link",
    "forearm_roll_link",
    "wrist_flex_link",
    "wrist_roll_link",
    "gripper_link",
)


def draw_fetch(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    goal: np.ndarray,
    trail: np.ndarray | None = None,
    trail_cost: np.ndarray | None = None,
    caption: str = "",
    goal_radius: float = 0.05,
    size: int = 480,
) -> np.ndarray:
    """Draw the arm from above (x, y) and from the side (x, z), and the target with its tolerance.

    `data` needs up-to-date positions; `trail` holds (x, y, z) of the hand.
    """
    side = round_to_even(size * 0.8)
    scale = side / 1.25
    joints = np.array([data.body(f"robot0:{name}").xpos for name in ARM])
    hand = data.site("robot0:grip").xpos
    table = data.body("table0").xpos
    half = model.geom_size[model.body_geomadr[model.body("table0").id]]
    panels = []
    for title, axes, centre in (
        ("from above", [0, 1], (1.1, 0.75)),
        ("from the side", [0, 2], (1.1, 0.62)),
    ):
        panel = Panel(side, side, centre, scale, ARENA)
        left, right, bottom, top = panel.edges
        for at in np.arange(-20, 30) * 0.1:
            panel.line([(at, bottom), (at, top)], GRID, 1.0)
            panel.line([(left, at), (right, at)], GRID, 1.0)
        panel.polygon(rectangle(*table[axes], *half[axes]), (236, 228, 214), BORDER, 1.2)
        links = joints[:, axes]
        panel.capsule(links[0], links[1], 0.06, (214, 217, 222))
        for radius, colour in ((0.036, INK), (0.032, (128, 136, 150))):
            for a, b in pairwise(links[1:]):
                panel.capsule(a, b, radius, colour)
        for point in links[1:]:
            panel.disc(point, 0.018, ARENA, INK, 1.0)
        panel.line([links[-1], hand[axes]], INK, 4.0)
        panel.disc(goal[axes], goal_radius, (*GREEN, 90), GREEN, 1.5)
        panel.disc(goal[axes], 0.008, GREEN)
        if trail is not None:
            panel.trail(np.asarray(trail, dtype=float).reshape(-1, 3)[:, axes], trail_cost)
        panel.disc(hand[axes], 0.02, YELLOW, INK, 1.5)
        panel.polygon([(left, bottom), (right, bottom), (right, top), (left, top)], None, BORDER, 1)
        image = panel.image()
        write_text(image, (8, 6), title, round(size * 0.03), SOFT_INK, "lt")
        panels.append(image)
    strip = strip_height(size)
    entries: list[Entry] = [
        ("hand", lambda panel, at: panel.disc(at, 0.7, YELLOW, INK, 1.2)),
        ("target", lambda panel, at: panel.disc(at, 0.9, (*GREEN, 90), GREEN, 1.2)),
        COST_ENTRY,
    ]
    return compose(panels, caption, strip, draw_legend(entries, 2 * side, strip))
