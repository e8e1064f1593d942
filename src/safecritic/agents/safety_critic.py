"""Actor-critic with a safety critic: SC, CSC, USC (NR) and USC are settings of this one agent.

Paper: "Safe But Not Sorry: Reducing Over-Conservatism in Safety Critics via Uncertainty-Aware
Modulation" (Bethell et al.). One update, in the order of its Algorithm 1:

    influence u of every sample (Eq. 1) and its caution (Eq. 2)      objective "uncertain"
    safety critic: Bellman + weight x caution x margin (Eq. 3, 4)    margin: not for "bellman"
    reward critic: as in DDPG
    actor: -Q_R + multiplier Q_C + KL to the target actor (Eq. 5, 6)
    refinement of the most uncertain samples (Eq. 8-10)              ``refinement``
    multiplier, once per episode (Eq. 7); screening of actions while acting (Algorithm 1)

Deviations from the paper, each a setting whose paper value is in the method table: the conservative
term is mirrored and hinged (``conservative_form``), its weight is larger, and it is estimated from
half of the states, drawn by their caution (``conservative_share``); the curvature of Eq. 1 comes
from the replay (``reference``); the old policy of the KL term is the target actor, the old
prediction of Eq. 9 the target safety critic, because against the parameters of one step ago both
gradients vanish; refinement targets are the neighbours' Bellman targets (``refine_target``);
observations are scaled, those of Q_C sharpened, Q_C cannot be negative (``safety_output``); the
multiplier starts lower and the screen's tolerance is higher.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic import networks, replay
from safecritic.agents import cost_critic
from safecritic.agents import settings as common
from safecritic.agents.cost_critic import (
    CostCriticConfig,
    assessed_value,
    batch_targets,
    bootstrapped,
    fitted_value,
    joint_value,
    q_cost,
    scaled,
    sharpened,
)
from safecritic.agents.ddpg import reward_step
from safecritic.agents.settings import Scaler
from safecritic.critics import bellman, conservative, influence, refinement, screening, uncertain
from safecritic.critics import multiplier as duals
from safecritic.critics.influence import Curvature
from safecritic.fast import draws
from safecritic.networks import EnvSpec, Members, Params, Passes
from safecritic.noise import ornstein_uhlenbeck
from safecritic.replay import Batch, Neighbourhood

Metrics = dict[str, jax.Array]

OBJECTIVES = ("bellman", "conservative", "uncertain")


@dataclass(frozen=True, kw_only=True)
class SafetyCriticConfig(CostCriticConfig):
    """Settings of the safety critics; the paper's value stands where ours differs."""

    objective: str = "uncertain"  # bellman (SC), conservative (CSC) or uncertain (USC)

    # Eq. 1: influence
    reference: str = "replay"  # what Eq. 1 compares with: replay, or batch (paper)
    damping: float = 1e-6  # d, for the reference "batch"
    replay_damping: float = 1e-3  # relative to the mean curvature, for the reference "replay"
    curvature_decay: float = 0.999  # of the running curvature, per update
    curvature_every: int = 4  # updates between two batches it learns from
    curvature_refresh: int = 50  # updates between two factorisations

    # Eq. 3: conservative term
    conservative_form: str = "band"  # band, hinge, mirrored, flipped or printed (paper)
    conservative_weight: float = 5e-3  # paper: 1e-3, reading its alpha as this weight
    conservative_gradient: str = "sampled"  # or "exact": the same in expectation
    conservative_share: float = 0.5  # of the states, drawn by caution; paper: 1, the same likewise
    push_data: bool = False  # paper: True; the data's own value is pushed down as well
    alternatives: int = 8  # other actions per sample, m; not printed
    alternatives_from: str = "uniform"  # uniform over the box, or around the policy
    alternatives_spread: float = 0.2  # of the noise around the policy, for "policy"
    sigma_epsilon: float = 1e-2  # eps beside sigma, not printed

    # Eq. 5 and 7: actor and multiplier
    multiplier_init: float = 0.5  # of Q_C in the actor's loss, at first; paper: 1
    multiplier_lr: float = 1e-3  # per episode and unit of cost above the limit; not printed
    kl_weight: float = 1e-3  # of the distance to the lagging actor; paper: 1e-6, its delta
    kl_sigma: float = 0.2  # spread of the Gaussians: the exploration noise's
    rescale_actor_loss: bool = False  # divide by 1 + multiplier

    # Algorithm 1: screening
    screen: bool = True  # screen actions, in training and when deployed
    tolerance: float = 3.0  # Q_C above which an action is screened; paper: 0.3
    screen_candidates: int = 16  # actions tried, N; not printed
    screen_from: str = "ou"  # ou: noise around the action, or uniform over the box
    screen_spread: float = 0.2  # of that noise

    # Eq. 8-10: refinement; nothing but "every update" is printed
    refinement: bool = False  # of the most uncertain samples: USC against USC (NR)
    refine_target: str = "bellman"  # of the neighbours: bellman target, or one-step cost (paper)
    refine_top: int = 8  # samples refined, n
    refine_neighbours: int = 5  # of each, K
    refine_lr: float = 1e-3  # step size of Eq. 10
    refine_clip: float = 1.0  # paper: 0, no limit to the length of the gradient
    refine_beta: float = 1.0  # weight of the distance to the target critic in Eq. 9
    refine_epsilon: float = 1e-2  # distance up to which that costs nothing
    refine_confident: bool = True  # neighbours among the top n are left out
    refine_block: int = 256  # candidates: a random block of the replay
    refine_reach: int = 8  # and this many rows on either side of the sample

    @property
    def neighbour_block(self) -> int:
        return self.refine_block if self.refinement else 0

    @property
    def uses_influence(self) -> bool:
        return self.objective == "uncertain" or self.refinement


