"""Deep deterministic policy gradient (Lillicrap et al., 2016): the base of every method here.

    target   y = r + gamma Q_R'(s', pi'(s')), from target networks
    critic   minimise 1/2 (Q_R(s, a) - y)^2
    actor    minimise -Q_R(s, pi(s))
    targets  follow with rate tau
    acting   pi(s) plus Ornstein-Uhlenbeck noise, clipped to the box

RCPO and PID-Lag use these functions on states that have DDPG's parts and more.

Deviations from the paper: the actor's step is 3e-4 and observations are scaled by their running
mean and spread. `cost_limit` plays no part in learning; it is there for the report.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic import networks
from safecritic.agents import scaling
from safecritic.agents.interface import Carry, EnvSpec, Metrics
from safecritic.agents.scaling import Scaler, Units
from safecritic.agents.settings import OffPolicySettings
from safecritic.critics import bellman
from safecritic.critics.multiplier import is_quiet
from safecritic.networks import Members, Params
from safecritic.noise import ornstein_uhlenbeck
from safecritic.replay import Batch, Transition

LEAST_NOISE = 0.05  # share of the exploration noise that stays
SMOOTHING_CLIP = 2.5  # largest smoothing noise, in its spreads


@dataclass(frozen=True, kw_only=True)
class DDPGSettings(OffPolicySettings):
    """Settings of DDPG: those of every method with a replay."""


class DDPGState(NamedTuple):
    actor: Params
    reward: Members
    target_actor: Params
    target_reward: Members
    actor_opt: Any
    reward_opt: Any
    scaler: Scaler
    units: Units
    noise: jax.Array
    key: jax.Array
    step: jax.Array


def reward_loss(
    members: Members, obs: jax.Array, action: jax.Array, targets: jax.Array
) -> tuple[jax.Array, Metrics]:
    q = networks.critics(members, obs, action)
    value = bellman.loss(q, targets)
    return value, {"reward/loss": value, "reward/q_mean": q.mean()}


def q_reward(members: Members, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return the Q_R (B,) that the actor climbs: the first network's."""
    return networks.critic(members[0], obs, action)


def actor_loss(params: Params, reward: Members, obs: jax.Array) -> tuple[jax.Array, Metrics]:
    value = -q_reward(reward, obs, networks.actor(params, obs)).mean()
    return value, {"actor/loss": value}


def smoothed(action: jax.Array, key: jax.Array, spread: float) -> jax.Array:
    """Return actions with clipped noise (TD3), so that a target does not sit on a narrow peak."""
    if spread == 0:
        return action
    noise = spread * jax.random.normal(key, action.shape, jnp.float32)
    most = SMOOTHING_CLIP * spread
    return jnp.clip(action + jnp.clip(noise, -most, most), -1.0, 1.0)


def reward_step(
    state: Any, batch: Batch, config: OffPolicySettings
) -> tuple[Members, Any, Metrics]:
    """Take one step of Adam on the reward critic of any state that has DDPG's parts."""
    obs = scaling.inputs(state.scaler, batch.obs, config)
    next_obs = scaling.inputs(state.scaler, batch.next_obs, config)
    next_action = networks.actor(state.target_actor, next_obs)
    next_action = smoothed(next_action, jax.random.fold_in(state.key, 1), config.target_noise)
    q_next = networks.critics(state.target_reward, next_obs, next_action).min(axis=0)
    targets = bellman.target(batch.reward, batch.discount, q_next)
    gradient, metrics = jax.grad(reward_loss, has_aux=True)(
        state.reward, obs, batch.action, targets
    )
    reward, opt = networks.adam_step(state.reward, gradient, state.reward_opt, config.critic_lr)
    return reward, opt, metrics


def actor_step(
    state: Any, loss: Any, arguments: tuple[Any, ...], obs: jax.Array, config: OffPolicySettings
) -> tuple[Params, Any, Metrics]:
    """Take a step of Adam on the actor's loss, in every `actor_every`-th update."""

    def whole(params: Params) -> tuple[jax.Array, Metrics]:
        value, metrics = loss(params, *arguments)
        if config.actor_pull == 0:
            return value, metrics
        return value + config.actor_pull * networks.saturation(params, obs), metrics

    def step() -> tuple[Params, Any, Metrics]:
        gradient, metrics = jax.grad(whole, has_aux=True)(state.actor)
        return *networks.adam_step(state.actor, gradient, state.actor_opt, config.actor_lr), metrics

    def stay() -> tuple[Params, Any, Metrics]:
        return state.actor, state.actor_opt, whole(state.actor)[1]

    if config.actor_every == 1:
        return step()
    return jax.lax.cond(state.step % config.actor_every == 0, step, stay)


def update(state: Any, batch: Batch, config: OffPolicySettings) -> tuple[Any, Metrics]:
    """Take one step of critic, actor and targets on a batch."""
    sizes = scaling.unit_sizes(state.units, config)
    return update_in_units(state, scaling.in_units(batch, sizes), sizes, config)


