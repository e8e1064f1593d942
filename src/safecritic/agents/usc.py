"""Actor-critic with a safety critic: SC, CSC, USC (NR) and USC are this agent with other parts.

Paper: Bethell, Gerasimou, Calinescu, Imrie, "Safe But Not Sorry: Reducing Over-Conservatism in
Safety Critics via Uncertainty-Aware Modulation", AAMAS 2026. One update, in the order of its
Algorithm 1, and the part of the settings that switches it on:

    influence u of every sample (Eq. 1) and the weight it gives (Eq. 2)  influence
    safety critic: Bellman + weighted margin (Eq. 3, 4)                  margin: conservative
    reward critic: as in DDPG
    actor: -Q_R + multiplier Q_C + KL to the target actor (Eq. 5, 6)
    refinement of the most uncertain samples (Eq. 8-10)                  refinement
    multiplier, once per episode, as in RCPO (Eq. 7)
    screening of actions while acting (Algorithm 1)                      screen

`agents/paper.py` is the same algorithm as printed, in plain code: read it first. Deviations from
it: the conservative term is a two-sided margin (`core/conservative.py`), with a larger weight; the
curvature of Eq. 1 comes from the replay buffer; refined samples are drawn to targets over several
steps; observations are scaled, reward and cost counted in measured units, Q_C cannot be negative;
the multiplier moves in relative terms and starts low; the screen takes the best Q_R within its
tolerance (`docs/what-was-tried.md`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from safecritic.agents import cost_critic, ddpg
from safecritic.agents.cost_critic import (
    actor_inputs,
    batch_targets,
    clipped,
    critic_inputs,
    q_cost,
    smooth,
)
from safecritic.agents.ddpg import State, observe, policy, q_reward
from safecritic.agents.rcpo import end_episode
from safecritic.agents.settings import Influence, Screen, USCSettings
from safecritic.core import bellman, conservative, influence, networks, refinement, replay, scaling
from safecritic.core.influence import Curvature
from safecritic.core.interface import Carry, EnvSpec, Metrics
from safecritic.core.multiplier import near_limit
from safecritic.core.networks import Members, Params, ornstein_uhlenbeck
from safecritic.core.replay import Batch
from safecritic.core.screening import CANDIDATES, grid
from safecritic.runtime import decide

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]

KL_SIGMA = 0.2  # std of both policies in the distance between them
STRIDE = 2  # alternatives are compared in every second state of a batch, for a tenth of an update
TRAINING_PRICE = 3.0  # of Q_C in training where nothing is within the tolerance, in multipliers
EXCEPTIONS = 0.05  # share of decisions whose Q_C is above the tolerance: a screen is for exceptions
TOLERANCE_STEP = 0.002  # by which the tolerance follows Q_C, per decision


# Eq. 1: influence


def batch_influence(
    state: State, critic_obs: jax.Array, action: jax.Array, part: Influence, learn: bool
) -> tuple[jax.Array, jax.Array, Curvature]:
    """Eq. 1 for a batch: Q_C, u (B,) and the curvature; `learn` adds the batch to it."""
    (params,), (curvature,) = state.safety, state.curvature
    z, features = networks.forward_inputs(params, networks.join(critic_obs, action))
    q, slope = jax.jvp(smooth, (z[:, 0],), (jnp.ones_like(z[:, 0]),))
    gradients = influence.last_layer_gradients(features, slope)
    if learn:
        curvature = influence.curvature_update(curvature, gradients, part.damping)
    return q, influence.curvature_influence(curvature, gradients), curvature


# Eq. 3 and 4: the safety critic


def safety_loss(
    members: Members,
    critic_obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    weight: jax.Array,
    alternatives: jax.Array | None,
    strength: float,
) -> tuple[jax.Array, Metrics]:
    """Eq. 3; without `alternatives` (n, m, A) its first term alone, which sees the raw output."""
    q = networks.critics(members, critic_obs, action)
    if alternatives is None:
        value = bellman.loss(q, targets)
        metrics = {"safety/bellman_loss": value}
    else:
        obs = critic_obs[::STRIDE]
        q_alt = [networks.critic_of_many(params, obs, alternatives) for params in members]
        margin = conservative.margin(q, jnp.stack(q_alt), STRIDE)
        value, metrics = conservative.loss(q, targets, weight[::STRIDE], margin, strength)
        metrics["safety/margin"] = margin.mean()
    joint = q.max(axis=0)
    return value, metrics | {
        "safety/loss": value,
        "safety/q_mean": joint.mean(),
        "safety/q_std": joint.std(),
        "safety/target_mean": targets.mean(),
    }


def update_safety(
    state: State, batch: Batch, critic_obs: jax.Array, targets: jax.Array, config: USCSettings
) -> tuple[State, jax.Array | None, Metrics]:
    """Algorithm 1, lines 13-19: influence, its weight and a step of the safety critic (Eq. 1-4).

    Returns the influence (B,) too, None if the method has none.
    """
    key, key_actions = jax.random.split(state.key)
    metrics: Metrics = {}
    part, alternatives = config.conservative, None
    weight, u, curvature = jnp.ones(len(critic_obs), jnp.float32), None, state.curvature
    if config.influence is not None:
        q, u, known = batch_influence(state, critic_obs, batch.action, config.influence, True)
        curvature, weight = (known,), influence.uncertainty_weight(u, q)
        low, high = jnp.quantile(u, jnp.array([0.05, 0.95], jnp.float32))
        metrics = {"influence/mean": u.mean(), "influence/low": low, "influence/high": high}
        metrics["safety/uncertainty_weight"] = weight.mean()

    if part is not None:
        near = batch.action
        if part.near_policy:
            near = networks.actor(state.actor, actor_inputs(state, batch.obs))
        alternatives = conservative.sample_actions(key_actions, near[::STRIDE], part.near_policy)

    strength = 0.0 if part is None else part.weight
    gradient, step_metrics = jax.grad(safety_loss, has_aux=True)(
        state.safety, critic_obs, batch.action, targets, weight, alternatives, strength
    )
    safety, opt = networks.adam_step(state.safety, gradient, state.safety_opt, config.safety.lr)
    state = state._replace(safety=safety, safety_opt=opt, curvature=curvature, key=key)
    return state, u, metrics | step_metrics


# Eq. 5 and 6: the actor


def actor_loss(
    params: Params,
    old: Params,
    reward: Members,
    safety: Members,
    obs: jax.Array,
    critic_obs: jax.Array,
    lam: jax.Array,
    kl_weight: float,
) -> tuple[jax.Array, Metrics]:
    """Eq. 5: -Q_R + lam Q_C + weight KL, KL = |pi - pi_old|^2 / (2 sigma^2), mean over states.

    The old policy is the lagging target actor.
    """
    action = networks.actor(params, obs)
    reward_part = q_reward(reward, obs, action).mean()
    cost_part = q_cost(safety, critic_obs, action).mean()
    distance = jnp.sum((action - networks.actor(old, obs)) ** 2, axis=-1)
    kl = distance.mean() / (2.0 * KL_SIGMA**2)
    value = -reward_part + lam * cost_part + kl_weight * kl
    return value, {
        "actor/loss": value,
        "actor/q_reward": reward_part,
        "actor/q_cost": cost_part,
        "actor/kl": kl,
    }


# Eq. 8-10: refinement


def refine(
    state: State,
    safety: Members,
    batch: Batch,
    critic_obs: jax.Array,
    targets: jax.Array,
    u: jax.Array,
    cost_size: jax.Array,
    config: USCSettings,
) -> tuple[Members, Metrics]:
    """Eq. 8-10 for the most uncertain samples of the batch; `targets` are those of Eq. 3."""
    part, around = config.refinement, batch.neighbours
    assert part is not None
    assert around is not None
    _, places = jax.lax.top_k(u, part.top)
    obs, action = critic_obs[places], batch.action[places]
    near = refinement.find_neighbours(
        around.store,
        around.start,
        batch.index[places],
        networks.join(obs, action),
        lambda raw: critic_inputs(state, raw),
        part.neighbours,
    )
    ahead = replay.n_step(
        around.store, near.rows.ravel(), config.safety.steps, config.gamma, "cost"
    )
    # One pass of the target critic, over the samples and the states that followed.
    next_action = networks.actor(state.target_actor, actor_inputs(state, ahead.next_obs))
    z = networks.critics(
        state.target_safety,
        jnp.concatenate([obs, critic_inputs(state, ahead.next_obs)]),
        jnp.concatenate([action, next_action]),
    )
    q_old, q_next = z[:, : part.top], clipped(z[:, part.top :]).max(axis=0)
    value = bellman.target(ahead.total / cost_size, ahead.discount, q_next)
    others = refinement.interpolate(value.reshape(near.rows.shape), near.distance, near.valid)
    target = refinement.OWN * targets[places] + (1.0 - refinement.OWN) * others
    valid = near.valid.any(axis=-1).astype(jnp.float32)

    def loss(members: Members) -> tuple[jax.Array, Metrics]:
        return refinement.loss(networks.critics(members, obs, action), q_old, target, valid)

    gradient, metrics = jax.grad(loss, has_aux=True)(safety)
    metrics["refine/target_mean"] = target.mean()
    total = jnp.sum(jnp.where(near.valid, near.distance, 0.0))
    metrics["refine/distance"] = total / jnp.maximum(near.valid.sum(), 1)
    safety, metrics["refine/clipped"] = refinement.step(safety, gradient, part.lr)
    return safety, metrics


# Algorithm 1


def update(state: State, batch: Batch, config: USCSettings) -> tuple[State, Metrics]:
    """Algorithm 1, lines 13-31: one step of both critics, actor, refinement and targets."""
    sizes = scaling.unit_sizes(state.units)
    batch = scaling.in_units(batch, sizes)
    obs, critic_obs = actor_inputs(state, batch.obs), critic_inputs(state, batch.obs)
    targets = batch_targets(state, batch)
    new, u, metrics = update_safety(state, batch, critic_obs, targets, config)
    loss = partial(
        actor_loss,
        old=state.target_actor,
        safety=new.safety,
        obs=obs,
        critic_obs=critic_obs,
        lam=state.multiplier,
        kl_weight=config.kl_weight,
    )
    new, more = ddpg.reward_and_actor_step(new, batch, loss, config)
    metrics |= more | {"dual/multiplier": state.multiplier}
    if config.refinement is not None and u is not None:
        safety, more = refine(state, new.safety, batch, critic_obs, targets, u, sizes.cost, config)
        new, metrics = new._replace(safety=safety), metrics | more
    return ddpg.update_targets(new, config.tau), scaling.in_task_units(metrics, sizes)


def act(
    state: State, obs: jax.Array, cost_so_far: jax.Array, config: USCSettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Algorithm 1, lines 4-9: the screened action (A,) for one observation, and what it changes."""
    key, key_noise = jax.random.split(state.key)
    action = policy(state, obs[None], config, explore)[0]
    noise = state.noise
    if explore:
        noise = ornstein_uhlenbeck(
            noise, key_noise, ddpg.noise_size(state, config), ddpg.NOISE_PULL
        )
        action = jnp.clip(action + noise, -1.0, 1.0)

    # Before a task is learned nothing is within, and a critic that knows little would do all the
    # acting; a learned policy without noise may push for good against what it cannot move.
    lost = ~near_limit(state.past, config.cost_limit)
    network = decide.Network(
        gains=scaling.critic_gains(state.scaler),
        safety=state.safety[0],
        reward=state.reward[0],
        price=TRAINING_PRICE * state.multiplier if explore else jnp.maximum(state.multiplier, 1.0),
    )
    tolerance = jnp.zeros(1, jnp.float32)
    if config.screen is not None:
        candidates = jnp.asarray(grid(action.shape[-1], CANDIDATES))
        network = network._replace(candidates=candidates)
        tolerance = decide.tolerance_left(
            jnp, state.tolerance, (config.cost_limit - cost_so_far)[None], config.cost_limit
        )
    x = actor_inputs(state, obs)[None]
    chosen = decide.screen(
        jnp, network, x, action[None], tolerance, keep=lost & explore, when=where_screened
    )
    size = scaling.unit_sizes(state.units).cost
    info = {"q_cost": size * chosen.q_cost[0], "q_proposed": size * chosen.q_proposed[0]}
    info |= {"screened": chosen.screened[0], "changed": chosen.changed[0], "proposed": action}
    carry = {"key": key, "noise": noise}
    if config.screen is not None:
        carry["tolerance"] = next_tolerance(state.tolerance, chosen.q_proposed[0], config.screen)
    return chosen.action[0], carry, info


