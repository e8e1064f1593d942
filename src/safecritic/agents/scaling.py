"""Scales of what an agent sees: running mean and spread of the observations, sharpened lidars."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.agents.interface import EnvSpec

CLIP = 10.0  # scaled observations stay within +-10 spreads
SHARP_SIZE = 3.0  # of a sharpened input at its largest
LEAST_VARIANCE = 1e-4  # a nearly constant input is not blown up


class Scaler(NamedTuple):
    """Running mean and variance of the observations, kept in the agent's state."""

    mean: jax.Array
    var: jax.Array
    count: jax.Array  # type: ignore[assignment]
    closeness: jax.Array  # (O,) bool: which observations are a closeness


def scaler_init(spec: EnvSpec) -> Scaler:
    """Return a scale that has seen no observation yet."""
    return Scaler(
        mean=jnp.zeros(spec.obs_dim, jnp.float32),
        var=jnp.ones(spec.obs_dim, jnp.float32),
        count=jnp.zeros((), jnp.float32),
        closeness=jnp.zeros(spec.obs_dim, bool).at[jnp.array(spec.closeness, int)].set(True),
    )


def scaler_update(scaler: Scaler, obs: jax.Array) -> Scaler:
    """Add one observation to the running mean and variance (Welford)."""
    obs = jnp.asarray(obs, jnp.float32)
    count = scaler.count + 1.0
    delta = obs - scaler.mean
    mean = scaler.mean + delta / count
    # The initial variance of 1 has weight 0: the first observation removes it.
    var = scaler.var + (delta * (obs - mean) - scaler.var) / count
    return Scaler(mean, var, count, scaler.closeness)


def scaler_update_many(scaler: Scaler, obs: jax.Array) -> Scaler:
    """Add N observations (N, O) to the running mean and variance at once."""
    number = jnp.float32(len(obs))
    count = scaler.count + number
    delta = obs.mean(axis=0) - scaler.mean
    share = number / count
    mean = scaler.mean + share * delta
    within = (1.0 - share) * scaler.var + share * obs.var(axis=0)
    return Scaler(mean, within + share * (1.0 - share) * delta**2, count, scaler.closeness)


def scale(scaler: Scaler, obs: jax.Array, scaling: str) -> jax.Array:
    """Return observations by their running mean and spread, or as they are ("none")."""
    obs = jnp.asarray(obs, jnp.float32)
    if scaling == "none":
        return obs
    spread = jnp.sqrt(jnp.maximum(scaler.var, LEAST_VARIANCE))
    return jnp.clip((obs - scaler.mean) / spread, -CLIP, CLIP)


def sharpen(scaler: Scaler, obs: jax.Array, scaling: str, power: float, gain: float) -> jax.Array:
    """Return observations as the safety critic sees them: what is near stands out.

    A lidar tells 1 - distance/range, so the edge of a hazard moves it by a few hundredths. Raised
    to a power only near things are left; everything else is scaled as usual, times `gain`.
    """
    scaled = scale(scaler, obs, scaling)
    if power == 1.0:
        return scaled
    near = jnp.clip(jnp.asarray(obs, jnp.float32), 0.0, 1.0)
    # A whole power is a few products, any other a logarithm and an exponential.
    raised = near ** (int(power) if power == int(power) else power)
    # no lidar, nothing to make room for
    others = jnp.where(scaler.closeness.any(), jnp.float32(gain), 1.0)
    return jnp.where(scaler.closeness, SHARP_SIZE * raised, others * scaled)
