"""Reliability and risk-coverage on cases worked by hand."""

import numpy as np
import pytest

from safecritic.evaluate import calibration


def test_risk_coverage_by_hand():
    """Errors 1, 3, 2 in the order of u: risks 1, 2, 2; the oracle's 1, 1.5, 2."""
    curve = calibration.risk_coverage(np.array([0.2, 0.9, 0.4]), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(curve.coverage, [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(curve.risk, [1, 2, 2])
    assert curve.area == pytest.approx(5 / 3)
    assert (curve.random, curve.oracle) == (2.0, 1.5)
    assert curve.excess == pytest.approx((5 / 3 - 1.5) / 0.5)


def test_the_oracle_has_excess_0_chance_1_and_the_reverse_more():
    rng = np.random.default_rng(0)
    error = rng.exponential(size=5_000)
    assert calibration.risk_coverage(error, error).excess == pytest.approx(0.0, abs=1e-12)
    assert calibration.risk_coverage(rng.random(5_000), error).excess == pytest.approx(1.0, abs=0.1)
    assert calibration.risk_coverage(-error, error).excess > 1.5


def test_ties_know_nothing():
    """A constant u is chance, whatever the order of the steps."""
    error = np.array([3.0, 1.0, 2.0])
    curve = calibration.risk_coverage(np.ones(3), error)
    assert curve.area == curve.random == 2.0
    assert curve.excess == 1.0
    assert np.isnan(calibration.risk_coverage(np.arange(3), np.ones(3)).excess)


def test_reliability_by_hand():
    u = np.array([0.1, 0.4, 0.2, 0.3, 0.5])
    means = calibration.reliability(u, np.array([1.0, 4.0, 2.0, 3.0, 10.0]), groups=2)
    np.testing.assert_allclose(means.influence, [0.2, 0.45])
    np.testing.assert_allclose(means.error, [2.0, 7.0])
    np.testing.assert_array_equal(means.count, [3, 2])
    assert len(calibration.reliability(u, u, groups=10).count) == 5


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"got \(2,\) and \(3,\)"):
        calibration.risk_coverage(np.ones(2), np.ones(3))
