"""Pictures of a run: its learning curves, and what its safety critic says against what happened."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.deployment import Evaluation, discounted_sums
from safecritic.run_folder import read_config, read_table

WINDOW = 100  # episodes in the running mean
INK, SOFT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {"reward": "#0072b2", "cost": "#d55e00", "success": "#009e73", "multiplier": "#7b4fa3"}


def running_mean(values: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Mean of the last `window` known values up to each; NaN where there is none."""
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
    table = {name: np.array(column) for name, column in read_table(run / "episodes.csv").items()}
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
        figure.savefig(path, dpi=130)
        plt.close(figure)
    return path


def draw_critic(found: Evaluation, gamma: float, title: str, path: str | Path) -> Path | None:
    """Q_C against the discounted cost that followed, or None if no critic judged a step.

    Left: steps in ten groups of growing Q_C, the mean of either; right: the costliest episode.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    q, truth = found.steps.q_cost, found.steps.realised
    if not len(q):
        return None
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        groups = [g for g in np.array_split(np.argsort(q, kind="stable"), 10) if len(g)]
        means = np.array([(q[g].mean(), truth[g].mean()) for g in groups])
        end = 1.08 * max(means.max(), 1e-3)
        left.plot([0, end], [0, end], color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        left.plot(*means.T, "o-", color=COLOURS["cost"], markersize=5)
        left.set(xlim=(0, end), ylim=(0, end))
        left.set_xlabel("mean Q_C of a tenth of the steps")
        left.set_title("discounted cost that followed", loc="left", fontsize=10.5)
        left.text(0.9, 0.95, "equal", transform=left.transAxes, ha="right", color=SOFT, fontsize=9)
        worst = int(np.argmax([episode.column("cost").sum() for episode in found.traces]))
        episode = found.traces[worst]
        steps = np.arange(len(episode.steps))
        followed = discounted_sums(episode.column("cost"), gamma)
        right.plot(steps, followed, color=INK, linewidth=1.6, label="what followed")
        right.plot(
            steps, episode.column("q_cost"), color=COLOURS["cost"], linewidth=1.6, label="Q_C"
        )
        costly = steps[episode.column("cost") > 0]
        right.plot(costly, np.zeros(len(costly)), "|", color=INK, markersize=9, label="cost")
        right.set_xlabel("step")
        name = f"discounted cost in the costliest episode (number {worst})"
        right.set_title(name, loc="left", fontsize=10.5)
        right.legend(frameon=False, fontsize=9)
        for axis in (left, right):
            axis.grid(axis="y", color=GRID, linewidth=0.8)
            axis.set_axisbelow(True)
        figure.savefig(path, dpi=130)
        plt.close(figure)
    return Path(path)


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
    """A label to the right of the axis, at the height of what it names."""
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
    """A few wild episodes must not flatten the rest: show up to the 97% quantile."""
    known = costs[~np.isnan(costs)]
    top = max(np.quantile(known, 0.97) if known.size else 0.0, 1.5 * limit, 1e-3)
    axis.set_ylim(-0.03 * top, 1.08 * top)
    _note_hidden(axis, int((known > 1.08 * top).sum()), "above", 0.97)


def _reward_range(axis: Any, rewards: np.ndarray) -> None:
    """The same for rewards, from their 2% quantile or 0 up."""
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
