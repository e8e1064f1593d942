"""A picture of the learning curves of a run."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core import files
from safecritic.core.style import COLOURS, GRID, INK, SOFT, STYLE
from safecritic.run import checkpoint
from safecritic.run.episode import WINDOW
from safecritic.run.folder import read_config, read_episodes, read_json
from safecritic.run.records import EvaluationFile


def running_mean(values: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Return, for every place, the mean of the last `window` values; NaNs do not count."""
    known = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    first = np.maximum(np.arange(len(values)) + 1 - window, 0)
    total, number = sums[1:] - sums[first], counts[1:] - counts[first]
    return np.divide(total, number, out=np.full(len(values), np.nan), where=number > 0)


def window_of(episodes: int) -> int:
    """Return over how many episodes a curve is averaged: few enough that its course is seen."""
    return min(WINDOW, max(5, episodes // 10))


def deployed_cost(run: Path) -> float | None:
    """Return the mean cost that `evaluate` found; None if that was not of the last checkpoint."""
    evaluation, trained = run / "evaluation.json", run / "checkpoint" / checkpoint.INDEX
    if not (evaluation.is_file() and trained.is_file()):
        return None
    if evaluation.stat().st_mtime < trained.stat().st_mtime:
        return None
    return read_json(evaluation, EvaluationFile)["means"].get("cost")


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
    title = f"{config['title']} on {config['task']}, seed {config['seed']}"
    window = window_of(len(table["step"]))
    note = f"points: episodes   line: mean of the last {window}"
    deployed = deployed_cost(run)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(10, 6.2), sharex=True, layout="constrained")
        figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        figure.text(0.988, 0.972, note, ha="right", fontsize=9, color=SOFT)
        reward, cost, success, multiplier = axes.flat
        _curve(reward, table, "reward", "reward per episode", window)
        _curve(cost, table, "cost", "cost per episode", window)
        _curve(success, table, "success", "success", window, points=False)
        _curve(multiplier, table, "multiplier", "multiplier", 1, points=False)
        # a few large costs or low rewards do not flatten the rest
        costs, rewards = (x[~np.isnan(x)] for x in (table["cost"], table["reward"]))
        top = max(np.quantile(costs, 0.97) if costs.size else 0.0, 1.5 * limit, 1e-3)
        top = max(top, deployed or 0.0)
        _range(cost, costs, -0.03 * top, 1.08 * top)
        if rewards.size:
            low, high = min(np.quantile(rewards, 0.02), 0.0), max(rewards.max(), 0.0)
            room = max(0.06 * (high - low), 1e-3)
            _range(reward, rewards, low - room, high + room)
        cost.axhline(limit, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        cost.annotate(
            *(f"limit {limit:g}", (0, limit), (4, 3)),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=9,
        )
        if deployed is not None:
            last = table["step"].max(initial=1)
            look = {"color": INK, "markersize": 8, "clip_on": False, "zorder": 5}
            cost.plot([last], [deployed], "D", markeredgecolor="white", **look)
            text = f"deployed\n{deployed:.3g}"
            place = {"xytext": (8, 0), "textcoords": "offset points", "annotation_clip": False}
            mean = running_mean(table["cost"], window)[-1:]
            side = "top" if (deployed < mean).all() else "bottom"  # off the line
            cost.annotate(text, (last, deployed), fontsize=9, va=side, **place)
        success.set_ylim(-0.03, 1.06)
        success.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        for axis in axes[1]:
            axis.set_xlabel("environment steps")
            axis.xaxis.set_major_formatter(_thousands)
            axis.set_xlim(0, max(table["step"].max(initial=1), 1))
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130)
        plt.close(figure)
    files.write_bytes(path, image.getvalue())
    return path


def _curve(
    axis: Any,
    table: dict[str, np.ndarray],
    name: str,
    label: str,
    window: int,
    points: bool = True,
) -> None:
    steps, values, colour = table["step"], table[name], COLOURS[name]
    axis.set_title(label, loc="left", fontsize=10.5, color=INK)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    if np.isnan(values).all():
        axis.set_yticks([])
        text = "no episode ended" if not len(values) else f"this run has no {name}"
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", color=SOFT)
        return
    if points:
        size, alpha = (4.5, 0.3) if len(values) > 150 else (7, 0.5)
        style = {"alpha": alpha, "markersize": size, "markeredgewidth": 0}
        axis.plot(steps, values, ".", color=colour, **style)
    line = running_mean(values, window)
    axis.plot(steps, line, color=colour, linewidth=1.8)
    last = float(line[~np.isnan(line)][-1])
    axis.annotate(  # to the right of the axis, at the height of the curve it names
        *(f"{100 * last:.0f}%" if name == "success" else f"{last:.3g}", (1.0, last), (5, 0)),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=colour,
        annotation_clip=False,
    )


def _range(axis: Any, values: np.ndarray, low: float, high: float) -> None:
    """Show a range of the values, and say how many are beyond it."""
    axis.set_ylim(low, high)
    for number, where, height in (
        (int((values > high).sum()), "above", 0.97),
        (int((values < low).sum()), "below", 0.1),
    ):
        if number:
            text = f"{number} episode{'s' * (number > 1)} {where}"
            style = {"ha": "right", "va": "top", "fontsize": 8.5, "color": SOFT}
            axis.text(0.99, height, text, transform=axis.transAxes, **style)


def _thousands(value: float, _: Any) -> str:
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1000:g}k" if math.isfinite(value) else ""
