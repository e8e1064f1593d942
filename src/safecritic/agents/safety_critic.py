"""Actor-critic with a safety critic: SC, CSC, USC (NR) and USC are this agent with other parts.

Paper: Bethell, Gerasimou, Calinescu, Imrie, "Safe But Not Sorry: Reducing Over-Conservatism in
Safety Critics via Uncertainty-Aware Modulation", AAMAS 2026. One update, in the order of its
Algorithm 1, and the part of the settings that switches it on:

    influence u of every sample (Eq. 1) and its caution (Eq. 2)          influence
    safety critic: Bellman + weight x caution x margin (Eq. 3, 4)        margin: conservative
    reward critic: as in DDPG
    actor: -Q_R + multiplier Q_C + KL to the target actor (Eq. 5, 6)
    refinement of the most uncertain samples (Eq. 8-10)                  refinement
    multiplier, once per episode (Eq. 7)
    screening of actions while acting (Algorithm 1)                      screen

`tests/reference/usc_plain.py` is the same update written once more without parts or fast paths;
where this file calls `safecritic.fast`, the result is the same or has the same expectation.

Deviations from the paper, each a setting whose paper value is in the table of methods: the
conservative term is mirrored and hinged (`conservative_form`), its weight is larger, and it is
estimated from half of the states, drawn by their caution (`conservative_share`); the curvature of
Eq. 1 comes from the replay buffer (`reference`); the old policy of the KL term is the target actor,
the old prediction of Eq. 9 the target safety critic, because against the parameters of one step ago
both gradients vanish; refined samples are drawn to n-step targets (`refine_target`); observations
are scaled and sharpened, reward and cost counted in measured units, Q_C cannot be
negative (`safety_output`); the multiplier moves in relative terms and starts low; the screen's
tolerance is what is left of the budget, and it takes the best Q_R within it (`docs/scales.md`).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic import networks, replay
from safecritic.agents import cost_critic, ddpg, scaling
from safecritic.agents.cost_critic import (
    CostCriticSettings,
    actor_inputs,
    aggregate_q,
    batch_targets,
    bootstrapped,
    critic_inputs,
    influence_q,
    q_cost,
    regression_q,
)
from safecritic.agents.ddpg import observe, policy, q_reward, reward_step
from safecritic.agents.interface import Carry, EnvSpec, Metrics
from safecritic.agents.scaling import Scaler, Units
from safecritic.agents.settings import require_not_negative, require_positive
from safecritic.critics import bellman, conservative, influence, refinement, screening
from safecritic.critics.conservative import Conservative
from safecritic.critics.influence import Curvature, Influence
from safecritic.critics.multiplier import (
    Constraint,
    MultiplierSettings,
    constraint_init,
    multiplier_step,
    near_limit,
)
from safecritic.critics.refinement import Refinement
from safecritic.critics.screening import Screen
from safecritic.fast import draws, estimators
from safecritic.fast.activations import Passes, forward_actions, forward_members, raw_values
from safecritic.fast.neighbours import Neighbours, find_neighbours
from safecritic.networks import Members, Params
from safecritic.noise import ornstein_uhlenbeck
from safecritic.replay import Batch

__all__ = ["act", "end_episode", "init", "observe", "policy", "update", "values"]


@dataclass(frozen=True, kw_only=True)
class SafetyCriticSettings(CostCriticSettings, MultiplierSettings):
    """Settings of the safety critics; the paper's value stands where ours differs."""

    TITLE: ClassVar[str] = "safety critic"

    kl_weight: float = 1e-3  # weight of the distance to the lagging actor; paper: 1e-6, its delta
    kl_sigma: float = 0.2  # spread of both policies in that distance
    rescale_actor_loss: bool = False  # divide the actor's loss by 1 + multiplier

    conservative: Conservative | None = None
    influence: Influence | None = None
    refinement: Refinement | None = None
    screen: Screen | None = None

    @property
    def neighbour_block(self) -> int:
        return 0 if self.refinement is None else self.refinement.refine_block

    def check(self) -> None:
        super().check()
        require_positive(self, "kl_sigma")
        require_not_negative(self, "kl_weight")
        if self.refinement is None:
            return
        if self.influence is None:
            raise ValueError(
                "refinement needs the influence, which says what is uncertain: "
                "switch both off or neither (--no-influence, --no-refinement)"
            )
        neighbours, top = self.refinement.refine_neighbours, self.refinement.refine_top
        block = min(self.refinement.refine_block, self.buffer_size)
        candidates = block + 2 * self.refinement.refine_reach
        if neighbours > candidates:
            raise ValueError(
                f"refine_neighbours {neighbours} exceeds the {candidates} candidates "
                "of refine_block (within the buffer) and refine_reach (--refine-neighbours)"
            )
        if top > self.batch_size:
            raise ValueError(
                f"refine_top {top} exceeds batch_size {self.batch_size}: "
                "only samples of the batch are refined (--refine-top)"
            )


