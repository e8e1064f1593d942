"""Figures for print: `marks` drawn by Matplotlib as PNG and PDF."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.files import write_bytes
from safecritic.report.marks import Bars, Figure, Heat, Line, Panel, Points, root_ticks
from safecritic.style import GRID, LIMIT, SOFT, STYLE, Style

DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1.5, 1.5)),
    "dashdot": (0, (5, 1.5, 1.5, 1.5)),
}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "X"}
COLOURS = "viridis"


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write NAME.png and NAME.pdf."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({**STYLE, "pdf.fonttype": 42}):
        (rows, columns), maps = figure.shape, figure.has_maps
        tall = 3.5 * rows + 1.1 if maps else 3.1 * rows + 0.9
        size = (3.3 * columns + 0.3, tall)
        drawn, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        for panel, axis in zip(figure.panels, axes.flat, strict=False):
            _draw(panel, axis)
        for scale, places in figure.scales.items():
            shared = [axes.flat[place] for place in places]
            drawn.colorbar(
                shared[0].images[0], ax=shared, location="bottom", label=scale.label,
                aspect=14 * min(len(shared), columns), fraction=0.05, pad=0.02,
            )  # fmt: skip
        for axis in list(axes.flat)[len(figure.panels) :]:
            axis.set_axis_off()
        drawn.suptitle(_plain(figure.title), x=0.012, ha="left", fontsize=12, fontweight="bold")
        if figure.shows_legend:
            handles = [_handle(style, label) for label, style in figure.legend.items()]
            wide = min(len(handles), 3 * columns + 1)
            drawn.legend(
                handles=handles, loc="outside lower center", ncols=wide,
                frameon=False, fontsize=9, handlelength=2.6, columnspacing=1.2,
            )  # fmt: skip
        paths = [folder / f"{figure.name}.{kind}" for kind in ("png", "pdf")]
        for path in paths:
            image = io.BytesIO()
            drawn.savefig(image, format=path.suffix[1:], dpi=150)
            write_bytes(path, image.getvalue())
        plt.close(drawn)
    return paths


def _plain(text: str) -> str:
    """Return a text that Matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def _handle(style: Style, label: str) -> Any:
    from matplotlib.lines import Line2D

    marker = "" if style == LIMIT else MARKERS[style.marker]
    return Line2D(
        [], [], color=style.colour, linestyle=DASHES[style.dash], linewidth=style.width,
        marker=marker, markersize=5, label=_plain(label),
    )  # fmt: skip


def _draw(panel: Panel, axis: Any) -> None:
    lines = panel.note.count("\n") + 1 if panel.note else 0
    axis.set_title(_plain(panel.title), loc="left", fontsize=10.5, pad=6 + 10 * lines)
    if panel.note:
        axis.text(0, 1.015, _plain(panel.note), transform=axis.transAxes, fontsize=8, color=SOFT)
    if not panel.square:
        axis.grid(axis="y", color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
    if not panel.marks:
        axis.text(0.5, 0.5, "no data yet", transform=axis.transAxes, ha="center", color=SOFT)
    for mark in panel.marks:
        _mark(mark, axis)
    limit = {"color": LIMIT.colour, "linewidth": LIMIT.width, "linestyle": DASHES[LIMIT.dash]}
    if panel.level is not None:
        axis.axhline(panel.level, zorder=1.5, **limit)
    if panel.upright is not None:
        axis.axvline(panel.upright, zorder=1.5, **limit)
    axis.set_xlabel(panel.xlabel)
    axis.set_ylabel(panel.ylabel)
    if panel.xlog:
        axis.set_xscale("log")
    if panel.ylog:
        axis.set_yscale("log")
    if panel.xrange is not None:
        axis.set_xlim(*panel.xrange)
    if panel.xticks is not None:
        long = panel.named and len(panel.xticks[1]) > 4
        names = list(map(_plain, panel.xticks[1]))
        axis.set_xticks(panel.xticks[0], names, rotation=40 if long else 0,
                        ha="right" if long else "center", rotation_mode="anchor")  # fmt: skip
        axis.minorticks_off()
    if panel.yroot:
        ways = (lambda y: np.sqrt(np.maximum(y, 0.0)), np.square)
        axis.set_yscale("function", functions=ways)
    if panel.yrange is not None:
        axis.set_ylim(*panel.yrange)
    if panel.yroot:
        ticks = root_ticks(axis.get_ylim()[1])
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    if panel.square:
        axis.set_aspect("equal")


def _mark(mark: Any, axis: Any) -> None:
    match mark:
        case Line():
            style = {"color": mark.style.colour, "linewidth": mark.style.width}
            if mark.low is not None and mark.high is not None:
                axis.fill_between(
                    mark.x, mark.low, mark.high, color=mark.style.colour, alpha=0.13, linewidth=0
                )
            marker = {"marker": MARKERS[mark.style.marker], "markersize": 5} if mark.marked else {}
            axis.plot(mark.x, mark.y, linestyle=DASHES[mark.style.dash], **style, **marker)
            if mark.error is not None:
                axis.errorbar(
                    mark.x, mark.y, yerr=mark.error, fmt="none", ecolor=mark.style.colour,
                    elinewidth=1.2, capsize=2.5,
                )  # fmt: skip
        case Points():
            axis.errorbar(
                mark.x, mark.y, yerr=mark.error, xerr=mark.across,
                fmt=MARKERS[mark.style.marker], markersize=mark.size,
                color=mark.style.colour, alpha=mark.opacity, elinewidth=1.6, capsize=3,
                markeredgewidth=0.6 if mark.opacity == 1 else 0,
                markeredgecolor="white" if mark.opacity == 1 else None, ecolor=mark.style.colour,
            )  # fmt: skip
        case Bars():
            axis.bar(
                mark.x, mark.height, yerr=mark.error, width=0.7, capsize=3,
                color=[style.colour for style in mark.styles], ecolor=SOFT,
            )  # fmt: skip
        case Heat():
            end = mark.extent
            axis.imshow(
                mark.z, origin="lower", extent=(-end, end, -end, end), cmap=COLOURS,
                vmin=mark.scale.low, vmax=mark.scale.high,
            )  # fmt: skip
        case _:
            raise TypeError(f"cannot draw {type(mark).__name__}")