def update_in_units(
    state: Any, batch: Batch, sizes: scaling.Sizes, config: OffPolicySettings
) -> tuple[Any, Metrics]:
    """Take the update on a batch whose reward is in the agent's units."""
    obs = scaling.inputs(state.scaler, batch.obs, config)
    reward, reward_opt, reward_metrics = reward_step(state, batch, config)

    actor, actor_opt, actor_metrics = actor_step(state, actor_loss, (reward, obs), obs, config)

    state = state._replace(
        actor=actor,
        reward=reward,
        target_actor=networks.update_target(state.target_actor, actor, config.tau),
        target_reward=networks.update_target(state.target_reward, reward, config.tau),
        actor_opt=actor_opt,
        reward_opt=reward_opt,
        step=state.step + 1,
    )
    return state, scaling.in_task_units(reward_metrics | actor_metrics, sizes)


def init_reward(key: jax.Array, sizes: tuple[int, ...], config: OffPolicySettings) -> Members:
    """Return the first networks of Q_R."""
    normalise = config.layer_norm != "none"
    return networks.init_members(key, sizes, config.reward_critics, normalise=normalise)


def init(key: jax.Array, spec: EnvSpec, config: OffPolicySettings) -> DDPGState:
    key, key_actor, key_reward = jax.random.split(key, 3)
    size = scaling.input_size(spec, config)
    actor = networks.init(key_actor, (size, *config.hidden, spec.action_dim))
    joint = (size + spec.action_dim, *config.hidden, 1)
    reward = init_reward(key_reward, joint, config)
    return DDPGState(
        actor=actor,
        reward=reward,
        # Copies: a buffer may not be handed over twice to a compiled step that reuses it.
        target_actor=jax.tree.map(jnp.copy, actor),
        target_reward=jax.tree.map(jnp.copy, reward),
        actor_opt=optax.adam(config.actor_lr).init(actor),
        reward_opt=optax.adam(config.critic_lr).init(reward),
        scaler=scaling.scaler_init(spec, config),
        units=scaling.units_init(),
        noise=jnp.zeros(spec.action_dim, jnp.float32),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def act(
    state: Any, obs: jax.Array, spent: jax.Array, config: OffPolicySettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Return the action (A,) for one observation, and the parts of the state it changes."""
    action = policy(state, obs[None], config, explore)[0]
    if not explore:
        return action, {"key": state.key, "noise": state.noise}, {}
    key, key_noise = jax.random.split(state.key)
    noise = ornstein_uhlenbeck(state.noise, key_noise, spread(state, config), config.noise_theta)
    return jnp.clip(action + noise, -1.0, 1.0), {"key": key, "noise": noise}, {}


def spread(state: Any, config: OffPolicySettings) -> jax.Array | float:
    """Return the spread of the exploration noise, which halves every `noise_half_life` updates.

    It is 0 in the episodes without noise by which a multiplier is judged.
    """
    share: jax.Array | float = 1.0
    if config.noise_half_life > 0:
        share = 0.5 ** (state.step.astype(jnp.float32) / config.noise_half_life)
        share = jnp.maximum(share, LEAST_NOISE)
    if "past" in state._fields:
        share = jnp.where(is_quiet(state.past, config), 0.0, share)
    return config.noise_sigma * share


def observe(state: Any, transition: Transition, config: OffPolicySettings) -> Any:
    """Return the state with one transition in its scales."""
    return state._replace(
        scaler=scaling.scaler_update(state.scaler, transition.obs, config),
        units=scaling.units_update(state.units, transition, config.gamma),
    )


def end_episode(
    state: DDPGState, episode_cost: jax.Array, decisions: jax.Array, config: DDPGSettings
) -> tuple[DDPGState, Metrics]:
    return state._replace(noise=jnp.zeros_like(state.noise)), {}


def values(state: Any, obs: jax.Array, action: jax.Array, config: OffPolicySettings) -> Metrics:
    """Return Q_R of observations (N, O) and actions (N, A), in the task's units."""
    sizes = scaling.unit_sizes(state.units, config)
    obs = scaling.inputs(state.scaler, obs, config)
    return {"q_reward": sizes.reward * q_reward(state.reward, obs, action)}


def policy(
    state: Any, obs: jax.Array, config: OffPolicySettings, explore: bool = False
) -> jax.Array:
    """Return actions (N, A) without noise: of the deployed actor, or of the one that learns."""
    actor = state.actor if explore else deployed_actor(state, config)
    return networks.actor(actor, scaling.inputs(state.scaler, obs, config))


def deployed_actor(state: Any, config: OffPolicySettings) -> Params:
    """Return the actor to deploy. Its slow copy wavers less: it is an average of the last ones."""
    return state.target_actor if config.deployed_actor == "average" else state.actor
