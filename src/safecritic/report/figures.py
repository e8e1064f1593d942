"""The figures of the page, made with Plotly: each panel is a plot, the page sets them side by side.

Look and legend of a method come from `core.style`, margins and fonts from `TEMPLATE`.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape  # Plotly takes some HTML in its texts
from typing import Any

import numpy as np
import plotly.graph_objects as go

from safecritic.core.style import GRID, INK, MAPS, OUTLINE, SOFT, Style, method_style
from safecritic.evaluate import calibration, cost_map
from safecritic.report import sections, series
from safecritic.report.data import Study, title
from safecritic.study.grid import limit_text
from safecritic.study.runs import Run

SYMBOLS = {"triangle": "triangle-up", "cross": "x"}
LIMIT = {"color": INK, "width": 1.2, "dash": "dash"}
AXIS = {"linecolor": SOFT, "ticks": "outside", "tickcolor": SOFT, "zeroline": False}
AXIS |= {"automargin": True, "showline": True, "title": {"standoff": 6, "font": {"size": 12}}}
TEMPLATE = {
    "layout": {
        "font": {"family": "system-ui, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": INK},
        "margin": {"l": 8, "r": 12, "t": 10, "b": 8},
        "xaxis": AXIS | {"showgrid": False},
        "yaxis": AXIS | {"gridcolor": GRID},
        "hovermode": "closest",
        "showlegend": False,
    }
}
CURVES = {"reward": "reward per episode", "cost": "cost per episode", "success": "success, %"}
STAGES = {"training": "", "deployment": "deployed_"}  # and how their columns begin


@dataclass
class Panel:
    """A plot under a heading, with a note in small letters."""

    title: str
    plot: go.Figure
    note: str = ""


@dataclass
class Figure:
    """Panels under one title."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    methods: list[str] = field(default_factory=list)  # of the legend, if one is needed
    scales: list[tuple[str, float, float]] = field(default_factory=list)  # of maps: label, ends
    section: str = ""

    @property
    def empty(self) -> bool:
        return not self.panels


def per_task(draw: Callable[[Study, str], Figure]) -> Callable[[Study], list[Figure]]:
    """Turn a function that draws one case into one that draws every case of a study."""

    @functools.wraps(draw)
    def draw_cases(study: Study) -> list[Figure]:
        return [draw(study, case) for case in study.cases]

    return draw_cases


def trace(method: str, x: Any, y: Any, style: Style | None = None, **more: Any) -> go.Scatter:
    """Return a line or points in the look of a method, with which the legend hides them."""
    style = style or method_style(method)
    look = {"color": style.colour, "symbol": SYMBOLS.get(style.marker, style.marker), "size": 8}
    line = {"color": style.colour, "dash": style.dash, "width": style.width}
    look |= {"line": {"color": "white", "width": 0.7}} | more.pop("marker", {})
    defaults = {"name": escape(title(method)), "legendgroup": method, "line": line, "marker": look}
    return go.Scatter(x=np.float32(x), y=np.float32(y), **(defaults | more))


def bars(errors: Any) -> dict[str, Any]:
    """Return error bars; a single run has none."""
    return {"array": np.float32(np.nan_to_num(errors)), "thickness": 1.6, "width": 3}


def band(method: str, curve: series.Curve) -> go.Scatter:
    """Return the mean plus and minus a standard error, filled."""
    low, high = curve.mean - curve.error, curve.mean + curve.error
    ends = np.concatenate([curve.steps, curve.steps[::-1]]), np.concatenate([high, low[::-1]])
    rgb = ",".join(map(str, bytes.fromhex(method_style(method).colour[1:])))
    fill: Any = {"fill": "toself", "fillcolor": f"rgba({rgb},0.13)"}
    return trace(method, *ends, mode="none", hoverinfo="skip", **fill)


def outside_note(texts: dict[str, str], inside: np.ndarray) -> str:
    """Return which methods are too far from all others to be in a plot, with their numbers."""
    far = [
        f"{title(method)} ({text})"
        for (method, text), shown in zip(texts.items(), inside, strict=True)
        if not shown
    ]
    return f"outside: {', '.join(far)}" if far else ""