class SafetyCriticState(NamedTuple):
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
    past: Constraint
    curvature: tuple[Curvature, ...] | None  # of each member, only for the reference "replay"
    norms: jax.Array | None  # (2,) of the gradients of Eq. 3's terms, only for a weight in them
    cost_bound: jax.Array  # c_max / (1 - gamma), or NO_BOUND
    scaler: Scaler
    units: Units
    noise: jax.Array
    key: jax.Array
    step: jax.Array


# Eq. 1: influence


class BatchInfluence(NamedTuple):
    q: jax.Array  # (B,) Q_C
    u: jax.Array  # (B,) influence
    rank: jax.Array  # (B,) grows with u, also where u itself is rounded to 1
    curvature: tuple[Curvature, ...] | None


def batch_influence(
    state: SafetyCriticState,
    critic_obs: jax.Array,
    action: jax.Array,
    passes: Passes,
    config: SafetyCriticSettings,
    learn: bool,
) -> BatchInfluence:
    """Eq. 1 for a batch; `learn` adds it to the running curvature of the reference "replay".

    `passes` are the members' passes over the batch (`forward_members`).
    """
    assert config.influence is not None
    # Each member's own gradient: that of their maximum would leave a member out for good.
    q, pull = jax.vjp(lambda z: influence_q(z, state.cost_bound, config), raw_values(passes))
    (slopes,) = pull(jnp.ones_like(q))
    if state.curvature is None:
        remainder = influence.batch_remainder(
            state.safety,
            networks.join(critic_obs, action),
            lambda z: aggregate_q(influence_q(z, state.cost_bound, config), config),
            config.influence.damping,
        )
        u = (1.0 - remainder).astype(jnp.float32)
        return BatchInfluence(aggregate_q(q, config), u, -remainder, None)
    curvatures, us = [], []
    for one, slope, curvature in zip(passes, slopes, state.curvature, strict=True):
        gradients = influence.last_layer_gradients(one.hidden[-1], slope)
        if learn:
            curvature = influence.curvature_update(curvature, gradients, config.influence)
        curvatures.append(curvature)
        us.append(influence.curvature_influence(curvature, gradients))
    u = jnp.mean(jnp.stack(us), axis=0)
    return BatchInfluence(aggregate_q(q, config), u, u, tuple(curvatures))


# Eq. 3 and 4: the safety critic


class Alternatives(NamedTuple):
    """Alternative actions in n states of the batch."""

    states: jax.Array  # (n,) places in the batch
    caution: jax.Array  # (n,) weights of their margins, whose mean stands for the batch's
    actions: jax.Array  # (n, m, A)
    uniform: jax.Array  # (members, n) to draw one of the m with


