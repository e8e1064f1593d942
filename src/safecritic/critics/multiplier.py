"""Multipliers of the cost constraint: relative, by gradient (Eq. 7), and by a PID controller."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.agents.settings import Group, require, require_not_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class MultiplierSettings(Group):
    """Settings of the multiplier of Q_C, or of the cost, in the actor's loss."""

    TITLE: ClassVar[str] = "multiplier"

    multiplier_rule: Literal["relative", "printed"] = "relative"  # printed: Eq. 7
    multiplier_init: float = 0.05  # first multiplier; paper: 1
    multiplier_lr: float = 1e-4  # step per decision and relative excess, or as printed
    multiplier_smoothing: float = 0.95  # weight of the past in the average cost of an episode
    multiplier_max: float = 100.0  # largest multiplier

    def check(self) -> None:
        super().check()
        require_not_negative(self, "multiplier_init", "multiplier_lr")
        require_positive(self, "multiplier_max")
        smoothing = self.multiplier_smoothing
        require(0 <= smoothing < 1, "multiplier_smoothing", "in [0, 1)", smoothing)


def gradient_step(
    lam: jax.Array, episode_cost: jax.Array, cost_limit: float, lr: float
) -> jax.Array:
    """Eq. 7: lam <- max(0, lam - lr (limit - C)), once per episode with that episode's cost C."""
    violation = jnp.asarray(episode_cost, jnp.float32) - cost_limit
    return jnp.maximum(0.0, lam + lr * violation).astype(jnp.float32)


class Constraint(NamedTuple):
    """Costs of past episodes, by which the relative rule judges the limit."""

    cost: jax.Array  # moving average of the episodes' costs
    square: jax.Array  # means of squares and of sizes: the typical cost of an episode that costs
    size: jax.Array
    count: jax.Array  # type: ignore[assignment]


def constraint_init() -> Constraint:
    """Return the record before the first episode."""
    return Constraint(*(jnp.zeros((), jnp.float32) for _ in range(4)))


def constraint_update(past: Constraint, episode_cost: jax.Array, smoothing: float) -> Constraint:
    """Add an episode; `smoothing` is the weight of the old average, once there are enough."""
    cost = jnp.asarray(episode_cost, jnp.float32)
    count = past.count + 1.0
    rate = jnp.maximum(1.0 - smoothing, 1.0 / count)
    return Constraint(
        cost=past.cost + rate * (cost - past.cost),
        square=past.square + (cost**2 - past.square) / count,
        size=past.size + (cost - past.size) / count,
        count=count,
    )


def relative_excess(past: Constraint, cost_limit: float) -> jax.Array:
    """Return how far the average cost is above the limit, relative to it, within [-1, 1].

    Where the limit is 0 it is relative to the typical cost of an episode that costs something.
    """
    return jnp.clip((past.cost - cost_limit) / limit_scale(past, cost_limit), -1.0, 1.0)


def limit_scale(past: Constraint, cost_limit: float) -> jax.Array:
    """Return what an excess is relative to: the limit or, if it is 0, the typical cost."""
    known = past.size > 0
    typical = jnp.where(known, past.square / jnp.where(known, past.size, 1.0), 1.0)
    return jnp.where(cost_limit > 0, jnp.float32(cost_limit), typical)


def relative_step(
    lam: jax.Array, excess: jax.Array, decisions: jax.Array, lr: float, most: float
) -> jax.Array:
    """Return lam exp(lr decisions excess), at least LEAST and at most `most`.

    The step is relative, like the excess, and bounded per decision: an episode of a thousand moves
    the multiplier as much as a hundred episodes of ten.
    """
    moved = lam * jnp.exp(lr * jnp.asarray(decisions, jnp.float32) * excess)
    return jnp.clip(moved, LEAST, most).astype(jnp.float32)


LEAST = 1e-3  # smallest multiplier of the relative rule: it must be able to come back


def multiplier_step(
    lam: jax.Array,
    past: Constraint,
    episode_cost: jax.Array,
    decisions: jax.Array,
    config: Any,
) -> tuple[jax.Array, Constraint]:
    """Return the multiplier and the record of costs after an episode, by the rule chosen."""
    past = constraint_update(past, episode_cost, config.multiplier_smoothing)
    if config.multiplier_rule == "printed":
        lam = gradient_step(lam, episode_cost, config.cost_limit, config.multiplier_lr)
        return jnp.minimum(lam, config.multiplier_max).astype(jnp.float32), past
    excess = relative_excess(past, config.cost_limit)
    return relative_step(lam, excess, decisions, config.multiplier_lr, config.multiplier_max), past


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
    pid: PID,
    episode_cost: jax.Array,
    cost_limit: float | jax.Array,
    gains: Gains,
    number: float | jax.Array,
) -> tuple[jax.Array, PID]:
    """Return the multiplier after an episode of that cost (Stooke et al. 2020, Algorithm 2).

        lam = max(0, Kp smooth(C - limit) + I + Kd max(0, smooth(C) - smooth(C) `delay` ago))
        I   = clip(I + Ki (C - limit), 0, integral_max)

    With Kp = Kd = 0 this is `gradient_step` with lr = Ki.
    """
    cost = jnp.asarray(episode_cost, jnp.float32)
    first = pid.count == 0
    violation = cost - cost_limit
    integral = jnp.clip(pid.integral + gains.i * number * violation, 0.0, gains.integral_max)

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
