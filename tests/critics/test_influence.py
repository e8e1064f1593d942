"""Eq. 1: the layer-by-layer Gram matrix against the explicit formula, and its breakdown cases."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.quick import jit
from safecritic import networks
from safecritic.critics import influence
from safecritic.critics.influence import Influence


def network(seed=0, sizes=(4, 8, 7, 1), members=1, dtype=np.float64):
    params = networks.init_members(jax.random.key(seed), sizes, members, final=0.5)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), params)


def rows(n=6, width=4, seed=1, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(dtype)


def plain(z):
    return z.max(axis=0)


def softplus(z):
    z = networks.cost_output(z, "softplus", jnp.float64(jnp.inf), 5.0)
    return z.max(axis=0)


def bounded(z):
    z = networks.cost_output(z, "bounded", jnp.float64(2.0), 5.0)
    return z.mean(axis=0)


@partial(jit, static_argnames="value")
def remainder(params, x, value, damping, scale=1.0):
    return influence.batch_remainder(params, x, lambda z: scale * value(z), damping)


curvature_influence = jit(influence.curvature_influence)


@partial(jit, static_argnames="value")
def per_sample_gradients(params, x, value):
    """G (B, P), one automatic gradient per sample."""

    def q(p, row):
        return value(jnp.stack([networks.forward(params, row[None])[:, 0] for params in p]))[0]

    gradients = jax.vmap(jax.grad(q), in_axes=(None, 0))(params, x)
    return jnp.concatenate([leaf.reshape(len(x), -1) for leaf in jax.tree.leaves(gradients)], 1)


def explicit_remainder(gradients, damping):
    """1 - diag(G (G^T G + dI)^-1 G^T) with the P x P matrix of the paper, in extended precision."""
    g = np.asarray(gradients, np.longdouble)
    matrix = g.T @ g + np.longdouble(damping) * np.eye(g.shape[1], dtype=np.longdouble)
    right = g.T.copy()
    n = len(matrix)
    for i in range(n):  # Gaussian elimination; LAPACK has no extended precision
        factor = matrix[i + 1 :, i] / matrix[i, i]
        matrix[i + 1 :] -= factor[:, None] * matrix[i]
        right[i + 1 :] -= factor[:, None] * right[i]
    for i in reversed(range(n)):
        right[i] = (right[i] - matrix[i, i + 1 :] @ right[i + 1 :]) / matrix[i, i]
    return np.asarray(1.0 - np.einsum("bp,pb->b", g, right), np.float64)


@pytest.mark.parametrize(
    ("value", "members"),
    [
        (plain, 1),
        (softplus, 2),
        (bounded, 2),
        pytest.param(plain, 2, marks=pytest.mark.slow),
        pytest.param(softplus, 1, marks=pytest.mark.slow),
        pytest.param(bounded, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("damping", [1e-1, 1e-3, 1e-6])
def test_equals_the_explicit_formula(value, members, damping):
    params, x = network(members=members), rows()
    rest = remainder(params, x, value, damping)
    expected = explicit_remainder(per_sample_gradients(params, x, value), damping)
    np.testing.assert_allclose(rest, expected, rtol=1e-8)


def test_a_float32_network_is_assessed_in_float64():
    params, x = network(dtype=np.float32), rows(dtype=np.float32)
    double = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
    gradients = per_sample_gradients(double, x.astype(np.float64), plain)
    rest = remainder(params, x, plain, 1e-4)
    np.testing.assert_allclose(rest, explicit_remainder(gradients, 1e-4), rtol=1e-8)


def test_more_samples_than_parameters():
    params, x = network(sizes=(2, 3, 1)), rows(n=40, width=2)
    rest = remainder(params, x, plain, 1e-3)
    expected = explicit_remainder(per_sample_gradients(params, x, plain), 1e-3)
    np.testing.assert_allclose(rest, expected, rtol=1e-8)


def test_the_slope_of_the_output_is_part_of_the_gradient():
    params, x = network(), rows()
    flat = remainder(params, x, plain, 1e-3, 0.0)
    np.testing.assert_array_equal(flat, 1.0)
    steep = remainder(params, x, plain, 1e-1, 10.0)
    same = remainder(params, x, plain, 1e-3)
    np.testing.assert_allclose(steep, same, rtol=1e-9)


@pytest.mark.parametrize("damping", [1e-3, 1e-6, 1e-9, 1e-12])
def test_duplicate_samples_share_their_influence(damping):
    """k copies of one row explain each other: 1 - u = (k - 1) / k for d -> 0, never NaN."""
    params = network(sizes=(4, 256, 256, 1), dtype=np.float32)
    x = rows(8, dtype=np.float32)
    x[1:3] = x[0]
    rest = np.asarray(remainder(params, x, plain, damping))
    np.testing.assert_allclose(rest[:3], 2.0 / 3.0, rtol=1e-2)
    assert (rest[3:] < 0.1).all()


@pytest.mark.parametrize("damping", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e30])
@pytest.mark.parametrize("case", ["plain", "all equal", "zero rows", "dead units", "wide spread"])
def test_finite_and_within_bounds(case, scale, damping):
    params, x = network(dtype=np.float32), rows(12, dtype=np.float32)
    if case == "all equal":
        x = np.broadcast_to(x[0], x.shape)
    if case == "zero rows":
        x = np.zeros_like(x)
        params = jax.tree.map(lambda leaf: leaf * (leaf.ndim > 1), params)
    if case == "dead units":
        (first, *others), *_ = params
        params = (({**first, "b": first["b"] - np.float32(1e6)}, *others),)
    if case == "wide spread":
        x = x * np.logspace(-18, 18, 12, dtype=np.float32)[:, None]
    rest = np.asarray(remainder(params, x, plain, damping, scale))
    assert np.isfinite(rest).all()
    assert ((rest >= 0) & (rest <= 1)).all()


def test_both_factorisations_agree_where_both_can():
    params, x = network(), rows()
    g = np.asarray(per_sample_gradients(params, x, plain))
    k = g @ g.T
    direct, sound = jit(influence._remainder_cholesky)(k, 1e-4)
    assert sound
    eigen = jit(influence._remainder_eigen)(k, 1e-4)
    np.testing.assert_allclose(eigen, direct, rtol=1e-8)


def test_printed_form_saturates():
    """With P far above B every u is 1 to seven digits: only the order of 1 - u is left."""
    params = network(sizes=(20, 64, 64, 1))
    rest = np.asarray(remainder(params, rows(16, 20), plain, 1e-6))
    assert rest.max() < 1e-6
    assert len(np.unique(rest)) == 16


@partial(jit, static_argnames=("refresh", "every"))
def curvature_of(batches, refresh=1, every=1):
    """The curvature after batches (T, B, P), decay 0.99, damping 1e-3."""

    part = Influence(
        curvature_decay=0.99,
        replay_damping=1e-3,
        curvature_every=every,
        curvature_refresh=refresh,
    )

    def step(curvature, gradients):
        return influence.curvature_update(curvature, gradients, part), None

    start = influence.curvature_init(batches.shape[-1] - 1)
    return jax.lax.scan(step, start, batches)[0]


def test_replay_reference_equals_its_formula():
    """u = g^T (B C + g g^T + dI)^-1 g, C the running mean of g g^T, by a plain loop."""
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(20, 5, 4)).astype(np.float32)
    curvature = curvature_of(batches)
    moment, weight = np.zeros((4, 4)), 0.0
    for gradients in batches:
        mean = sum(np.outer(g, g) for g in np.asarray(gradients, np.float64)) / 5
        moment, weight = 0.99 * moment + 0.01 * mean, 0.99 * weight + 0.01
    c = 5 * moment / weight
    c += 1e-3 * np.trace(c) / 4 * np.eye(4)
    g = np.asarray(batches[-1], np.float64)
    expected = [row @ np.linalg.inv(c + np.outer(row, row)) @ row for row in g]
    found = curvature_influence(curvature, batches[-1])
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_replay_reference_learns_from_every_few_batches():
    """As from those batches alone, each decayed by as many updates as lie between two."""
    batches = np.random.default_rng(0).normal(size=(12, 5, 4)).astype(np.float32)
    found = curvature_of(batches, every=3)
    moment, weight = np.zeros((4, 4)), 0.0
    for gradients in np.asarray(batches[::3], np.float64):
        mean = gradients.T @ gradients / 5
        moment, weight = 0.99**3 * moment + (1 - 0.99**3) * mean, 0.99**3 * weight + 1 - 0.99**3
    np.testing.assert_allclose(found.moment, moment, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.weight, weight, rtol=1e-5)
    assert int(found.age) == 12


def test_replay_reference_falls_where_data_is_dense():
    rng = np.random.default_rng(0)
    dense, rare = rng.normal(size=3), rng.normal(size=3)
    centre = np.where(rng.random((50, 16, 1)) < 0.95, dense, rare)
    batches = centre + 0.05 * rng.normal(size=(50, 16, 3))
    curvature = curvature_of(batches.astype(np.float32))
    both = np.array([dense, rare, -3 * np.cross(dense, rare)], np.float32)
    u_dense, u_rare, u_unseen = np.asarray(curvature_influence(curvature, both))
    assert 2 * u_dense < u_rare
    assert u_rare < u_unseen
    assert u_unseen < 1


def test_replay_reference_survives_dead_features_and_refreshes_at_intervals():
    gradients = np.zeros((4, 3), np.float32)
    curvature = curvature_of(gradients[None])
    np.testing.assert_array_equal(curvature_influence(curvature, gradients), 0.0)
    assert np.isfinite(curvature_influence(curvature, gradients + np.float32(1.0))).all()
    growing = np.arange(1.0, 5.0, dtype=np.float32)[:, None, None] + gradients
    kept = curvature_of(growing[:3], refresh=3)
    np.testing.assert_array_equal(kept.whitener, curvature_of(growing[:1], refresh=3).whitener)
    renewed = curvature_of(growing, refresh=3)
    assert not np.array_equal(renewed.whitener, kept.whitener)


def test_caution_without_the_indicator():
    u, q = np.array([0.1, 0.9]), np.array([0.0, 1.0])
    np.testing.assert_allclose(influence.caution(u, q, indicator=False), np.log1p(u), rtol=1e-6)
    np.testing.assert_allclose(influence.caution(u, q), np.log1p(u) * [1, 2], rtol=1e-6)


def test_what_may_stand_in_the_place_of_u():
    q = np.array([[0.0, 1.0, 5.0], [0.0, 3.0, 5.0]])
    targets, chance = np.array([0.0, 2.0, 8.0]), np.array([0.2, 0.4, 0.6])
    spread, error, drawn = (
        np.asarray(influence.other_doubt(q, targets, chance, source))
        for source in ("spread", "error", "chance")
    )
    np.testing.assert_allclose(spread, [0.0, 0.75, 0.0])  # three times its mean
    np.testing.assert_allclose(error, [0.0, 0.0, 0.75])
    np.testing.assert_array_equal(drawn, chance)
    nothing = influence.other_doubt(0.0 * q, 0.0 * targets, chance, "error")
    np.testing.assert_array_equal(nothing, 0.0)
