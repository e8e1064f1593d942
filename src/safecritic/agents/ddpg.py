"""Deep deterministic policy gradient (Lillicrap et al., 2016): the base of every method here.

    target   y = r + gamma Q_R'(s', pi'(s')), from target networks
    critic   minimise 1/2 (Q_R(s, a) - y)^2
    actor    minimise -Q_R(s, pi(s))
    targets  follow with rate tau
    acting   pi(s) plus Ornstein-Uhlenbeck noise, clipped to the box

RCPO, PID-Lag and the safety critics add parts to its state and use these functions.

Deviations from the paper: the actor's step is 3e-4 and observations are scaled by their running
mean and std. `cost_limit` plays no part in learning; it is there for the report.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic.core import bellman, networks, scaling
from safecritic.core.interface import Carry, EnvSpec, Metrics
from safecritic.core.multiplier import is_noise_free
from safecritic.core.networks import Members, Params, ornstein_uhlenbeck
from safecritic.core.replay import Batch, Transition
from safecritic.core.scaling import Scaler, Units
from safecritic.core.settings import OffPolicySettings

NOISE_HALF_LIFE = 20_000.0  # updates in which the exploration noise halves
LEAST_NOISE = 0.05  # share of it that stays
NOISE_PULL = 0.15  # pull of the noise to 0, per decision (theta)


class State(NamedTuple):
    """The state of DDPG, with the parts that other methods add to it."""

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
    # of other methods, None here
    multiplier: Any = None
    past: Any = None  # `multiplier.Constraint`
    pid: Any = None  # `multiplier.PID`
    safety: Any = None  # Members, as is target_safety
    target_safety: Any = None
    safety_opt: Any = None
    curvature: Any = None  # of each member
    tolerance: Any = None  # of the screen


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


def reward_and_actor_step(
    state: State,
    batch: Batch,
    loss: Callable[..., tuple[jax.Array, Metrics]],
    config: OffPolicySettings,
) -> tuple[State, Metrics]:
    """Take a step of Adam on the reward critic, and one on the actor's `loss` given that critic."""
    obs = scaling.inputs(state.scaler, batch.obs)
    next_obs = scaling.inputs(state.scaler, batch.next_obs)
    next_action = networks.actor(state.target_actor, next_obs)
    q_next = networks.critics(state.target_reward, next_obs, next_action).min(axis=0)
    targets = bellman.target(batch.reward, batch.discount, q_next)
    gradient, metrics = jax.grad(reward_loss, has_aux=True)(
        state.reward, obs, batch.action, targets
    )
    reward, opt = networks.adam_step(state.reward, gradient, state.reward_opt, config.critic_lr)
    state = state._replace(reward=reward, reward_opt=opt)
    gradient, actor_metrics = jax.grad(loss, has_aux=True)(state.actor, reward=reward)
    actor, opt = networks.adam_step(state.actor, gradient, state.actor_opt, config.actor_lr)
    return state._replace(actor=actor, actor_opt=opt), metrics | actor_metrics


def update_targets(state: State, tau: float) -> State:
    """Return the state with its target networks moved towards the online ones."""
    for name in ("actor", "reward", "safety"):
        if (online := getattr(state, name)) is not None:
            moved = networks.update_target(getattr(state, f"target_{name}"), online, tau)
            state = state._replace(**{f"target_{name}": moved})
    return state._replace(step=state.step + 1)


def update(
    state: State, batch: Batch, config: OffPolicySettings, price: jax.Array | None = None
) -> tuple[State, Metrics]:
    """Take one step of critic, actor and targets; with a `price` the reward is r - price c."""
    sizes = scaling.unit_sizes(state.units)
    batch = scaling.in_units(batch, sizes)
    if price is not None:
        batch = batch._replace(reward=batch.reward - price * batch.cost)
    loss = partial(actor_loss, obs=scaling.inputs(state.scaler, batch.obs))
    state, metrics = reward_and_actor_step(state, batch, loss, config)
    return update_targets(state, config.tau), scaling.in_task_units(metrics, sizes)


