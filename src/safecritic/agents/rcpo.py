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
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.agents import ddpg
from safecritic.agents.ddpg import act, observe, policy, values
from safecritic.agents.interface import EnvSpec, Metrics
from safecritic.agents.scaling import Scaler
from safecritic.agents.settings import OffPolicySettings, require_not_negative, require_positive
from safecritic.critics.multiplier import gradient_step
from safecritic.networks import Params
from safecritic.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]


@dataclass(frozen=True, kw_only=True)
class RCPOSettings(OffPolicySettings):
    """Settings of RCPO."""

    TITLE: ClassVar[str] = "multiplier"

    multiplier_init: float = 0.0  # first weight of the cost in the reward; its paper's
    multiplier_lr: float = 1e-3  # step size of the multiplier, per episode
    multiplier_max: float = 100.0  # largest multiplier: its projection

    def check(self) -> None:
        super().check()
        require_not_negative(self, "multiplier_init", "multiplier_lr")
        require_positive(self, "multiplier_max")


class RCPOState(NamedTuple):
    actor: Params
    reward: Params
    target_actor: Params
    target_reward: Params
    actor_opt: Any
    reward_opt: Any
    multiplier: jax.Array
    scaler: Scaler
    noise: jax.Array
    key: jax.Array
    step: jax.Array


def penalised(batch: Batch, lam: jax.Array) -> Batch:
    """Return the batch with r - lam c as its reward."""
    return batch._replace(reward=batch.reward - lam * batch.cost)


def update(state: RCPOState, batch: Batch, config: RCPOSettings) -> tuple[RCPOState, Metrics]:
    """Take DDPG's update on the penalised reward."""
    new, metrics = ddpg.update(state, penalised(batch, state.multiplier), config)
    return new, metrics | {"dual/multiplier": state.multiplier}


def end_episode(
    state: RCPOState, episode_cost: jax.Array, config: RCPOSettings
) -> tuple[RCPOState, Metrics]:
    """Step the multiplier with the episode's undiscounted cost, and reset the noise."""
    lam = gradient_step(state.multiplier, episode_cost, config.cost_limit, config.multiplier_lr)
    lam = jnp.minimum(lam, jnp.float32(config.multiplier_max))
    state = state._replace(multiplier=lam, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


def init(key: jax.Array, spec: EnvSpec, config: RCPOSettings) -> RCPOState:
    parts = ddpg.init(key, spec, config)._asdict()
    return RCPOState(**parts, multiplier=jnp.asarray(config.multiplier_init, jnp.float32))
