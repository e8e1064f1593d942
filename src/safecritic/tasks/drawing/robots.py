"""Pictures of the tasks: robots among objects from above, runners aside, the arm from both."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import mujoco
import numpy as np
from PIL import Image, ImageDraw

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
    PAPER,
    PINK,
    RED,
    SKY,
    SOFT_INK,
    VIOLET,
    YELLOW,
    Colour,
    Entry,
    Paint,
    Panel,
    Points,
    colour_of,
    compose,
    draw_bar,
    draw_legend,
    rectangle,
    round_to_even,
    strip_height,
    to_world,
    write_text,
)
from safecritic.tasks.navigation.objects import (
    BOX_HALF,
    BUTTON_RADIUS,
    CIRCLE_RADIUS,
    GOAL_RADIUS,
    GREMLIN_PATH,
    HAZARD_RADIUS,
    PILLAR_RADIUS,
)
from safecritic.tasks.navigation.robots import CAR, POINT

# the car drives towards -y
CAR_WHEELS = [(-0.13, 0.1, 0.025, 0.05), (0.13, 0.1, 0.025, 0.05)]
CAR_PARTS = ["front_connector", "front_bumper", "back_bumper", "back_connector", "agent"]  # upwards
CAR_ARROW = ((0.0, -0.075), (0.055, 0.03), (-0.055, 0.03))
POINT_ARROW = ((0.075, 0.0), (-0.03, 0.055), (-0.03, -0.055))
POINT_RADIUS = 0.1
BODY, GREY, BROWN = colour_of("body"), colour_of("pillars"), colour_of("push_box")


class Shape(NamedTuple):
    """A part of a robot from above."""

    points: np.ndarray  # (N, 2) corners, m
    fill: str  # a colour of the palette's scene, or "ink"
    outlined: bool = True


class Shade(NamedTuple):
    """A map to draw a scene over."""

    values: np.ndarray  # (rows, columns), the first row at the least y
    most: float  # the value of the full colour
    name: str = "Q_C: cost expected from there"


@dataclass(frozen=True, eq=False)
class Scene:
    """A navigation task at one moment, in metres and radians, as in the tasks' layout."""

    extent: float
    agent: Sequence[float] | np.ndarray  # x, y, rotation about z
    goal: Sequence[float] | np.ndarray | None = None  # its disc; with buttons there is none
    hazards: Points = ()
    vases: Points = ()  # x, y, rotation of each
    buttons: Points = ()
    goal_button: int | None = None
    gremlins: Points = ()  # x, y, rotation of each, where they are now
    gremlin_centres: Points = ()
    pillars: Points = ()
    push_box: Sequence[float] | np.ndarray | None = None  # x, y, rotation
    push_half: float = 0.2  # half side of its cube
    circle: bool = False  # the one to drive on
    walls: Sequence[float] = ()  # at +-x, and at +-y
    hazard_radius: float = HAZARD_RADIUS
    robot: str = CAR.name
    bounded: bool = True  # there is a square in which things are placed
    follows: bool = False  # the view goes with the robot along y
    trail: Points = ()  # past positions, oldest first
    trail_cost: Sequence[float] | np.ndarray = ()  # of the step that led to each
    shade: Shade | None = None
    caption: str = ""


