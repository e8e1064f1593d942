"""Scales of what an agent sees and counts: observations, proximity inputs, units of the signals.

An agent counts reward and cost in units of its own, so that no setting depends on the size a task
gives them: E[G^2] / E[|G|] over the last decisions, G the discounted sum of the episode up to a
step. It comes from what happened and not from a critic, rare costs count as much as frequent ones,
and signals times a power of two give the same numbers to the bit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.core.interface import EnvSpec, Metrics
from safecritic.core.multiplier import typical_size
from safecritic.core.replay import Batch, Transition
from safecritic.runtime import decide

UNIT_MEMORY = 10_000.0  # decisions over which the units are measured
LEAST_VARIANCE = 1e-4  # a nearly constant input is not blown up


class Scaler(NamedTuple):
    """Running mean and variance of an agent's inputs.

    They are the observation and, behind it, ramps of each declared proximity input, in which what
    is near stands out.
    """

    mean: jax.Array  # (I,)
    var: jax.Array
    count: jax.Array  # type: ignore[assignment]
    proximity: jax.Array  # (L,) places of the proximity inputs in the observation


def input_size(spec: EnvSpec) -> int:
    """Return the number of inputs of an agent's networks, without actions."""
    return spec.obs_dim + decide.RAMPS * len(spec.proximity)


def scaler_init(spec: EnvSpec) -> Scaler:
    mean = jnp.zeros(input_size(spec), jnp.float32)
    proximity = jnp.array(spec.proximity, jnp.int32)
    return Scaler(mean, jnp.ones_like(mean), jnp.zeros((), jnp.float32), proximity)


def widen(scaler: Scaler, obs: jax.Array) -> jax.Array:
    """Return observations (..., O) with the ramps of the proximity inputs behind them, (..., I)."""
    return decide.widen(jnp, jnp.asarray(obs, jnp.float32), scaler.proximity)


def scaler_update(scaler: Scaler, obs: jax.Array) -> Scaler:
    """Add one observation to the running mean and variance (Welford)."""
    x = widen(scaler, obs)
    count = scaler.count + 1.0
    delta = x - scaler.mean
    mean = scaler.mean + delta / count
    # The initial variance of 1 has weight 0: the first observation removes it.
    var = scaler.var + (delta * (x - mean) - scaler.var) / count
    return Scaler(mean, var, count, scaler.proximity)


def scaler_update_many(scaler: Scaler, obs: jax.Array) -> Scaler:
    """Add N observations (N, O) to the running mean and variance at once."""
    x = widen(scaler, obs)
    number = jnp.float32(len(x))
    count = scaler.count + number
    delta = x.mean(axis=0) - scaler.mean
    share = number / count
    mean = scaler.mean + share * delta
    within = (1.0 - share) * scaler.var + share * x.var(axis=0)
    return Scaler(mean, within + share * (1.0 - share) * delta**2, count, scaler.proximity)


def std(scaler: Scaler) -> jax.Array:
    """Return the std (I,) by which inputs are divided."""
    return jnp.sqrt(jnp.maximum(scaler.var, LEAST_VARIANCE))


def inputs(scaler: Scaler, obs: jax.Array) -> jax.Array:
    """Return what the networks see: scaled by running mean and std."""
    obs = jnp.asarray(obs, jnp.float32)
    return decide.inputs(jnp, obs, scaler.proximity, scaler.mean, std(scaler))


def critic_gains(scaler: Scaler) -> jax.Array:
    """Return the factors (I,) of what a safety critic sees: proximity inputs stand out."""
    return decide.critic_gains(jnp, len(scaler.mean), len(scaler.proximity))


def critic_inputs(scaler: Scaler, obs: jax.Array) -> jax.Array:
    """Return what a safety critic sees: ramps of proximity inputs stand out from all else."""
    return inputs(scaler, obs) * critic_gains(scaler)


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
    return Units(*(Unit(*(jnp.zeros((), jnp.float32) for _ in range(4))) for _ in range(2)))


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


def unit_sizes(units: Units) -> Sizes:
    return Sizes(unit_size(units.reward), unit_size(units.cost))


def in_units(batch: Batch, sizes: Sizes) -> Batch:
    """Return a batch with reward and cost in the agent's units."""
    return batch._replace(reward=batch.reward / sizes.reward, cost=batch.cost / sizes.cost)


OF_REWARD = ("reward/q_mean", "actor/q_reward")
OF_COST = (
    *("safety/q_mean", "safety/q_std", "safety/target_mean"),
    *("actor/q_cost", "refine/target_mean", "refine/target_gap"),
)


def in_task_units(metrics: Metrics, sizes: Sizes) -> Metrics:
    """Return the metrics with values of reward and cost in the task's units."""
    factors = dict.fromkeys(OF_REWARD, sizes.reward) | dict.fromkeys(OF_COST, sizes.cost)
    scaled = {name: x * factors.get(name, 1.0) for name, x in metrics.items()}
    return scaled | {"units/reward": sizes.reward, "units/cost": sizes.cost}
