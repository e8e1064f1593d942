"""Pictures and films of the tasks without OpenGL: NumPy arrays drawn with Pillow.

    frame = env.unwrapped.draw()                        # any task, now
    save_png(frame, "now.png")
    record_episode(env, policy, "episode.gif", seed=0)  # or .mp4, or .png for the last frame

`draw_scene` draws the car tasks from above out of a `Scene`, `draw_cheetah` the runner from the
side, `draw_fetch` the arm from above and from the side. The colours are told apart by
colour-blind readers too (Okabe and Ito's set); a step with cost leaves a red trail.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, ...]
Points = Sequence[Sequence[float]] | np.ndarray

PAPER: Colour = (250, 249, 246)
ARENA: Colour = (255, 255, 255)
GRID: Colour = (232, 231, 226)
BORDER: Colour = (176, 174, 166)
INK: Colour = (45, 49, 56)
SOFT_INK: Colour = (120, 124, 130)
GREEN: Colour = (0, 158, 115)
BLUE: Colour = (0, 114, 178)
SKY: Colour = (86, 180, 233)
ORANGE: Colour = (230, 159, 0)
RED: Colour = (213, 94, 0)
PINK: Colour = (204, 121, 167)
YELLOW: Colour = (240, 228, 66)

# every pixel is the mean of this many squared
FINE = 3

HAZARD_RADIUS = 0.2
BUTTON_RADIUS = 0.1
BOX_HALF = 0.1
GREMLIN_PATH = 0.35

# boxes of the car seen from above: centre x, y, half sizes; it drives towards -y
CAR_WHEELS = ((-0.13, 0.1, 0.025, 0.05), (0.13, 0.1, 0.025, 0.05))
CAR_BODY = ((0.0, 0.0, 0.1, 0.1), (0.0, 0.125, 0.01, 0.025), (0.0, 0.15, 0.1, 0.01))
CAR_FRONT = ((0.0, -0.13, 0.05, 0.03), (0.0, -0.165, 0.05, 0.01))
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
    caption: str = ""
    goal_radius: float = 0.3


# -------------------------------------------------------------------------------- the pencil


class Panel:
    """A rectangle of the picture with coordinates in metres, y (or z) up."""

    def __init__(
        self,
        width: int,
        height: int,
        centre: Sequence[float],
        pixels_per_metre: float,
        background: Colour = PAPER,
    ) -> None:
        self.size = (width, height)
        self.scale = pixels_per_metre * FINE
        self.offset = np.array([width * FINE / 2, height * FINE / 2])
        self.centre = np.asarray(centre, dtype=float)
        self._image = Image.new("RGB", (width * FINE, height * FINE), background)
        self._draw = ImageDraw.Draw(self._image, "RGBA")

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top in metres."""
        (x, y), (across, up) = self.centre, self.offset / self.scale
        return x - across, x + across, y - up, y + up

    def pixels(self, points: Any) -> list[tuple[float, float]]:
        """Metres to pixels of the fine picture."""
        moved = (np.asarray(points, dtype=float).reshape(-1, 2) - self.centre) * self.scale
        return [(self.offset[0] + x, self.offset[1] - y) for x, y in moved]

    def disc(
        self,
        centre: Any,
        radius: float,
        fill: Colour | None = None,
        outline: Colour | None = None,
        width: float = 1.0,
    ) -> None:
        (x, y), r = self.pixels(centre)[0], radius * self.scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill, outline, round(width * FINE))

    def polygon(
        self,
        points: Any,
        fill: Colour | None = None,
        outline: Colour | None = None,
        width: float = 1.0,
    ) -> None:
        self._draw.polygon(self.pixels(points), fill, outline, round(width * FINE))

    def line(self, points: Any, colour: Colour, width: float = 1.0) -> None:
        """A line through the points, `width` in pixels of the finished picture."""
        path = self.pixels(points)
        if len(path) > 1:
            self._draw.line(path, colour, round(width * FINE), joint="curve")

    def capsule(self, a: Any, b: Any, radius: float, fill: Colour) -> None:
        """Everything within the radius of the line from a to b."""
        a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        along, length = b - a, float(np.hypot(*(b - a)))
        if length > 0:
            side = np.array([-along[1], along[0]]) * radius / length
            self.polygon([a + side, b + side, b - side, a - side], fill)
        self.disc(a, radius, fill)
        self.disc(b, radius, fill)

    def trail(self, points: Any, costs: Any) -> None:
        """Where it has been; red where the step had a cost."""
        points = np.asarray(points, dtype=float).reshape(-1, 2)
        red = np.zeros(len(points), dtype=bool)
        if costs is not None and len(costs):
            red[-len(costs) :] = np.asarray(costs)[-len(points) :] > 0
        start = 1
        for i in range(2, len(points) + 1):
            # one line per stretch of one colour
            if i == len(points) or red[i] != red[start]:
                colour = (*RED, 255) if red[start] else (*INK, 120)
                self.line(points[start - 1 : i], colour, 3.0 if red[start] else 2.0)
                start = i

    def image(self) -> Image.Image:
        return self._image.reduce(FINE)


