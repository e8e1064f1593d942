"""The figures of a report as data (`marks`): what is drawn, not how."""

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from safecritic.evaluation import calibration, cost_map
from safecritic.report import sections
from safecritic.report.data import Study, title
from safecritic.report.marks import (
    Bars,
    Figure,
    Heat,
    Line,
    Mark,
    Panel,
    Points,
    Scale,
    arrows,
    outline,
)
from safecritic.run.curves import running_mean
from safecritic.run.episode import over_known
from safecritic.study.grid import limit_text
from safecritic.study.table import Run, summarise
from safecritic.style import LIMIT, SOFT, Style, method_style

GRID_POINTS = 160  # of a learning curve
ARROWS = 16  # along a side of a map
SIDE = 0.05  # between methods at the same limit, where two limits are 1 apart


def per_task(draw: Callable[[Study, str], Figure]) -> Callable[[Study], list[Figure]]:
    """Turn a function that draws one case into one that draws every case of a study.

    A case is a task, or a task at one of its limits if it has several.
    """

    @functools.wraps(draw)
    def draw_tasks(study: Study) -> list[Figure]:
        return [draw(study, case) for case in study.cases]

    return draw_tasks


# ---------------------------------------------------------------- limits


def limits(study: Study) -> list[Figure]:
    """Draw reward, success and cost of the deployed policies over the limits of each task.

    A task at a single limit has no such figure: there is nothing to follow.
    """
    swept = {
        task: [name for name, case in study.case_of.items() if case.task == task and case.swept]
        for task in study.tasks
    }
    return [_limits(study, task, cases) for task, cases in swept.items() if len(cases) > 1]


def _limits(study: Study, task: str, cases: list[str]) -> Figure:
    place = np.arange(len(cases), dtype=float)
    limit = np.array([study.limit(case) for case in cases])
    names = {
        "deployed_cost": "cost of the deployed policies",
        "deployed_success": "success, %",
        "deployed_reward": "reward",
    }
    panels = []
    for column, label in names.items():
        scale = 100.0 if column == "deployed_success" else 1.0
        marks: list[Mark] = []
        for at, method in enumerate(study.methods):
            summaries = [study.summary(method, case, column) for case in cases]
            mean = scale * np.array([summary.mean for summary in summaries])
            error = scale * np.array([summary.standard_error for summary in summaries])
            if np.isnan(mean).all():
                continue
            # side by side, so that no bar hides another
            shift = SIDE * (at - (len(study.methods) - 1) / 2)
            marks.append(
                Line(
                    place + shift,
                    mean,
                    method_style(method),
                    title(method),
                    marked=True,
                    error=np.nan_to_num(error),
                )
            )
        if not marks:
            continue
        ticks = list(place), [limit_text(x) for x in limit]
        panel = Panel(label, marks, xlabel="cost limit", xticks=ticks, named=False)
        if column == "deployed_cost":
            marks.insert(0, Line(place, limit, LIMIT, "cost = limit"))
            panel.yroot = True
            panel.yrange, panel.note = _cost_range(marks, limit.max())
        else:
            low, high = _told_apart(marks)
            over = max(high - 101.0, 0.0) if column == "deployed_success" else 0.0
            panel.yrange = low - over, high - over
        panels.append(panel)
    caption = (
        "Mean and standard error over seeds of the deployed policies, trained at each limit. Below "
        "the dashed line the limit is kept. Limits are evenly spaced and costs drawn by their "
        "square root, so that small ones can be seen; success and reward span at least a tenth of "
        "their size, so that equal ones look equal. A method that looks at reward alone was "
        "trained once and is the same at every limit."
    )
    return Figure(f"limits-{task}", f"Reward and cost at each limit, {task}", caption, panels)


def _cost_range(marks: Iterable[Mark], limit: float) -> tuple[tuple[float, float], str]:
    """Return a range of costs that one wild method does not flatten, and what it leaves out."""
    lines = [mark for mark in marks if isinstance(mark, Line)]
    tops = [float(np.nanmax(line.y + (0 if line.error is None else line.error))) for line in lines]
    top = 1.08 * min(max(tops), max(3 * limit, 3 * float(np.median(tops))))
    hidden = [line.label for line, high in zip(lines, tops, strict=True) if high > top]
    note = f"above the axis: {', '.join(hidden)}, up to {max(tops):.1f}" if hidden else ""
    return (0.0, top), note


