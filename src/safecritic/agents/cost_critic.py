"""The critic of the cost, Q_C, that the safety critics and PID-Lag share: its settings and values.

What it minimises is each agent's own. A state that has one has ``safety``, ``target_safety``,
``target_actor``, ``scaler`` and ``cost_bound``.
"""

from dataclasses import dataclass
from typing import Any

import jax

from safecritic import networks
from safecritic.agents import settings as common
from safecritic.agents.settings import OffPolicy
from safecritic.critics import bellman
from safecritic.networks import EnvSpec, Members
from safecritic.replay import Batch

VALUES = ("max", "mean")


@dataclass(frozen=True, kw_only=True)
class CostCriticConfig(OffPolicy):
    """Settings of Q_C; the paper's value stands where ours differs."""

    costly_share: float = 0.25  # of a batch, drawn where cost > 0; paper: 0
    safety_critics: int = 1  # 1 or 2; of two the larger is the target
    safety_value: str = "max"  # max or mean of two critics, for actor, screen and influence
    safety_output: str = "clipped"  # clipped, softplus, bounded or linear (paper)
    output_sharpness: float = 5.0  # of softplus and bounded; not in the paper
    safety_lr: float = 1e-3  # step size of Q_C
    safety_tau: float = 5e-3  # rate at which its target follows
    safety_n_step: int = 5  # steps of cost in a target; paper: 1
    sharpening: float = 8.0  # paper: 1; power of inputs that are a closeness (lidars)
    sharpening_gain: float = 0.3  # of all other inputs, if there is sharpening


def validate(config: CostCriticConfig) -> None:
    """Refuse settings no run could start with."""
    common.validate(config)
    common.require_one_of(config, "safety_critics", (1, 2))
    common.require_one_of(config, "safety_value", VALUES)
    common.require_one_of(config, "safety_output", networks.OUTPUTS)
    common.require_positive(config, "safety_lr", "safety_n_step", "output_sharpness", "sharpening")
    common.require_not_negative(config, "sharpening_gain")
    common.require(0 < config.safety_tau <= 1, "safety_tau", "in (0, 1]", config.safety_tau)


def cost_bound(spec: EnvSpec, config: CostCriticConfig) -> float:
    """c_max / (1 - gamma), infinite if the environment does not state its largest cost."""
    if spec.cost_max is not None:
        return spec.cost_max / (1.0 - config.gamma)
    if config.safety_output == "bounded":
        raise ValueError(
            "safety_output 'bounded' needs the largest cost of one step, which this environment "
            "does not state: set cost_max or use 'softplus' (--safety-output)"
        )
    return float("inf")


def scaled(state: Any, obs: jax.Array, config: CostCriticConfig) -> jax.Array:
    """Observations as actor and reward critic see them."""
    return common.scale(state.scaler, obs, config.observation_scaling)


def sharpened(state: Any, obs: jax.Array, config: CostCriticConfig) -> jax.Array:
    """Observations as the safety critic sees them."""
    return common.sharpen(
        state.scaler, obs, config.observation_scaling, config.sharpening, config.sharpening_gain
    )


def cost_value(z: jax.Array, bound: jax.Array, config: CostCriticConfig) -> jax.Array:
    """Q_C of each member from the raw outputs."""
    return networks.cost_output(z, config.safety_output, bound, config.output_sharpness)


def fitted_value(z: jax.Array, bound: jax.Array, config: CostCriticConfig) -> jax.Array:
    """What each member's regression sees: Q_C, but for "clipped" before the clip.

    Where Q_C is cut at 0 it has no slope: fitted through the cut, a critic that has once fallen
    below 0 could not come back.
    """
    return z if config.safety_output == "clipped" else cost_value(z, bound, config)


def assessed_value(z: jax.Array, bound: jax.Array, config: CostCriticConfig) -> jax.Array:
    """What the influence sees: Q_C, its clip made smooth by a softplus.

    Far below 0 a clipped Q_C is 0 whatever the parameters are, and its influence is too.
    """
    kind = "softplus" if config.safety_output == "clipped" else config.safety_output
    return networks.cost_output(z, kind, bound, config.output_sharpness)


def joint_value(q: jax.Array, config: CostCriticConfig) -> jax.Array:
    """The one Q_C (B,) that actor, screen and influence see, from the members' (members, B)."""
    return q.max(axis=0) if config.safety_value == "max" else q.mean(axis=0)


def q_cost(
    members: Members,
    obs: jax.Array,
    action: jax.Array,
    bound: jax.Array,
    config: CostCriticConfig,
) -> jax.Array:
    """Q_C (B,) of scaled observations and actions."""
    return joint_value(cost_value(networks.critics(members, obs, action), bound, config), config)


def cost_target(
    state: Any,
    cost: jax.Array,
    discount: jax.Array,
    next_obs: jax.Array,
    config: CostCriticConfig,
) -> jax.Array:
    """c + discount max over members of Q_C'(s', pi'(s')), s' as observed."""
    action = networks.actor(state.target_actor, scaled(state, next_obs, config))
    z = networks.critics(state.target_safety, sharpened(state, next_obs, config), action)
    return bootstrapped(state, cost, discount, z, config)


def bootstrapped(
    state: Any, cost: jax.Array, discount: jax.Array, z: jax.Array, config: CostCriticConfig
) -> jax.Array:
    """The same from the target critics' raw outputs (members, B) in s'."""
    return bellman.target(cost, discount, cost_value(z, state.cost_bound, config).max(axis=0))


def follow(state: Any, config: CostCriticConfig) -> Any:
    """The target networks moved towards the online ones, at the end of an update."""
    return state._replace(
        target_actor=networks.track(state.target_actor, state.actor, config.tau),
        target_reward=networks.track(state.target_reward, state.reward, config.tau),
        target_safety=networks.track(state.target_safety, state.safety, config.safety_tau),
        step=state.step + 1,
    )


def batch_targets(state: Any, batch: Batch, config: CostCriticConfig) -> jax.Array:
    """The targets (B,) of a batch, over ``safety_n_step`` steps."""
    next_obs, discount = batch.next_obs, batch.discount
    if batch.cost_next_obs is not None and batch.cost_discount is not None:
        next_obs, discount = batch.cost_next_obs, batch.cost_discount
    return cost_target(state, batch.cost, discount, next_obs, config)