def _turned(points: Any, x: float, y: float, rotation: float) -> np.ndarray:
    """Points of an object's own frame, in the world."""
    c, s = np.cos(rotation), np.sin(rotation)
    return np.asarray(points, dtype=float) @ np.array([[c, s], [-s, c]]) + (x, y)


def _box(x: float, y: float, half_x: float, half_y: float) -> np.ndarray:
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return signs * (half_x, half_y) + (x, y)


@lru_cache(maxsize=16)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _write(
    image: Image.Image,
    xy: tuple[float, float],
    text: str,
    size: int,
    colour: Colour = INK,
    anchor: str = "lm",
) -> None:
    ImageDraw.Draw(image).text(xy, text, fill=colour, font=_font(size), anchor=anchor)


def _even(value: float) -> int:
    # video encoders want even sizes
    return 2 * round(value / 2)


def _strip(size: int) -> int:
    return _even(max(20, size * 0.06))


def _framed(
    panels: Sequence[Image.Image], caption: str, strip: int, legend: Image.Image | None = None
) -> np.ndarray:
    """Panels side by side, the caption in a strip above and the legend below."""
    width = sum(panel.width for panel in panels)
    height = panels[0].height
    picture = Image.new("RGB", (width, height + (2 if legend else 1) * strip), PAPER)
    left = 0
    for panel in panels:
        picture.paste(panel, (left, strip))
        left += panel.width
    if legend:
        picture.paste(legend, ((width - legend.width) // 2, strip + height))
    _write(picture, (strip * 0.4, strip / 2), caption, round(strip * 0.5))
    return np.asarray(picture)


def _legend(entries: Sequence[tuple[str, Callable[[Panel, Any], None]]], width: int, height: int):
    """A row of small drawings with their names; each draws itself in a square of side 2."""
    icon = round(height * 0.62)
    size = round(height * 0.44)
    while True:
        texts = [round(_font(size).getlength(name)) for name, _ in entries]
        gap = round(size * 0.35)
        need = sum(texts) + len(entries) * (icon + gap)
        if need <= width - 2 * gap or size <= 7:
            break
        size -= 1
    space = min(size * 1.4, (width - need) / (len(entries) + 1))
    left = (width - need - space * (len(entries) - 1)) / 2
    row = Image.new("RGB", (width, height), PAPER)
    for (name, paint), text in zip(entries, texts, strict=True):
        panel = Panel(icon, icon, (0.0, 0.0), icon / 2.2)
        paint(panel, (0.0, 0.0))
        row.paste(panel.image(), (round(left), (height - icon) // 2))
        _write(row, (left + icon + gap * 0.7, height / 2), name, size)
        left += icon + gap + text + space
    return row


# -------------------------------------------------------------------------------- car tasks


def draw_scene(scene: Scene, size: int = 480) -> np.ndarray:
    """A car task from above: `size` wide, a little higher for caption and legend, uint8."""
    size = _even(size)
    x, y, rotation = (float(v) for v in scene.agent)
    # the car may leave the arena: then show more, in steps, so that a film rarely changes scale
    farthest = max(abs(x), abs(y), float(np.abs(np.asarray(scene.trail)).max(initial=0.0)))
    half = max(1.12 * scene.extent, np.ceil(2 * (farthest + 0.25)) / 2)
    panel = Panel(size, size, (0.0, 0.0), size / 2 / half)
    _arena(panel, scene.extent, half)
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
    _write(image, at, metre, round(size * 0.024), SOFT_INK, "rt")
    strip = _strip(size)
    return _framed([image], scene.caption, strip, _legend(_scene_legend(scene), size, strip))


def _arena(panel: Panel, extent: float, half: float) -> None:
    panel.polygon(_box(0, 0, extent, extent), ARENA)
    for at in np.arange(np.ceil(-half / 0.5), np.floor(half / 0.5) + 1) * 0.5:
        for line in ([(at, -half), (at, half)], [(-half, at), (half, at)]):
            panel.line(line, GRID, 1.0)
    panel.polygon(_box(0, 0, extent, extent), None, BORDER, 1.5)


def _goal(panel: Panel, centre: Any, radius: float) -> None:
    panel.disc(centre, radius, (*GREEN, 80), (*GREEN, 255), 2.0)
    panel.disc(centre, radius * 0.12, GREEN)


def _square(panel: Panel, pose: Any, colour: Colour) -> None:
    corners = _turned(_box(0, 0, BOX_HALF, BOX_HALF), *(float(v) for v in pose))
    panel.polygon(corners, colour, INK, 1.0)


def _dotted_circle(panel: Panel, centre: Any, radius: float) -> None:
    for angle in np.linspace(0, 2 * np.pi, 36, endpoint=False):
        point = np.asarray(centre)[:2] + radius * np.array([np.cos(angle), np.sin(angle)])
        panel.disc(point, 1.1 * FINE / panel.scale, PINK)


def draw_car(panel: Panel, x: float, y: float, rotation: float) -> None:
    """The car's outline; the yellow side with the arrow is its front, its own -y."""
    for wheel in CAR_WHEELS:
        panel.polygon(_turned(_box(*wheel), x, y, rotation), INK)
    for part in CAR_FRONT:
        panel.polygon(_turned(_box(*part), x, y, rotation), YELLOW, INK, 1.0)
    for part in reversed(CAR_BODY):
        panel.polygon(_turned(_box(*part), x, y, rotation), (92, 99, 112), INK, 1.0)
    panel.polygon(_turned(CAR_ARROW, x, y, rotation), YELLOW)


def _scene_legend(scene: Scene) -> list[tuple[str, Callable[[Panel, Any], None]]]:
    def disc(fill: Colour, outline: Colour) -> Callable[[Panel, Any], None]:
        return lambda panel, at: panel.disc(at, 0.9, fill, outline, 1.2)

    def square(colour: Colour) -> Callable[[Panel, Any], None]:
        return lambda panel, at: panel.polygon(_box(0, 0, 0.75, 0.75), colour, INK)

    def car(panel: Panel, at: Any) -> None:
        panel.scale *= 5.0
        draw_car(panel, 0.0, 0.0, np.pi / 2)

    entries: list[tuple[str, Callable[[Panel, Any], None]]] = [("car", car)]
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


def _cost_icon(panel: Panel, at: Any) -> None:
    panel.line([(-0.9, -0.5), (-0.2, 0.0)], (*INK, 140), 2.0)
    panel.line([(-0.2, 0.0), (0.9, 0.5)], RED, 3.0)


COST_ENTRY: tuple[str, Callable[[Panel, Any], None]] = ("cost", _cost_icon)


# -------------------------------------------------------------------------------- cheetah


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
    """The runner from the side, with metre marks on the floor and its speed against the limit.

    `data` needs up-to-date positions (`mujoco.mj_kinematics`); `trail` holds (x, z) of the torso.
    """
    width, height = _even(size), _even(size * 0.6)
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
            _write(image, (px / FINE, py / FINE), f"{x:g} m", round(size * 0.027), SOFT_INK, "mt")
    if speed is not None:
        _speed_bar(image, speed, limit, size)
    return _framed([image], caption, _strip(size))


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
    _write(image, at, text, round(size * 0.029), RED if over else INK, "rt")


# -------------------------------------------------------------------------------- arm

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
    """The arm from above (x, y) and from the side (x, z); the target with its tolerance.

    `data` needs up-to-date positions; `trail` holds (x, y, z) of the hand.
    """
    side = _even(size * 0.8)
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
        panel.polygon(_box(*table[axes], *half[axes]), (236, 228, 214), BORDER, 1.2)
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
        _write(image, (8, 6), title, round(size * 0.03), SOFT_INK, "lt")
        panels.append(image)
    strip = _strip(size)
    entries: list[tuple[str, Callable[[Panel, Any], None]]] = [
        ("hand", lambda panel, at: panel.disc(at, 0.7, YELLOW, INK, 1.2)),
        ("target", lambda panel, at: panel.disc(at, 0.9, (*GREEN, 90), GREEN, 1.2)),
        COST_ENTRY,
    ]
    return _framed(panels, caption, strip, _legend(entries, 2 * side, strip))


# -------------------------------------------------------------------------------- files


def save_png(frame: np.ndarray, path: str | Path) -> None:
    """Writes one frame."""
    Image.fromarray(_checked(frame)).save(_target(path), optimize=True)


def save_animation(frames: Iterable[np.ndarray], path: str | Path, fps: float = 20.0) -> None:
    """Writes the frames as a looping .gif, or as .mp4 (needs `pip install 'safecritic[video]'`)."""
    path = Path(path)
    images = [_checked(frame) for frame in frames]
    if not images:
        raise ValueError(f"no frames to write to {path}: pass at least one")
    if any(image.shape != images[0].shape for image in images):
        raise ValueError("all frames of an animation must have the same shape")
    if not fps > 0:
        raise ValueError(f"fps must be > 0, got {fps}")
    if path.suffix == ".gif":
        _save_gif(images, _target(path), fps)
    elif path.suffix == ".mp4":
        _save_mp4(images, path, fps)
    else:
        raise ValueError(f"an animation is written as .gif or .mp4, got {path.name!r}")


def _save_gif(images: list[np.ndarray], path: Path, fps: float) -> None:
    palette = _palette(images[:: max(1, len(images) // 8)][:8] + images[-1:])
    pages = [
        Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)
        for image in images
    ]
    # a frame lasts a whole number of hundredths of a second, and viewers slow down below two
    duration = max(20, 10 * round(100 / fps))
    pages[0].save(path, save_all=True, append_images=pages[1:], duration=duration, loop=0)


def _palette(images: list[np.ndarray], exact: int = 96, blended: int = 128) -> Image.Image:
    """The commonest colours as they are, and shades for the smooth edges between them."""
    pixels = np.concatenate([image.reshape(-1, 3) for image in images]).astype(np.uint32)
    packed, count = np.unique(
        pixels @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32), return_counts=True
    )
    packed = packed[np.argsort(-count, kind="stable")]
    colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1).astype(np.uint8)
    flat = colours[:exact].tobytes()
    if len(colours) > exact:
        # each colour once, or the few pixels of a car would not get a shade of their own
        edges = Image.fromarray(colours[None, exact:]).quantize(blended)
        flat += bytes(edges.getpalette() or ())[: 3 * blended]
    palette = Image.new("P", (1, 1))
    palette.putpalette(flat)
    return palette


def _save_mp4(images: list[np.ndarray], path: Path, fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            "writing .mp4 needs imageio-ffmpeg: pip install 'safecritic[video]', or write a .gif"
        ) from error
    height, width = images[0].shape[:2]
    writer = imageio_ffmpeg.write_frames(
        str(_target(path)), (width, height), fps=fps, quality=7, macro_block_size=2
    )
    writer.send(None)
    try:
        for image in images:
            writer.send(np.ascontiguousarray(image))
    finally:
        writer.close()


def _checked(frame: np.ndarray) -> np.ndarray:
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(
            f"a frame must be uint8 of shape (height, width, 3), got {frame.dtype} {frame.shape}"
        )
    return frame


def _target(path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# -------------------------------------------------------------------------------- an episode


def make_caption(step: int, reward: float, cost: float, success: bool = False) -> str:
    """The line above a picture: sums since the reset."""
    text = f"step {step}   reward {reward:.2f}   cost {cost:.2f}"
    return text + "   reached" if success else text


def record_episode(
    env: gymnasium.Env,
    policy: Callable[[np.ndarray], Any] | None = None,
    path: str | Path | None = None,
    seed: int | None = None,
    *,
    options: dict[str, Any] | None = None,
    max_steps: int | None = None,
    every: int = 1,
    fps: float | None = None,
    size: int = 480,
) -> list[np.ndarray]:
    """Runs one episode from a reset and draws it; the frames are returned and, with `path`, saved.

    Args:
        env: a task of this package, wrapped or not: anything whose `unwrapped` has `draw`.
        policy: observation to action; None draws actions at random.
        path: .gif or .mp4 for the film, .png for its last frame with the whole trail.
        seed: for the reset, and for the actions of the random policy.
        options: for the reset.
        max_steps: stop here even if the episode goes on.
        every: draw one step in so many (the first and the last are always drawn).
        fps: frames per second of the film; default real time.
        size: width of a frame in pixels (the arm's is wider).
    """
    task: Any = env.unwrapped
    if not hasattr(task, "draw"):
        raise TypeError(f"{type(task).__name__} has no draw method: only safecritic's tasks do")
    if path is not None and Path(path).suffix not in (".gif", ".mp4", ".png"):
        raise ValueError(f"path must end in .gif, .mp4 or .png, got {str(path)!r}")
    if every < 1:
        raise ValueError(f"every must be >= 1, got {every}")
    if policy is None and seed is not None:
        env.action_space.seed(seed)
    obs, _ = env.reset(seed=seed, options=options)
    points, costs = [task.position], [0.0]
    total, step, done, success = 0.0, 0, False, False
    film_only = path is None or Path(path).suffix != ".png"

    def frame() -> np.ndarray:
        caption = make_caption(step, total, sum(costs), success)
        return task.draw(
            trail=np.array(points), trail_cost=np.array(costs), caption=caption, size=size
        )

    frames = [frame()]
    while not done:
        action = env.action_space.sample() if policy is None else policy(obs)
        obs, reward, terminated, truncated, info = env.step(action)
        step += 1
        total += float(reward)
        costs.append(float(info["cost"]))
        points.append(task.position)
        success = bool(info.get("success", False))
        done = terminated or truncated or step == max_steps
        if done or (film_only and step % every == 0):
            frames.append(frame())
    if path is not None and film_only:
        real_time = env.metadata.get("render_fps", 25) / every
        save_animation(frames, path, fps or real_time)
    elif path is not None:
        save_png(frames[-1], path)
    return frames
