"""The canvas of the drawings: colours, a panel in metres, text, legend and frame."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from safecritic.core.style import PREDICTED, SCENE

Colour = tuple[int, ...]
Points = Sequence[Sequence[float]] | np.ndarray
Paint = Callable[["Panel", Any], None]  # draws an icon into a panel of side 2
Entry = tuple[str, Paint]  # of a legend

PAPER: Colour = (250, 249, 246)
ARENA: Colour = (255, 255, 255)
GRID: Colour = (232, 231, 226)
BORDER: Colour = (176, 174, 166)
INK: Colour = (45, 49, 56)
SOFT_INK: Colour = (120, 124, 130)
BLUE: Colour = (0, 114, 178)


def colour_of(name: str) -> Colour:
    """Return the colour of what stands in an arena, from the palette of all pictures."""
    return ImageColor.getrgb(SCENE[name])


GREEN, RED, YELLOW = colour_of("goal"), colour_of("hazards"), colour_of("front")
SKY, ORANGE, PINK = colour_of("vases"), colour_of("buttons"), colour_of("gremlins")
VIOLET: Colour = ImageColor.getrgb(PREDICTED)

LEVELS = 5  # of a shade, above none
SHADE = 0.75  # opacity of the highest level
FINE = 3  # a pixel is the mean of FINE x FINE drawn ones


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
        """Convert metres to pixels of the fine picture."""
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
        """Draw a disc, its radius in metres and its outline in pixels."""
        (x, y), r = self.pixels(centre)[0], radius * self.scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill, outline, round(width * FINE))

    def polygon(
        self,
        points: Any,
        fill: Colour | None = None,
        outline: Colour | None = None,
        width: float = 1.0,
    ) -> None:
        """Draw a polygon, its points in metres and its outline in pixels."""
        self._draw.polygon(self.pixels(points), fill, outline, round(width * FINE))

    def line(self, points: Any, colour: Colour, width: float = 1.0) -> None:
        """Draw a line through the points, `width` in pixels of the finished picture."""
        path = self.pixels(points)
        if len(path) > 1:
            self._draw.line(path, colour, round(width * FINE), joint="curve")

    def capsule(self, a: Any, b: Any, radius: float, fill: Colour) -> None:
        """Fill everything within the radius of the line from a to b."""
        a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        along, length = b - a, float(np.hypot(*(b - a)))
        if length > 0:
            side = np.array([-along[1], along[0]]) * radius / length
            self.polygon([a + side, b + side, b - side, a - side], fill)
        self.disc(a, radius, fill)
        self.disc(b, radius, fill)

    def grid(self, metres: float) -> None:
        """Draw a grid over the whole panel."""
        left, right, bottom, top = self.edges
        for at in np.arange(np.ceil(left / metres), right / metres) * metres:
            self.line([(at, bottom), (at, top)], GRID, 1.0)
        for at in np.arange(np.ceil(bottom / metres), top / metres) * metres:
            self.line([(left, at), (right, at)], GRID, 1.0)

    def trail(self, points: Any, costs: Any) -> None:
        """Draw where the robot has been, red where the step had a cost."""
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

    def shade(self, values: np.ndarray, extent: float, colour: Colour) -> None:
        """Lay a colour over the square from -extent to extent, by `values` in [0, 1].

        They are (rows, columns), the first row at the bottom. Opacity has few levels, as in a map
        with contours: films of smooth shades are ten times larger.
        """
        left, top = (round(v) for v in self.pixels((-extent, extent))[0])
        right, bottom = (round(v) for v in self.pixels((extent, -extent))[0])
        opacity = np.clip(np.nan_to_num(values[::-1]), 0.0, 1.0)
        mask = Image.fromarray(np.round(255 * opacity).astype(np.uint8))
        mask = mask.resize((right - left, bottom - top), Image.Resampling.BICUBIC)
        steps = [round(round(v * LEVELS / 255) * 255 * SHADE / LEVELS) for v in range(256)]
        self._image.paste(colour, (left, top), mask.point(steps))

    def image(self) -> Image.Image:
        """Return the finished picture."""
        return self._image.reduce(FINE)


def to_world(points: Any, x: float, y: float, rotation: float) -> np.ndarray:
    """Move points from an object's own frame into the world."""
    c, s = np.cos(rotation), np.sin(rotation)
    return np.asarray(points, dtype=float) @ np.array([[c, s], [-s, c]]) + (x, y)