class SafetyCriticState(NamedTuple):
    actor: Params
    reward: Params
    safety: Members
    target_actor: Params
    target_reward: Params
    target_safety: Members
    actor_opt: Any
    reward_opt: Any
    safety_opt: Any
    multiplier: jax.Array
    curvature: tuple[Curvature, ...] | None  # of each member, only for the reference "replay"
    cost_bound: jax.Array  # c_max / (1 - gamma), infinite if unknown
    scaler: Scaler
    noise: jax.Array
    key: jax.Array
    step: jax.Array


def validate(config: SafetyCriticConfig) -> None:
    """Refuse settings no run could start with."""
    cost_critic.validate(config)
    common.require_one_of(config, "objective", OBJECTIVES)
    common.require_one_of(config, "reference", influence.REFERENCES)
    common.require_one_of(config, "conservative_form", conservative.FORMS)
    common.require_one_of(config, "conservative_gradient", conservative.GRADIENTS)
    common.require_one_of(config, "alternatives_from", conservative.SOURCES)
    common.require_one_of(config, "screen_from", screening.SOURCES)
    common.require_one_of(config, "refine_target", refinement.TARGETS)
    common.require_positive(
        config,
        *("damping", "replay_damping"),
        *("curvature_every", "curvature_refresh", "alternatives", "kl_sigma", "sigma_epsilon"),
        *("screen_candidates", "refine_top", "refine_neighbours", "refine_block"),
    )
    common.require_not_negative(
        config,
        *("conservative_weight", "alternatives_spread", "multiplier_init", "multiplier_lr"),
        *("kl_weight", "screen_spread", "refine_lr", "refine_beta", "refine_epsilon"),
        *("refine_reach", "refine_clip"),
    )
    share = config.conservative_share
    common.require(0 < share <= 1, "conservative_share", "in (0, 1]", share)
    decay = config.curvature_decay
    common.require(0 <= decay < 1, "curvature_decay", "in [0, 1)", decay)
    candidates = min(config.refine_block, config.buffer_size) + 2 * config.refine_reach
    if config.refinement and config.refine_neighbours > candidates:
        raise ValueError(
            f"refine_neighbours {config.refine_neighbours} exceeds the {candidates} candidates "
            "of refine_block (within the replay) and refine_reach (--refine-neighbours)"
        )
    if config.refinement and config.refine_top > config.batch_size:
        raise ValueError(
            f"refine_top {config.refine_top} exceeds batch_size {config.batch_size}: "
            "only samples of the batch are refined (--refine-top)"
        )


# Eq. 1 and 2