def draw_scene(scene: Scene, size: int = 480) -> np.ndarray:
    """Draw a scene from above: `size` wide, a little higher for caption and legend, uint8."""
    size = round_to_even(size)
    x, y, rotation = (float(v) for v in scene.agent)
    middle = (0.0, y if scene.follows else 0.0)
    # the robot may leave the arena: then show more, in steps, so that a film rarely changes scale
    shown = [(x, y), *np.asarray(scene.trail, dtype=float).reshape(-1, 2)]
    if scene.push_box is not None:
        shown.append(scene.push_box[:2])
    farthest = np.abs(np.array(shown)[:, : 1 if scene.follows else 2]).max()
    half = max(1.12 * scene.extent, np.ceil(2 * (float(farthest) + 0.25)) / 2)
    panel = Panel(size, size, middle, size / 2 / half, PAPER if scene.bounded else ARENA)
    arena = rectangle(0, 0, scene.extent, scene.extent)
    if scene.bounded:
        panel.polygon(arena, ARENA)
    panel.grid(0.5)
    if scene.bounded:
        panel.polygon(arena, None, BORDER, 1.5)
    _draw_walls(panel, scene.walls)
    if scene.circle:
        panel.disc((0, 0), CIRCLE_RADIUS, None, GREEN, 2.0)
        panel.disc((0, 0), 0.03, GREEN)
    if scene.shade is not None:
        panel.shade(scene.shade.values / scene.shade.most, scene.extent, VIOLET)
    for centre in scene.hazards:
        panel.disc(centre, scene.hazard_radius, (*RED, 70), (*RED, 220), 1.5)
    if scene.goal is not None:
        panel.disc(scene.goal, GOAL_RADIUS, (*GREEN, 80), (*GREEN, 255), 2.0)
        panel.disc(scene.goal, GOAL_RADIUS * 0.12, GREEN)
    angles = np.linspace(0, 2 * np.pi, 36, endpoint=False)
    circle = GREMLIN_PATH * np.column_stack([np.cos(angles), np.sin(angles)])
    for centre in scene.gremlin_centres:
        for point in np.asarray(centre)[:2] + circle:
            panel.disc(point, 1.1 * FINE / panel.scale, PINK)
    for index, centre in enumerate(scene.buttons):
        if index == scene.goal_button:
            panel.disc(centre, BUTTON_RADIUS + 0.1, (*GREEN, 60), (*GREEN, 255), 2.0)
            panel.disc(centre, BUTTON_RADIUS, GREEN, INK, 1.0)
        else:
            panel.disc(centre, BUTTON_RADIUS, ORANGE, INK, 1.0)
    for poses, colour in ((scene.vases, SKY), (scene.gremlins, PINK)):
        for pose in poses:
            panel.polygon(to_world(rectangle(0, 0, BOX_HALF, BOX_HALF), *pose), colour, INK, 1.0)
    for centre in scene.pillars:
        panel.disc(centre, PILLAR_RADIUS, GREY, INK, 1.0)
    if scene.push_box is not None:
        draw_push_box(panel, scene.push_half, *scene.push_box)
    panel.trail(scene.trail, scene.trail_cost)
    draw_robot(panel, scene.robot, x, y, rotation)

    image = panel.image()
    small = round(size * 0.024)
    if scene.bounded:
        corner = panel.pixels((scene.extent, -scene.extent))[0]
        at = (corner[0] / FINE - 3, corner[1] / FINE + 4)
        write_text(image, at, f"{2 * scene.extent:g} m", small, SOFT_INK, "rt")
    elif scene.follows:
        write_text(image, (size - 6, size - 6), f"y = {y:.1f} m", small, SOFT_INK, "rb")
    strip = strip_height(size)
    below = [draw_legend(_scene_legend(scene), size, strip)]
    if scene.shade is not None:
        most = f"{scene.shade.most:.3g} or more"
        below.append(draw_bar(size, strip, scene.shade.name, most, VIOLET))
    return compose([image], scene.caption, strip, *below)


def robot_shapes(robot: str) -> list[Shape]:
    """Return a robot from above: polygons in its own frame, the lowest first.

    The yellow side with the arrow is its front: the car's own -y, the Point's own +x.
    """
    if robot == POINT.name:
        (size, centre), *_ = POINT.boxes.values()
        angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        disc = POINT_RADIUS * np.column_stack([np.cos(angles), np.sin(angles)])
        front = rectangle(*centre[:2], *size[:2])
        return [
            Shape(front, "front"), Shape(disc, "body"), Shape(np.array(POINT_ARROW), "front", False)
        ]  # fmt: skip
    wheels = [Shape(rectangle(*wheel), "ink", False) for wheel in CAR_WHEELS]
    boxes = [(name, *CAR.boxes[name]) for name in CAR_PARTS]
    parts = [
        Shape(rectangle(*at[:2], *size[:2]), "front" if name.startswith("front") else "body")
        for name, size, at in boxes
    ]
    return [*wheels, *parts, Shape(np.array(CAR_ARROW), "front", False)]


def draw_robot(panel: Panel, robot: str, x: float, y: float, rotation: float) -> None:
    """Draw a robot of a navigation task."""
    for points, fill, outlined in robot_shapes(robot):
        colour = INK if fill == "ink" else colour_of(fill)
        placed = to_world(points, x, y, rotation)
        panel.polygon(placed, colour, INK if outlined else None, 1.0)


def draw_push_box(panel: Panel, half: float, x: float, y: float, rotation: float) -> None:
    """Draw the box to push: a cube with a post at each corner."""
    for at in ((half, half), (half, -half), (-half, half), (-half, -half)):
        post = rectangle(*at, half / 2, half / 2)
        panel.polygon(to_world(post, x, y, rotation), BROWN, INK, 1.0)
    panel.polygon(to_world(rectangle(0, 0, half, half), x, y, rotation), BROWN, INK, 1.0)


