"""PID-Lagrangian control (Stooke, Achiam, Abbeel, 2020) on DDPG.

    reward critic  as in DDPG
    cost critic    minimise 1/2 (Q_C(s, a) - y)^2, y = c + gamma Q_C'(s', pi'(s'))
    actor          minimise (-Q_R(s, pi(s)) + multiplier Q_C(s, pi(s))) / (1 + multiplier)
    multiplier     a PID controller on the episodes' cost above the limit (`multiplier.pid_step`)

Deviations from its paper: DDPG in the place of PPO, so the controller moves once per episode and
not once per batch of rollouts, and the gains are smaller to match. The cost critic is the one of SC
(`agents/cost_critic.py`): the two differ in the multiplier, the rescaling, the KL and the screen.
"""

from functools import partial

import jax
import jax.numpy as jnp

from safecritic.agents import cost_critic, ddpg
from safecritic.agents.cost_critic import actor_inputs, critic_inputs, values
from safecritic.agents.ddpg import State, observe, policy
from safecritic.agents.settings import PIDLagSettings
from safecritic.core import bellman, networks, scaling
from safecritic.core.interface import Carry, EnvSpec, Metrics
from safecritic.core.multiplier import (
    PID,
    Constraint,
    Gains,
    constraint_update,
    judge,
    limit_scale,
    pid_init,
    pid_step,
)
from safecritic.core.networks import Members, Params
from safecritic.core.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]

SMOOTHING = 0.95  # weight of the old average of both terms; its authors' code
DELAY = 10  # episodes over which the rise is taken; its authors' code
INTEGRAL_MAX = 100.0  # largest integral
MOST_COST = 2.0  # times the limit that one episode may count for


def cost_loss(
    members: Members, obs: jax.Array, action: jax.Array, targets: jax.Array
) -> tuple[jax.Array, Metrics]:
    q = networks.critics(members, obs, action)
    value = bellman.loss(q, targets)
    return value, {
        "safety/loss": value,
        "safety/q_mean": q.max(axis=0).mean(),
        "safety/target_mean": targets.mean(),
    }


def actor_loss(
    params: Params,
    reward: Members,
    safety: Members,
    obs: jax.Array,
    critic_obs: jax.Array,
    lam: jax.Array,
) -> tuple[jax.Array, Metrics]:
    """Return (-Q_R + lam Q_C) / (1 + lam), mean over states."""
    action = networks.actor(params, obs)
    reward_part = ddpg.q_reward(reward, obs, action).mean()
    cost_part = cost_critic.q_cost(safety, critic_obs, action).mean()
    value = (-reward_part + lam * cost_part) / (1.0 + lam)
    return value, {
        "actor/loss": value,
        "actor/q_reward": reward_part,
        "actor/q_cost": cost_part,
    }


def update(state: State, batch: Batch, config: PIDLagSettings) -> tuple[State, Metrics]:
    """Take one step of both critics, the actor and the targets."""
    sizes = scaling.unit_sizes(state.units)
    batch = scaling.in_units(batch, sizes)
    obs, critic_obs = actor_inputs(state, batch.obs), critic_inputs(state, batch.obs)
    targets = cost_critic.batch_targets(state, batch)
    gradient, metrics = jax.grad(cost_loss, has_aux=True)(
        state.safety, critic_obs, batch.action, targets
    )
    safety, safety_opt = networks.adam_step(
        state.safety, gradient, state.safety_opt, config.safety.lr
    )
    loss = partial(actor_loss, safety=safety, obs=obs, critic_obs=critic_obs, lam=state.multiplier)
    state, more = ddpg.reward_and_actor_step(state, batch, loss, config)
    state = state._replace(safety=safety, safety_opt=safety_opt)
    state = ddpg.update_targets(state, config.tau)
    metrics = scaling.in_task_units(metrics | more, sizes)
    return state, metrics | {
        "dual/multiplier": state.multiplier,
        "dual/integral": state.pid.integral,
    }


def end_episode(
    state: State, episode_cost: jax.Array, decisions: jax.Array, config: PIDLagSettings
) -> tuple[State, Metrics]:
    """Step the controller with the episode's undiscounted cost, and reset the noise."""
    part = config.multiplier

    def step(number: jax.Array) -> tuple[tuple[jax.Array, PID], Constraint]:
        past = constraint_update(state.past, episode_cost, SMOOTHING)
        scale = limit_scale(past, config.cost_limit)
        cost = jnp.minimum(jnp.asarray(episode_cost, jnp.float32) / scale, MOST_COST)
        length = number * jnp.asarray(decisions, jnp.float32)
        gains = Gains(part.kp, part.ki, part.kd, SMOOTHING, SMOOTHING, INTEGRAL_MAX)
        return pid_step(state.pid, cost, config.cost_limit / scale, gains, length), past

    old = (state.multiplier, state.pid)
    (lam, pid), past = judge(state.past, old, step, config.cost_limit, part.noise_free_every)
    state = state._replace(multiplier=lam, pid=pid, past=past, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


def init(key: jax.Array, spec: EnvSpec, config: PIDLagSettings) -> State:
    """Return DDPG's own start from the same key, and a cost critic beside it."""
    state = ddpg.init(key, spec, config)
    return cost_critic.with_safety(state, jax.random.fold_in(key, 1), spec, config)._replace(
        multiplier=jnp.asarray(config.multiplier.start, jnp.float32),
        pid=pid_init(config.multiplier.start, DELAY),
    )


def act(
    state: State, obs: jax.Array, cost_so_far: jax.Array, config: PIDLagSettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Return DDPG's action, and Q_C of it."""
    action, parts, _ = ddpg.act(state, obs, cost_so_far, config, explore)
    q = cost_critic.q_cost(state.safety, critic_inputs(state, obs[None]), action[None])
    return action, parts, {"q_cost": scaling.unit_sizes(state.units).cost * q[0]}
