"""Summaries over seeds, by hand and by simulation."""

import numpy as np
import pytest
from scipy import stats

from safecritic.core import statistics


def test_mean_and_standard_error_by_hand():
    mean, error = statistics.mean_and_error(np.array([1.0, 2.0, 3.0, 6.0, np.nan]))
    assert mean == 3.0
    assert error == pytest.approx(np.sqrt(14 / 3) / 2)  # deviations 4, 1, 0, 9
    assert np.isnan(statistics.mean_and_error(np.array([2.0]))[1])
    assert np.isnan(statistics.mean_and_error(np.array([np.nan]))[0])


def test_interquartile_mean_by_hand():
    assert statistics.interval_of_iqm(np.array([100.0, 1, 2, 3, 4, 5, 6, -50])).value == 3.5
    assert (
        statistics.interval_of_iqm(np.array([7.0, 1.0, 4.0])).value == 4.0
    )  # 3/4 of a value: none


def test_interval_covers_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(0)
    hits = 0
    for i in range(200):
        scores = rng.normal(2.0, 1.0, size=40)
        interval = statistics.interval_of_iqm(scores, seed=i, resamples=200)
        assert interval.low <= interval.value <= interval.high
        hits += interval.low <= 2.0 <= interval.high
    assert 175 <= hits <= 199


def test_interval_is_that_of_scipy():
    """The same draws give the same interval, wherever SciPy gives one."""
    scores = np.random.default_rng(1).normal(size=15)

    def middle(sample, axis):
        return stats.trim_mean(sample, 0.25, axis=axis)

    expected = stats.bootstrap(
        (scores,),
        middle,
        n_resamples=statistics.RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    interval = statistics.interval_of_iqm(scores)
    assert interval[1:] == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert statistics.interval_of_iqm(np.array([2.0])) == (2.0, 2.0, 2.0)


def test_probability_of_improvement_by_hand():
    ours, theirs = np.array([1.0, 3.0]), np.array([2.0, 3.0])
    # 1>2 no, 1>3 no, 3>2 yes, 3=3 half: 1.5 of 4
    assert statistics.probability_of_improvement(ours, theirs).value == 1.5 / 4
    better = statistics.probability_of_improvement(np.arange(5) + 10.0, np.arange(5.0))
    assert better == (1.0, 1.0, 1.0)


def test_the_permutation_test_by_hand() -> None:
    # of the six ways to deal four runs out in two pairs, two are as far apart as these
    assert statistics.permutation_p(np.array([1.0, 2.0]), np.array([4.0, 3.0])) == 2 / 6
    assert statistics.permutation_p(np.array([1.0, 4.0]), np.array([2.0, 3.0])) == 1.0
    assert statistics.permutation_p(np.ones(5), np.ones(3)) == 1.0
    known = np.array([1.0, np.nan, 2.0])
    assert statistics.permutation_p(known, np.array([4.0, 3.0])) == 2 / 6
    assert np.isnan(statistics.permutation_p(np.array([np.nan]), np.ones(3)))


def test_the_permutation_test_of_many_runs_is_drawn() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=12), rng.normal(size=12)
    assert statistics.permutation_p(one, other + 3.0) <= 2 / statistics.DEALS
    exact = stats.permutation_test(
        (one, other), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=50_000
    ).pvalue
    assert abs(statistics.permutation_p(one, other) - exact) < 0.03


def test_when_two_methods_can_be_told_apart() -> None:
    low = np.array([1.0, 1.1, 1.2, 1.3])
    assert statistics.told_apart(low, low + 1)
    assert not statistics.told_apart(low[:3], low[:3] + 1)  # 2 of 20 deals
    assert not statistics.told_apart(low, low + 0.1)
    assert not statistics.told_apart(low, np.array([np.nan]))
    for n in range(1, 6):
        far = statistics.told_apart(np.arange(n), 100.0 + np.arange(n))
        assert statistics.can_be_told_apart(n, n) == far
    assert not statistics.can_be_told_apart(5, 0)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([1.0, 2.0, 4.0, np.nan])
    known = values[:3]
    expected = stats.t.interval(0.95, 2, known.mean(), stats.sem(known))
    assert statistics.interval_of_mean(values)[1:] == pytest.approx(expected)
    alone = statistics.interval_of_mean(np.array([3.0]))
    assert alone.value == 3.0
    assert np.isnan(alone.low)


def test_the_interval_of_a_difference_is_welchs() -> None:
    ours, theirs = np.array([1.0, 2.0, 4.0, np.nan]), np.array([0.5, 0.75, 0.25, 0.1])
    expected = stats.ttest_ind(ours[:3], theirs, equal_var=False).confidence_interval()
    found = statistics.interval_of_difference(ours, theirs)
    assert found.value == pytest.approx(ours[:3].mean() - theirs.mean())
    assert found[1:] == pytest.approx((expected.low, expected.high))
    assert statistics.interval_of_difference(np.ones(3), np.zeros(2)) == (1.0, 1.0, 1.0)
    assert np.isnan(statistics.interval_of_difference(ours, np.ones(1)).low)
