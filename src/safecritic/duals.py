"""Multipliers of the cost constraint."""

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401


def gradient_step(
    lam: jax.Array, episode_cost: jax.Array, cost_limit: float, lr: float
) -> jax.Array:
    """Eq. 7: lam <- max(0, lam - lr (limit - C)), once per episode with that episode's cost C."""
    violation = jnp.asarray(episode_cost, jnp.float32) - cost_limit
    return jnp.maximum(0.0, lam + lr * violation).astype(jnp.float32)
