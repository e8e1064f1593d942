"""The multipliers, against plain NumPy loops."""

from functools import partial

import jax
import numpy as np
import pytest

from safecritic.critics.multiplier import Gains, gradient_step, pid_init, pid_step

LIMIT = 1.5
COSTS = np.random.default_rng(0).exponential(2.0, size=60)


@partial(jax.jit, static_argnames=("start", "delay"))
def scan(costs, gains, start, delay):
    def step(pid, cost):
        lam, pid = pid_step(pid, cost, LIMIT, gains)
        return pid, lam

    return jax.lax.scan(step, pid_init(start, delay), costs)


def run(costs, gains, start=0.0, delay=10):
    pid, found = scan(np.asarray(costs, np.float32), gains, start, delay)
    return np.asarray(found), pid


def only(p=0.0, i=0.0, d=0.0, p_smoothing=0.0, d_smoothing=0.0, integral_max=100.0):
    return Gains(p, i, d, p_smoothing, d_smoothing, integral_max)


def test_pid_with_only_the_integral_is_the_gradient_dual():
    found, _ = run(COSTS, only(i=0.2), start=0.3)
    lam, expected = np.float32(0.3), []
    for cost in COSTS:
        lam = gradient_step(lam, np.float32(cost), LIMIT, 0.2)
        expected.append(float(lam))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert min(expected) == 0.0  # the clamp at 0 is part of what is compared
    assert max(expected) > 0.3


@pytest.mark.parametrize("delay", [1, 4])
def test_pid_equals_a_plain_loop(delay):
    """Algorithm 2 of Stooke et al. with its authors' smoothing, written out."""
    gains = Gains(p=0.3, i=0.02, d=0.5, p_smoothing=0.9, d_smoothing=0.8, integral_max=0.4)
    found, _ = run(COSTS, gains, start=0.1, delay=delay)
    integral, smooth, cost_smooth, history, expected = 0.1, None, None, [], []
    for cost in COSTS:
        delta = cost - LIMIT
        integral = min(max(integral + 0.02 * delta, 0.0), 0.4)
        smooth = delta if smooth is None else 0.9 * smooth + 0.1 * delta
        cost_smooth = cost if cost_smooth is None else 0.8 * cost_smooth + 0.2 * cost
        history.append(cost_smooth)
        before = history[max(len(history) - 1 - delay, 0)]
        rise = max(0.0, cost_smooth - before)
        expected.append(max(0.0, 0.3 * smooth + integral + 0.5 * rise))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_multiplier_is_never_negative_and_the_integral_is_clamped():
    found, pid = run(np.zeros(50), only(p=1.0, i=0.1, d=1.0), start=1.0)
    assert (found >= 0).all()
    assert float(pid.integral) == 0.0
    # an integral without its clamp at 0 would have to climb back from -7.5
    again, _ = jax.jit(pid_step)(pid, np.float32(LIMIT + 1.0), LIMIT, only(i=0.1))
    np.testing.assert_allclose(again, 0.1, rtol=1e-6)
    found, pid = run(np.full(50, 10.0), only(i=1.0, integral_max=2.0))
    assert found[-1] == 2.0


def test_derivative_acts_on_rising_cost_alone():
    rising, _ = run(np.arange(10.0), only(d=0.5), delay=1)
    np.testing.assert_allclose(rising[1:], 0.5, rtol=1e-6)
    falling, _ = run(np.arange(10.0)[::-1], only(d=0.5), delay=1)
    np.testing.assert_array_equal(falling, 0.0)
