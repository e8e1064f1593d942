"""Theorem 1's two sides on values for which they are known."""

import math

import numpy as np
import pytest

from safecritic.evaluate.theorem import check


def test_uniform_always_risky_policy_never() -> None:
    """Q_C 1 against 0: left is c, right c - log m, whatever m."""
    checks = check(np.ones((3, 64)), np.zeros((3, 64)), sigma=0.5)
    assert [one["m"] for one in checks] == [1, 2, 4, 8, 16, 32, 64]
    for one in checks:
        assert one["premise"] == one["larger"] == one["holds"] == one["maxima_hold"] == 1.0
        assert one["left"] == pytest.approx(2.0)
        assert one["right"] == pytest.approx(2.0 - math.log(one["m"]))
        assert one["says_something"] == float(one["m"] < math.e**2)
        assert one["mirrored_left"] == pytest.approx(-2.0)


def test_a_policy_that_avoids_nothing_fails_the_premise() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((4, 512))
    for one in check(values, values, sigma=1.0):
        assert (one["premise"], one["left"]) == (0.0, 0.0)
        assert one["right"] == pytest.approx(-math.log(one["m"]))


def test_the_claim_on_maxima_can_fail_though_the_premise_holds() -> None:
    """Uniform exceeds tau = 1 more often, but when the policy does, it does by far."""
    uniform = np.tile([1.0, 0.0], 50)[None]
    policy = np.where(np.arange(100) % 5 < 2, 10.0, 0.0)[None]
    (one,) = check(uniform, policy, sigma=1.0, numbers=[1])
    assert one["premise"] == 1.0
    assert one["right"] == pytest.approx(0.5 - 0.4)
    assert one["left"] == pytest.approx(0.5 - 4.0)
    assert one["maxima_hold"] == one["holds"] == 0.0


def test_two_states_share_the_numbers() -> None:
    uniform = np.stack([np.ones(8), np.zeros(8)])
    policy = np.stack([np.zeros(8), np.ones(8)])
    (one,) = check(uniform, policy, sigma=1.0, numbers=[1])
    assert (one["premise"], one["larger"], one["left"]) == (0.5, 0.5, 0.0)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="must both be"):
        check(np.ones((2, 8)), np.ones((2, 4)), 1.0)