# ---------------------------------------------------------------- limits


def limits(study: Study) -> list[Figure]:
    """Draw cost, success and reward of the deployed policies over several limits of each task."""
    swept = {
        task: [name for name, case in study.case_of.items() if case.task == task and case.swept]
        for task in study.tasks
    }
    return [_limits(study, task, cases) for task, cases in swept.items() if len(cases) > 1]


def _limits(study: Study, task: str, cases: list[str]) -> Figure:
    place, limit = np.arange(len(cases)), [study.limit(case) for case in cases]
    columns = {"deployed_cost": ("cost of the deployed policies", 1.0)}
    columns |= {"deployed_success": ("success, %", 100.0), "deployed_reward": ("reward", 1.0)}
    panels = []
    for column, (label, scale) in columns.items():
        plot = go.Figure()
        ends: list[float] = []
        if column == "deployed_cost":
            plot.add_scatter(x=place, y=limit, mode="lines", line=LIMIT, name="cost = limit")
            ends += limit
        for at, method in enumerate(study.methods):
            summaries = [study.summary(method, case, column) for case in cases]
            mean = scale * np.array([x.mean for x in summaries])
            if np.isnan(mean).all():
                continue
            error = scale * np.array([x.standard_error for x in summaries])
            ends += [*(mean - np.nan_to_num(error)), *(mean + np.nan_to_num(error))]
            # side by side, so that no bar hides another
            shift = 0.05 * (at - (len(study.methods) - 1) / 2)
            plot.add_trace(trace(method, place + shift, mean, error_y=bars(error)))
        if not ends:
            continue
        ticks = {"tickvals": place, "ticktext": [limit_text(x) for x in limit]}
        plot.update_xaxes(title_text="cost limit", **ticks)
        plot.update_yaxes(range=series.span(ends))
        panels.append(Panel(label, plot))
    caption = (
        "Mean and standard error over seeds of the deployed policies, trained at each limit. Below "
        "the dashed line the limit is kept. Success and reward span at least a tenth of their "
        "size, so that equal ones look equal. A method without a limit was trained once."
    )
    heading = f"Reward and cost at each limit, {task}"
    return Figure(f"limits-{task}", heading, caption, panels, study.methods)


# ---------------------------------------------------------------- training and deployment


@per_task
def curves(study: Study, case: str) -> Figure:
    """Draw reward, cost and success over the steps: mean and standard error over seeds."""
    begun = {
        method: runs
        for method in study.methods
        if (runs := [r for r in study.of(method, case, False) if len(r.episodes["step"]) > 1])
    }
    budgets = [run.job.steps for run in study.on(case)]
    wide = max(budgets) > 3 * min(budgets)
    panels = []
    for column, label in CURVES.items():
        scale = 100.0 if column == "success" else 1.0
        known = {
            method: curve._replace(mean=scale * curve.mean, error=scale * curve.error)
            for method, runs in begun.items()
            if len((curve := series.learning_curve(runs, column, wide)).mean)
        }
        if not known:
            continue
        plot = go.Figure([band(method, curve) for method, curve in known.items()])
        for method, curve in known.items():
            plot.add_trace(trace(method, curve.steps, curve.mean, mode="lines"))
        drawn, limit = list(known.values()), study.limit(case) if column == "cost" else None
        shown = (-4.0, 104.0) if column == "success" else series.after_warm_up(drawn, limit)
        if limit is not None:
            plot.add_hline(y=limit, line=LIMIT, layer="below")
        along = {"type": "log", "dtick": 1} if wide else {}
        plot.update_xaxes(title_text="environment steps" + " (log scale)" * wide, **along)
        plot.update_yaxes(range=shown)
        panels.append(Panel(label, plot, series.cut_text(drawn, shown)))
    caption = (
        "Running means over a tenth of a run's episodes (5 to 100), then mean and standard error "
        "over seeds. Dashed: the cost limit. The axes are for what comes after the warm-up."
    )
    if any(not run.done for run in study.on(case)):
        caption += " Unfinished runs are drawn as far as they have come."
    return Figure(f"curves-{case}", f"Learning curves on {case}", caption, panels, list(begun))