def next_tolerance(tolerance: jax.Array, q: jax.Array, part: Screen) -> jax.Array:
    """Return the tolerance after a decision: what Q_C exceeds in EXCEPTIONS of all of them.

    It is never below the one that was set, which alone counts where costs are rare.
    """
    moved = tolerance + TOLERANCE_STEP * ((q > tolerance) - EXCEPTIONS)
    return jnp.maximum(moved, part.tolerance).astype(jnp.float32)


def where_screened(screened: jax.Array, then: Any, otherwise: jax.Array) -> jax.Array:
    """Search only if a row is screened."""
    return jax.lax.cond(screened.any(), then, lambda: otherwise)


def init(key: jax.Array, spec: EnvSpec, config: USCSettings) -> State:
    """Return the first state: DDPG's, with safety critic, multiplier and curvature."""
    key, key_actor, key_reward, key_safety = jax.random.split(key, 4)
    state = ddpg.init_from(key, key_actor, key_reward, spec, config)
    curvature = influence.curvature_init(config.hidden[-1])
    return cost_critic.with_safety(state, key_safety, spec, config)._replace(
        multiplier=jnp.asarray(config.multiplier.start, jnp.float32),
        curvature=None if config.influence is None else (curvature,),
        tolerance=None if config.screen is None else jnp.float32(config.screen.tolerance),
    )


def values(state: State, obs: jax.Array, action: jax.Array, config: USCSettings) -> Metrics:
    """Return Q_R and Q_C in the task's units and, if the method has it, the influence."""
    predictions = cost_critic.values(state, obs, action, config)
    if config.influence is not None:
        near = critic_inputs(state, obs)
        _, predictions["influence"], _ = batch_influence(
            state, near, action, config.influence, learn=False
        )
    return predictions
