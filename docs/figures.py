"""The figures of docs/results, from the committed runs: written by `python docs/tables.py`."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from safecritic.core.style import MAPS, OUTLINE, SOFT, STYLE, method_style
from safecritic.report import data, series
from safecritic.report.data import Study, title

ROOT = Path(__file__).parents[1]
DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "X"}
COLUMNS = {"deployed_cost": "cost", "deployed_success": "success, %", "deployed_reward": "reward"}


def look(method: str, marked: bool = False) -> dict[str, object]:
    """Return how a method is drawn."""
    style = method_style(method)
    about = {"color": style.colour, "linestyle": DASHES[style.dash], "linewidth": style.width}
    return about | ({"marker": MARKERS[style.marker]} if marked else {})


def panels(number: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, side by side."""
    figure = Figure((width, height), layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, number, squeeze=False)))


def legend(figure: Figure, axes: Axes) -> None:
    """Name what the axes show, above all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=8, frameon=False)


def curves(study: Study, case: str) -> Figure:
    """Draw reward and cost over the steps of training: mean and standard error over seeds."""
    figure, axes = panels(2, 10.2, 3.8)
    for panel, column in zip(axes, ("reward", "cost"), strict=True):
        drawn = []
        for method in study.methods:
            curve = series.learning_curve(study.of(method, case), column, log=True)
            ends = curve.mean - curve.error, curve.mean + curve.error
            panel.plot(curve.steps, curve.mean, label=title(method), **look(method))
            colour = method_style(method).colour
            panel.fill_between(curve.steps, *ends, color=colour, alpha=0.12, linewidth=0)
            drawn.append(curve)
        limit = study.limit(case) if column == "cost" else None
        panel.set(xscale="log", xlabel="environment steps", title=f"{column} per episode")
        panel.set_ylim(series.after_warm_up(drawn, limit))
        if limit is not None:
            panel.axhline(limit, color=SOFT, linestyle="--", linewidth=1)
    legend(figure, axes[0])
    return figure


def limits(study: Study, task: str) -> Figure:
    """Draw the deployed policies over the limits they were trained at."""
    cases = [case for case in study.cases if study.case_of[case].task == task]
    values = [study.limit(case) for case in cases]
    place = np.arange(len(cases))
    figure, axes = panels(3, 10.2, 4.0)
    for panel, (column, name) in zip(axes, COLUMNS.items(), strict=True):
        scale = 100.0 if "success" in column else 1.0
        for method in study.methods:
            found = [study.summary(method, case, column) for case in cases]
            mean, error = (
                scale * np.array([getattr(x, part) for x in found])
                for part in ("mean", "standard_error")
            )
            panel.errorbar(
                place, mean, np.nan_to_num(error), label=title(method), **look(method, True)
            )
        panel.set(title=name, xlabel="cost limit", xticks=place)
        panel.set_xticklabels([f"{value:g}" for value in values])
    axes[0].plot(place, values, color=SOFT, linestyle="--", linewidth=1)
    axes[1].set_ylim(90, 100.5)
    axes[2].set_ylim(series.span([*axes[2].get_ylim(), 0.9 * axes[2].get_ylim()[1]]))
    legend(figure, axes[0])
    return figure


def pareto(study: Study) -> Figure:
    """Draw reward against cost of the deployed policies, with standard errors."""
    figure = Figure((10.2, 7.1), layout="constrained")
    axes = list(np.ravel(figure.subplots(2, 3)))
    for panel, case in zip(axes, study.cases, strict=True):
        ends = []
        for method in study.methods:
            cost, reward = (
                study.summary(method, case, f"deployed_{x}") for x in ("cost", "reward")
            )
            about = look(method, True) | {"linestyle": ""}
            panel.errorbar(
                *(cost.mean, reward.mean, reward.standard_error, cost.standard_error),
                label=title(method),
                **about,
            )
            ends += [reward.mean - reward.standard_error, reward.mean + reward.standard_error]
        panel.axvline(study.limit(case), color=SOFT, linestyle="--", linewidth=1)
        panel.set(title=case, xlabel="cost per episode", ylabel="reward", ylim=series.span(ends))
        panel.set_xlim(left=0.0)
    axes[-1].set_xscale("symlog", linthresh=1.0)
    legend(figure, axes[0])
    return figure


def maps(study: Study, case: str) -> Figure:
    """Draw the cost of standing in each place, and Q_C of every safety critic there."""
    runs = series.mapped_runs(study, case)
    truth = runs[0].arrays["map/instant"][0]
    extent = runs[0].measures["cost_map"]["extent"]
    predictions = [run.arrays["map/predicted"][0] for run in runs]
    figure, axes = panels(len(runs) + 1, 15.0, 3.0)
    low, high = series.colour_range(predictions)
    names = ["truth: cost of a step", *(f"{title(run.method)}: Q_C" for run in runs)]
    edges = (-extent, extent, -extent, extent)
    for panel, name, values in zip(axes, names, [truth, *predictions], strict=True):
        ends = {"vmin": low, "vmax": high} if values is not truth else {}
        image = panel.imshow(values, MAPS, extent=edges, origin="lower", **ends)
        panel.contour(truth > 0, [0.5], extent=edges, colors=OUTLINE, linewidths=0.8)
        panel.set(title=name, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, fraction=0.012, pad=0.01)
    return figure


def write(folder: Path) -> None:
    """Write every figure as a PNG file with a palette."""
    study, swept = (data.read(ROOT / "results" / f"{name}.parquet") for name in ("tasks", "limits"))
    with mpl.rc_context({**STYLE, "font.size": 9}):
        drawn = {
            "results-curves-CarButton1": curves(study, "CarButton1"),
            "results-maps-CarGoal2": maps(study, "CarGoal2"),
            "results-pareto": pareto(study),
            "results-limits-CarGoal2": limits(swept, "CarGoal2"),
            "results-limits-CarButton1": limits(swept, "CarButton1"),
        }
        for name, figure in drawn.items():
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=130)
            Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