def init(key: jax.Array, spec: EnvSpec, config: OffPolicySettings) -> State:
    key, key_actor, key_reward = jax.random.split(key, 3)
    return init_from(key, key_actor, key_reward, spec, config)


def init_from(
    key: jax.Array,
    key_actor: jax.Array,
    key_reward: jax.Array,
    spec: EnvSpec,
    config: OffPolicySettings,
) -> State:
    """Return the first state; hidden layers of Q_R are normalised."""
    actor = networks.init(key_actor, (scaling.input_size(spec), *config.hidden, spec.action_dim))
    reward = networks.init_members(key_reward, joint_sizes(spec, config), 1, normalise=True)
    return State(
        actor=actor,
        reward=reward,
        # Copies: a buffer may not be handed over twice to a compiled step that reuses it.
        target_actor=jax.tree.map(jnp.copy, actor),
        target_reward=jax.tree.map(jnp.copy, reward),
        actor_opt=optax.adam(config.actor_lr).init(actor),
        reward_opt=optax.adam(config.critic_lr).init(reward),
        scaler=scaling.scaler_init(spec),
        units=scaling.units_init(),
        noise=jnp.zeros(spec.action_dim, jnp.float32),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def joint_sizes(spec: EnvSpec, config: OffPolicySettings) -> tuple[int, ...]:
    """Return the layer sizes of a critic."""
    return (scaling.input_size(spec) + spec.action_dim, *config.hidden, 1)


def act(
    state: State, obs: jax.Array, cost_so_far: jax.Array, config: OffPolicySettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Return the action (A,) for one observation, and the parts of the state it changes."""
    action = policy(state, obs[None], config, explore)[0]
    if not explore:
        return action, {"key": state.key, "noise": state.noise}, {}
    key, key_noise = jax.random.split(state.key)
    noise = ornstein_uhlenbeck(state.noise, key_noise, noise_size(state, config), NOISE_PULL)
    return jnp.clip(action + noise, -1.0, 1.0), {"key": key, "noise": noise}, {}


def noise_size(state: State, config: OffPolicySettings) -> jax.Array | float:
    """Return the size of the exploration noise, which halves every `NOISE_HALF_LIFE` updates.

    It is 0 in the episodes without noise by which a multiplier is judged.
    """
    share = jnp.maximum(0.5 ** (state.step.astype(jnp.float32) / NOISE_HALF_LIFE), LEAST_NOISE)
    part: Any = getattr(config, "multiplier", None)
    if part is not None:
        judges = is_noise_free(state.past, config.cost_limit, part.noise_free_every)
        share = jnp.where(judges, 0.0, share)
    return config.noise_sigma * share


def observe(state: State, transition: Transition, config: OffPolicySettings) -> State:
    """Return the state with one transition in its scales."""
    return state._replace(
        scaler=scaling.scaler_update(state.scaler, transition.obs),
        units=scaling.units_update(state.units, transition, config.gamma),
    )


def end_episode(
    state: State, episode_cost: jax.Array, decisions: jax.Array, config: OffPolicySettings
) -> tuple[State, Metrics]:
    return state._replace(noise=jnp.zeros_like(state.noise)), {}


def values(state: State, obs: jax.Array, action: jax.Array, config: OffPolicySettings) -> Metrics:
    """Return Q_R of observations (N, O) and actions (N, A), in the task's units."""
    sizes = scaling.unit_sizes(state.units)
    obs = scaling.inputs(state.scaler, obs)
    return {"q_reward": sizes.reward * q_reward(state.reward, obs, action)}


def policy(
    state: State, obs: jax.Array, config: OffPolicySettings, explore: bool = False
) -> jax.Array:
    """Return actions (N, A) without noise: to deploy, those of the actor's slow, steadier copy."""
    actor = state.actor if explore else state.target_actor
    return networks.actor(actor, scaling.inputs(state.scaler, obs))
