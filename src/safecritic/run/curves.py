"""A picture of the learning curves of a run."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from safecritic import files
from safecritic.run import checkpoint
from safecritic.run.episode import WINDOW
from safecritic.run.folder import read_config, read_episodes
from safecritic.style import COLOURS, GRID, INK, SOFT, STYLE


def running_mean(values: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Return, for every place, the mean of the last `window` values; NaNs do not count."""
    known = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    first = np.maximum(np.arange(len(values)) + 1 - window, 0)
    total, number = sums[1:] - sums[first], counts[1:] - counts[first]
    return np.divide(total, number, out=np.full(len(values), np.nan), where=number > 0)


def draw_curves(run: str | Path, path: str | Path | None = None) -> Path:
    """Write RUN/curves.png (or `path`) from the run's tables."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    run = Path(run)
    path = run / "curves.png" if path is None else Path(path)
    config = read_config(run)
    cut = None
    if checkpoint.exists(run / "checkpoint"):
        tables = checkpoint.load_index(run / "checkpoint")["numbers"].get("tables")
        cut = None if tables is None else tables["episodes"]
    table = {name: np.array(column) for name, column in read_episodes(run, cut).items()}
    limit = float(config["config"]["cost_limit"])
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(10, 6.2), sharex=True, layout="constrained")
        title = f"{config['title']} on {config['task']}, seed {config['seed']}"
        figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        reward, cost, success, multiplier = axes.flat
        _episodes(reward, table, "reward", "reward per episode")
        _reward_range(reward, table["reward"])
        _episodes(cost, table, "cost", "cost per episode")
        cost.axhline(limit, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        place = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 9}
        cost.annotate(f"limit {limit:g}", (0, limit), xycoords=("axes fraction", "data"), **place)
        _cost_range(cost, table["cost"], limit)
        _episodes(success, table, "success", "success", points=False)
        success.set_ylim(-0.03, 1.06)
        success.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        _episodes(multiplier, table, "multiplier", "multiplier", points=False, smooth=False)
        for axis in axes[1]:
            axis.set_xlabel("environment steps")
            axis.xaxis.set_major_formatter(_thousands)
            axis.set_xlim(0, max(table["step"].max(initial=1), 1))
        figure.text(
            0.988,
            0.972,
            f"points: episodes   line: mean of the last {WINDOW}",
            ha="right",
            fontsize=9,
            color=SOFT,
        )
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130)
        plt.close(figure)
    files.write_bytes(path, image.getvalue())
    return path


def _episodes(
    axis: Any,
    table: dict[str, np.ndarray],
    name: str,
    label: str,
    points: bool = True,
    smooth: bool = True,
) -> None:
    steps, values = table["step"], table[name]
    axis.set_title(label, loc="left", fontsize=10.5, color=INK)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    if np.isnan(values).all():
        axis.set_yticks([])
        text = "no episode ended" if not len(values) else f"this run has no {name}"
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", color=SOFT)
        return
    colour = COLOURS[name]
    if points:
        crowded = len(values) > 150
        axis.plot(
            *(steps, values, "."),
            color=colour,
            alpha=0.3 if crowded else 0.5,
            markersize=4.5 if crowded else 7,
            markeredgewidth=0,
        )
    line = running_mean(values) if smooth else values
    axis.plot(steps, line, color=colour, linewidth=1.8)
    last = float(line[~np.isnan(line)][-1])
    _beside(axis, last, f"{100 * last:.0f}%" if name == "success" else f"{last:.3g}", colour)


def _beside(axis: Any, height: float, text: str, colour: str) -> None:
    """Write a label to the right of the axis, at the height of the curve it names."""
    axis.annotate(
        text,
        (1.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=colour,
        annotation_clip=False,
    )


def _cost_range(axis: Any, costs: np.ndarray, limit: float) -> None:
    """Show costs up to their 97% quantile, so that a few large ones do not flatten the rest."""
    known = costs[~np.isnan(costs)]
    top = max(np.quantile(known, 0.97) if known.size else 0.0, 1.5 * limit, 1e-3)
    axis.set_ylim(-0.03 * top, 1.08 * top)
    _note_hidden(axis, int((known > 1.08 * top).sum()), "above", 0.97)


def _reward_range(axis: Any, rewards: np.ndarray) -> None:
    """Show rewards from their 2% quantile, or 0 if that is lower, for the same reason."""
    known = rewards[~np.isnan(rewards)]
    if not known.size:
        return
    low, top = min(np.quantile(known, 0.02), 0.0), max(known.max(), 0.0)
    room = max(0.06 * (top - low), 1e-3)
    axis.set_ylim(low - room, top + room)
    _note_hidden(axis, int((known < low - room).sum()), "below", 0.1)


def _note_hidden(axis: Any, number: int, where: str, height: float) -> None:
    if number:
        text = f"{number} episode{'s' * (number > 1)} {where}"
        style = {"ha": "right", "va": "top", "fontsize": 8.5, "color": SOFT}
        axis.text(0.99, height, text, transform=axis.transAxes, **style)


def _thousands(value: float, _: Any) -> str:
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1000:g}k" if math.isfinite(value) else ""
