"""The critic of the cost, Q_C, that the safety critics and PID-Lag share: its settings and values.

What it minimises is each agent's own. A state that has one has `safety`, `target_safety`,
`target_actor`, `scaler` and `cost_bound`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax

from safecritic import networks
from safecritic.agents import scaling
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import (
    OffPolicySettings,
    require,
    require_not_negative,
    require_positive,
)
from safecritic.critics import bellman
from safecritic.networks import Members
from safecritic.replay import Batch

NO_BOUND = 1e30  # finite, because a checkpoint's numbers are
Output = Literal["clipped", "softplus", "bounded", "linear"]


@dataclass(frozen=True, kw_only=True)
class CostCriticSettings(OffPolicySettings):
    """Settings of Q_C; the paper's value stands where ours differs."""

    TITLE: ClassVar[str] = "safety critic"

    costly_share: float = 0.25  # share of a batch drawn among transitions with cost > 0; paper: 0
    safety_critics: Literal[1, 2] = 1  # networks of Q_C; of two, the larger value is the target
    safety_value: Literal["max", "mean"] = "max"  # how two networks become one Q_C
    safety_output: Output = "clipped"  # what keeps Q_C from being negative; paper: linear
    output_sharpness: float = 5.0  # sharpness of softplus and bounded; not in the paper
    safety_lr: float = 1e-3  # step size of Q_C
    safety_tau: float = 5e-3  # rate at which the target of Q_C follows
    safety_n_step: int = 5  # steps of cost in a target; paper: 1
    sharpening_gain: float = 0.3  # factor of all other inputs of Q_C, if there is sharpening

    def check(self) -> None:
        super().check()
        require_positive(self, "safety_lr", "safety_n_step", "output_sharpness")
        require_not_negative(self, "sharpening_gain")
        require(0 < self.safety_tau <= 1, "safety_tau", "in (0, 1]", self.safety_tau)


def cost_bound(spec: EnvSpec, config: CostCriticSettings) -> float:
    """Return c_max / (1 - gamma), NO_BOUND if the environment does not state its largest cost."""
    if spec.cost_max is not None:
        return spec.cost_max / (1.0 - config.gamma)
    if config.safety_output == "bounded":
        raise ValueError(
            "safety_output 'bounded' needs the largest cost of one step, which this environment "
            "does not state: set cost_max or use 'softplus' (--safety-output)"
        )
    return NO_BOUND


def init_members(key: jax.Array, sizes: tuple[int, ...], config: CostCriticSettings) -> Members:
    """Return the first networks of Q_C."""
    normalise = config.layer_norm == "all"
    return networks.init_members(key, sizes, config.safety_critics, normalise=normalise)


def actor_inputs(state: Any, obs: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return observations as actor and reward critic see them."""
    return scaling.inputs(state.scaler, obs, config)


def critic_inputs(state: Any, obs: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return observations as the safety critic sees them: what is near stands out."""
    return scaling.critic_inputs(state.scaler, obs, config)


def member_q(z: jax.Array, bound: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return Q_C of each member from the raw outputs."""
    return networks.cost_output(z, config.safety_output, bound, config.output_sharpness)


def regression_q(z: jax.Array, bound: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return what each member's regression sees: Q_C, but for "clipped" before the clip.

    Where Q_C is cut at 0 it has no slope: fitted through the cut, a critic that has once fallen
    below 0 could not come back.
    """
    return z if config.safety_output == "clipped" else member_q(z, bound, config)


def influence_q(z: jax.Array, bound: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return what the influence sees: Q_C, its clip made smooth by a softplus.

    Far below 0 a clipped Q_C is 0 whatever the parameters are, and its influence is too.
    """
    kind = "softplus" if config.safety_output == "clipped" else config.safety_output
    return networks.cost_output(z, kind, bound, config.output_sharpness)


def aggregate_q(q: jax.Array, config: CostCriticSettings) -> jax.Array:
    """Return the Q_C (B,) that actor, screen and influence see, from the members' (members, B)."""
    return q.max(axis=0) if config.safety_value == "max" else q.mean(axis=0)


def q_cost(
    members: Members,
    critic_obs: jax.Array,
    action: jax.Array,
    bound: jax.Array,
    config: CostCriticSettings,
) -> jax.Array:
    """Return Q_C (B,) of observations as the critic sees them, and actions."""
    z = networks.critics(members, critic_obs, action)
    return aggregate_q(member_q(z, bound, config), config)


def cost_target(
    state: Any,
    cost: jax.Array,
    discount: jax.Array,
    next_obs: jax.Array,
    bound: jax.Array,
    config: CostCriticSettings,
) -> jax.Array:
    """Return c + discount max over members of Q_C'(s', pi'(s')), s' as observed."""
    action = networks.actor(state.target_actor, actor_inputs(state, next_obs, config))
    z = networks.critics(state.target_safety, critic_inputs(state, next_obs, config), action)
    return bootstrapped(cost, discount, z, bound, config)


def bootstrapped(
    cost: jax.Array, discount: jax.Array, z: jax.Array, bound: jax.Array, config: CostCriticSettings
) -> jax.Array:
    """Return the same from the target critics' raw outputs (members, B) in s'."""
    return bellman.target(cost, discount, member_q(z, bound, config).max(axis=0))


def batch_targets(
    state: Any, batch: Batch, bound: jax.Array, config: CostCriticSettings
) -> jax.Array:
    """Return the targets (B,) of a batch, over `safety_n_step` steps."""
    next_obs = batch.next_obs if batch.cost_next_obs is None else batch.cost_next_obs
    return cost_target(state, batch.cost, batch.cost_discount, next_obs, bound, config)


def update_targets(state: Any, config: CostCriticSettings) -> Any:
    """Return the state with its target networks moved towards the online ones."""
    return state._replace(
        target_actor=networks.update_target(state.target_actor, state.actor, config.tau),
        target_reward=networks.update_target(state.target_reward, state.reward, config.tau),
        target_safety=networks.update_target(state.target_safety, state.safety, config.safety_tau),
        step=state.step + 1,
    )
