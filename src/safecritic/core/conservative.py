"""The conservative term of Eq. 3 as used: a margin between alternative actions and the data's.

With z = (Q_C - mu) / (sigma + eps), mu and sigma the batch's mean and std without gradient, LME the
log-mean-exp over the m alternatives of a state and z_top the batch's largest z:

    margin = relu(LME(-z_alt) + z_data) + relu(LME(z_alt) - z_top)

The first term raises alternatives as long as they look safer than the data's action, which is what
the paper's text asks for; its printed form, LSE(z_alt) - z_data, lowers them (`agents/paper.py` has
it). The second holds at the scale of the data what the network extrapolates beyond it: without it
the cheapest alternatives, which lie beside the data, would drag the rest up without end.
"""

import math

import jax
import jax.numpy as jnp

from safecritic.core import bellman

ALTERNATIVES = 2  # other actions compared with the data's in each state, m
SIGMA_EPSILON = 1e-2  # eps beside sigma: costs may be 0 in a whole batch
NEAR_POLICY = 0.2  # std of the noise around the policy's action, for alternatives near it


def sample_actions(key: jax.Array, policy_action: jax.Array, near_policy: bool) -> jax.Array:
    """Return other actions (B, m, A): uniform over the box (USC) or policy plus noise (CSC)."""
    batch, size = policy_action.shape
    shape = (batch, ALTERNATIVES, size)
    if not near_policy:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
    noise = NEAR_POLICY * jax.random.normal(key, shape)
    return jnp.clip(policy_action[:, None, :] + noise, -1.0, 1.0)


def batch_scale(q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mu and sigma + eps of Eq. 3 over the last axis of `q`, without gradient."""
    q = jax.lax.stop_gradient(q)
    return q.mean(axis=-1, keepdims=True), q.std(axis=-1, keepdims=True) + SIGMA_EPSILON


def _log_mean_exp(z: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(z, axis=-1) - math.log(z.shape[-1])


def margin(q: jax.Array, q_alt: jax.Array, stride: int = 1) -> jax.Array:
    """Eq. 3 as used, second term: relu(LME(-z_alt) + z_data) + relu(LME(z_alt) - z_top).

    `q` (..., B) is Q_C of the data's actions, which the margin leaves where it is, `q_alt`
    (..., n, m) that of the alternatives in every `stride`-th of these states.
    """
    mu, sigma = batch_scale(q)
    z_data = jax.lax.stop_gradient((q - mu) / sigma)
    z_alt = (q_alt - mu[..., None]) / sigma[..., None]
    z_top = z_data.max(axis=-1, keepdims=True)
    looks_safer = jax.nn.relu(_log_mean_exp(-z_alt) + z_data[..., ::stride])
    return looks_safer + jax.nn.relu(_log_mean_exp(z_alt) - z_top)


def loss(
    q: jax.Array, targets: jax.Array, weight: jax.Array, margin: jax.Array, strength: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 3: mean of 1/2 (Q_C - target)^2 + strength 1/2 weight margin.

    `q` and `targets` are (members, B), `weight` (Eq. 2) and `margin` those of the states that were
    compared. A weight of 1 is CSC, a strength of 0 is SC.
    """
    regression = bellman.loss(q, targets)
    conservative = 0.5 * jnp.sum(jnp.mean(weight * margin, axis=-1))
    return regression + strength * conservative, {
        "safety/bellman_loss": regression,
        "safety/conservative_loss": strength * conservative,
    }
