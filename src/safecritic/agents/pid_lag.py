"""PID-Lagrangian control (Stooke, Achiam, Abbeel, 2020) on DDPG.

    reward critic  as in DDPG
    cost critic    minimise 1/2 (Q_C(s, a) - y)^2, y = c + gamma Q_C'(s', pi'(s'))
    actor          minimise (-Q_R(s, pi(s)) + multiplier Q_C(s, pi(s))) / (1 + multiplier)
    multiplier     a PID controller on the episodes' cost above the limit (`multiplier.pid_step`)

Deviations from its paper: DDPG in the place of PPO, so the controller moves once per episode and
not once per batch of rollouts, and the gains are smaller to match. The cost critic is the one of SC
(`agents/cost_critic.py`): the two differ in the multiplier, the rescaling, the KL and the screen.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic import networks
from safecritic.agents import cost_critic, ddpg, scaling
from safecritic.agents.cost_critic import CostCriticSettings, actor_inputs, critic_inputs
from safecritic.agents.ddpg import observe, policy
from safecritic.agents.interface import Carry, EnvSpec, Metrics
from safecritic.agents.scaling import Scaler, Units
from safecritic.agents.settings import require, require_not_negative, require_positive
from safecritic.critics import bellman
from safecritic.critics.multiplier import (
    PID,
    Constraint,
    Gains,
    QuietSettings,
    constraint_init,
    constraint_update,
    judge,
    limit_scale,
    pid_init,
    pid_step,
)
from safecritic.networks import Members, Params
from safecritic.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]


@dataclass(frozen=True, kw_only=True)
class PIDLagSettings(CostCriticSettings, QuietSettings):
    """Settings of PID-Lag."""

    TITLE: ClassVar[str] = "multiplier"

    multiplier_rule: Literal["relative", "printed"] = "relative"  # printed: in units of cost
    kp: float = 0.05  # gain of the smoothed cost above the limit
    ki: float = 2e-5  # gain of its integral, per episode (printed) or per decision
    kd: float = 0.01  # gain of the rise of the smoothed cost
    p_smoothing: float = 0.95  # weight of the old average; its authors' code
    d_smoothing: float = 0.95  # the same for the derivative; its authors' code
    derivative_delay: int = 10  # episodes over which the rise is taken; its authors' code
    integral_max: float = 100.0  # largest integral
    multiplier_init: float = 0.02  # integral at the start
    rescale_actor_loss: bool = True  # divide the actor's loss by 1 + multiplier

    def check(self) -> None:
        super().check()
        require_not_negative(self, "kp", "ki", "kd", "multiplier_init")
        require_positive(self, "derivative_delay", "integral_max")
        for name in ("p_smoothing", "d_smoothing"):
            weight = getattr(self, name)
            require(0 <= weight < 1, name, "in [0, 1)", weight)

    @property
    def gains(self) -> Gains:
        return Gains(
            p=self.kp,
            i=self.ki,
            d=self.kd,
            p_smoothing=self.p_smoothing,
            d_smoothing=self.d_smoothing,
            integral_max=self.integral_max,
        )


MOST_COST = 2.0  # times the limit that one episode may count for


class PIDLagState(NamedTuple):
    actor: Params
    reward: Members
    safety: Members
    target_actor: Params
    target_reward: Members
    target_safety: Members
    actor_opt: Any
    reward_opt: Any
    safety_opt: Any
    multiplier: jax.Array
    pid: PID
    cost_bound: jax.Array  # c_max / (1 - gamma), or NO_BOUND
    past: Constraint
    scaler: Scaler
    units: Units
    noise: jax.Array
    key: jax.Array
    step: jax.Array


def cost_loss(
    members: Members,
    obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    bound: jax.Array,
    config: PIDLagSettings,
) -> tuple[jax.Array, Metrics]:
    q = cost_critic.regression_q(networks.critics(members, obs, action), bound, config)
    value = bellman.loss(q, targets)
    return value, {
        "safety/loss": value,
        "safety/q_mean": cost_critic.aggregate_q(q, config).mean(),
        "safety/target_mean": targets.mean(),
    }


def actor_loss(
    params: Params,
    reward: Members,
    safety: Members,
    obs: jax.Array,
    critic_obs: jax.Array,
    lam: jax.Array,
    bound: jax.Array,
    config: PIDLagSettings,
) -> tuple[jax.Array, Metrics]:
    """Return (-Q_R + lam Q_C) / (1 + lam), mean over states."""
    action = networks.actor(params, obs)
    reward_part = ddpg.q_reward(reward, obs, action).mean()
    cost_part = cost_critic.q_cost(safety, critic_obs, action, bound, config).mean()
    value = -reward_part + lam * cost_part
    if config.rescale_actor_loss:
        value = value / (1.0 + lam)
    return value, {
        "actor/loss": value,
        "actor/q_reward": reward_part,
        "actor/q_cost": cost_part,
    }


def update(state: PIDLagState, batch: Batch, config: PIDLagSettings) -> tuple[PIDLagState, Metrics]:
    """Take one step of both critics, the actor and the targets."""
    sizes = scaling.unit_sizes(state.units, config)
    batch = scaling.in_units(batch, sizes)
    bound = state.cost_bound / sizes.cost
    obs = actor_inputs(state, batch.obs, config)
    critic_obs = critic_inputs(state, batch.obs, config)
    targets = cost_critic.batch_targets(state, batch, bound, config)
    gradient, metrics = jax.grad(cost_loss, has_aux=True)(
        state.safety, critic_obs, batch.action, targets, bound, config
    )
    safety, safety_opt = networks.adam_step(
        state.safety, gradient, state.safety_opt, config.safety_lr
    )
    reward, reward_opt, reward_metrics = ddpg.reward_step(state, batch, config)

    arguments = (reward, safety, obs, critic_obs, state.multiplier, bound, config)
    actor, actor_opt, actor_metrics = ddpg.actor_step(state, actor_loss, arguments, obs, config)
    state = state._replace(
        actor=actor,
        reward=reward,
        safety=safety,
        actor_opt=actor_opt,
        reward_opt=reward_opt,
        safety_opt=safety_opt,
    )
    state = cost_critic.update_targets(state, config)
    metrics = scaling.in_task_units(metrics | reward_metrics | actor_metrics, sizes)
    return state, metrics | {
        "dual/multiplier": state.multiplier,
        "dual/integral": state.pid.integral,
    }


def end_episode(
    state: PIDLagState, episode_cost: jax.Array, decisions: jax.Array, config: PIDLagSettings
) -> tuple[PIDLagState, Metrics]:
    """Step the controller with the episode's undiscounted cost, and reset the noise."""

    def step(number: jax.Array) -> tuple[tuple[jax.Array, PID], Constraint]:
        past = constraint_update(state.past, episode_cost, config.p_smoothing)
        if config.multiplier_rule == "printed":
            limit, gains = config.cost_limit, config.gains
            return pid_step(state.pid, episode_cost, limit, gains, 1.0), past
        scale = limit_scale(past, config.cost_limit)
        cost = jnp.minimum(jnp.asarray(episode_cost, jnp.float32) / scale, MOST_COST)
        length = number * jnp.asarray(decisions, jnp.float32)
        return pid_step(state.pid, cost, config.cost_limit / scale, config.gains, length), past

    (lam, pid), past = judge(state.past, (state.multiplier, state.pid), step, config)
    state = state._replace(multiplier=lam, pid=pid, past=past, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


def init(key: jax.Array, spec: EnvSpec, config: PIDLagSettings) -> PIDLagState:
    """Return DDPG's own start from the same key, and a cost critic beside it."""
    joint = (scaling.input_size(spec, config) + spec.action_dim, *config.hidden, 1)
    safety = cost_critic.init_members(jax.random.fold_in(key, 1), joint, config)
    return PIDLagState(
        **ddpg.init(key, spec, config)._asdict(),
        safety=safety,
        target_safety=jax.tree.map(jnp.copy, safety),
        safety_opt=optax.adam(config.safety_lr).init(safety),
        multiplier=jnp.asarray(config.multiplier_init, jnp.float32),
        pid=pid_init(config.multiplier_init, config.derivative_delay),
        past=constraint_init(),
        cost_bound=jnp.asarray(cost_critic.cost_bound(spec, config), jnp.float32),
    )


def act(
    state: PIDLagState, obs: jax.Array, spent: jax.Array, config: PIDLagSettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Return DDPG's action, and Q_C of it."""
    action, parts, _ = ddpg.act(state, obs, spent, config, explore)
    critic_obs = critic_inputs(state, obs[None], config)
    size = scaling.unit_sizes(state.units, config).cost
    bound = state.cost_bound / size
    q = cost_critic.q_cost(state.safety, critic_obs, action[None], bound, config)
    return action, parts, {"q_cost": size * q[0]}


def values(
    state: PIDLagState, obs: jax.Array, action: jax.Array, config: PIDLagSettings
) -> Metrics:
    """Return Q_R and Q_C of observations (N, O) and actions (N, A)."""
    critic_obs = critic_inputs(state, obs, config)
    size = scaling.unit_sizes(state.units, config).cost
    q_cost = cost_critic.q_cost(state.safety, critic_obs, action, state.cost_bound / size, config)
    return ddpg.values(state, obs, action, config) | {"q_cost": size * q_cost}
