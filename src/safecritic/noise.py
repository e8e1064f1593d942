"""Exploration noise: an Ornstein-Uhlenbeck process with unit time step."""

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401


def ornstein_uhlenbeck(
    x: jax.Array, key: jax.Array, sigma: float | jax.Array, theta: float
) -> jax.Array:
    """Return the next value of the process: x - theta x + sigma N(0, 1)."""
    return x - theta * x + sigma * jax.random.normal(key, x.shape, jnp.float32)
