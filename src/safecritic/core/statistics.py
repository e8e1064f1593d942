"""Summaries over the seeds of one task, with intervals; NaN does not count.

Interquartile mean and chance of improvement follow Agarwal et al. (2021).
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import stats

# from the resampled samples, each (resamples, n), to (resamples,)
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
    """Return the mean and its standard error, NaN without two values."""
    known = _known(values)
    if not len(known):
        return math.nan, math.nan
    return float(known.mean()), float(stats.sem(known)) if len(known) > 1 else math.nan


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


def interval_of_iqm(values: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Return the interquartile mean with its interval."""

    def middle(parts: list[np.ndarray]) -> np.ndarray:
        return stats.trim_mean(parts[0], 0.25, axis=1)

    return bootstrap([_known(values)], middle, seed, resamples)


def probability_of_improvement(
    ours: np.ndarray, theirs: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the chance that a run of ours scores above one of theirs, ties counting half."""

    def above(parts: list[np.ndarray]) -> np.ndarray:
        difference = parts[0][:, :, None] - parts[1][:, None, :]
        return np.mean((difference > 0) + 0.5 * (difference == 0), axis=(1, 2))

    return bootstrap([_known(ours), _known(theirs)], above, seed, resamples)


def permutation_p(ours: np.ndarray, theirs: np.ndarray, seed: int = 0) -> float:
    """Return how often runs dealt out at random have means at least as far apart as these.

    Every way to deal them out is counted, or else 10,000 drawn ones.
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


def bootstrap(
    samples: list[np.ndarray], statistic: Statistic, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return the statistic with its 95% percentile interval; runs are drawn within their sample.

    `scipy.stats.bootstrap` draws the same (a test compares them) but refuses a single run.
    """
    if any(not len(sample) for sample in samples):
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    drawn = [sample[rng.integers(len(sample), size=(resamples, len(sample)))] for sample in samples]
    low, high = np.quantile(statistic(drawn), [0.025, 0.975])
    value = statistic([sample[None] for sample in samples])[0]
    return Interval(float(value), float(low), float(high))


def _known(values: np.ndarray) -> np.ndarray:
    flat = np.asarray(values, np.float64).ravel()
    return flat[~np.isnan(flat)]
