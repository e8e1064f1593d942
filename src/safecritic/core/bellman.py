"""The Bellman regression that the reward critic and every safety critic share."""

import jax
import jax.numpy as jnp


def target(signal: jax.Array, discount: jax.Array, q_next: jax.Array) -> jax.Array:
    """Return signal + discount Q(s', pi(s')), without gradient.

    `discount` holds gamma^n (1 - terminated): a truncated episode still bootstraps.
    """
    return jax.lax.stop_gradient(signal + discount * q_next)


def loss(q: jax.Array, targets: jax.Array) -> jax.Array:
    """Eq. 3, first term: 1/2 (Q - target)^2, mean over the batch, sum over members (..., B)."""
    return 0.5 * jnp.sum(jnp.mean((q - targets) ** 2, axis=-1))
