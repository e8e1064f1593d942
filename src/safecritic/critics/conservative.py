"""The conservative term of Eq. 3: a margin between alternative actions and the data's action.

With z = (Q_C - mu) / (sigma + eps), mu and sigma the batch's mean and spread without gradient, and
LSE, LME the log-sum-exp and log-mean-exp over the m alternatives:

    band      hinge + relu(LME(z_alt) - z_top)   and down again above the batch's largest, z_top
    hinge     relu(LME(-z_alt) + z_data)         alternatives up while they look safer
    mirrored  LSE(-z_alt) + z_data               the same without an end
    printed   LSE(z_alt) - z_data                Eq. 3 as printed: alternatives down
    flipped   z_data - LSE(z_alt)                the printed term maximised: no bound

The hinge bounds the term but not the critic: pushing up the cheapest alternatives, which lie beside
the data, raises without end what the network extrapolates beyond them. The band holds it at the
scale of the data.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic.fast import draws

FORMS = ("band", "hinge", "mirrored", "printed", "flipped")
SOURCES = ("uniform", "policy")
GRADIENTS = ("sampled", "exact")


def alternatives(
    key: jax.Array, policy_action: jax.Array, number: int, source: str, spread: float
) -> jax.Array:
    """Alternative actions (B, m, A): uniform over the box (USC) or policy plus noise (CSC)."""
    batch, size = policy_action.shape
    shape = (batch, number, size)
    if source == "uniform":
        return draws.uniform(key, shape, -1.0, 1.0)
    noise = spread * draws.normal(key, shape)
    return jnp.clip(policy_action[:, None, :] + noise, -1.0, 1.0)


def batch_scale(q: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """mu and sigma + eps of Eq. 3 over the last axis of ``q``, without gradient."""
    q = jax.lax.stop_gradient(q)
    return q.mean(axis=-1, keepdims=True), q.std(axis=-1, keepdims=True) + epsilon


def _log_mean_exp(z: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(z, axis=-1) - math.log(z.shape[-1])


def margin(z_data: jax.Array, z_alt: jax.Array, form: str, z_top: jax.Array) -> jax.Array:
    """Eq. 3, second term before its weight: (..., n), one of the forms listed above.

    ``z_data`` (..., n) belongs to the data's actions in n states, ``z_alt`` (..., n, m) to the
    alternatives there, ``z_top`` (..., 1) is the largest of the data's in the whole batch.
    """
    if form in ("printed", "flipped"):
        gap = jax.nn.logsumexp(z_alt, axis=-1) - z_data
        return gap if form == "printed" else -gap
    if form == "mirrored":
        return jax.nn.logsumexp(-z_alt, axis=-1) + z_data
    hinge = jax.nn.relu(_log_mean_exp(-z_alt) + z_data)
    if form == "hinge":
        return hinge
    return hinge + jax.nn.relu(_log_mean_exp(z_alt) - z_top)


class Draw(NamedTuple):
    place: jax.Array  # (..., n) which alternative
    slope: jax.Array  # (..., n) the factor its gradient gets


def draw_alternative(
    uniform: jax.Array, z_data: jax.Array, z_alt: jax.Array, form: str, z_top: jax.Array
) -> Draw:
    """One alternative per state to stand for all m in the gradient, from ``uniform`` (..., n).

    Alternative j is drawn with probability |g_j| / sum |g|, g the margin's derivative by z_alt (for
    a log-sum-exp the softmax), and its gradient multiplied by sign(g_j) sum |g|: in expectation
    that is the exact gradient.
    """
    value, pull = jax.vjp(lambda z: margin(z_data, z, form, z_top), z_alt)
    (g,) = pull(jnp.ones_like(value))
    reached = jnp.cumsum(jnp.abs(g), axis=-1)
    total = reached[..., -1]
    place = jnp.argmax(reached > (uniform * total)[..., None], axis=-1)
    drawn = jnp.take_along_axis(g, place[..., None], axis=-1)[..., 0]
    return Draw(place, jnp.sign(drawn) * total)


def sampled_margin(
    z_data: jax.Array,
    z_alt: jax.Array,
    z_drawn: jax.Array,
    slope: jax.Array,
    form: str,
    z_top: jax.Array,
) -> jax.Array:
    """The value of ``margin`` with the gradient of the drawn alternative alone."""
    value = margin(z_data, jax.lax.stop_gradient(z_alt), form, z_top)
    return value + slope * (z_drawn - jax.lax.stop_gradient(z_drawn))
