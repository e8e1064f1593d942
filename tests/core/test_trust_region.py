"""The constrained step against problems with a known solution."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from helpers.quick import jit
from safecritic.core import trust_region
from safecritic.core.trust_region import (
    BOUNDARY,
    FEASIBLE,
    INFEASIBLE,
    RECOVERY,
    UNCONSTRAINED,
    Trial,
)

DELTA = 0.01


def matrix(size, seed):
    a = np.random.default_rng(seed).normal(size=(size, size))
    return a @ a.T + 0.1 * np.eye(size)


def solution(h, g, b, c, delta):
    """maximise g x with c + b x <= 0 and 1/2 x h x <= delta, by SciPy."""
    found = minimize(
        lambda x: -g @ x,
        -1e-3 * b,
        jac=lambda x: -g,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda x: -c - b @ x, "jac": lambda x: -b},
            {
                "type": "ineq",
                "fun": lambda x: delta - 0.5 * x @ h @ x,
                "jac": lambda x: -h @ x,
            },
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success, found.message
    return found.x


@jit
def compiled_step(h, g, b, c):
    return trust_region.constrained_step(lambda v: h @ v, g, b, c, DELTA, iterations=40)


def our_step(*problem):
    found = compiled_step(*(np.asarray(x, np.float32) for x in problem))
    return jax.device_get(found)


# How far c lies from the limit, in units of the largest change of cost within the trust region.
CASES = [(-3.0, FEASIBLE), (-0.3, BOUNDARY), (0.0, INFEASIBLE), (0.4, INFEASIBLE)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("share", "case"), CASES)
def test_step_solves_the_problem(seed, share, case):
    rng = np.random.default_rng(100 + seed)
    h, g, b = matrix(5, seed), rng.normal(size=5), rng.normal(size=5)
    c = share * np.sqrt(2 * DELTA * b @ np.linalg.solve(h, b))
    found = our_step(h, g, b, c)
    assert int(found.case) == case
    expected = solution(h, g, b, c, DELTA)
    np.testing.assert_allclose(g @ found.x, g @ expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.x, expected, atol=2e-4)
    assert c + b @ found.x <= 1e-6
    assert 0.5 * found.x @ h @ found.x <= DELTA * (1 + 1e-5)


def test_a_limit_that_cuts_only_away_from_the_gradient_leaves_the_step_free():
    """Within the limit, the cost falls along the reward's step: its multiplier is 0."""
    h, g = np.eye(2), np.array([1.0, 0.0])
    b = np.array([-1.0, 0.2])
    found = our_step(h, g, b, -0.05)
    assert int(found.case) == BOUNDARY
    assert float(found.nu) == 0.0
    np.testing.assert_allclose(found.x, [np.sqrt(2 * DELTA), 0.0], atol=1e-6)


def test_by_hand():
    """h = 1, g = (3, 4): free, the step is g / |g| sqrt(2 delta); on the limit, its cut."""
    radius = np.sqrt(2 * DELTA)
    g, b = np.array([3.0, 4.0]), np.array([0.0, 1.0])
    free = our_step(np.eye(2), g, b, -1.0)
    np.testing.assert_allclose(free.x, radius * np.array([0.6, 0.8]), rtol=1e-5)
    cut = our_step(np.eye(2), g, b, 0.0)
    np.testing.assert_allclose(cut.x, [radius, 0.0], atol=1e-6)
    back = our_step(np.eye(2), g, b, 0.5 * radius)
    np.testing.assert_allclose(back.x, [np.sqrt(0.75) * radius, -0.5 * radius], rtol=1e-4)