class Assessment(NamedTuple):
    q: jax.Array  # (B,) Q_C
    u: jax.Array  # (B,) influence
    rank: jax.Array  # (B,) grows with u, also where u itself is rounded to 1
    curvature: tuple[Curvature, ...] | None


def learn_curvature(
    curvature: Curvature, gradients: jax.Array, config: SafetyCriticConfig
) -> Curvature:
    """The running curvature with a batch's gradients added."""
    return influence.curvature_update(
        curvature,
        gradients,
        decay=config.curvature_decay,
        damping=config.replay_damping,
        every=config.curvature_every,
        refresh=config.curvature_refresh,
    )


def assess(
    state: SafetyCriticState,
    obs: jax.Array,
    action: jax.Array,
    config: SafetyCriticConfig,
    learn: bool,
    passes: Passes | None = None,
) -> Assessment:
    """Eq. 1 for a batch of scaled observations; ``learn`` adds the batch to the curvature.

    ``passes`` are the members' forward passes, if they were made before (``see``).
    """
    x = networks.join(obs, action)

    def value(z: jax.Array) -> jax.Array:
        return joint_value(assessed_value(z, state.cost_bound, config), config)

    if passes is None:
        passes = see(state.safety, obs, action)
    # Each member's own gradient: that of their maximum would leave a member out for good.
    members, pull = jax.vjp(
        lambda z: assessed_value(z, state.cost_bound, config),
        jnp.stack([passed.raw for passed in passes]),
    )
    q = joint_value(members, config)
    if state.curvature is None:
        rest = influence.batch_remainder(state.safety, x, value, config.damping)
        return Assessment(q, (1.0 - rest).astype(jnp.float32), -rest, None)
    (top,) = pull(jnp.ones_like(members))
    curvatures, us = [], []
    for passed, slope, curvature in zip(passes, top, state.curvature, strict=True):
        gradients = influence.last_layer_gradients(passed.hidden[-1], slope)
        if learn:
            curvature = learn_curvature(curvature, gradients, config)
        curvatures.append(curvature)
        us.append(influence.curvature_influence(curvature, gradients))
    u = jnp.mean(jnp.stack(us), axis=0)
    return Assessment(q, u, u, tuple(curvatures))


# Losses


def see(members: Members, obs: jax.Array, action: jax.Array) -> Passes:
    """One pass of each member over the data's actions; influence, margin and gradient read it."""
    return tuple(networks.critic_pass(p, obs, action[:, None]).first() for p in members)


class Tried(NamedTuple):
    """Alternative actions in n states of the batch."""

    states: jax.Array  # (n,) places in the batch
    caution: jax.Array  # (n,) weights of their margins, whose mean stands for the batch's
    actions: jax.Array  # (n, m, A)
    uniform: jax.Array  # (members, n) to draw one of the m with


def try_actions(
    key_actions: jax.Array,
    key_draw: jax.Array,
    around: jax.Array,
    caution: jax.Array,
    config: SafetyCriticConfig,
) -> Tried:
    """Alternatives to the actions ``around`` (B, A), in ``conservative_share`` of the states."""
    number = max(1, round(config.conservative_share * len(around)))
    # one draw for both uses
    uniform = draws.uniform(key_draw, (config.safety_critics * number + 1,))
    states = jnp.arange(len(around))
    if number < len(around):
        states, caution = uncertain.draw_states(uniform[0], caution, number)
    actions = conservative.alternatives(
        key_actions,
        around[states],
        config.alternatives,
        config.alternatives_from,
        config.alternatives_spread,
    )
    return Tried(states, caution, actions, uniform[1:].reshape(-1, number))


