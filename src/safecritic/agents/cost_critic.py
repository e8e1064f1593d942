"""The critic of the cost, Q_C, that the safety critics and PID-Lag share: its values and targets.

What it minimises is each agent's own.
"""

import jax
import jax.numpy as jnp
import optax

from safecritic.agents import ddpg
from safecritic.agents.ddpg import State
from safecritic.agents.settings import CostCriticSettings
from safecritic.core import bellman, networks, scaling
from safecritic.core.interface import EnvSpec, Metrics
from safecritic.core.multiplier import constraint_init
from safecritic.core.networks import Members
from safecritic.core.replay import Batch

SHARPNESS = 5.0  # of the softplus that stands for the clip of Q_C where a slope is needed


def actor_inputs(state: State, obs: jax.Array) -> jax.Array:
    """Return observations as actor and reward critic see them."""
    return scaling.inputs(state.scaler, obs)


def critic_inputs(state: State, obs: jax.Array) -> jax.Array:
    """Return observations as the safety critic sees them: what is near stands out."""
    return scaling.critic_inputs(state.scaler, obs)


def clipped(z: jax.Array) -> jax.Array:
    """Return Q_C from the critic's raw output: a cost is never negative."""
    return jnp.maximum(z, 0.0)


def smooth(z: jax.Array) -> jax.Array:
    """Return Q_C with its clip made smooth, as the influence sees it.

    Far below 0 a clipped Q_C is 0 whatever the parameters are, and its influence would be too.
    """
    return jax.nn.softplus(SHARPNESS * z) / SHARPNESS


def q_cost(members: Members, critic_obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return Q_C (B,) of observations as the critic sees them, and actions: the largest member's.

    The regression of Q_C sees the raw output: fitted through the clip, a critic that has once
    fallen below 0 could not come back.
    """
    return clipped(networks.critics(members, critic_obs, action)).max(axis=0)


def batch_targets(state: State, batch: Batch) -> jax.Array:
    """Return the targets c + discount Q_C'(s', pi'(s')) (B,), c over several steps of cost."""
    next_obs = batch.next_obs if batch.cost_next_obs is None else batch.cost_next_obs
    action = networks.actor(state.target_actor, actor_inputs(state, next_obs))
    q_next = q_cost(state.target_safety, critic_inputs(state, next_obs), action)
    return bellman.target(batch.cost, batch.cost_discount, q_next)


def with_safety(state: State, key: jax.Array, spec: EnvSpec, config: CostCriticSettings) -> State:
    """Return DDPG's first state with a safety critic and a record of costs beside it."""
    safety = networks.init_members(key, ddpg.joint_sizes(spec, config), 1)
    return state._replace(
        safety=safety,
        target_safety=jax.tree.map(jnp.copy, safety),
        safety_opt=optax.adam(config.safety.lr).init(safety),
        past=constraint_init(),
    )


def values(state: State, obs: jax.Array, action: jax.Array, config: CostCriticSettings) -> Metrics:
    """Return Q_R and Q_C of observations (N, O) and actions (N, A), in the task's units."""
    q = q_cost(state.safety, critic_inputs(state, obs), action)
    size = scaling.unit_sizes(state.units).cost
    return ddpg.values(state, obs, action, config) | {"q_cost": size * q}