def test_recovery_goes_straight_down_in_cost():
    h, g, b = matrix(4, 7), np.ones(4), np.array([1.0, -2.0, 0.5, 0.0])
    down = -np.linalg.solve(h, b)
    reach = np.sqrt(2 * DELTA * b @ np.linalg.solve(h, b))
    found = our_step(h, g, b, 2.0 * reach)
    assert int(found.case) == RECOVERY
    expected = down * np.sqrt(2 * DELTA / (b @ np.linalg.solve(h, b)))
    np.testing.assert_allclose(found.x, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(b @ found.x, -reach, rtol=1e-4)


def test_no_cost_gradient():
    found = our_step(np.eye(2), np.array([2.0, 0.0]), np.zeros(2), -1.0)
    assert int(found.case) == UNCONSTRAINED
    np.testing.assert_allclose(found.x, [np.sqrt(2 * DELTA), 0.0], rtol=1e-5)
    # above the limit with nothing to be done about it: no step, and no NaN
    stuck = our_step(np.eye(2), np.array([2.0, 0.0]), np.zeros(2), 1.0)
    assert int(stuck.case) == RECOVERY
    np.testing.assert_allclose(stuck.x, 0.0, atol=1e-12)


def test_conjugate_gradient():
    h, g = matrix(12, 3), np.random.default_rng(3).normal(size=12)
    solve = jit(lambda g: trust_region.conjugate_gradient(lambda v: h @ v, g, 50))
    np.testing.assert_allclose(solve(g), np.linalg.solve(h, g), rtol=1e-4)
    none = solve(np.zeros(12))
    np.testing.assert_array_equal(none, 0.0)


def test_fisher_product_equals_the_explicit_matrix():
    """Against the Hessian of the mean KL between two Gaussians, and of its explicit sum."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(7, 3))
    flat = rng.normal(size=3 * 2 + 2)

    def outputs(p):
        mean = jnp.tanh(obs @ p[:6].reshape(3, 2))
        return jnp.concatenate([mean, jnp.broadcast_to(p[6:], mean.shape)], axis=-1)

    def kl(p):
        old, new = outputs(flat), outputs(p)
        (m0, s0), (m1, s1) = (jnp.split(x, 2, axis=-1) for x in (old, new))
        each = s1 - s0 + (jnp.exp(2 * s0) + (m0 - m1) ** 2) / (2 * jnp.exp(2 * s1)) - 0.5
        return each.sum(axis=-1).mean()

    precision = np.concatenate([np.exp(-2 * flat[6:]), np.full(2, 2.0)])

    @jit
    def products(vectors):
        product = trust_region.fisher_product(outputs, flat, precision, damping=0.3)
        return jax.vmap(product)(vectors)

    explicit = np.asarray(jit(jax.hessian(kl))(flat)) + 0.3 * np.eye(8)
    np.testing.assert_allclose(products(np.eye(8)), explicit, rtol=1e-4, atol=1e-5)


@partial(jit, static_argnames="measure")
def line_search(measure, case, c):
    step = trust_region.Step(jnp.ones(1), case, jnp.ones(()), jnp.zeros(()))
    return trust_region.line_search(measure, jnp.zeros(1), step, c, DELTA, backtrack=0.5, tries=10)


def searched(measure, case=BOUNDARY, c=-0.1):
    flat, share, _ = line_search(measure, np.int32(case), c)
    np.testing.assert_allclose(flat, share)
    return float(share)


def test_line_search_keeps_to_kl_cost_and_reward():
    zero = np.zeros(())

    def quadratic(x):  # kl = x^2 / 2 <= 0.01 at x <= 0.1414
        return Trial(x[0], zero, 0.5 * x[0] ** 2)

    def dearer(x):
        return Trial(x[0], x[0], zero)

    def cheaper(x):
        return Trial(x[0], -x[0], zero)

    def worse(x):
        return Trial(-x[0], zero, zero)

    assert searched(quadratic) == 0.125
    assert searched(dearer, c=-0.3) == 0.25
    assert searched(dearer, c=0.3, case=INFEASIBLE) == 0.0
    assert searched(cheaper, c=0.3, case=INFEASIBLE) == 1.0
    assert searched(worse) == 0.0
    assert searched(worse, case=RECOVERY, c=1.0) == 1.0


def test_line_search_shrinks_on_what_is_not_finite():
    zero = np.zeros(())

    def wild(x):
        return Trial(x[0], zero, jnp.where(x[0] > 0.3, jnp.nan, 0.0))

    assert searched(wild) == 0.25
    infinite = lambda x: Trial(jnp.where(x[0] > 0.6, jnp.inf, x[0]), zero, zero)  # noqa: E731
    assert searched(infinite) == 0.5
    assert searched(lambda x: Trial(x[0], zero, jnp.where(x[0] > 0, jnp.nan, 0.0))) == 0.0
