"""The uncertainty-weighted objective: Eq. 2 and Eq. 3 put together."""

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.critics import bellman


def caution(u: jax.Array, q: jax.Array) -> jax.Array:
    """Eq. 2: log(1 + u) (1 + [Q_C above the batch mean]), no gradient through it."""
    u, q = jax.lax.stop_gradient((u, q))
    return jnp.log1p(u) * (1.0 + (q > q.mean()))


def draw_states(uniform: jax.Array, caution: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Places (n,) of states drawn by their caution (B,), and the caution (n,) each stands for.

    The mean over them of caution times anything has the batch's mean as its expectation, and its
    work is spent where caution is. One number in [0, 1) places n marks at equal distances along
    the cautions laid end to end: equal cautions give every (B/n)-th state.
    """
    reached = jnp.cumsum(caution)
    marks = (jnp.arange(number, dtype=jnp.float32) + uniform) * (reached[-1] / number)
    places = jnp.sum(reached <= marks[:, None], axis=-1)
    places = jnp.minimum(places, len(caution) - 1)  # rounding, or no caution at all
    return places, jnp.full(number, reached[-1] / len(caution))


def loss(
    q: jax.Array, targets: jax.Array, caution: jax.Array, margin: jax.Array, weight: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 3: mean of 1/2 (Q_C - target)^2 + weight 1/2 caution margin, summed over members.

    ``q`` is (members, B), ``margin`` (members, n) of all states or of those drawn by their
    caution. A caution of 1 is CSC, a weight of 0 is SC.
    """
    regression = bellman.loss(q, targets)
    conservative = 0.5 * jnp.sum(jnp.mean(caution * margin, axis=-1))
    return regression + weight * conservative, {
        "safety/bellman_loss": regression,
        "safety/conservative_loss": weight * conservative,
    }