def rectangle(x: float, y: float, half_x: float, half_y: float) -> np.ndarray:
    """Return the corners of a rectangle from its centre and half sides."""
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return signs * (half_x, half_y) + (x, y)


@lru_cache(maxsize=16)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def write_text(
    image: Image.Image,
    xy: tuple[float, float],
    text: str,
    size: int,
    colour: Colour = INK,
    anchor: str = "lm",
) -> None:
    """Write one line; `anchor` is Pillow's."""
    ImageDraw.Draw(image).text(xy, text, fill=colour, font=_font(size), anchor=anchor)


def round_to_even(value: float) -> int:
    """Round to an even number of pixels, which video encoders need."""
    return 2 * round(value / 2)


def strip_height(size: int) -> int:
    """Return the height of the strips for caption and legend."""
    return round_to_even(max(20, size * 0.06))


def compose(
    panels: Sequence[Image.Image], caption: str, strip: int, *below: Image.Image
) -> np.ndarray:
    """Put panels side by side, the caption in a strip above and the legends below."""
    width = sum(panel.width for panel in panels)
    height = panels[0].height
    picture = Image.new("RGB", (width, height + (1 + len(below)) * strip), PAPER)
    left = 0
    for panel in panels:
        picture.paste(panel, (left, strip))
        left += panel.width
    for row, legend in enumerate(below, 1):
        picture.paste(legend, ((width - legend.width) // 2, row * strip + height))
    write_text(picture, (strip * 0.4, strip / 2), caption, round(strip * 0.5))
    return np.asarray(picture)


def draw_legend(entries: Sequence[Entry], width: int, height: int) -> Image.Image:
    """Draw a row of icons with their names; each paints itself in a square of side 2."""
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
        write_text(row, (left + icon + gap * 0.7, height / 2), name, size)
        left += icon + gap + text + space
    return row


def draw_bar(width: int, height: int, text: str, most: str, colour: Colour) -> Image.Image:
    """Draw the colours of a shade from 0 to `most`, with what they stand for."""
    size, bar = round(height * 0.44), round(height * 0.36)
    row = Image.new("RGB", (width, height), PAPER)
    font, gap = _font(size), round(size * 0.5)
    texts = [round(font.getlength(word)) for word in (f"{text}   0", most)]
    # on a small picture the words leave less than a bar needs, and their ends are cut off
    length = max(min(round(width * 0.3), width - sum(texts) - 4 * gap), 4 * LEVELS)
    left = (width - sum(texts) - length - 2 * gap) // 2
    write_text(row, (left, height / 2), f"{text}   0", size)
    left += texts[0] + gap
    for level in range(LEVELS + 1):
        share = SHADE * level / LEVELS
        mixed = tuple(round(a + (c - a) * share) for a, c in zip(ARENA, colour, strict=True))
        start, stop = (left + length * at // (LEVELS + 1) for at in (level, level + 1))
        row.paste(mixed, (start, (height - bar) // 2, stop, (height + bar) // 2))
    outline = (left - 1, (height - bar) // 2 - 1, left + length, (height + bar) // 2)
    ImageDraw.Draw(row).rectangle(outline, outline=BORDER)
    write_text(row, (left + length + gap, height / 2), most, size)
    return row


def _cost_icon(panel: Panel, at: Any) -> None:
    panel.line([(-0.9, -0.5), (-0.2, 0.0)], (*INK, 140), 2.0)
    panel.line([(-0.2, 0.0), (0.9, 0.5)], RED, 3.0)


COST_ENTRY: Entry = ("cost", _cost_icon)
