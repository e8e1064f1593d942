"""Reward constrained policy optimisation (Tessler, Mankowitz, Mannor, 2019) on DDPG.

    critic      of the penalised reward r - multiplier c: one critic, DDPG's update
    multiplier  max(0, multiplier + multiplier_lr (episode cost - cost_limit)), once per episode

The replay keeps reward and cost apart, and the penalised reward is formed when a batch is drawn: a
changed multiplier re-labels every old transition. The paper's three time scales: the critic learns
faster than the actor (`critic_lr` > `actor_lr`), the multiplier slowest of all.

Deviations from its paper: DDPG in the place of PPO and A2C, so the multiplier moves once per
episode and not with every batch of rollouts.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.agents import ddpg, scaling
from safecritic.agents.ddpg import act, observe, policy, values
from safecritic.agents.interface import EnvSpec, Metrics
from safecritic.agents.scaling import Scaler, Units
from safecritic.agents.settings import OffPolicySettings
from safecritic.critics.multiplier import (
    Constraint,
    MultiplierSettings,
    constraint_init,
    multiplier_step,
)
from safecritic.networks import Members, Params
from safecritic.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]


@dataclass(frozen=True, kw_only=True)
class RCPOSettings(OffPolicySettings, MultiplierSettings):
    """Settings of RCPO."""


class RCPOState(NamedTuple):
    actor: Params
    reward: Members
    target_actor: Params
    target_reward: Members
    actor_opt: Any
    reward_opt: Any
    multiplier: jax.Array
    past: Constraint
    scaler: Scaler
    units: Units
    noise: jax.Array
    key: jax.Array
    step: jax.Array


def penalised(batch: Batch, lam: jax.Array) -> Batch:
    """Return the batch with r - lam c as its reward."""
    return batch._replace(reward=batch.reward - lam * batch.cost)


def update(state: RCPOState, batch: Batch, config: RCPOSettings) -> tuple[RCPOState, Metrics]:
    """Take DDPG's update on the penalised reward."""
    sizes = scaling.unit_sizes(state.units, config)
    batch = penalised(scaling.in_units(batch, sizes), state.multiplier)
    new, metrics = ddpg.update_in_units(state, batch, sizes, config)
    return new, metrics | {"dual/multiplier": state.multiplier}


def end_episode(
    state: RCPOState, episode_cost: jax.Array, decisions: jax.Array, config: RCPOSettings
) -> tuple[RCPOState, Metrics]:
    """Step the multiplier with the episode's undiscounted cost, and reset the noise."""
    lam, past = multiplier_step(state.multiplier, state.past, episode_cost, decisions, config)
    state = state._replace(multiplier=lam, past=past, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


def init(key: jax.Array, spec: EnvSpec, config: RCPOSettings) -> RCPOState:
    parts = ddpg.init(key, spec, config)._asdict()
    lam = jnp.asarray(config.multiplier_init, jnp.float32)
    return RCPOState(**parts, multiplier=lam, past=constraint_init())
