"""Multipliers of the cost constraint: relative, by gradient (Eq. 7), and by a PID controller."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.agents.settings import Group, require_not_negative, require_positive, require_share
from safecritic.networks import Tree


@dataclass(frozen=True, kw_only=True)
class QuietSettings(Group):
    """By which episodes a multiplier is judged."""

    TITLE: ClassVar[str] = "multiplier"

    quiet_every: int = 3  # near the limit, episodes for one without noise to judge by; paper: 0

    def check(self) -> None:
        super().check()
        require_not_negative(self, "quiet_every")


@dataclass(frozen=True, kw_only=True)
class MultiplierSettings(QuietSettings):
    """Settings of the multiplier of Q_C, or of the cost, in the actor's loss."""

    TITLE: ClassVar[str] = "multiplier"

    multiplier_rule: Literal["relative", "printed"] = "relative"  # printed: Eq. 7
    multiplier_init: float = 0.02  # first multiplier; paper: 1
    multiplier_lr: float = 1e-4  # step per decision and relative excess, or as printed
    multiplier_gain: float = 1.0  # how far it moves at once with the excess, before the integral
    multiplier_aim: float = 0.8  # share of the limit that episodes are to cost; 1 as printed
    multiplier_memory: float = 2_000.0  # decisions over which the episodes' cost is averaged
    multiplier_max: float = 3.0  # largest multiplier; the paper gives no value

    def check(self) -> None:
        super().check()
        require_not_negative(self, "multiplier_init", "multiplier_lr", "multiplier_gain")
        require_positive(self, "multiplier_max", "multiplier_memory")
        require_share(self, "multiplier_aim")


def gradient_step(
    lam: jax.Array, episode_cost: jax.Array, cost_limit: float, lr: float
) -> jax.Array:
    """Eq. 7: lam <- max(0, lam - lr (limit - C)), once per episode with that episode's cost C."""
    violation = jnp.asarray(episode_cost, jnp.float32) - cost_limit
    return jnp.maximum(0.0, lam + lr * violation).astype(jnp.float32)


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
    """Return the record before the first episode."""
    return Constraint(*(jnp.zeros((), jnp.float32) for _ in Constraint._fields))


def constraint_update(
    past: Constraint, episode_cost: jax.Array, kept: float | jax.Array
) -> Constraint:
    """Add an episode, of weight 1; `kept` is the share of their weight that older ones keep."""
    cost = jnp.asarray(episode_cost, jnp.float32)
    count = past.count + 1.0
    weight = (kept * past.weight + 1.0).astype(jnp.float32)
    return Constraint(
        cost=past.cost + (cost - past.cost) / weight,
        weight=weight,
        integral=past.integral,
        square=past.square + (cost**2 - past.square) / count,
        size=past.size + (cost - past.size) / count,
        count=count,
        episodes=past.episodes,
    )


NEAR_LIMIT = 3.0  # limits that episodes may cost on average to be near the limit


def near_limit(past: Constraint, cost_limit: float) -> jax.Array:
    """Return whether episodes cost a few limits at most, as they do once a task is learned."""
    return past.cost <= NEAR_LIMIT * limit_scale(past, cost_limit)


def has_quiet(past: Constraint, config: Any) -> jax.Array:
    """Return whether some episodes are without exploration noise, and only they count.

    Noise costs as well, perhaps more than a low limit allows. A multiplier that is judged by it
    rises for what no policy can mend, until nothing is left of the reward.
    """
    return (config.quiet_every > 0) & (past.size > 0) & near_limit(past, config.cost_limit)


def is_quiet(past: Constraint, config: Any) -> jax.Array:
    """Return whether the present episode is one of those without exploration noise."""
    every = max(config.quiet_every, 1)
    return has_quiet(past, config) & (past.episodes % every == every - 1)


