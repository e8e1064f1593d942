"""Multipliers of the cost constraint: relative, by gradient (Eq. 7), and by a PID controller."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.core.networks import Tree

GAIN = 1.0  # how far the multiplier moves at once with the excess, before the integral
AIM = 0.8  # share of the limit that episodes are to cost
MEMORY = 2_000.0  # decisions over which the episodes' cost is averaged
NEAR_LIMIT = 3.0  # limits that episodes may cost on average to be near the limit
NO_COST = 0.01  # of the typical cost of an episode with cost: what a limit of 0 is taken for
LEAST = 1e-3  # smallest multiplier of the relative rule: it must be able to come back
LEAST_KEPT = 0.85  # long as an episode may be, the average is over seven of them


class Constraint(NamedTuple):
    """Costs of the past episodes by which a multiplier is judged."""

    cost: jax.Array  # moving average of the episodes' costs
    weight: jax.Array  # number of episodes in it
    integral: jax.Array  # sum of past excesses, each times its decisions
    square: jax.Array  # means of squares and of sizes: the typical cost of an episode that costs
    size: jax.Array
    count: jax.Array  # type: ignore[assignment]
    episodes: jax.Array  # number of all episodes


def constraint_init() -> Constraint:
    return Constraint(*(jnp.zeros((), jnp.float32) for _ in Constraint._fields))


def constraint_update(
    past: Constraint, episode_cost: jax.Array, kept: float | jax.Array
) -> Constraint:
    """Add an episode, of weight 1; `kept` is the share of their weight that older ones keep."""
    cost = jnp.asarray(episode_cost, jnp.float32)
    count = past.count + 1.0
    weight = (kept * past.weight + 1.0).astype(jnp.float32)
    return past._replace(
        cost=past.cost + (cost - past.cost) / weight,
        weight=weight,
        square=past.square + (cost**2 - past.square) / count,
        size=past.size + (cost - past.size) / count,
        count=count,
    )


def near_limit(past: Constraint, cost_limit: float) -> jax.Array:
    """Return whether episodes cost a few limits at most, as once a task is learned."""
    return past.cost <= NEAR_LIMIT * limit_scale(past, cost_limit)


def judged_noise_free(past: Constraint, cost_limit: float, every: int) -> jax.Array:
    """Return whether some episodes are without exploration noise, and only they count.

    Noise costs as well, perhaps more than a low limit allows: judged by it, a multiplier rises for
    what no policy can mend.
    """
    return (every > 0) & (past.size > 0) & near_limit(past, cost_limit)


def is_noise_free(past: Constraint, cost_limit: float, every: int) -> jax.Array:
    """Return whether the present episode is one of those without exploration noise."""
    turn = past.episodes % max(every, 1) == max(every, 1) - 1
    return judged_noise_free(past, cost_limit, every) & turn


def judge(
    past: Constraint,
    old: Tree,
    step: Callable[[jax.Array], tuple[Tree, Constraint]],
    cost_limit: float,
    every: int,
) -> tuple[Tree, Constraint]:
    """Return what `step` makes of an episode that ended: multiplier and record of costs.

    Far from the limit every episode counts, near it only those without noise, each for `every`
    episodes: `step` is given that number.
    """
    noise_free = judged_noise_free(past, cost_limit, every)
    new = step(jnp.where(noise_free, jnp.float32(every), 1.0))
    counts = ~noise_free | is_noise_free(past, cost_limit, every)
    judged, after = jax.tree.map(lambda a, b: jnp.where(counts, a, b), new, (old, past))
    return judged, after._replace(episodes=past.episodes + 1.0)


def relative_excess(past: Constraint, cost_limit: float) -> jax.Array:
    """Return how far the average cost is above the limit, relative to it, within [-1, 1]."""
    return jnp.clip((past.cost - cost_limit) / limit_scale(past, cost_limit), -1.0, 1.0)


def limit_scale(past: Constraint, cost_limit: float) -> jax.Array:
    """Return what an excess is relative to: the limit; for 0 a hundredth of the typical cost."""
    least = NO_COST * typical_size(past.square, past.size)
    return jnp.where(cost_limit > 0, jnp.float32(cost_limit), least)


def typical_size(square: jax.Array, size: jax.Array) -> jax.Array:
    """Return E[x^2] / E[|x|], the size of x where it is not 0; 1 if it never was."""
    known = size > 0
    return jnp.where(known, square / jnp.where(known, size, 1.0), 1.0)


def relative_step(
    integral: jax.Array, excess: jax.Array, decisions: jax.Array, part: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the multiplier start exp(integral + GAIN excess), and that integral.

    The integral grows by lr decisions excess: an episode of a thousand moves it as much as a
    hundred episodes of ten. The gain presses at once where costs rise above the limit and lets go
    at once where they fall below it; the integral alone would come late for either.
    """
    first = jnp.float32(max(part.start, LEAST))
    ends = jnp.log(jnp.array([LEAST, part.largest], jnp.float32) / first)
    moved = integral + part.lr * jnp.asarray(decisions, jnp.float32) * excess
    moved = jnp.clip(moved, ends[0], ends[1]).astype(jnp.float32)
    lam = jnp.clip(first * jnp.exp(moved + GAIN * excess), LEAST, part.largest)
    return lam.astype(jnp.float32), moved


def multiplier_step(
    lam: jax.Array, past: Constraint, episode_cost: jax.Array, decisions: jax.Array, config: Any
) -> tuple[jax.Array, Constraint]:
    """Return the multiplier and the record of costs after an episode; `config` are the settings."""

    def step(number: jax.Array) -> tuple[jax.Array, Constraint]:
        length = number * jnp.asarray(decisions, jnp.float32)
        after = constraint_update(
            past, episode_cost, jnp.maximum(jnp.exp(-length / MEMORY), LEAST_KEPT)
        )
        excess = relative_excess(after, AIM * config.cost_limit)
        # Before the first cost there is nothing to let go of.
        excess = jnp.where(after.size > 0, excess, 0.0)
        moved, integral = relative_step(past.integral, excess, length, config.multiplier)
        return moved, after._replace(integral=integral)

    return judge(past, lam, step, config.cost_limit, config.multiplier.noise_free_every)


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

    With Kp = Kd = 0 this is Eq. 7 with Ki as its step size.
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
    state = PID(integral, smooth_violation, jnp.append(past[1:], smooth_cost), pid.count + 1)
    return lam.astype(jnp.float32), state
