"""The update's random numbers are those of ``jax.random``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.quick import jit
from safecritic.fast import draws


@pytest.mark.parametrize("shape", [(7,), (64, 8, 2), pytest.param((1,), marks=pytest.mark.slow)])
def test_the_same_numbers_as_jax_random(shape):
    for key in (jax.random.PRNGKey(3), jax.random.key(2**40 + 5)):
        bits = jit(draws.bits, static_argnums=1)(key, shape)
        np.testing.assert_array_equal(bits, jax.random.bits(key, shape, jnp.uint32))
        ours = jit(draws.uniform, static_argnums=(1, 2, 3))(key, shape, -1.0, 1.0)
        theirs = jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)
        np.testing.assert_array_equal(ours, theirs)
        normal = jit(draws.normal, static_argnums=1)(key, shape)
        np.testing.assert_allclose(normal, jax.random.normal(key, shape, jnp.float32), rtol=1e-6)


def test_below_stays_below_and_reaches_all():
    limit = 5
    below = jit(draws.below, static_argnums=1)
    edges = np.array([0, 2**32 - 1], np.uint32)
    np.testing.assert_array_equal(below(edges, limit), [0, limit - 1])
    np.testing.assert_array_equal(below(edges, 1), 0)
    bits = jit(draws.bits, static_argnums=1)(jax.random.PRNGKey(0), (50_000,))
    found = np.asarray(below(bits, limit))
    np.testing.assert_allclose(np.bincount(found) / len(found), 1 / limit, atol=0.01)


def test_numbers_are_not_drawn_again_by_all_who_read_them():
    def readers(key):
        u, x = draws.uniform(key, (8,)), jnp.ones((8, 64), jnp.float32)
        w = jnp.ones((64, 64), jnp.float32)
        return (u[:, None] * x) @ w, (u[:, None] + x) @ w

    text = jax.jit(readers).lower(jax.random.PRNGKey(0)).compile().as_text()
    assert text.count("shift-left(") == 20  # one for each round


def test_once_changes_no_number():
    numbers = jnp.array([0, 7, 2**32 - 1], jnp.uint32)
    found = jit(draws.once)(numbers, jnp.array(True))
    np.testing.assert_array_equal(found, numbers)
    both = jax.vmap(draws.once)(jnp.stack([numbers, numbers[::-1]]), jnp.array([True, True]))
    np.testing.assert_array_equal(both, [numbers, numbers[::-1]])