def judge(
    past: Constraint,
    old: Tree,
    step: Callable[[jax.Array], tuple[Tree, Constraint]],
    config: Any,
) -> tuple[Tree, Constraint]:
    """Return what `step` makes of an episode that ended: multiplier and record of costs.

    Far from the limit every episode counts, near it only those without noise, and each of these
    stands for `quiet_every` episodes: `step` is given that number.
    """
    some = has_quiet(past, config)
    new = step(jnp.where(some, jnp.float32(config.quiet_every), 1.0))
    counts = ~some | is_quiet(past, config)
    judged, after = jax.tree.map(lambda a, b: jnp.where(counts, a, b), new, (old, past))
    return judged, after._replace(episodes=past.episodes + 1.0)


def relative_excess(past: Constraint, cost_limit: float) -> jax.Array:
    """Return how far the average cost is above the limit, relative to it, within [-1, 1].

    A limit of 0 counts as a small part of what an episode that costs something typically costs.
    """
    return jnp.clip((past.cost - cost_limit) / limit_scale(past, cost_limit), -1.0, 1.0)


NO_COST = 0.01  # of the typical cost of an episode with cost: what a limit of 0 is taken for


def limit_scale(past: Constraint, cost_limit: float) -> jax.Array:
    """Return what an excess is relative to: the limit or, if it is 0, a hundredth of typical cost.

    Relative to the whole of it a limit of 0 would be the laxest of all.
    """
    least = NO_COST * typical_size(past.square, past.size)
    return jnp.where(cost_limit > 0, jnp.float32(cost_limit), least)


def typical_size(square: jax.Array, size: jax.Array) -> jax.Array:
    """Return E[x^2] / E[|x|], the size of x where it is not 0; 1 if it never was."""
    known = size > 0
    return jnp.where(known, square / jnp.where(known, size, 1.0), 1.0)


def relative_step(
    integral: jax.Array, excess: jax.Array, decisions: jax.Array, config: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the multiplier init exp(integral + gain excess), and that integral.

    The integral grows by lr decisions excess, which is bounded per decision: an episode of a
    thousand moves it as much as a hundred episodes of ten. The gain presses at once where costs
    rise above the limit and lets go at once where they fall below it; the integral alone would
    come too late for the one and hold on for long after the other.
    """
    first = jnp.float32(max(config.multiplier_init, LEAST))
    ends = jnp.log(jnp.array([LEAST, config.multiplier_max], jnp.float32) / first)
    moved = integral + config.multiplier_lr * jnp.asarray(decisions, jnp.float32) * excess
    moved = jnp.clip(moved, ends[0], ends[1]).astype(jnp.float32)
    at_once = config.multiplier_gain * excess
    lam = jnp.clip(first * jnp.exp(moved + at_once), LEAST, config.multiplier_max)
    return lam.astype(jnp.float32), moved


LEAST = 1e-3  # smallest multiplier of the relative rule: it must be able to come back
LEAST_KEPT = 0.85  # long as an episode may be, the average is over seven of them


def multiplier_step(
    lam: jax.Array,
    past: Constraint,
    episode_cost: jax.Array,
    decisions: jax.Array,
    config: Any,
) -> tuple[jax.Array, Constraint]:
    """Return the multiplier and the record of costs after an episode, by the rule chosen."""

    def step(number: jax.Array) -> tuple[jax.Array, Constraint]:
        length = number * jnp.asarray(decisions, jnp.float32)
        kept = jnp.maximum(jnp.exp(-length / config.multiplier_memory), LEAST_KEPT)
        after = constraint_update(past, episode_cost, kept)
        if config.multiplier_rule == "printed":
            printed = gradient_step(lam, episode_cost, config.cost_limit, config.multiplier_lr)
            return jnp.minimum(printed, config.multiplier_max).astype(jnp.float32), after
        excess = relative_excess(after, config.multiplier_aim * config.cost_limit)
        # Before the first cost there is nothing to let go of.
        excess = jnp.where(after.size > 0, excess, 0.0)
        moved, integral = relative_step(past.integral, excess, length, config)
        return moved, after._replace(integral=integral)

    return judge(past, lam, step, config)


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