def sample_alternatives(
    key_actions: jax.Array,
    key_draw: jax.Array,
    policy_action: jax.Array,
    caution: jax.Array,
    config: SafetyCriticSettings,
) -> Alternatives:
    """Draw alternatives to actions (B, A), in all states or in `conservative_share` of them."""
    part = config.conservative
    assert part is not None
    number = max(1, round(part.conservative_share * len(policy_action)))
    # one draw for both uses
    uniform = draws.uniform(key_draw, (config.safety_critics * number + 1,))
    states = jnp.arange(len(policy_action))
    if number < len(policy_action):
        states, caution = estimators.draw_states(uniform[0], caution, number)
    actions = conservative.sample_actions(
        key_actions,
        policy_action[states],
        part.alternatives,
        part.alternatives_from,
        part.alternatives_spread,
    )
    return Alternatives(states, caution, actions, uniform[1:].reshape(-1, number))


def alternatives_margin(
    members: Members,
    critic_obs: jax.Array,
    action: jax.Array,
    alternatives: Alternatives,
    bound: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[jax.Array, jax.Array]:
    """Eq. 3, Q_C of the data (members, B) and the margins (members, n) of the states."""
    part = config.conservative
    assert part is not None
    states, actions = alternatives.states, alternatives.actions
    q = regression_q(raw_values(forward_members(members, critic_obs, action)), bound, config)
    others = tuple(forward_actions(params, critic_obs[states], actions) for params in members)
    q_alt = regression_q(raw_values(others), bound, config)
    mu, sigma = conservative.batch_scale(q, part.sigma_epsilon)
    z_data, z_alt = (q - mu) / sigma, (q_alt - mu[..., None]) / sigma[..., None]
    z_top = jax.lax.stop_gradient(z_data).max(axis=-1, keepdims=True)
    z_data = z_data[:, states] if part.push_data else jax.lax.stop_gradient(z_data)[:, states]
    return q, conservative.margin(z_data, z_alt, part.conservative_form, z_top)


def safety_loss(
    members: Members,
    critic_obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    alternatives: Alternatives | None,
    passes: Passes | None,
    bound: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[jax.Array, Metrics]:
    """Eq. 3, summed over the members; without `alternatives` its first term alone.

    `passes`, the members' passes over the batch, serve the sampled gradient.
    """
    if alternatives is None or config.conservative is None:
        q = regression_q(networks.critics(members, critic_obs, action), bound, config)
        value = bellman.loss(q, targets)
        metrics = {"safety/bellman_loss": value}
    else:
        batch = (members, critic_obs, action, alternatives, bound, config)
        exact = config.conservative.conservative_gradient == "exact"
        if exact or passes is None or config.layer_norm == "all":
            q, margin = alternatives_margin(*batch)
        else:
            q, margin = estimators.alternatives_margin(*batch, passes)
        by_gradient = config.conservative.conservative_weight_in == "gradient"
        weight = 1.0 if by_gradient else config.conservative.conservative_weight
        value, metrics = conservative.loss(q, targets, alternatives.caution, margin, weight)
        metrics["safety/margin"] = margin.mean()
    joint = aggregate_q(q, config)
    return value, metrics | {
        "safety/loss": value,
        "safety/q_mean": joint.mean(),
        "safety/q_std": joint.std(),
        "safety/target_mean": targets.mean(),
    }


def safety_step(
    state: SafetyCriticState,
    critic_obs: jax.Array,
    action: jax.Array,
    targets: jax.Array,
    alternatives: Alternatives | None,
    passes: Passes | None,
    config: SafetyCriticSettings,
) -> tuple[Members, Any, jax.Array | None, Metrics]:
    """Eq. 4: one step of Adam on the safety critic's loss."""
    batch = (critic_obs, action, targets, alternatives, passes, state.cost_bound, config)
    part, norms = config.conservative, state.norms
    if part is None or norms is None or alternatives is None:
        gradient, metrics = jax.grad(safety_loss, has_aux=True)(state.safety, *batch)
    else:

        def term(name: str) -> tuple[Members, Metrics]:
            def value(members: Members) -> tuple[jax.Array, Metrics]:
                metrics = safety_loss(members, *batch)[1]
                return metrics[name], metrics

            return jax.grad(value, has_aux=True)(state.safety)

        bellman_gradient, metrics = term("safety/bellman_loss")
        gradient, _ = term("safety/conservative_loss")
        share = part.conservative_weight
        gradient, norms, taken = conservative.combine(bellman_gradient, gradient, norms, share)
        metrics["safety/conservative_share"] = taken
    safety, opt = networks.adam_step(state.safety, gradient, state.safety_opt, config.safety_lr)
    return safety, opt, norms, metrics


class SafetyTerms(NamedTuple):
    """What the safety critic's loss on a batch is made of."""

    targets: jax.Array  # (B,)
    alternatives: Alternatives | None
    passes: Passes | None  # of the members over the batch
    influence: BatchInfluence | None
    key: jax.Array


class SafetyUpdate(NamedTuple):
    """What the safety critic's step changes, and the order of uncertainty it used."""

    safety: Members
    safety_opt: Any
    curvature: tuple[Curvature, ...] | None
    norms: jax.Array | None
    rank: jax.Array | None  # (B,), None if the method has no influence
    key: jax.Array


def safety_terms(
    state: SafetyCriticState, batch: Batch, critic_obs: jax.Array, config: SafetyCriticSettings
) -> tuple[SafetyTerms, Metrics]:
    """Return influence, alternatives with their caution, and targets of a batch."""
    key, key_actions, key_draw = jax.random.split(state.key, 3)
    metrics: Metrics = {}

    passes = None
    if config.conservative is not None or config.influence is not None:
        passes = forward_members(state.safety, critic_obs, batch.action)
    targets = batch_targets(state, batch, state.cost_bound, config)
    uncertain = None
    caution = jnp.ones(len(critic_obs), jnp.float32)
    if config.influence is not None and passes is not None:
        uncertain = batch_influence(state, critic_obs, batch.action, passes, config, learn=True)
        doubt = uncertain.u
        if config.influence.caution_from != "influence":
            members = regression_q(raw_values(passes), state.cost_bound, config)
            chance = draws.uniform(jax.random.fold_in(key_draw, 1), (len(critic_obs),))
            doubt = influence.other_doubt(members, targets, chance, config.influence.caution_from)
        caution = influence.caution(doubt, uncertain.q, config.influence.caution_indicator)
        low, high = jnp.quantile(uncertain.u, jnp.array([0.05, 0.95], jnp.float32))
        metrics |= {
            "influence/mean": uncertain.u.mean(),
            "influence/low": low,
            "influence/high": high,
            "safety/caution": caution.mean(),
        }

    alternatives = None
    if config.conservative is not None:
        policy_action = batch.action
        if config.conservative.alternatives_from == "policy":
            policy_action = networks.actor(state.actor, actor_inputs(state, batch.obs, config))
        alternatives = sample_alternatives(key_actions, key_draw, policy_action, caution, config)

    return SafetyTerms(targets, alternatives, passes, uncertain, key), metrics


def update_safety(
    state: SafetyCriticState, batch: Batch, critic_obs: jax.Array, config: SafetyCriticSettings
) -> tuple[SafetyUpdate, Metrics]:
    """Algorithm 1, lines 13-19: influence, caution and one step of the safety critic."""
    terms, metrics = safety_terms(state, batch, critic_obs, config)
    safety, opt, norms, step_metrics = safety_step(
        state, critic_obs, batch.action, terms.targets, terms.alternatives, terms.passes, config
    )
    curvature, rank = state.curvature, None
    if terms.influence is not None:
        curvature, rank = terms.influence.curvature, terms.influence.rank
    return SafetyUpdate(safety, opt, curvature, norms, rank, terms.key), metrics | step_metrics


# Eq. 5 and 6: the actor


def actor_loss(
    params: Params,
    old: Params,
    reward: Members,
    safety: Members,
    obs: jax.Array,
    critic_obs: jax.Array,
    lam: jax.Array,
    bound: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[jax.Array, Metrics]:
    """Eq. 5: -Q_R + lam Q_C + weight KL, KL = |pi - pi_old|^2 / (2 sigma^2), mean over states.

    The old policy is the lagging target actor. `rescale_actor_loss` divides by 1 + lam.
    """
    action = networks.actor(params, obs)
    reward_part = q_reward(reward, obs, action).mean()
    cost_part = q_cost(safety, critic_obs, action, bound, config).mean()
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


def actor_step(
    state: SafetyCriticState,
    reward: Members,
    safety: Members,
    obs: jax.Array,
    critic_obs: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[Params, Any, Metrics]:
    """Eq. 6: one step of Adam on the actor's loss, with the critics just updated."""
    scales = (state.multiplier, state.cost_bound)
    arguments = (state.target_actor, reward, safety, obs, critic_obs, *scales, config)
    return ddpg.actor_step(state, actor_loss, arguments, obs, config)


# Eq. 7: the multiplier


def end_episode(
    state: SafetyCriticState,
    episode_cost: jax.Array,
    decisions: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[SafetyCriticState, Metrics]:
    """Step the multiplier (Eq. 7) with the episode's undiscounted cost, and reset the noise."""
    lam, past = multiplier_step(state.multiplier, state.past, episode_cost, decisions, config)
    state = state._replace(multiplier=lam, past=past, noise=jnp.zeros_like(state.noise))
    return state, {"dual/multiplier": lam}


# Eq. 8-10: refinement


class Refined(NamedTuple):
    """The n samples to refine, and what their neighbours say of them (Eq. 8)."""

    top: jax.Array  # (n,) places in the batch
    q_old: jax.Array  # (members, n) of the target critic
    target: jax.Array  # (n,)
    valid: jax.Array  # (n,) 1 where there is a neighbour
    neighbours: Neighbours


def refinement_targets(
    state: SafetyCriticState,
    batch: Batch,
    critic_obs: jax.Array,
    rank: jax.Array,
    cost_size: jax.Array,
    config: SafetyCriticSettings,
) -> Refined:
    """Eq. 8 for the `refine_top` most uncertain samples of the batch."""
    part = config.refinement
    assert part is not None
    assert batch.neighbours is not None
    _, top = jax.lax.top_k(rank, part.refine_top)
    obs, action = critic_obs[top], batch.action[top]
    neighbours = find_neighbours(
        batch.neighbours,
        batch.index[top],
        networks.join(obs, action),
        lambda raw: critic_inputs(state, raw, config),
        part,
    )

    rows = neighbours.rows
    steps = config.safety_n_step if part.refine_target == "n-step" else 1
    store = batch.neighbours.store
    ahead = replay.n_step(store, rows.ravel(), steps, config.gamma, "cost")
    # One pass of the target critic, over the samples and the states that followed.
    next_action = networks.actor(state.target_actor, actor_inputs(state, ahead.next_obs, config))
    z = networks.critics(
        state.target_safety,
        jnp.concatenate([obs, critic_inputs(state, ahead.next_obs, config)]),
        jnp.concatenate([action, next_action]),
    )
    z_old, z_next = z[:, : len(top)], z[:, len(top) :]
    q_old = regression_q(z_old, state.cost_bound, config)
    value = ahead.total / cost_size
    if part.refine_target != "cost":
        value = bootstrapped(value, ahead.discount, z_next, state.cost_bound, config)
    value = value.reshape(rows.shape)
    others = refinement.interpolate(value, neighbours.distance, neighbours.valid)
    # the target of Eq. 3, which the same update has computed already
    own = batch_targets(state, batch, state.cost_bound, config)[top]
    target = part.refine_own * own + (1.0 - part.refine_own) * others
    valid = neighbours.valid.any(axis=-1).astype(jnp.float32)
    return Refined(top, q_old, target, valid, neighbours)


def refine(
    state: SafetyCriticState,
    safety: Members,
    batch: Batch,
    critic_obs: jax.Array,
    rank: jax.Array,
    cost_size: jax.Array,
    config: SafetyCriticSettings,
) -> tuple[Members, Metrics]:
    """Eq. 8-10 for the `refine_top` most uncertain samples of the batch."""
    part = config.refinement
    assert part is not None
    top, q_old, target, valid, neighbours = refinement_targets(
        state, batch, critic_obs, rank, cost_size, config
    )
    obs, action = critic_obs[top], batch.action[top]

    def loss(members: Members) -> tuple[jax.Array, Metrics]:
        q = regression_q(networks.critics(members, obs, action), state.cost_bound, config)
        return refinement.loss(q, q_old, target, valid, part.refine_beta, part.refine_epsilon)

    gradient, metrics = jax.grad(loss, has_aux=True)(safety)
    metrics["refine/target_mean"] = target.mean()
    total = jnp.sum(jnp.where(neighbours.valid, neighbours.distance, 0.0))
    metrics["refine/distance"] = total / jnp.maximum(neighbours.valid.sum(), 1)
    safety, metrics["refine/clipped"] = refinement.step(
        safety, gradient, part.refine_lr, part.refine_clip
    )
    return safety, metrics


# Algorithm 1


def update(
    state: SafetyCriticState, batch: Batch, config: SafetyCriticSettings
) -> tuple[SafetyCriticState, Metrics]:
    """Algorithm 1, lines 13-31: one step of both critics, actor, refinement and targets."""
    sizes = scaling.unit_sizes(state.units, config)
    task_bound = state.cost_bound
    batch = scaling.in_units(batch, sizes)
    state = state._replace(cost_bound=task_bound / sizes.cost)
    obs = actor_inputs(state, batch.obs, config)
    critic_obs = critic_inputs(state, batch.obs, config)
    new, metrics = update_safety(state, batch, critic_obs, config)
    safety = new.safety

    reward, reward_opt, reward_metrics = reward_step(state, batch, config)
    metrics |= reward_metrics

    actor, actor_opt, actor_metrics = actor_step(state, reward, safety, obs, critic_obs, config)
    metrics |= actor_metrics | {"dual/multiplier": state.multiplier}

    if config.refinement is not None and new.rank is not None:
        safety, refine_metrics = refine(
            state, safety, batch, critic_obs, new.rank, sizes.cost, config
        )
        metrics |= refine_metrics

    state = state._replace(
        actor=actor,
        reward=reward,
        safety=safety,
        actor_opt=actor_opt,
        reward_opt=reward_opt,
        safety_opt=new.safety_opt,
        curvature=new.curvature,
        norms=new.norms,
        cost_bound=task_bound,
        key=new.key,
    )
    return cost_critic.update_targets(state, config), scaling.in_task_units(metrics, sizes)


def act(
    state: SafetyCriticState,
    obs: jax.Array,
    spent: jax.Array,
    config: SafetyCriticSettings,
    explore: bool,
) -> tuple[jax.Array, Carry, Metrics]:
    """Return the screened action (A,) for one observation, and what acting changes.

    `spent` is the cost of the episode so far.
    """
    key, key_noise, key_screen = jax.random.split(state.key, 3)
    critic_obs = critic_inputs(state, obs, config)
    action = policy(state, obs[None], config, explore)[0]
    noise = state.noise
    if explore:
        noise = ornstein_uhlenbeck(noise, key_noise, ddpg.spread(state, config), config.noise_theta)
        action = jnp.clip(action + noise, -1.0, 1.0)

    size = scaling.unit_sizes(state.units, config).cost

    def cost_of(actions: jax.Array) -> jax.Array:
        here = jnp.broadcast_to(critic_obs, (len(actions), len(critic_obs)))
        return q_cost(state.safety, here, actions, state.cost_bound / size, config)

    def reward_of(actions: jax.Array) -> jax.Array:
        here = actor_inputs(state, obs, config)
        return q_reward(state.reward, jnp.broadcast_to(here, (len(actions), len(here))), actions)

    tolerance = screen_tolerance(state, spent, size, config, explore)
    # Before a task is learned nothing is within, and a critic that knows little would do all the
    # acting; a learned policy without noise may push for good against what it cannot move.
    lost = ~near_limit(state.past, config.cost_limit)
    price = state.multiplier if explore else jnp.maximum(state.multiplier, 1.0)
    if config.screen is not None:
        price *= config.screen.training_price if explore else config.screen.screen_price
    chosen = screening.screen(
        *(key_screen, action, cost_of, reward_of, config.screen, tolerance, price),
        keep=lost & explore,
    )
    info = {"q_cost": size * chosen.q_cost, "screened": chosen.screened, "changed": chosen.changed}
    assert chosen.q_proposed is not None
    info |= {"proposed": action, "q_proposed": size * chosen.q_proposed}
    return chosen.action, {"key": key, "noise": noise}, info


def screen_tolerance(
    state: SafetyCriticState,
    spent: jax.Array,
    size: jax.Array,
    config: SafetyCriticSettings,
    explore: bool,
) -> jax.Array:
    """Return the screen's tolerance in the agent's units of cost, of which one has `size`.

    Deployed, with `explore` false, it may be another than in training. Before the first cost there
    is no unit, and nothing to screen for.
    """
    if config.screen is None:
        return jnp.asarray(jnp.inf, jnp.float32)
    part = config.screen
    share, least = part.tolerance, part.tolerance_least
    if explore:
        share, least = part.training_tolerance, part.training_least
    tolerance = share / size
    if part.tolerance_in == "budget":
        left = jnp.maximum(config.cost_limit - spent, 0.0) / size
        tolerance = jnp.maximum(share * left, least)
    unknown = (config.units == "measured") & (state.units.cost.size == 0)
    return jnp.where(unknown, jnp.inf, tolerance).astype(jnp.float32)


# The rest of an agent


def init(key: jax.Array, spec: EnvSpec, config: SafetyCriticSettings) -> SafetyCriticState:
    """Return the first state: networks, optimisers, multiplier, curvature and scales."""
    bound = cost_critic.cost_bound(spec, config)
    key, key_actor, key_reward, key_safety = jax.random.split(key, 4)
    size = scaling.input_size(spec, config)
    joint = (size + spec.action_dim, *config.hidden, 1)
    actor = networks.init(key_actor, (size, *config.hidden, spec.action_dim))
    reward = ddpg.init_reward(key_reward, joint, config)
    safety = cost_critic.init_members(key_safety, joint, config)
    curvature = None
    if config.influence is not None and config.influence.reference == "replay":
        width = config.hidden[-1]
        curvature = tuple(influence.curvature_init(width) for _ in range(config.safety_critics))
    part, norms = config.conservative, None
    if part is not None and part.conservative_weight_in == "gradient":
        norms = jnp.zeros(2, jnp.float32)
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
        past=constraint_init(),
        curvature=curvature,
        norms=norms,
        cost_bound=jnp.asarray(bound, jnp.float32),
        scaler=scaling.scaler_init(spec, config),
        units=scaling.units_init(),
        noise=jnp.zeros(spec.action_dim, jnp.float32),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def values(
    state: SafetyCriticState, obs: jax.Array, action: jax.Array, config: SafetyCriticSettings
) -> Metrics:
    """Return Q_R and Q_C in the task's units and, if the method has it, the influence.

    With the reference "batch" the N rows themselves are the batch of Eq. 1.
    """
    critic_obs = critic_inputs(state, obs, config)
    sizes = scaling.unit_sizes(state.units, config)
    state = state._replace(cost_bound=state.cost_bound / sizes.cost)
    reward_q = q_reward(state.reward, actor_inputs(state, obs, config), action)
    predictions = {
        "q_reward": sizes.reward * reward_q,
        "q_cost": sizes.cost * q_cost(state.safety, critic_obs, action, state.cost_bound, config),
    }
    if config.influence is not None:
        passes = forward_members(state.safety, critic_obs, action)
        predictions["influence"] = batch_influence(
            state, critic_obs, action, passes, config, learn=False
        ).u
    return predictions