def pareto(study: Study, stage: str = "training") -> list[Figure]:
    """Draw mean cost and reward, with a standard error over seeds in both directions."""
    panels = []
    for case in study.cases:
        known = {}
        for method in study.methods:
            names = [f"{STAGES[stage]}{column}" for column in ("cost", "reward")]
            cost, reward = (study.summary(method, case, name) for name in names)
            if cost.n and reward.n:
                known[method] = cost, reward
        if not known:
            continue
        means = np.array([[part.mean for part in pair] for pair in known.values()])
        inside = series.near(means[:, 0]) & series.near(means[:, 1])
        ends: list[list[float]] = [[study.limit(case)], []]
        plot, texts = go.Figure(), {}
        for (method, (cost, reward)), shown in zip(known.items(), inside, strict=True):
            errors = np.nan_to_num([cost.standard_error, reward.standard_error])
            if shown:
                for along, mean, error in zip(ends, (cost.mean, reward.mean), errors, strict=True):
                    along += [mean - error, mean + error]
            more: Any = {"error_x": bars(errors[:1]), "error_y": bars(errors[1:])}
            plot.add_trace(trace(method, [cost.mean], [reward.mean], mode="markers", **more))
            texts[method] = f"cost {cost.mean:.3g}, reward {reward.mean:.3g}"
        plot.add_vline(x=study.limit(case), line=LIMIT, layer="below")
        plot.update_xaxes(title_text="cost per episode", range=series.span(ends[0]))
        plot.update_yaxes(title_text="reward per episode", range=series.span(ends[1]))
        panels.append(Panel(case, plot, outside_note(texts, inside)))
    about = {
        "training": "Means over all training episodes, the warm-up included.",
        "deployment": "The trained policies without exploration noise.",
    }
    caption = (
        f"{about[stage]} Whiskers: one standard error over seeds. Left of the dashed line the "
        "limit is kept. Rewards span at least a tenth of their size, so that equal ones look "
        "equal; a method far from all others is named above the plot."
    )
    return [
        Figure(f"pareto-{stage}", f"Reward against cost in {stage}", caption, panels, study.methods)
    ]


@per_task
def deployment(study: Study, case: str) -> Figure:
    """Draw every deployment episode, and the mean and standard error over seeds."""
    methods = [method for method in study.methods if study.of(method, case)]
    labels = {"reward": "reward", "cost": "cost"}
    labels |= {"hazard_distance_mean": "distance to the nearest hazard, m"}
    made = [_episodes(study, case, methods, name, label) for name, label in labels.items()]
    panels = [panel for panel in made if panel is not None]
    caption = (
        "Small points: episodes of the trained policies (no exploration noise, screen on). Large "
        "points: mean and standard error over seeds. Dashed: the cost limit."
    )
    return Figure(f"deployment-{case}", f"Deployment on {case}", caption, panels)