def _draw_walls(panel: Panel, walls: Sequence[float]) -> None:
    """Draw walls, which only cost, and tint what is beyond them."""
    left, right, bottom, top = panel.edges
    for axis, wall in enumerate(walls):
        for side in (-wall, wall):
            if axis == 0:
                edge = left if side < 0 else right
                beyond = [(side, bottom), (side, top), (edge, top), (edge, bottom)]
            else:
                edge, at = (bottom if side < 0 else top), walls[0]
                beyond = [(-at, side), (at, side), (at, edge), (-at, edge)]
            panel.polygon(beyond, (*ORANGE, 40))
            line = [(side, bottom), (side, top)] if axis == 0 else [(left, side), (right, side)]
            panel.line(line, ORANGE, 3.0)


def _scene_legend(scene: Scene) -> list[Entry]:
    def disc(fill: Colour, outline: Colour) -> Paint:
        return lambda panel, at: panel.disc(at, 0.9, fill, outline, 1.2)

    def square(colour: Colour) -> Paint:
        return lambda panel, at: panel.polygon(rectangle(0, 0, 0.75, 0.75), colour, INK)

    def robot(panel: Panel, at: Any) -> None:
        panel.scale *= 5.0
        place = (-0.03, 0.0, 0.0) if scene.robot == POINT.name else (0.0, 0.0, np.pi / 2)
        draw_robot(panel, scene.robot, *place)

    def box(panel: Panel, at: Any) -> None:
        draw_push_box(panel, 0.6, 0.0, 0.0, 0.0)

    def ring(panel: Panel, at: Any) -> None:
        panel.disc(at, 0.9, None, GREEN, 2.0)

    def wall(panel: Panel, at: Any) -> None:
        panel.line([(-0.2, -0.9), (-0.2, 0.9)], ORANGE, 3.0)

    kinds: list[tuple[bool, Entry]] = [
        (True, (scene.robot.lower(), robot)),
        (scene.circle, ("circle", ring)),
        (
            scene.goal is not None or scene.goal_button is not None,
            ("goal", disc((*GREEN, 80), GREEN)),
        ),
        (len(scene.buttons) > 0, ("button", disc(ORANGE, INK))),
        (len(scene.hazards) > 0, ("hazard", disc((*RED, 70), RED))),
        (len(scene.vases) > 0, ("vase", square(SKY))),
        (len(scene.gremlins) > 0, ("gremlin", square(PINK))),
        (len(scene.pillars) > 0, ("pillar", disc(GREY, INK))),
        (scene.push_box is not None, ("box", box)),
        (len(scene.walls) > 0, ("wall", wall)),
        (True, COST_ENTRY),
    ]
    return [entry for there, entry in kinds if there]


@dataclass(frozen=True)
class View:
    """From where a runner is seen: the camera looks along y, or down on it by `elevation`."""

    elevation: float = 0.0  # degrees
    metres: float = 3.6  # width of the picture
    height: float = 0.0  # of what is in its middle, where it is seen from above

    def project(self, points: Any) -> np.ndarray:
        """Return points (n, 3) across, up and towards the camera, in metres."""
        x, y, z = np.asarray(points, dtype=float).reshape(-1, 3).T
        sine, cosine = np.sin(np.radians(self.elevation)), np.cos(np.radians(self.elevation))
        return np.column_stack([x, sine * y + cosine * z, sine * z - cosine * y])


