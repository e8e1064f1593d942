"""Reward constrained policy optimisation (Tessler, Mankowitz, Mannor, 2019) on DDPG.

    critic      of the penalised reward r - multiplier c: one critic, DDPG's update
    multiplier  rises with the cost of episodes above the limit, once per episode (`multiplier.py`)

The replay keeps reward and cost apart, and the penalised reward is formed when a batch is drawn: a
changed multiplier re-labels every old transition. The paper's three time scales: the critic learns
faster than the actor (`critic_lr` > `actor_lr`), the multiplier slowest of all.

Deviations from its paper: DDPG in the place of PPO and A2C, so the multiplier moves once per
episode and not with every batch of rollouts.
"""

import jax
import jax.numpy as jnp

from safecritic.agents import ddpg
from safecritic.agents.ddpg import State, act, observe, policy, values
from safecritic.agents.settings import RCPOSettings, USCSettings
from safecritic.core.interface import EnvSpec, Metrics
from safecritic.core.multiplier import constraint_init, multiplier_step
from safecritic.core.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]


def update(state: State, batch: Batch, config: RCPOSettings) -> tuple[State, Metrics]:
    """Take DDPG's update on the penalised reward."""
    new, metrics = ddpg.update(state, batch, config, price=state.multiplier)
    return new, metrics | {"dual/multiplier": state.multiplier}


def end_episode(
    state: State,
    episode_cost: jax.Array,
    decisions: jax.Array,
    config: RCPOSettings | USCSettings,
) -> tuple[State, Metrics]:
    """Step the multiplier with the episode's undiscounted cost, and reset the noise."""
    lam, past = multiplier_step(state.multiplier, state.past, episode_cost, decisions, config)
    state = state._replace(multiplier=lam, past=past, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


def init(key: jax.Array, spec: EnvSpec, config: RCPOSettings) -> State:
    lam = jnp.asarray(config.multiplier.start, jnp.float32)
    return ddpg.init(key, spec, config)._replace(multiplier=lam, past=constraint_init())