def _episodes(study: Study, case: str, methods: list[str], name: str, label: str) -> Panel | None:
    plot, rng = go.Figure(), np.random.default_rng(0)
    values: dict[str, np.ndarray] = {}
    means: dict[str, tuple[float, float]] = {}
    for place, method in enumerate(methods):
        rows = [
            (run.job.seed, at, row[name])
            for run in study.of(method, case)
            for at, row in enumerate(run.deployment)
            if row.get(name) is not None
        ]
        if not rows:
            continue
        seeds, episodes, y = np.array(rows, np.float64).T
        summary = study.summary(method, case, f"deployed_{name}")
        values[method], means[method] = y, (summary.mean, np.nan_to_num(summary.standard_error))
        x = place + rng.uniform(-0.28, 0.28, len(y))
        small = {"size": 4, "opacity": 0.35, "line": {"width": 0}}
        hover = "seed %{customdata[0]}, episode %{customdata[1]}: %{y:.2f}<extra></extra>"
        told: Any = {"customdata": np.array([seeds, episodes], np.int16).T, "hovertemplate": hover}
        plot.add_trace(trace(method, x, y, mode="markers", marker=small, **told))
        more: Any = {"error_y": bars([means[method][1]]), "mode": "markers", "marker": {"size": 11}}
        plot.add_trace(trace(method, [place], [summary.mean], **more))
    if not values:
        return None
    inside = series.near(np.array([mean for mean, _ in means.values()]))
    ends = [study.limit(case), 0.0] if name == "cost" else []
    for method, shown in zip(values, inside, strict=True):
        mean, error = means[method]
        if shown:
            ends += [*np.quantile(values[method], [0.03, 0.97]), mean - error, mean + error]
    low, high = series.span(ends)
    note = outside_note({m: f"mean {mean:.3g}" for m, (mean, _) in means.items()}, inside)
    every = np.concatenate(list(values.values()))
    hidden = int(((every < low) | (every > high)).sum())
    if hidden and not note:
        note = f"{hidden} episode{'s' * (hidden > 1)} outside, all are "
        note += f"from {every.min():.3g} to {every.max():.3g}"
    ticks = {"tickvals": list(range(len(methods))), "range": (-0.5, len(methods) - 0.5)}
    plot.update_xaxes(ticktext=[escape(title(method)) for method in methods], **ticks)
    plot.update_yaxes(range=(low, high))
    if name == "cost":
        plot.add_hline(y=study.limit(case), line=LIMIT, layer="below")
    return Panel(label, plot, note)


# ---------------------------------------------------------------- cost maps


def cost_maps(study: Study) -> list[Figure]:
    """Draw the maps of every task: both kinds of truth."""
    return [draw(study, case) for case in study.cases for draw in (instant_maps, rolled_maps)]


def _map(heading: str, values: np.ndarray, run: Run, scale: tuple, note: str = "") -> Panel:
    """Return a map with the outlines of what costs."""
    extent, costs = run.measures["cost_map"]["extent"], run.arrays["map/instant"][0] > 0

    def grid(cells: np.ndarray) -> dict[str, Any]:
        wide = 2 * extent / len(cells)
        start = wide / 2 - extent
        return {"z": np.float32(cells), "x0": start, "y0": start, "dx": wide, "dy": wide}

    _, low, high = scale
    look: dict[str, Any] = {"colorscale": MAPS, "zmin": low, "zmax": high, "showscale": False}
    look["hovertemplate"] = "%{z:.2f} at (%{x:.2f}, %{y:.2f})<extra></extra>"
    plot = go.Figure(go.Heatmap(**grid(values), **look))
    border = {"start": 0.5, "end": 0.5, "size": 1, "coloring": "none"}
    line = {"color": OUTLINE, "width": 1.3, "smoothing": 0}
    plot.add_contour(**grid(costs), contours=border, line=line, hoverinfo="skip", showscale=False)
    ends = {"range": (-extent, extent), "constrain": "domain", "showgrid": False, "nticks": 5}
    plot.update_xaxes(**ends)
    plot.update_yaxes(scaleanchor="x", **ends)
    return Panel(heading, plot, f"from {values.min():.2f} to {values.max():.2f}{note}")


def instant_maps(study: Study, case: str) -> Figure:
    """Draw the truth and the map of every safety critic in the first scene."""
    panels, scales = [], []
    if runs := series.mapped_runs(study, case):
        truth = runs[0].arrays["map/instant"][0]
        predictions = [run.arrays["map/predicted"][0] for run in runs]
        scales = [("cost of a step (truth)", *series.colour_range([truth]))]
        scales.append(("Q_C, discounted cost", *series.colour_range(predictions)))
        panels.append(_map("truth: standing there", truth, runs[0], scales[0]))
        for run, prediction in zip(runs, predictions, strict=True):
            cell = 2 * run.measures["cost_map"]["extent"] / len(truth)
            errors = cost_map.errors(prediction, truth, truth > 0, cell)
            note = f"; errors: gradient {errors.gradient_mse:.2f}, "
            note += f"contrast {errors.contrast_error:.2f}, entropy {errors.entropy_error:.2f}"
            heading = f"{title(run.method)}, seed {run.job.seed}"
            panels.append(_map(heading, prediction, run, scales[1], note))
    caption = (
        "Q_C in one scene, the robot at rest in each cell, averaged over four headings, all on one "
        "scale, whose top hundredth is cut off. Outlined: where standing costs something. The "
        "numbers are a map's range and its errors in this scene. Coordinates in metres."
    )
    name, heading = f"cost-maps-{case}", f"Cost maps on {case}"
    return Figure(name, heading, caption, panels, scales=scales)


