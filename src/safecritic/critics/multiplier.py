"""Multipliers of the cost constraint: by gradient (Eq. 7) and by a PID controller."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401


def gradient_step(
    lam: jax.Array, episode_cost: jax.Array, cost_limit: float, lr: float
) -> jax.Array:
    """Eq. 7: lam <- max(0, lam - lr (limit - C)), once per episode with that episode's cost C."""
    violation = jnp.asarray(episode_cost, jnp.float32) - cost_limit
    return jnp.maximum(0.0, lam + lr * violation).astype(jnp.float32)


class Gains(NamedTuple):
    """Gains of the PID controller; `p` and `d` act on moving averages with the given weights."""

    p: float
    i: float
    d: float
    p_smoothing: float  # weight of the old average, 0: none
    d_smoothing: float
    integral_max: float


class PID(NamedTuple):
    """State of the controller: the integral term with its gain, two averages, past costs."""

    integral: jax.Array
    violation: jax.Array  # smoothed C - limit
    past: jax.Array  # (delay,) smoothed costs, oldest first
    count: jax.Array  # type: ignore[assignment]  # episodes seen


def pid_init(multiplier: float, delay: int) -> PID:
    """Return the controller's first state; the integral alone makes the first multiplier."""
    return PID(
        integral=jnp.asarray(multiplier, jnp.float32),
        violation=jnp.zeros((), jnp.float32),
        past=jnp.zeros(delay, jnp.float32),
        count=jnp.zeros((), jnp.int32),
    )


def pid_step(
    pid: PID, episode_cost: jax.Array, cost_limit: float, gains: Gains
) -> tuple[jax.Array, PID]:
    """Return the multiplier after an episode of that cost (Stooke et al. 2020, Algorithm 2).

        lam = max(0, Kp smooth(C - limit) + I + Kd max(0, smooth(C) - smooth(C) `delay` ago))
        I   = clip(I + Ki (C - limit), 0, integral_max)

    With Kp = Kd = 0 this is `gradient_step` with lr = Ki.
    """
    cost = jnp.asarray(episode_cost, jnp.float32)
    first = pid.count == 0
    violation = cost - cost_limit
    integral = jnp.clip(pid.integral + gains.i * violation, 0.0, gains.integral_max)

    def average(old: jax.Array, new: jax.Array, weight: float) -> jax.Array:
        return jnp.where(first, new, weight * old + (1.0 - weight) * new)

    smooth_violation = average(pid.violation, violation, gains.p_smoothing)
    smooth_cost = average(pid.past[-1], cost, gains.d_smoothing)
    past = jnp.where(first, smooth_cost, pid.past)  # as if it had always cost this much
    rise = jnp.maximum(0.0, smooth_cost - past[0])
    lam = jnp.maximum(0.0, gains.p * smooth_violation + integral + gains.d * rise)
    state = PID(
        integral=integral,
        violation=smooth_violation,
        past=jnp.append(past[1:], smooth_cost),
        count=pid.count + 1,
    )
    return lam.astype(jnp.float32), state