def alternatives_margin(
    members: Members,
    obs: jax.Array,
    action: jax.Array,
    tried: Tried,
    bound: jax.Array,
    config: SafetyCriticConfig,
    passes: Passes | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Eq. 3, Q_C of the data (members, B) and the margins (members, n) of the states tried.

    ``passes`` are the members' passes over the data's actions, if they were made before (``see``).
    """
    form = config.conservative_form
    exact = config.conservative_gradient == "exact"
    if exact or passes is None:
        passes = see(members, obs, action)
    here = obs[tried.states]
    others = tuple(networks.critic_pass(params, here, tried.actions) for params in members)
    if not exact:
        passes, others = jax.lax.stop_gradient((passes, others))
    q = fitted_value(jnp.stack([passed.raw for passed in passes]), bound, config)
    mu, sigma = conservative.batch_scale(q, config.sigma_epsilon)

    def standard(q: jax.Array) -> jax.Array:
        return (q - mu) / sigma

    def of_data(q: jax.Array) -> jax.Array:
        z = standard(q)[:, tried.states]
        return z if config.push_data else jax.lax.stop_gradient(z)

    raw = jnp.stack([passed.raw for passed in others])
    z_alt = (fitted_value(raw, bound, config) - mu[..., None]) / sigma[..., None]
    top = jax.lax.stop_gradient(standard(q)).max(axis=-1, keepdims=True)
    if exact:
        return q, conservative.margin(of_data(q), z_alt, form, top)
    drawn = conservative.draw_alternative(tried.uniform, of_data(q), z_alt, form, top)
    # The gradient goes through the data's action of every state and the alternative drawn.
    each = jnp.arange(len(tried.states))
    values, drawn_values = [], []
    for params, passed, other, place in zip(members, passes, others, drawn.place, strict=True):
        inputs = (networks.join(obs, action), networks.join(here, tried.actions[each, place]))
        value, drawn_value = networks.recall(params, inputs, (passed, other.at(place)))
        values.append(value)
        drawn_values.append(drawn_value)
    q = fitted_value(jnp.stack(values), bound, config)
    z_drawn = standard(fitted_value(jnp.stack(drawn_values), bound, config))
    return q, conservative.sampled_margin(of_data(q), z_alt, z_drawn, drawn.slope, form, top)


def safety_loss(
    members: Members,
    obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    tried: Tried | None,
    bound: jax.Array,
    config: SafetyCriticConfig,
    passes: Passes | None = None,
) -> tuple[jax.Array, Metrics]:
    """Eq. 3, summed over the members; ``tried`` are the alternatives, None without that term."""
    if tried is None:
        q = fitted_value(networks.critics(members, obs, action), bound, config)
        value = bellman.loss(q, targets)
        metrics = {"safety/bellman_loss": value}
    else:
        q, margin = alternatives_margin(members, obs, action, tried, bound, config, passes)
        weight = config.conservative_weight
        value, metrics = uncertain.loss(q, targets, tried.caution, margin, weight)
        metrics["safety/margin"] = margin.mean()
    joint = joint_value(q, config)
    return value, metrics | {
        "safety/loss": value,
        "safety/q_mean": joint.mean(),
        "safety/q_std": joint.std(),
        "safety/target_mean": targets.mean(),
    }


def actor_loss(
    params: Params,
    old: Params,
    reward: Params,
    safety: Members,
    obs: jax.Array,
    sharp: jax.Array,
    lam: jax.Array,
    bound: jax.Array,
    config: SafetyCriticConfig,
) -> tuple[jax.Array, Metrics]:
    """Eq. 5: -Q_R + lam Q_C + weight KL, KL = |pi - pi_old|^2 / (2 sigma^2), mean over states.

    The old policy is the lagging target actor. ``rescale_actor_loss`` divides by 1 + lam.
    """
    action = networks.actor(params, obs)
    reward_part = networks.critic(reward, obs, action).mean()
    cost_part = q_cost(safety, sharp, action, bound, config).mean()
    distance = jnp.sum((action - networks.actor(old, obs)) ** 2, axis=-1)
    kl = distance.mean() / (2.0 * config.kl_sigma**2)
    value = -reward_part + lam * cost_part + config.kl_weight * kl
    if config.rescale_actor_loss:
        value = value / (1.0 + lam)
    return value, {
        "actor/loss": value,
        "actor/q_reward": reward_part,
        "actor/q_cost": cost_part,
        "actor/kl": kl,
    }


# Eq. 8-10


class Found(NamedTuple):
    rows: jax.Array  # (n, K) in the replay
    distance: jax.Array  # (n, K)
    valid: jax.Array  # (n, K) False where fewer than K rows could be used


def find_neighbours(
    near: Neighbourhood,
    rows: jax.Array,
    points: jax.Array,
    sharp: Callable[[jax.Array], jax.Array],
    config: SafetyCriticConfig,
) -> Found:
    """Eq. 8, the K nearest of the candidates to each of n ``rows``, which are ``points`` (n, D).

    Observations are compared as ``sharp`` makes them. The row itself is left out, no row counts
    twice, and with ``refine_confident`` the n uncertain rows are left out too.
    """
    around = replay.around(near, rows, config.refine_reach)
    block = replay.block(near, config.refine_block)

    def gaps(obs: jax.Array, action: jax.Array) -> jax.Array:
        return networks.join(sharp(obs), action) - points[:, None, :]

    near_by = jnp.sum(gaps(around.obs, around.action) ** 2, axis=-1)
    far = refinement.squared_distances(points, networks.join(sharp(block.obs), block.action))
    usable_around = around.index >= 0
    own = jnp.abs(block.index - rows[:, None]) <= config.refine_reach
    usable_block = (block.index >= 0) & ~own
    if config.refine_confident:
        usable_around &= ~(around.index[..., None] == rows).any(axis=-1)
        usable_block &= ~(block.index[:, None] == rows).any(axis=-1)
    squared = (jnp.where(usable_around, near_by, jnp.inf), jnp.where(usable_block, far, jnp.inf))
    place, valid = refinement.nearest(jnp.concatenate(squared, axis=-1), config.refine_neighbours)

    width = around.index.shape[1]
    found = near.start + place - width
    if width:
        mine = jnp.take_along_axis(around.index, jnp.minimum(place, width - 1), axis=-1)
        found = jnp.where(place < width, mine, found)
    found = jnp.where(valid, found, rows[:, None])
    kept = replay.transitions(near.store, found)
    distance = jnp.sqrt(jnp.sum(gaps(kept.obs, kept.action) ** 2, axis=-1))
    return Found(found, distance, valid)


def refine(
    state: SafetyCriticState,
    safety: Members,
    batch: Batch,
    obs: jax.Array,
    rank: jax.Array,
    config: SafetyCriticConfig,
) -> tuple[Members, Metrics]:
    """Eq. 8-10 for the ``refine_top`` most uncertain samples of the batch."""
    assert batch.neighbours is not None
    _, top = jax.lax.top_k(rank, config.refine_top)
    x = networks.join(obs[top], batch.action[top])
    found = find_neighbours(
        batch.neighbours, batch.index[top], x, lambda raw: sharpened(state, raw, config), config
    )

    rows = replay.transitions(batch.neighbours.store, found.rows.ravel())
    # One pass of the target critic, over the samples and the neighbours' next states.
    next_action = networks.actor(state.target_actor, scaled(state, rows.next_obs, config))
    z = networks.critics(
        state.target_safety,
        jnp.concatenate([obs[top], sharpened(state, rows.next_obs, config)]),
        jnp.concatenate([batch.action[top], next_action]),
    )
    z_old, z_next = z[:, : len(top)], z[:, len(top) :]
    q_old = fitted_value(z_old, state.cost_bound, config)
    known = rows.cost
    if config.refine_target == "bellman":
        discount = config.gamma * (1.0 - rows.terminated.astype(jnp.float32))
        known = bootstrapped(state, known, discount, z_next, config)
    known = known.reshape(found.rows.shape)
    target = refinement.interpolate(known, found.distance, found.valid)
    valid = found.valid.any(axis=-1).astype(jnp.float32)

    def predict(members: Members) -> jax.Array:
        z = networks.critics(members, obs[top], batch.action[top])
        return fitted_value(z, state.cost_bound, config)

    gradient, metrics = jax.grad(
        lambda members: refinement.loss(
            predict(members), q_old, target, valid, config.refine_beta, config.refine_epsilon
        ),
        has_aux=True,
    )(safety)
    metrics["refine/target_mean"] = target.mean()
    near_by = jnp.sum(jnp.where(found.valid, found.distance, 0.0))
    metrics["refine/distance"] = near_by / jnp.maximum(found.valid.sum(), 1)
    return refinement.step(safety, gradient, config.refine_lr, config.refine_clip), metrics


# Update


class Learned(NamedTuple):
    safety: Members
    safety_opt: Any
    curvature: tuple[Curvature, ...] | None
    rank: jax.Array | None  # (B,) order of uncertainty, None if the method does not use it
    key: jax.Array


def learn_safety(
    state: SafetyCriticState, batch: Batch, config: SafetyCriticConfig
) -> tuple[Learned, Metrics]:
    """Algorithm 1, lines 13-19: influence, caution and one step of the safety critic."""
    key, key_actions, key_draw = jax.random.split(state.key, 3)
    obs = sharpened(state, batch.obs, config)
    metrics: Metrics = {}

    passes = see(state.safety, obs, batch.action) if config.objective != "bellman" else None
    curvature, rank = state.curvature, None
    caution = jnp.ones(len(obs), jnp.float32)
    if config.uses_influence:
        assessed = assess(state, obs, batch.action, config, learn=True, passes=passes)
        curvature, rank = assessed.curvature, assessed.rank
        if config.objective == "uncertain":
            caution = uncertain.caution(assessed.u, assessed.q)
        low, high = jnp.quantile(assessed.u, jnp.array([0.05, 0.95], jnp.float32))
        metrics |= {
            "influence/mean": assessed.u.mean(),
            "influence/low": low,
            "influence/high": high,
            "safety/caution": caution.mean(),
        }

    tried = None
    if config.objective != "bellman":
        around = batch.action
        if config.alternatives_from == "policy":
            around = networks.actor(state.actor, scaled(state, batch.obs, config))
        tried = try_actions(key_actions, key_draw, around, caution, config)

    targets = batch_targets(state, batch, config)
    safety, opt, loss_metrics = safety_step(
        state, obs, batch.action, targets, tried, config, passes
    )
    return Learned(safety, opt, curvature, rank, key), metrics | loss_metrics


def update(
    state: SafetyCriticState, batch: Batch, config: SafetyCriticConfig
) -> tuple[SafetyCriticState, Metrics]:
    """Algorithm 1, lines 13-31: one step of both critics, actor, refinement and targets."""
    obs = scaled(state, batch.obs, config)
    learned, metrics = learn_safety(state, batch, config)
    safety = learned.safety

    reward, reward_opt, reward_metrics = reward_step(state, batch, config)
    metrics |= reward_metrics

    sharp = sharpened(state, batch.obs, config)
    actor, actor_opt, actor_metrics = actor_step(state, reward, safety, obs, sharp, config)
    metrics |= actor_metrics | {"dual/multiplier": state.multiplier}

    if config.refinement:
        assert learned.rank is not None
        safety, refine_metrics = refine(state, safety, batch, sharp, learned.rank, config)
        metrics |= refine_metrics

    state = state._replace(
        actor=actor,
        reward=reward,
        safety=safety,
        actor_opt=actor_opt,
        reward_opt=reward_opt,
        safety_opt=learned.safety_opt,
        curvature=learned.curvature,
        key=learned.key,
    )
    return cost_critic.follow(state, config), metrics


def safety_step(
    state: SafetyCriticState,
    obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    tried: Tried | None,
    config: SafetyCriticConfig,
    passes: Passes | None = None,
) -> tuple[Members, Any, Metrics]:
    """Eq. 4: one step of Adam on the safety critic's loss."""
    bound = state.cost_bound
    gradient, metrics = jax.grad(safety_loss, has_aux=True)(
        state.safety, obs, action, targets, tried, bound, config, passes
    )
    safety, opt = common.adam_step(state.safety, gradient, state.safety_opt, config.safety_lr)
    return safety, opt, metrics


def actor_step(
    state: SafetyCriticState,
    reward: Params,
    safety: Members,
    obs: jax.Array,
    sharp: jax.Array,
    config: SafetyCriticConfig,
) -> tuple[Params, Any, Metrics]:
    """Eq. 6: one step of Adam on the actor's loss, with the critics just updated."""
    gradient, metrics = jax.grad(actor_loss, has_aux=True)(
        state.actor,
        state.target_actor,
        reward,
        safety,
        obs,
        sharp,
        state.multiplier,
        state.cost_bound,
        config,
    )
    actor, opt = common.adam_step(state.actor, gradient, state.actor_opt, config.actor_lr)
    return actor, opt, metrics


def end_episode(
    state: SafetyCriticState, episode_cost: jax.Array, config: SafetyCriticConfig
) -> tuple[SafetyCriticState, Metrics]:
    """The multiplier's step (Eq. 7) with the episode's undiscounted cost; resets the noise."""
    lam = duals.gradient_step(
        state.multiplier, episode_cost, config.cost_limit, config.multiplier_lr
    )
    state = state._replace(multiplier=lam, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


# Init and act


def init(key: jax.Array, spec: EnvSpec, config: SafetyCriticConfig) -> SafetyCriticState:
    bound = cost_critic.cost_bound(spec, config)
    key, key_actor, key_reward, key_safety = jax.random.split(key, 4)
    joint = (spec.obs_dim + spec.action_dim, *config.hidden, 1)
    actor = networks.init(key_actor, (spec.obs_dim, *config.hidden, spec.action_dim))
    reward = networks.init(key_reward, joint)
    safety = networks.init_members(key_safety, joint, config.safety_critics)
    curvature = None
    if config.uses_influence and config.reference == "replay":
        curvature = tuple(
            influence.curvature_init(config.hidden[-1]) for _ in range(config.safety_critics)
        )
    # Copies: a buffer may not be handed over twice to a compiled step that reuses it.
    return SafetyCriticState(
        actor=actor,
        reward=reward,
        safety=safety,
        target_actor=jax.tree.map(jnp.copy, actor),
        target_reward=jax.tree.map(jnp.copy, reward),
        target_safety=jax.tree.map(jnp.copy, safety),
        actor_opt=optax.adam(config.actor_lr).init(actor),
        reward_opt=optax.adam(config.critic_lr).init(reward),
        safety_opt=optax.adam(config.safety_lr).init(safety),
        multiplier=jnp.asarray(config.multiplier_init, jnp.float32),
        curvature=curvature,
        cost_bound=jnp.asarray(bound, jnp.float32),
        scaler=common.scaler_init(spec),
        noise=jnp.zeros(spec.action_dim, jnp.float32),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def act(
    state: SafetyCriticState, obs: jax.Array, config: SafetyCriticConfig, explore: bool
) -> tuple[jax.Array, dict[str, jax.Array], Metrics]:
    """The action (A,) for one observation, and the parts of the state that acting changes."""
    key, key_noise, key_screen = jax.random.split(state.key, 3)
    sharp = sharpened(state, obs, config)
    action = networks.actor(state.actor, scaled(state, obs, config)[None])[0]
    noise = state.noise
    if explore:
        noise = ornstein_uhlenbeck(noise, key_noise, config.noise_sigma, config.noise_theta)
        action = jnp.clip(action + noise, -1.0, 1.0)

    def cost_of(actions: jax.Array) -> jax.Array:
        here = jnp.broadcast_to(sharp, (len(actions), len(sharp)))
        return q_cost(state.safety, here, actions, state.cost_bound, config)

    chosen = screening.screen(
        key_screen,
        action,
        cost_of,
        tolerance=config.tolerance if config.screen else float("inf"),
        number=config.screen_candidates,
        source=config.screen_from,
        spread=config.screen_spread,
    )
    info = {"q_cost": chosen.q_cost, "screened": chosen.screened, "changed": chosen.changed}
    return chosen.action, {"key": key, "noise": noise}, info


def observe(state: SafetyCriticState, obs: jax.Array) -> SafetyCriticState:
    return state._replace(scaler=common.scaler_update(state.scaler, obs))


def values(
    state: SafetyCriticState, obs: jax.Array, action: jax.Array, config: SafetyCriticConfig
) -> Metrics:
    """Q_R, Q_C and, if the method uses it, the influence of observations (N, O), actions (N, A).

    With the reference "batch" the N rows themselves are the batch of Eq. 1.
    """
    sharp = sharpened(state, obs, config)
    found = {
        "q_reward": networks.critic(state.reward, scaled(state, obs, config), action),
        "q_cost": q_cost(state.safety, sharp, action, state.cost_bound, config),
    }
    if config.uses_influence:
        found["influence"] = assess(state, sharp, action, config, learn=False).u
    return found


def policy(state: SafetyCriticState, obs: jax.Array, config: SafetyCriticConfig) -> jax.Array:
    """The actor's actions (N, A), without noise or screen."""
    return networks.actor(state.actor, scaled(state, obs, config))