def rolled_maps(study: Study, case: str) -> Figure:
    """Draw what followed when each method's policy was started in each cell, and its Q_C."""
    panels, scales = [], []
    if runs := series.mapped_runs(study, case):
        maps = [
            (run, name, run.arrays[f"map/rolled_{part}"][0])
            for run in runs
            for part, name in (("truth", "realised"), ("predicted", "Q_C"))
        ]
        scales = [("discounted cost", *series.colour_range([values for *_, values in maps]))]
        for run, name, values in maps:
            panels.append(_map(f"{title(run.method)}: {name}", values, run, scales[0]))
    caption = (
        "The same scene, the robot starting at rest and facing right: the discounted cost that "
        "followed when the deployed policy was started in each cell, and Q_C of its action there."
    )
    heading = f"Cost maps on {case} against the realised cost"
    return Figure(f"cost-maps-discounted-{case}", heading, caption, panels, scales=scales)


# ---------------------------------------------------------------- uncertainty


@per_task
def calibration_curves(study: Study, case: str) -> Figure:
    """Draw reliability and risk-coverage of the influence, the steps of all seeds together."""
    reliable, risky = go.Figure(), go.Figure()
    methods = []
    for method in study.methods:
        u, error = series.influence_and_error(study, method, case)
        if not len(u):
            continue
        methods.append(method)
        groups = calibration.reliability(u, error)
        reliable.add_trace(trace(method, groups.influence, groups.error))
        curve = calibration.risk_coverage(u, error)
        keep = np.unique(np.linspace(max(len(u) // 50, 1), len(u), 200).astype(int)) - 1
        best = np.cumsum(np.sort(error)) / np.arange(1, len(error) + 1)
        thin = method_style(method)._replace(dash="dot", width=1.0)
        for values, style in ((curve.risk, None), (best, thin)):
            line = trace(method, curve.coverage[keep], values[keep], style, mode="lines")
            risky.add_trace(line)
        risky.add_hline(y=curve.random, line={"color": thin.colour, "width": 0.8, "dash": "dot"})
    reliable.update_xaxes(title_text="mean u of a tenth of the steps")
    risky.update_xaxes(title_text="share of the steps, lowest u first")
    for plot in (reliable, risky):
        plot.update_yaxes(title_text="mean error", rangemode="tozero")
    panels = [Panel("reliability", reliable), Panel("risk against coverage", risky)]
    caption = (
        "The error is |Q_C - realised discounted cost| at the deployed steps of all seeds. Rising "
        "lines mean larger errors at a higher u. Risk: mean error of the steps with the lowest u; "
        "dotted are the best order, by the error itself (curve), and a random one (level)."
    )
    heading = f"Is the influence u high where Q_C is wrong? {case}"
    return Figure(f"calibration-{case}", heading, caption, panels if methods else [], methods)


# ---------------------------------------------------------------- the sections

Function = Callable[[Study], Iterable[Figure]]

FIGURES: dict[str, list[Function]] = {
    "Limits": [limits],
    "Training": [curves, pareto],
    "Deployment": [functools.partial(pareto, stage="deployment"), deployment],
    "Cost maps": [cost_maps],
    "Uncertainty": [calibration_curves],
}


def register(section: str, function: Function) -> None:
    """Append figures to a section of the page: a function of the study (see `per_task`)."""
    sections.add(FIGURES, section, function)


def all_figures(study: Study) -> list[Figure]:
    """Return the figures in the order of the page; those without anything to draw are left out."""
    return sections.collect(FIGURES, lambda function: function(study))
