"""Summaries over seeds, with intervals. Scores are (tasks, seeds) or (seeds,); NaN is left out.

A few seeds say little about a mean. Beside mean and standard error there are therefore the
interquartile mean with its bootstrap interval, the chance that one method beats another (Agarwal et
al., 2021), and a test of whether two methods can be told apart at all.
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import stats

Scores = np.ndarray
# from the resampled strata, each (resamples, n), to (resamples,)
Statistic = Callable[[list[np.ndarray]], np.ndarray]

RESAMPLES = 2_000
DEALS = 10_000  # at most, of a permutation test
LEVEL = 0.05  # two methods are told apart if chance alone does it this rarely


class Interval(NamedTuple):
    """A statistic with its 95% interval."""

    value: float
    low: float
    high: float


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error s / sqrt(n), s^2 = sum (x - mean)^2 / (n - 1).

    Without two values there is no standard error: NaN.
    """
    known = _known(values)
    if not len(known):
        return float("nan"), float("nan")
    error = float(stats.sem(known)) if len(known) > 1 else float("nan")
    return float(known.mean()), error


def interval_of_mean(values: np.ndarray) -> Interval:
    """Return the mean with its interval by Student's t; one value has none (NaN)."""
    mean, error = mean_and_error(values)
    half = float(stats.t.ppf(0.975, max(len(_known(values)) - 1, 1))) * error
    return Interval(mean, mean - half, mean + half)


def interval_of_difference(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Return the difference of two means with its interval by Welch's t; NaN without two of each.

    `scipy.stats.ttest_ind` gives the same (a test compares them) but warns of values all alike.
    """
    (mean, error), (other, rest) = mean_and_error(ours), mean_and_error(theirs)
    half = error + rest  # 0 or NaN stays so
    if half > 0:
        shares = error**4 / (len(_known(ours)) - 1) + rest**4 / (len(_known(theirs)) - 1)
        freedom = (error**2 + rest**2) ** 2 / shares  # Welch and Satterthwaite's
        half = float(stats.t.ppf(0.975, freedom)) * math.hypot(error, rest)
    return Interval(mean - other, mean - other - half, mean - other + half)


def interquartile_mean(values: np.ndarray) -> float:
    """Return the mean without the lowest and the highest quarter (rounded down) of the values."""
    known = _known(values)
    return float(stats.trim_mean(known, 0.25)) if len(known) else float("nan")


def interval_of_iqm(scores: Scores, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Return the interquartile mean over all tasks and seeds with its stratified interval."""

    def middle(parts: list[np.ndarray]) -> np.ndarray:
        return stats.trim_mean(np.concatenate(parts, axis=1), 0.25, axis=1)

    return bootstrap(_strata(scores), middle, seed, resamples)


def probability_of_improvement(
    ours: Scores, theirs: Scores, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the chance that a run of ours scores above one of theirs, ties counting half.

    For one task it is U / (n m), where U is the Mann-Whitney statistic; for several it is the mean
    over tasks. Where less is better, as for a cost, pass the negatives.
    """
    first, second = _strata(ours), _strata(theirs)
    if len(first) != len(second):
        raise ValueError(
            f"both must have scores of the same tasks, got {len(first)} and {len(second)} tasks"
        )
    half = len(first)

    def chance(parts: list[np.ndarray]) -> np.ndarray:
        pairs = zip(parts[:half], parts[half:], strict=True)
        return np.mean([_above(x, y) for x, y in pairs], axis=0)

    return bootstrap([*first, *second], chance, seed, resamples)


def permutation_p(ours: np.ndarray, theirs: np.ndarray, seed: int = 0) -> float:
    """Return how often runs dealt out at random have means at least as far apart as these.

    Every way to deal them out is counted, or else 10,000 drawn ones. NaN without runs of both.
    """
    first, second = _known(ours), _known(theirs)
    n, m = len(first), len(second)
    if not n or not m:
        return float("nan")
    runs = np.concatenate([first, second])
    exact = math.comb(n + m, n) <= DEALS
    if exact:
        dealt = np.array(list(combinations(range(n + m), n)))
    else:
        places = np.tile(np.arange(n + m), (DEALS, 1))
        dealt = np.random.default_rng(seed).permuted(places, axis=1)[:, :n]
        dealt[0] = np.arange(n)  # the deal that happened is one of them
    means = runs[dealt].mean(axis=1)
    others = (runs.sum() - n * means) / m
    rounding = 1e-9 * (np.abs(runs).max() + 1e-300)
    return float(np.mean(np.abs(means - others) >= abs(first.mean() - second.mean()) - rounding))


def told_apart(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Return whether the means differ by more than chance explains (`permutation_p` <= 0.05)."""
    return permutation_p(ours, theirs) <= LEVEL


def can_be_told_apart(n: int, m: int) -> bool:
    """Return whether so many runs of two methods could differ by more than chance explains.

    >>> can_be_told_apart(3, 3), can_be_told_apart(4, 4)
    (False, True)
    """
    deals = math.comb(n + m, n)
    return n > 0 and m > 0 and (2 if n == m else 1) / deals <= LEVEL


def _above(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    difference = x[:, :, None] - y[:, None, :]
    return np.mean((difference > 0) + 0.5 * (difference == 0), axis=(1, 2))


def bootstrap(
    strata: list[np.ndarray], statistic: Statistic, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the statistic with its 95% percentile interval; runs are drawn within their task.

    `scipy.stats.bootstrap` draws the same (a test compares them) but refuses a task with one run.
    """
    if not strata or any(not len(part) for part in strata):
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    drawn = [part[rng.integers(len(part), size=(resamples, len(part)))] for part in strata]
    low, high = np.quantile(statistic(drawn), [0.025, 0.975])
    value = statistic([part[None] for part in strata])[0]
    return Interval(float(value), float(low), float(high))


def _strata(scores: Scores) -> list[np.ndarray]:
    return [_known(row) for row in np.atleast_2d(np.asarray(scores, np.float64))]


def _known(values: np.ndarray) -> np.ndarray:
    flat = np.asarray(values, np.float64).ravel()
    return flat[~np.isnan(flat)]
