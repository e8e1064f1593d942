"""Scales of what an agent sees and counts: observations, sharpened lidars, units of the signals.

An agent counts reward and cost in units of its own, so that no setting depends on the size a task
gives them. The unit is the typical size of the discounted return where there is any: E[G^2] /
E[|G|] over the last decisions, G the discounted sum of the episode up to a step. It comes from what
happened, not from a critic, so it cannot chase its own tail; rare costs count as much as frequent
ones; and signals times a power of two give the same numbers to the bit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.agents.interface import EnvSpec, Metrics
from safecritic.critics.multiplier import typical_size
from safecritic.replay import Batch, Transition

UNIT_MEMORY = 10_000.0  # decisions over which the units are measured
CLIP = 10.0  # scaled observations stay within +-10 spreads
SHARP_SIZE = 3.0  # of a sharpened input at its largest
LEAST_VARIANCE = 1e-4  # a nearly constant input is not blown up


class Scaler(NamedTuple):
    """Running mean and variance of an agent's inputs, kept in its state.

    Inputs are the observation and, beside it, each declared closeness raised to a power: a lidar
    tells 1 - distance/range, so the edge of a hazard moves it by a few hundredths; raised to a
    power only near things are left.
    """

    mean: jax.Array  # (I,)
    var: jax.Array
    count: jax.Array  # type: ignore[assignment]
    closeness: jax.Array  # (L,) places of the declared closenesses in the observation


def input_size(spec: EnvSpec, config: Any) -> int:
    """Return the number of inputs of an agent's networks, actions apart."""
    return spec.obs_dim + (len(spec.closeness) if widens(config) else 0)


def widens(config: Any) -> bool:
    """Return whether every network sees the sharpened closenesses beside the observation."""
    return config.sharpening != 1.0 and config.sharpening_for == "all"


def scaler_init(spec: EnvSpec, config: Any) -> Scaler:
    """Return a scale that has seen no observation yet."""
    size = input_size(spec, config)
    return Scaler(
        mean=jnp.zeros(size, jnp.float32),
        var=jnp.ones(size, jnp.float32),
        count=jnp.zeros((), jnp.float32),
        closeness=jnp.array(spec.closeness, jnp.int32),
    )


def widen(scaler: Scaler, obs: jax.Array, config: Any) -> jax.Array:
    """Return observations (..., O) with the sharpened closenesses behind them, (..., I)."""
    obs = jnp.asarray(obs, jnp.float32)
    if not widens(config) or not len(scaler.closeness):
        return obs
    near = jnp.take(obs, scaler.closeness, axis=-1)
    return jnp.concatenate([obs, raised(near, config.sharpening)], axis=-1)


def raised(closeness: jax.Array, power: float) -> jax.Array:
    """Return closenesses in [0, 1] to a power: only what is near is left."""
    # A whole power is a few products, any other a logarithm and an exponential.
    return jnp.clip(closeness, 0.0, 1.0) ** (int(power) if power == int(power) else power)


def scaler_update(scaler: Scaler, obs: jax.Array, config: Any) -> Scaler:
    """Add one observation to the running mean and variance (Welford)."""
    x = widen(scaler, obs, config)
    count = scaler.count + 1.0
    delta = x - scaler.mean
    mean = scaler.mean + delta / count
    # The initial variance of 1 has weight 0: the first observation removes it.
    var = scaler.var + (delta * (x - mean) - scaler.var) / count
    return Scaler(mean, var, count, scaler.closeness)


def scaler_update_many(scaler: Scaler, obs: jax.Array, config: Any) -> Scaler:
    """Add N observations (N, O) to the running mean and variance at once."""
    x = widen(scaler, obs, config)
    number = jnp.float32(len(x))
    count = scaler.count + number
    delta = x.mean(axis=0) - scaler.mean
    share = number / count
    mean = scaler.mean + share * delta
    within = (1.0 - share) * scaler.var + share * x.var(axis=0)
    return Scaler(mean, within + share * (1.0 - share) * delta**2, count, scaler.closeness)


def inputs(scaler: Scaler, obs: jax.Array, config: Any) -> jax.Array:
    """Return what the networks see: scaled by running mean and spread, or as it is ("none")."""
    x = widen(scaler, obs, config)
    if config.observation_scaling == "none":
        return x
    spread = jnp.sqrt(jnp.maximum(scaler.var, LEAST_VARIANCE))
    return jnp.clip((x - scaler.mean) / spread, -CLIP, CLIP)


