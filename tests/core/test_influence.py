"""Eq. 1 and 2 against plain float64 loops: by the batch as printed, by the replay as used."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.quick import jit
from safecritic.agents import paper
from safecritic.core import influence, networks

# Eq. 1 as printed


def network(seed=0, sizes=(4, 8, 7, 1)):
    params = networks.init(jax.random.key(seed), sizes, final=0.5)
    return jax.tree.map(np.asarray, params)


def rows(n=6, width=4, seed=1):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


@partial(jit, static_argnames="damping")
def printed(params, x, damping):
    _, rest, _ = paper.influence_printed(SimpleNamespace(safety=(params,)), x, damping)
    return rest


def gradients(params, x):
    """G (B, P), one gradient per sample, by a plain pass back through the layers."""
    found = []
    for row in np.asarray(x, np.float64):
        inputs = [row]
        for layer in params[:-1]:
            inputs.append(np.maximum(inputs[-1] @ layer["w"] + layer["b"], 0.0))
        d, parts = np.ones(1), []
        for layer, a in zip(reversed(params), reversed(inputs), strict=True):
            parts += [np.outer(a, d).ravel(), d]
            d = (layer["w"].astype(np.float64) @ d) * (a > 0)
        found.append(np.concatenate(parts))
    return np.array(found)


def explicit(g, damping):
    """1 - diag(G (G^T G + dI)^-1 G^T) with the P x P matrix of the paper."""
    matrix = g.T @ g + damping * np.eye(g.shape[1])
    return 1.0 - np.einsum("bp,pb->b", g, np.linalg.solve(matrix, g.T))


@pytest.mark.parametrize("damping", [1e-1, 1e-3])
def test_equals_the_explicit_formula(damping):
    params, x = network(), rows()
    expected = explicit(gradients(params, x), damping)
    np.testing.assert_allclose(printed(params, x, damping), expected, rtol=2e-3)


def test_more_samples_than_parameters():
    params, x = network(sizes=(2, 3, 1)), rows(n=40, width=2)
    expected = explicit(gradients(params, x), 1e-2)
    np.testing.assert_allclose(printed(params, x, 1e-2), expected, rtol=1e-3)


@pytest.mark.parametrize("damping", [1e-3, 1e-6])
def test_duplicate_samples_share_their_influence(damping):
    """k copies of one row explain each other: 1 - u = (k - 1) / k for d -> 0, never NaN."""
    params = network(sizes=(4, 64, 64, 1))
    x = rows(8)
    x[1:3] = x[0]
    rest = np.asarray(printed(params, x, damping))
    np.testing.assert_allclose(rest[:3], 2.0 / 3.0, rtol=1e-2)
    assert (rest[3:] < 0.1).all()


@pytest.mark.parametrize("case", ["all equal", "zero rows", "dead units", "wide spread", "large"])
def test_finite_and_within_bounds(case):
    params, x = network(), rows(12)
    if case == "all equal":
        x = np.broadcast_to(x[0], x.shape)
    if case == "zero rows":
        x = np.zeros_like(x)
        params = jax.tree.map(lambda leaf: leaf * (leaf.ndim > 1), params)
    if case == "dead units":
        first, *others = params
        params = ({**first, "b": first["b"] - np.float32(1e6)}, *others)
    if case == "wide spread":
        x = x * np.logspace(-6, 6, 12, dtype=np.float32)[:, None]
    if case == "large":
        x = x * np.float32(1e4)
    for damping in (1e-2, 1e-6):
        rest = np.asarray(printed(params, x, damping))
        assert np.isfinite(rest).all()
        assert ((rest >= 0) & (rest <= 1 + 1e-5)).all()


def test_printed_form_saturates():
    """With P far above B every u is 1 to some digits: only the order of 1 - u is left."""
    params, x = network(sizes=(20, 64, 64, 1)), rows(16, 20)
    rest = np.asarray(printed(params, x, 1e-6))
    assert rest.max() < 1e-5
    g = gradients(params, x)
    k = g @ g.T
    expected = 1e-6 * np.diag(np.linalg.inv(k + 1e-6 * np.eye(16)))
    np.testing.assert_allclose(rest, expected, rtol=1e-2)
    assert list(np.argsort(rest)) == list(np.argsort(expected))


# Eq. 1 as used

curvature_influence = jit(influence.curvature_influence)


@pytest.fixture
def every_batch(monkeypatch):
    monkeypatch.setattr(influence, "DECAY", 0.99)
    monkeypatch.setattr(influence, "EVERY", 1)
    monkeypatch.setattr(influence, "REFRESH", 1)


def curvature_of(batches):
    """The curvature after batches (T, B, P), damping 1e-3."""

    def step(curvature, gradients):
        return influence.curvature_update(curvature, gradients, 1e-3), None

    start = influence.curvature_init(batches.shape[-1] - 1)
    return jit(partial(jax.lax.scan, step))(start, batches)[0]


@pytest.mark.usefixtures("every_batch")
def test_replay_reference_equals_its_formula():
    """u = g^T (B C + g g^T + dI)^-1 g, C the running mean of g g^T, by a plain loop."""
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(20, 5, 4)).astype(np.float32)
    curvature = curvature_of(batches)
    moment, weight = np.zeros((4, 4)), 0.0
    for batch in batches:
        mean = sum(np.outer(g, g) for g in np.asarray(batch, np.float64)) / 5
        moment, weight = 0.99 * moment + 0.01 * mean, 0.99 * weight + 0.01
    c = 5 * moment / weight
    c += 1e-3 * np.trace(c) / 4 * np.eye(4)
    g = np.asarray(batches[-1], np.float64)
    expected = [row @ np.linalg.inv(c + np.outer(row, row)) @ row for row in g]
    found = curvature_influence(curvature, batches[-1])
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_replay_reference_learns_from_every_few_batches(monkeypatch):
    """As from those batches alone, each decayed by as many updates as lie between two."""
    monkeypatch.setattr(influence, "DECAY", 0.99)
    monkeypatch.setattr(influence, "EVERY", 3)
    batches = np.random.default_rng(0).normal(size=(12, 5, 4)).astype(np.float32)
    found = curvature_of(batches)
    moment, weight = np.zeros((4, 4)), 0.0
    for batch in np.asarray(batches[::3], np.float64):
        mean = batch.T @ batch / 5
        moment, weight = 0.99**3 * moment + (1 - 0.99**3) * mean, 0.99**3 * weight + 1 - 0.99**3
    np.testing.assert_allclose(found.moment, moment, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.weight, weight, rtol=1e-5)
    assert int(found.age) == 12


@pytest.mark.usefixtures("every_batch")
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


def test_replay_reference_survives_dead_features_and_refreshes_at_intervals(monkeypatch):
    monkeypatch.setattr(influence, "EVERY", 1)
    monkeypatch.setattr(influence, "REFRESH", 3)
    zero = np.zeros((4, 3), np.float32)
    curvature = curvature_of(zero[None])
    np.testing.assert_array_equal(curvature_influence(curvature, zero), 0.0)
    assert np.isfinite(curvature_influence(curvature, zero + np.float32(1.0))).all()
    growing = np.arange(1.0, 5.0, dtype=np.float32)[:, None, None] + zero
    kept = curvature_of(growing[:3])
    np.testing.assert_array_equal(kept.whitener, curvature_of(growing[:1]).whitener)
    assert not np.array_equal(curvature_of(growing).whitener, kept.whitener)


# Eq. 2


@pytest.mark.parametrize("function", [influence.uncertainty_weight, paper.uncertainty_weight])
def test_eq_2(function):
    rng = np.random.default_rng(0)
    u, q = rng.random(5).astype(np.float32), rng.normal(size=5).astype(np.float32)
    expected = [np.log(1 + u[i]) * (2 if q[i] > sum(q) / 5 else 1) for i in range(5)]
    np.testing.assert_allclose(jit(function)(u, q), expected, rtol=1e-5)


def test_no_gradient_flows_through_the_weight():
    slope = jit(jax.grad(lambda u, q: influence.uncertainty_weight(u, q).sum(), argnums=(0, 1)))
    for part in slope(jnp.ones(3), jnp.arange(3.0)):
        np.testing.assert_array_equal(part, 0.0)
