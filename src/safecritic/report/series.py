"""The numbers behind the figures: arrays from the runs of a study, for whoever draws them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from safecritic.report.data import Study
from safecritic.run.curves import running_mean
from safecritic.study.runs import Run

POINTS = 160  # of a learning curve
FAR = 3.0  # times the middle half: how far from it a method is left out of a picture


class Curve(NamedTuple):
    """A mean over seeds with its standard error, over the environment steps."""

    steps: np.ndarray
    mean: np.ndarray
    error: np.ndarray


def learning_curve(runs: Sequence[Run], column: str, log: bool = False) -> Curve:
    """Return the running mean over a tenth of a run's episodes (5 to 100), over the runs.

    A run that is not finished counts as far as it has come.
    """
    first = max(float(run.episodes["step"][0]) for run in runs)
    last = max(float(run.episodes["step"][-1]) for run in runs)
    space = np.geomspace if log else np.linspace
    steps = space(max(first, 1.0), max(last, first + 1), POINTS)
    rows = []
    for run in runs:
        ended = run.episodes["step"]
        window = int(np.clip(len(ended) // 10, 5, 100))
        row = np.interp(steps, ended, running_mean(run.episodes[column], window))
        if not run.done:  # a finished one has its last value until the others end
            row[steps > ended[-1]] = np.nan
        rows.append(row)
    values = np.array(rows)
    number = (~np.isnan(values)).sum(axis=0)
    keep = number > 0
    values, number = values[:, keep], number[keep]
    mean = np.nansum(values, axis=0) / number
    squares = np.nansum((values - mean) ** 2, axis=0)
    return Curve(steps[keep], mean, np.sqrt(squares / np.maximum(number - 1, 1) / number))


def after_warm_up(curves: Sequence[Curve], limit: float | None) -> tuple[float, float]:
    """Return a range for what comes after the warm-up, which is bad for all: the later halves.

    It begins at 0 and shows the limit if there is one, as for costs.
    """
    late = np.concatenate([curve.mean[len(curve.mean) // 2 :] for curve in curves])
    low, high = float(late.min()), float(late.max())
    if limit is not None:
        return 0.0, max(1.2 * high, 3 * limit, 1e-6)
    room = 0.5 * (high - low) + 1e-6
    lowest = min(float(curve.mean.min()) for curve in curves)
    return max(low - room, lowest - 0.1 * room), high + 0.2 * room


def cut_text(curves: Sequence[Curve], shown: tuple[float, float]) -> str:
    """Return what of the curves lies outside the shown range, in words."""
    low = min(float(curve.mean.min()) for curve in curves)
    high = max(float(curve.mean.max()) for curve in curves)
    parts = [f"down to {low:.3g}"] * (low < shown[0]) + [f"up to {high:.3g}"] * (high > shown[1])
    return f"cut off: {' and '.join(parts)}" if parts else ""


def near(values: np.ndarray) -> np.ndarray:
    """Return which values are near the middle ones: one far away would flatten all others.

    >>> near(np.array([0.1, 0.3, 0.4, 311.0]))
    array([ True,  True,  True, False])
    """
    known = values[~np.isnan(values)]
    if len(known) < 4:  # too few to say which of them is the odd one
        return ~np.isnan(values)
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75], method="lower")
    return np.abs(values - middle) <= max(FAR * (high - low), 0.25 * abs(middle))


def span(ends: Iterable[float]) -> tuple[float, float]:
    """Return a range for these with some room, a tenth of their size or more: equals look equal."""
    known = [float(end) for end in ends if np.isfinite(end)]
    low, high = min(known), max(known)
    width = max(1.14 * (high - low), 0.1 * max(abs(low), abs(high)), 1e-6)
    return (low + high - width) / 2, (low + high + width) / 2


def mapped_runs(study: Study, case: str) -> list[Run]:
    """Return a run for each method that has maps, with the lowest seed they share."""
    by_method = [
        {run.job.seed: run for run in study.of(method, case) if "map/predicted" in run.arrays}
        for method in study.methods
    ]
    by_method = [runs for runs in by_method if runs]
    shared = set.intersection(*map(set, by_method)) if by_method else set()
    return [runs[min(shared or runs)] for runs in by_method]


def colour_range(maps: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the one scale of several maps: from 0, or below, to the top of all but a hundredth."""
    values = np.concatenate([np.ravel(values) for values in maps])
    low, high = min(0.0, float(values.min())), float(np.quantile(values, 0.99))
    return low, max(high, low + 1e-6)


def influence_and_error(study: Study, method: str, case: str) -> tuple[np.ndarray, np.ndarray]:
    """Return u and |Q_C - realised discounted cost| of the deployed steps of all seeds."""
    arrays = [run.arrays for run in study.of(method, case) if "steps/influence" in run.arrays]
    parts = [np.zeros((2, 0))]
    for run_arrays in arrays:
        error = np.abs(run_arrays["steps/q_cost"] - run_arrays["steps/realised"])
        parts.append(np.stack([run_arrays["steps/influence"], error]))
    influence, error = np.concatenate(parts, axis=1)
    return influence, error