def critic_inputs(scaler: Scaler, obs: jax.Array, config: Any) -> jax.Array:
    """Return what a safety critic sees: sharpened closenesses, and all else times a gain.

    They stand in the place of the closenesses or, if every network sees them, beside these.
    """
    x = inputs(scaler, obs, config)
    if config.sharpening == 1.0 or not len(scaler.closeness):
        return x
    if widens(config):
        plain = x.shape[-1] - len(scaler.closeness)
        return jnp.concatenate([config.sharpening_gain * x[..., :plain], x[..., plain:]], axis=-1)
    near = jnp.zeros(x.shape[-1], bool).at[scaler.closeness].set(True)
    sharp = SHARP_SIZE * raised(jnp.asarray(obs, jnp.float32), config.sharpening)
    return jnp.where(near, sharp, jnp.float32(config.sharpening_gain) * x)


class Unit(NamedTuple):
    """Running means behind the unit of one signal."""

    ahead: jax.Array  # discounted sum of the open episode so far
    square: jax.Array  # mean of its square over all steps
    size: jax.Array  # mean of its absolute value
    count: jax.Array  # type: ignore[assignment]


class Units(NamedTuple):
    """The units in which an agent counts reward and cost."""

    reward: Unit
    cost: Unit


def units_init() -> Units:
    """Return units that have seen nothing yet."""

    def unit() -> Unit:
        return Unit(*(jnp.zeros((), jnp.float32) for _ in range(4)))

    return Units(unit(), unit())


def unit_update(unit: Unit, signal: jax.Array, ended: jax.Array, gamma: float) -> Unit:
    """Add one step of a signal; `ended` says that it was the last of its episode."""
    count = jnp.minimum(unit.count + 1.0, UNIT_MEMORY)
    ahead = gamma * unit.ahead + signal
    return Unit(
        ahead=jnp.where(ended, 0.0, ahead).astype(jnp.float32),
        square=unit.square + (ahead**2 - unit.square) / count,
        size=unit.size + (jnp.abs(ahead) - unit.size) / count,
        count=count,
    )


def units_update(units: Units, transition: Transition, gamma: float) -> Units:
    """Add one transition to both units."""
    ended = transition.terminated | transition.truncated
    return Units(
        unit_update(units.reward, transition.reward, ended, gamma),
        unit_update(units.cost, transition.cost, ended, gamma),
    )


def units_update_many(
    units: Units, reward: jax.Array, cost: jax.Array, ended: jax.Array, gamma: float
) -> Units:
    """Add rollouts (E, S) to both units; the sums begin anew with each rollout."""

    def add(unit: Unit, signal: jax.Array) -> Unit:
        def step(ahead: jax.Array, here: tuple[jax.Array, jax.Array]) -> Any:
            ahead = gamma * ahead + here[0]
            return jnp.where(here[1], 0.0, ahead), ahead

        start = jnp.zeros(signal.shape[0], jnp.float32)
        _, sums = jax.lax.scan(step, start, (signal.T, ended.T))
        count = jnp.minimum(unit.count + sums.size, max(UNIT_MEMORY, sums.size))
        share = sums.size / count
        return Unit(
            unit.ahead,
            unit.square + share * ((sums**2).mean() - unit.square),
            unit.size + share * (jnp.abs(sums).mean() - unit.size),
            count,
        )

    return Units(add(units.reward, reward), add(units.cost, cost))


def unit_size(unit: Unit) -> jax.Array:
    """Return E[G^2] / E[|G|]; 1 as long as the signal was always 0."""
    return typical_size(unit.square, unit.size)


class Sizes(NamedTuple):
    """The size of either unit, in the task's."""

    reward: jax.Array
    cost: jax.Array


def unit_sizes(units: Units, config: Any) -> Sizes:
    """Return both units, or 1 where the agent counts as the task does."""
    if config.units == "task":
        one = jnp.ones((), jnp.float32)
        return Sizes(one, one)
    return Sizes(unit_size(units.reward), unit_size(units.cost))


def in_units(batch: Batch, sizes: Sizes) -> Batch:
    """Return a batch with reward and cost in the agent's units."""
    return batch._replace(reward=batch.reward / sizes.reward, cost=batch.cost / sizes.cost)


OF_REWARD = ("reward/q_mean", "actor/q_reward")
OF_COST = (
    "safety/q_mean",
    "safety/q_std",
    "safety/target_mean",
    "actor/q_cost",
    "refine/target_mean",
    "refine/target_gap",
)


def in_task_units(metrics: Metrics, sizes: Sizes) -> Metrics:
    """Return the metrics with values of reward and cost in the task's units."""
    factors = dict.fromkeys(OF_REWARD, sizes.reward) | dict.fromkeys(OF_COST, sizes.cost)
    scaled = {name: x * factors.get(name, 1.0) for name, x in metrics.items()}
    return scaled | {"units/reward": sizes.reward, "units/cost": sizes.cost}
