"""The uncertainty-weighted objective: Eq. 2 and Eq. 3 put together."""

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.critics import bellman


def caution(u: jax.Array, q: jax.Array) -> jax.Array:
    """Eq. 2: log(1 + u) (1 + [Q_C above the batch mean]), no gradient through it."""
    u, q = jax.lax.stop_gradient((u, q))
    return jnp.log1p(u) * (1.0 + (q > q.mean()))


def loss(
    q: jax.Array, targets: jax.Array, caution: jax.Array, margin: jax.Array, weight: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 3: mean of 1/2 (Q_C - target)^2 + weight 1/2 caution margin, summed over members.

    ``q`` and ``margin`` are (members, B). A caution of 1 is CSC, a weight of 0 is SC.
    """
    regression = bellman.loss(q, targets)
    conservative = 0.5 * jnp.sum(jnp.mean(caution * margin, axis=-1))
    return regression + weight * conservative, {
        "safety/bellman_loss": regression,
        "safety/conservative_loss": weight * conservative,
    }