# ---------------------------------------------------------------- training


@per_task
def curves(study: Study, case: str) -> Figure:
    """Draw reward, cost and goals over the steps: mean and standard error over seeds."""
    names = {"reward": "reward per episode", "cost": "cost per episode"}
    if any(np.nansum(run.episodes["success"]) > 0 for run in study.on(case)):
        names["goals"] = "goals reached so far"
    budgets = [run.job.steps for run in study.on(case)]
    wide = max(budgets) > 3 * min(budgets)
    panels = [
        Panel(
            label,
            [],
            xlabel="environment steps" + (" (log scale)" if wide else ""),
            level=study.limit(case) if name == "cost" else None,
            xlog=wide,
            ylog=wide and name == "goals",
        )
        for name, label in names.items()
    ]
    tops: list[float] = []
    lows: list[float] = []
    for method in study.methods:
        runs = [r for r in study.of(method, case, done=False) if len(r.episodes["step"]) > 1]
        if not runs:
            continue
        for panel, name in zip(panels, names, strict=True):
            line = _curve(runs, name, wide)
            line.style, line.label = method_style(method), title(method)
            panel.marks.append(line)
            if name == "cost":
                tops.append(float(line.y[2 * len(line.y) // 3 :].max()))
            if name == "reward":
                lows.append(float(line.y[len(line.y) // 5 :].min()))
    if tops:
        # warm-up is costly for all: the axes are for what comes after it
        panels[1].yrange = (0.0, max(1.2 * max(tops), 6 * study.limit(case)))
        highs = [float(np.nanmax(mark.y)) for mark in panels[0].marks if isinstance(mark, Line)]
        room = 0.08 * (max(highs) - min(lows) + 1e-6)
        panels[0].yrange = (min(lows) - room, max(highs) + room)
        for panel in panels[:2]:
            panel.note = _clipped(panel)
    unfinished = any(not run.done for run in study.on(case))
    caption = (
        "Running means over the episodes of a run (over a tenth of them, at least 5 and at most "
        "100), then mean and standard error over seeds. Dashed: the cost limit. The axes are for "
        "what comes after the warm-up; what they cut off is written above them."
    )
    if unfinished:
        caption += " Unfinished runs are drawn as far as they have come."
    return Figure(f"curves-{case}", f"Learning curves on {case}", caption, panels)


def _clipped(panel: Panel) -> str:
    """Return what lies outside a panel's range, in words."""
    assert panel.yrange is not None
    low, high = panel.yrange
    lines = [mark for mark in panel.marks if isinstance(mark, Line)]
    parts = []
    for word, least in (("down to", True), ("up to", False)):
        outside = [line.y < low if least else line.y > high for line in lines]
        cut = [(line, where) for line, where in zip(lines, outside, strict=True) if where.any()]
        if not cut:
            continue
        last = max(float(line.x[where].max()) for line, where in cut)
        values = [line.y[where].min() if least else line.y[where].max() for line, where in cut]
        value = min(values) if least else max(values)
        parts.append(f"{word} {value:.3g} until step {last:,.0f}")
    return f"cut off: {', '.join(parts)}" if parts else ""


def _curve(runs: Sequence[Run], name: str, log: bool) -> Line:
    first = max(float(run.episodes["step"][0]) for run in runs)
    last = max(float(run.episodes["step"][-1]) for run in runs)
    space = np.geomspace if log else np.linspace
    x = space(max(first, 1.0), max(last, first + 1), GRID_POINTS)
    rows = []
    for run in runs:
        steps = run.episodes["step"]
        if name == "goals":
            values = np.cumsum(np.nan_to_num(run.episodes["success"]))
            if log:
                values = np.where(values > 0, values, np.nan)  # none has no place on such an axis
        else:
            window = int(np.clip(len(steps) // 10, 5, 100))
            values = running_mean(run.episodes[name], window)
        row = np.interp(x, steps, values)
        if not run.done:  # a finished one has its last value until the others end
            row[x > steps[-1]] = np.nan
        rows.append(row)
    values = np.array(rows)
    number = (~np.isnan(values)).sum(axis=0)
    keep = number > 0
    values, number, x = values[:, keep], number[keep], x[keep]
    mean = np.nansum(values, axis=0) / number
    squares = np.nansum((values - mean) ** 2, axis=0)
    spread = np.sqrt(squares / np.maximum(number - 1, 1) / number)
    return Line(x, mean, low=mean - spread, high=mean + spread)


def pareto(study: Study) -> list[Figure]:
    """Draw mean cost and reward of training, with whiskers of a standard error over seeds."""
    caption = "Means over all training episodes, the paper's measure."
    return [_pareto(study, "pareto", "training", "", caption)]


def deployed_pareto(study: Study) -> list[Figure]:
    """Draw the same for the deployed policies."""
    caption = "The trained policies without exploration noise."
    return [_pareto(study, "pareto-deployed", "deployment", "deployed_", caption)]


def _told_apart(marks: Iterable[Mark]) -> tuple[float, float]:
    """Return a range for marks with their errors and some room, a tenth of their size or more."""
    ends = np.concatenate([mark.y + sign * mark.error for mark in marks for sign in (-1, 1)
                           if isinstance(mark, Line | Points)
                           and mark.error is not None])  # fmt: skip
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    width = max(1.12 * (high - low), 0.1 * max(abs(low), abs(high)), 1e-6)
    middle = (low + high) / 2
    return middle - width / 2, middle + width / 2


def _pareto(study: Study, name: str, stage: str, prefix: str, caption: str) -> Figure:
    panels = []
    for case in study.cases:
        marks: list[Mark] = []
        for method in study.methods:
            cost = study.summary(method, case, f"{prefix}cost")
            reward = study.summary(method, case, f"{prefix}reward")
            if not cost.n or not reward.n:
                continue  # no run is finished, or no episode ended
            errors = [np.nan_to_num(np.array([x.standard_error])) for x in (cost, reward)]
            marks.append(
                Points(
                    np.array([cost.mean]),
                    np.array([reward.mean]),
                    method_style(method),
                    title(method),
                    size=8.0,
                    across=errors[0],
                    error=errors[1],
                )
            )
        limit = study.limit(case)
        points = [mark for mark in marks if isinstance(mark, Points)]
        lefts = [float((mark.x - mark.across).min()) for mark in points if mark.across is not None]
        rights = [float((mark.x + mark.across).max()) for mark in points if mark.across is not None]
        left, right = min([limit, *lefts]), max([limit, *rights])
        room = 0.06 * (right - left + 1e-6)
        panels.append(
            Panel(
                case,
                marks,
                xlabel="cost per episode",
                ylabel="reward per episode",
                upright=limit,
                xrange=(left - room, right + room),
                yrange=_told_apart(points) if points else None,
            )
        )
    caption += (
        " Whiskers: one standard error over seeds, in both directions. Left of the dashed line the "
        "limit is kept; higher is better. Rewards span at least a tenth of their size, so that "
        "equal ones look equal."
    )
    columns = min(3, max(len(panels), 1))
    return Figure(name, f"Reward against cost in {stage}", caption, panels, columns)


# ---------------------------------------------------------------- deployment


@per_task
def deployment(study: Study, case: str) -> Figure:
    """Draw every deployment episode, and the mean and standard error over seeds."""
    names = {
        "reward": "reward",
        "cost": "cost",
        "hazard_distance_mean": "distance to the nearest hazard, m",
    }
    methods = [method for method in study.methods if study.of(method, case)]
    panels = []
    for name, label in names.items():
        marks: list[Mark] = []
        for place, method in enumerate(methods):
            runs = study.of(method, case)
            rows = [
                (run, row) for run in runs for row in run.deployment if row.get(name) is not None
            ]
            if not rows:
                continue
            values = np.array([row[name] for _, row in rows], np.float64)
            shift = np.random.default_rng(0).uniform(-0.28, 0.28, len(values))
            hover = [f"seed {run.job.seed}, episode {row['episode']}" for run, row in rows]
            style = method_style(method)
            marks.append(Points(place + shift, values, style, "", 3.5, 0.35, names=hover))
            means = np.array(
                [_mean(row.get(name) for row in run.deployment) for run in runs], np.float64
            )
            summary = summarise(means)
            bar = np.nan_to_num(np.array([summary.standard_error]))
            centre = np.array([float(place)]), np.array([summary.mean])
            marks.append(Points(*centre, style, title(method), 8.0, error=bar))
        if not marks:
            continue
        ticks = list(range(len(methods))), [title(method) for method in methods]
        panel = Panel(label, marks, xticks=ticks)
        if name == "cost":
            panel.level = study.limit(case)
            _cut(panel)
        panels.append(panel)
    caption = (
        "Small points: episodes of the trained policies (no exploration noise, screen on). Large "
        "points: mean and standard error over seeds. Dashed: the cost limit."
    )
    name = f"deployment-{case}"
    return Figure(name, f"Deployment on {case}", caption, panels, max(len(panels), 1))


def _mean(values: Iterable[float | None]) -> float:
    """Return the mean of the values that are known."""
    return over_known(np.mean, np.array(list(values), np.float64))


def _cut(panel: Panel) -> None:
    """Cut the axis so that a few wild episodes do not flatten the rest; note how many are cut."""
    points = [mark for mark in panel.marks if isinstance(mark, Points)]
    values = np.concatenate([mark.y for mark in points])
    means = [mark.y[0] + mark.error[0] for mark in points if mark.error is not None]
    top = max(1.15 * float(np.quantile(values, 0.97)), 1.15 * max(means), 2.0 * (panel.level or 0))
    panel.yrange = (-0.03 * top, top)
    hidden = int((values > top).sum())
    if hidden:
        panel.note = f"{hidden} episode{'s' * (hidden > 1)} above, up to {values.max():.0f}"


# ---------------------------------------------------------------- cost maps


def _mapped(study: Study, case: str) -> list[Run]:
    """Return a run for each method that has maps, with the lowest seed they share."""
    by_method = [
        {run.job.seed: run for run in study.of(method, case) if "map/predicted" in run.arrays}
        for method in study.methods
    ]
    by_method = [runs for runs in by_method if runs]
    if not by_method:
        return []
    shared = set.intersection(*(set(runs) for runs in by_method))
    return [runs[min(shared or runs)] for runs in by_method]


def _scale(label: str, maps: Sequence[np.ndarray]) -> Scale:
    """Return the one scale of several maps: from 0, or below, to the top of all but a hundredth."""
    values = np.concatenate([np.ravel(one) for one in maps])
    low, high = min(0.0, float(values.min())), float(np.quantile(values, 0.99))
    return Scale(label, low, max(high, low + 1e-6))


def _map_panel(
    name: str, values: np.ndarray, run: Run, scale: Scale, errors: str = "", slopes: bool = True
) -> Panel:
    """Return a map with the outlines of what costs; with `slopes`, arrows that point uphill."""
    extent = run.measures["cost_map"]["extent"]
    size = values.shape[0]
    cell = 2 * extent / size
    along_x, along_y = cost_map.gradient(values, cell)
    # mean gradient of blocks of cells, uphill
    number = min(ARROWS, size)
    edges = np.linspace(0, size, number + 1).astype(int)
    middle = (edges[:-1] + edges[1:]) / 2 * cell - extent
    u, v = (_blocks(part, edges) for part in (along_x, along_y))
    y, x = np.meshgrid(middle, middle, indexing="ij")
    length = np.hypot(u, v)
    longest = length.max()
    marks: list[Mark] = [Heat(values, extent, scale)]
    if slopes and longest > 0:
        # the root, so that gentle slopes are seen too
        lengths = 0.9 * (2 * extent / number) * np.sqrt(length / longest)
        keep = (length > 0.02 * longest).ravel()
        factor = lengths / np.maximum(length, 1e-12)
        parts = [part.ravel()[keep] for part in (x, y, u * factor, v * factor)]
        marks.append(arrows(*parts))
    marks.append(outline(run.arrays["map/instant"][0] > 0, extent))
    note = f"from {values.min():.2f} to {values.max():.2f}" + (f"\n{errors}" if errors else "")
    return Panel(
        name,
        marks,
        xlabel="x, m",
        ylabel="y, m",
        xrange=(-extent, extent),
        yrange=(-extent, extent),
        square=True,
        note=note,
    )


def _blocks(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    sums = np.add.reduceat(np.add.reduceat(values, edges[:-1], axis=0), edges[:-1], axis=1)
    counts = np.diff(edges)
    return sums / np.outer(counts, counts)


def cost_maps(study: Study) -> list[Figure]:
    """Draw the maps of every task: both kinds of truth side by side."""
    return [draw(study, case) for case in study.cases for draw in (instant_maps, rolled_maps)]


def instant_maps(study: Study, case: str) -> Figure:
    """Draw the truth and the map of every safety critic in the first scene."""
    runs = _mapped(study, case)
    panels = []
    if runs:
        extent = runs[0].measures["cost_map"]["extent"]
        truth = runs[0].arrays["map/instant"][0]
        own = _scale("cost of a step", [truth])
        panels.append(_map_panel("truth: standing there", truth, runs[0], own, slopes=False))
        predictions = [run.arrays["map/predicted"][0] for run in runs]
        scale = _scale("Q_C, discounted cost", predictions)
        for run, prediction in zip(runs, predictions, strict=True):
            errors = cost_map.errors(prediction, truth, truth > 0, 2 * extent / len(truth))
            note = (
                f"gradient {errors.gradient_mse:.2f}, contrast {errors.contrast_error:.2f}, "
                f"entropy {errors.entropy_error:.2f}"
            )
            name = f"{title(run.method)}, seed {run.job.seed}"
            panels.append(_map_panel(name, prediction, run, scale, note))
    caption = (
        "Q_C in one scene, with the car at rest in each cell, averaged over four headings; all "
        "safety critics on one scale, whose top hundredth of the cells is cut off. Outlined: where "
        "standing costs something. Arrows point uphill; their length is the square root of the "
        "slope. The numbers are a map's range and its errors against the truth in this scene, for "
        "which both are scaled to [0, 1]."
    )
    name = f"cost-maps-{case}"
    # the truth and five critics in one row: a second would begin below the truth's own colours
    return Figure(name, f"Cost maps on {case}", caption, panels, min(max(len(panels), 1), 6))


def rolled_maps(study: Study, case: str) -> Figure:
    """Draw what followed when each method's policy was started in each cell, and its Q_C."""
    runs = _mapped(study, case)
    parts = {"rolled_truth": "realised cost", "rolled_predicted": "Q_C"}
    maps = [run.arrays[f"map/{part}"][0] for part in parts for run in runs]
    scale = _scale("discounted cost", maps) if maps else None
    panels = []
    for part, name in parts.items():
        for run in runs:
            assert scale is not None
            values = run.arrays[f"map/{part}"][0]
            heading = f"{title(run.method)}: {name}"
            panels.append(_map_panel(heading, values, run, scale, slopes=False))
    caption = (
        "The same scene, with the car starting at rest and facing right: the discounted cost that "
        "followed when the deployed policy was started in each cell, and Q_C of the policy's "
        "action there. All maps are on one scale, of which the top hundredth of the cells is cut "
        "off; their ranges are above them."
    )
    name = f"cost-maps-discounted-{case}"
    heading = f"Cost maps on {case} against the realised cost"
    # a column for each method; a single one has its two maps side by side
    columns = len(runs) if len(runs) > 1 else 2
    return Figure(name, heading, caption, panels, columns)


# ---------------------------------------------------------------- uncertainty


@per_task
def calibration_curves(study: Study, case: str) -> Figure:
    """Draw reliability and risk-coverage of the influence, the steps of all seeds together."""
    reliable: list[Mark] = []
    risky: list[Mark] = []
    for method in study.methods:
        arrays = [run.arrays for run in study.of(method, case) if "steps/influence" in run.arrays]
        if not arrays:
            continue
        u = np.concatenate([one["steps/influence"] for one in arrays])
        error = np.concatenate(
            [np.abs(one["steps/q_cost"] - one["steps/realised"]) for one in arrays]
        )
        style, label = method_style(method), title(method)
        groups = calibration.reliability(u, error)
        reliable.append(Line(groups.influence, groups.error, style, label, marked=True))
        curve = calibration.risk_coverage(u, error)
        keep = np.unique(np.linspace(max(len(u) // 50, 1), len(u), 200).astype(int)) - 1
        risky.append(Line(curve.coverage[keep], curve.risk[keep], style, label))
        best = np.cumsum(np.sort(error)) / np.arange(1, len(error) + 1)
        thin = Style(style.colour, "dot", width=1.0)
        risky.append(Line(curve.coverage[keep], best[keep], thin))
        flat = np.full(2, curve.random)
        risky.append(Line(np.array([0.0, 1.0]), flat, Style(SOFT, "dot", width=0.8)))
    panels = [
        Panel("reliability", reliable, "mean u of a tenth of the steps", "mean error"),
        Panel("risk against coverage", risky, "share of the steps, lowest u first", "mean error"),
    ]
    caption = (
        "The error is |Q_C - realised discounted cost| at the steps of the deployment episodes of "
        "all seeds. Left: a rising line means that steps with a higher u have larger errors. "
        "Right: mean error of the steps with the lowest u; dotted are the best order, by the error "
        "itself (curve), and a random order (level)."
    )
    name = f"calibration-{case}"
    return Figure(name, f"Is the influence u high where Q_C is wrong? {case}", caption, panels, 2)


@per_task
def theorem(study: Study, case: str) -> Figure:
    """Draw both sides of Theorem 1 over m, and how often the bound says something."""
    sides: list[Mark] = []
    holds: list[Mark] = []
    says: list[Mark] = []
    ticks: list[int] = []
    for method in study.methods:
        runs = study.measured(method, case, "theorem")
        if not runs:
            continue
        style, label = method_style(method), title(method)
        ticks = [check["m"] for check in runs[0]]
        m = np.array(ticks, np.float64)

        def mean(name: str, runs: list = runs) -> np.ndarray:
            values = np.array([[check[name] for check in checks] for checks in runs], np.float64)
            return values.mean(axis=0)

        sides.append(Line(m, mean("left"), style._replace(dash="solid"), label, marked=True))
        sides.append(Line(m, mean("right"), Style(style.colour, "dot", width=1.2)))
        holds.append(Line(m, 100 * mean("maxima_hold"), style, label, marked=True))
        says.append(Line(m, 100 * mean("says_something"), style, label, marked=True))
    panels = [
        Panel("left side (solid), right side (dotted)", sides),
        Panel("% of states with a bound above 0", says, yrange=(-4, 104)),
        Panel("% where the step on maxima holds", holds, yrange=(-4, 104)),
    ]
    for panel in panels:
        panel.xlabel, panel.xlog = "alternatives m", True
        panel.xticks, panel.named = (ticks, [str(m) for m in ticks]), False
    caption = (
        "Left side: how much larger the paper's form of the penalty is with m uniform alternatives "
        "than with m actions of the policy, mean over states. Right side: the theorem's bound, "
        "from which log m is subtracted. Right panel: the step of the proof before that."
    )
    name = f"theorem-{case}"
    return Figure(name, f"Theorem 1 on trained critics, {case}", caption, panels, 3)


# ---------------------------------------------------------------- time


def resources(study: Study) -> list[Figure]:
    """Draw the time and the memory that a run of each method took on each task."""
    panels = []
    for case in study.cases:
        methods = [method for method in study.methods if study.of(method, case)]
        if not methods:
            continue
        ticks = list(range(len(methods))), [title(method) for method in methods]
        styles = [method_style(method) for method in methods]
        place = np.arange(len(methods), dtype=float)
        cells = {
            "minutes for a run": lambda run: run.seconds / 60,
            "memory, MiB": lambda run: run.memory / 2**20,
        }
        for label, of in cells.items():
            summaries = [
                summarise(np.array([of(run) for run in study.of(method, case)]))
                for method in methods
            ]
            height = np.array([summary.mean for summary in summaries])
            error = np.array([summary.standard_error for summary in summaries])
            if np.isnan(height).all():
                continue
            bars: list[Mark] = [Bars(place, height, styles, np.nan_to_num(error))]
            panels.append(Panel(f"{case}: {label}", bars, xticks=ticks))
    caption = (
        "Means and standard errors over seeds, one core for each run. Methods may differ in their "
        "number of steps: see the table."
    )
    return [Figure("resources", "Time and memory of a run", caption, panels, 2)]


# ---------------------------------------------------------------- the sections

Function = Callable[[Study], Iterable[Figure]]

FIGURES: dict[str, list[Function]] = {
    "Limits": [limits],
    "Training": [curves, pareto],
    "Deployment": [deployed_pareto, deployment],
    "Cost maps": [cost_maps],
    "Uncertainty": [calibration_curves, theorem],
    "Time and memory": [resources],
}


def register(section: str, function: Function) -> None:
    """Append figures to a section of the page: a function of the study (see `per_task`)."""
    sections.add(FIGURES, section, function)


def all_figures(study: Study) -> list[Figure]:
    """Return the figures in the order of the page; those without anything to draw are left out."""
    return sections.collect(FIGURES, lambda function: function(study))