def draw_runner(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    view: View,
    trail: Any,
    trail_cost: Any,
    caption: str,
    speed: float,
    limit: float,
    over: bool,
    size: int,
) -> np.ndarray:
    """Draw a legged robot with metre marks and its speed against the limit.

    `data` needs up-to-date positions (`mujoco.mj_kinematics`); `trail` holds those of the torso.
    """
    width, height = round_to_even(size), round_to_even(size * 0.6)
    scale = width / view.metres
    x, y, z = data.xpos[1]
    floor_at = 0.2 * height / scale
    # from the side the view follows the torso, and rises only when it leaps out of it
    centre = (x, height / scale / 2 - floor_at + max(0.0, z - 1.4))
    if view.elevation:
        centre = tuple(view.project([x, y, view.height])[0, :2])
    panel = Panel(width, height, centre, scale, ARENA)
    left, right, bottom, top = panel.edges
    marks = np.arange(np.ceil(left / 0.5), np.floor(right / 0.5) + 1) * 0.5
    floor = bottom if view.elevation else 0.0
    for at in marks:
        panel.line([(at, floor), (at, bottom + 2 * view.metres)], GRID, 1.0)
    if view.elevation:
        step = 0.5 * np.sin(np.radians(view.elevation))
        for at in np.arange(np.ceil(bottom / step), top / step) * step:
            panel.line([(left, at), (right, at)], GRID, 1.0)
    else:
        ground = [(left, 0), (right, 0), (right, bottom - 1), (left, bottom - 1)]
        panel.polygon(ground, (240, 238, 231))
        panel.line([(left, 0), (right, 0)], BORDER, 2.0)
        for at in marks[marks == np.round(marks)]:
            panel.line([(at, 0), (at, -0.07)], SOFT_INK, 1.5)
    panel.trail(view.project(trail)[:, :2], trail_cost)
    # the trunk comes on top where nothing tells what is nearer
    limbs = [(*_limb(model, data, view, i), i) for i in range(model.ngeom) if model.geom_bodyid[i]]
    for _, colour, a, b, i in sorted(limbs, key=lambda limb: (round(limb[0], 3), limb[1] == INK)):
        panel.capsule(a, b, model.geom_size[i, 0], ARENA)
        panel.capsule(a, b, model.geom_size[i, 0] - 1.2 / scale, colour)
    image = panel.image()
    low = bottom + 0.06 * height / scale if view.elevation else -0.09
    for at in marks[marks == np.round(marks)]:
        px, py = panel.pixels((at, low))[0]
        place = (px / FINE, py / FINE)
        write_text(image, place, f"{at:g} m", round(size * 0.027), SOFT_INK, "mt")
    _speed_bar(image, speed, limit, over, size)
    return compose([image], caption, strip_height(size))


FIRST_LIMBS = re.compile(r"left|f(thigh|shin|foot)|(^|/)back_leg|^back")
TRUNK = ("torso", "lwaist", "pelvis")


def _limb(
    model: mujoco.MjModel, data: mujoco.MjData, view: View, geom: int
) -> tuple[float, Colour, np.ndarray, np.ndarray]:
    """Return how near a sphere or capsule is, its colour and its ends."""
    body = int(model.geom_bodyid[geom])
    names = [model.body(body).name]
    while body > 1:
        body = int(model.body_parentid[body])
        names.append(model.body(body).name)
    colour = GREEN if FIRST_LIMBS.search("/".join(names)) else BLUE
    if names[0] in TRUNK:
        colour = INK
    capsule = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE
    along = data.geom_xmat[geom].reshape(3, 3)[:, 2] * model.geom_size[geom, 1] * capsule
    ends = view.project(data.geom_xpos[geom] + np.outer((-1, 1), along))
    return float(ends[:, 2].mean()), colour, ends[0, :2], ends[1, :2]


def _speed_bar(image: Image.Image, speed: float, limit: float, over: bool, size: int) -> None:
    """Draw the speed on a scale that has the limit in its middle."""
    width, height, edge = size * 0.3, size * 0.026, size * 0.03
    draw = ImageDraw.Draw(image)
    left, top = image.width - edge - width, edge
    draw.rounded_rectangle((left, top, left + width, top + height), height / 2, GRID)
    filled = width * min(abs(speed) / (2 * limit), 1.0)
    if filled > height:
        box = (left, top, left + filled, top + height)
        draw.rounded_rectangle(box, height / 2, RED if over else BLUE)
    middle = left + width / 2
    draw.line((middle, top - 3, middle, top + height + 3), INK, 2)
    at, text = (left + width, top + height + size * 0.014), f"{speed:.2f} m/s, limit {limit:.2f}"
    write_text(image, at, text, round(size * 0.029), RED if over else INK, "rt")


ARM = ["torso_lift", "shoulder_pan", "shoulder_lift", "upperarm_roll", "elbow_flex"]
ARM += ["forearm_roll", "wrist_flex", "wrist_roll", "gripper"]  # links


def draw_fetch(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    goal: np.ndarray,
    goal_radius: float,
    trail: Any,
    trail_cost: Any,
    caption: str,
    size: int,
) -> np.ndarray:
    """Draw the arm from above (x, y) and from the side (x, z), and the target with its tolerance.

    `data` needs up-to-date positions; `trail` holds (x, y, z) of the hand.
    """
    side = round_to_even(size * 0.8)
    scale = side / 1.25
    joints = np.array([data.body(f"robot0:{name}_link").xpos for name in ARM])
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
        panel.grid(0.1)
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
