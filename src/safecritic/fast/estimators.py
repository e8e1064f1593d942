"""The conservative term estimated from fewer rows: the same in expectation, in less time.

The gradient of a log-sum-exp over m alternatives is the softmax-weighted mean of their gradients.
So all m are evaluated, one is drawn from that softmax, and the gradient goes through it alone; and
only a share of the states is looked at, drawn by their caution.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.agents.cost_critic import regression_q
from safecritic.critics.conservative import batch_scale, margin
from safecritic.fast.activations import (
    Passes,
    forward_actions,
    raw_values,
    value_from_activations,
)
from safecritic.networks import Members, join


def draw_states(uniform: jax.Array, caution: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Return places (n,) of states drawn by their caution (B,), and the caution each stands for.

    The mean over them of caution times anything has the batch's mean as its expectation, and its
    work is spent where caution is. One number in [0, 1) places n marks at equal distances along
    the cautions laid end to end: equal cautions give every (B/n)-th state.
    """
    reached = jnp.cumsum(caution)
    marks = (jnp.arange(number, dtype=jnp.float32) + uniform) * (reached[-1] / number)
    places = jnp.sum(reached <= marks[:, None], axis=-1)
    places = jnp.minimum(places, len(caution) - 1)  # rounding, or no caution at all
    return places, jnp.full(number, reached[-1] / len(caution))


class Draw(NamedTuple):
    place: jax.Array  # (..., n) which alternative
    slope: jax.Array  # (..., n) the factor its gradient gets


def draw_alternative(
    uniform: jax.Array, z_data: jax.Array, z_alt: jax.Array, form: str, z_top: jax.Array
) -> Draw:
    """Draw one alternative per state to stand for all m in the gradient, from `uniform` (..., n).

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
    """Return the value of `margin` with the gradient of the drawn alternative alone."""
    value = margin(z_data, jax.lax.stop_gradient(z_alt), form, z_top)
    return value + slope * (z_drawn - jax.lax.stop_gradient(z_drawn))


def alternatives_margin(
    members: Members,
    obs: jax.Array,
    action: jax.Array,
    alternatives: Any,
    bound: jax.Array,
    config: Any,
    passes: Passes,
) -> tuple[jax.Array, jax.Array]:
    """Return what `safety_critic.alternatives_margin` does, with the sampled gradient.

    `passes` are the members' passes over the data's actions, made before.
    """
    part = config.conservative
    form = part.conservative_form
    state_obs = obs[alternatives.states]
    others = tuple(forward_actions(params, state_obs, alternatives.actions) for params in members)
    passes, others = jax.lax.stop_gradient((passes, others))
    q = regression_q(raw_values(passes), bound, config)
    mu, sigma = batch_scale(q, part.sigma_epsilon)

    def standardised(q: jax.Array) -> jax.Array:
        return (q - mu) / sigma

    def data_z(q: jax.Array) -> jax.Array:
        z = standardised(q)[:, alternatives.states]
        return z if part.push_data else jax.lax.stop_gradient(z)

    z_alt = (regression_q(raw_values(others), bound, config) - mu[..., None]) / sigma[..., None]
    z_top = jax.lax.stop_gradient(standardised(q)).max(axis=-1, keepdims=True)
    drawn = draw_alternative(alternatives.uniform, data_z(q), z_alt, form, z_top)
    # The gradient goes through the data's action of every state and the alternative drawn.
    each = jnp.arange(len(alternatives.states))
    values, drawn_values = [], []
    for params, one, other, place in zip(members, passes, others, drawn.place, strict=True):
        values.append(value_from_activations(params, join(obs, action), one))
        tried = join(state_obs, alternatives.actions[each, place])
        drawn_values.append(value_from_activations(params, tried, other.at(place)))
    q = regression_q(jnp.stack(values), bound, config)
    z_drawn = standardised(regression_q(jnp.stack(drawn_values), bound, config))
    return q, sampled_margin(data_z(q), z_alt, z_drawn, drawn.slope, form, z_top)
