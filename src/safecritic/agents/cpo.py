"""Constrained policy optimisation (Achiam, Held, Tamar, Abbeel, 2017): on-policy, a trust region.

    rollouts    of the present Gaussian policy, in several environments
    advantages  of reward and cost by GAE, from two value networks
    policy      the constrained step (`trust_region.py`) and its line search
    values      regression on the GAE returns, a few epochs of Adam

The constraint. Its paper bounds the discounted cost: J_C + E[A_C] / (1 - gamma) <= d, the factor
being the discounted number of steps. A budget here is the *undiscounted* cost of an episode, so the
number of steps is the mean length T of an episode: C + T E[A_C] <= cost_limit, C the mean cost of
the episodes that ended in the rollout. Divided by T, c = (C - cost_limit) / T and b = grad E[A_C].

Deviations from its paper: that scaling, as in its authors' later code; value networks instead of
linear features; observations scaled by their running mean and std.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from safecritic.agents.settings import CPOSettings
from safecritic.core import bellman, networks, scaling, trust_region
from safecritic.core.interface import Carry, EnvSpec, Metrics
from safecritic.core.networks import Params
from safecritic.core.scaling import Scaler, Units
from safecritic.core.trust_region import Trial

CG_ITERATIONS = 10  # of conjugate gradients
CG_DAMPING = 0.1  # added to the Fisher matrix
BACKTRACK = 0.8  # factor by which the line search shrinks a step
LINE_SEARCH_STEPS = 10  # tries before no step is taken


class Policy(NamedTuple):
    mean: Params
    log_std: jax.Array  # (A,)


class CPOState(NamedTuple):
    policy: Policy
    reward: Params
    cost: Params
    reward_opt: Any
    cost_opt: Any
    scaler: Scaler
    units: Units
    key: jax.Array
    step: jax.Array


class Rollout(NamedTuple):
    """E environments, S steps each; the action is the one drawn, before the clip to the box."""

    obs: jax.Array  # (E, S, O)
    action: jax.Array  # (E, S, A)
    reward: jax.Array  # (E, S)
    cost: jax.Array
    next_obs: jax.Array  # (E, S, O) before a reset
    terminated: jax.Array  # (E, S) bool
    truncated: jax.Array
    success: jax.Array
    episode_cost: jax.Array  # mean over the episodes that ended
    episode_length: jax.Array  # mean number of decisions


# Advantages


def advantages(
    signal: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    gamma: float,
    lam: float,
) -> jax.Array:
    """Return GAE along the last axis: sum of (gamma lam)^k delta up to the end of the episode.

    `terminated` takes the bootstrap away; a truncated episode and the end of the rollout keep it.
    """
    delta = signal + gamma * jnp.where(terminated, 0.0, next_value) - value
    follow = gamma * lam * (1.0 - (terminated | truncated).astype(delta.dtype))

    def back(ahead: jax.Array, here: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        advantage = here[0] + here[1] * ahead
        return advantage, advantage

    first = jnp.zeros(delta.shape[:-1], delta.dtype)
    steps = (jnp.moveaxis(delta, -1, 0), jnp.moveaxis(follow, -1, 0))
    return jnp.moveaxis(jax.lax.scan(back, first, steps, reverse=True)[1], 0, -1)


# Policy


def outputs(policy: Policy, obs: jax.Array) -> jax.Array:
    """Return means and log stds (N, 2A)."""
    mean = networks.forward(policy.mean, obs, jnp.tanh)
    return jnp.concatenate([mean, jnp.broadcast_to(policy.log_std, mean.shape)], axis=-1)


def log_density(out: jax.Array, action: jax.Array) -> jax.Array:
    """Return the log density of the Gaussian, without the constant that cancels in ratios."""
    mean, log_std = jnp.split(out, 2, axis=-1)
    return -jnp.sum(0.5 * ((action - mean) * jnp.exp(-log_std)) ** 2 + log_std, axis=-1)


def divergence(old: jax.Array, new: jax.Array) -> jax.Array:
    """Return KL(old, new) of the Gaussians, mean over states."""
    (mean_0, log_0), (mean_1, log_1) = (jnp.split(x, 2, axis=-1) for x in (old, new))
    ratio = (jnp.exp(2.0 * log_0) + (mean_0 - mean_1) ** 2) * jnp.exp(-2.0 * log_1)
    return jnp.sum(log_1 - log_0 + 0.5 * ratio - 0.5, axis=-1).mean()


def policy_step(
    policy: Policy,
    obs: jax.Array,
    action: jax.Array,
    gain: jax.Array,
    cost_gain: jax.Array,
    over: jax.Array,
    config: CPOSettings,
) -> tuple[Policy, Metrics]:
    """Take the constrained step and its line search; `over` is c, cost above the limit per step."""
    flat, unravel = ravel_pytree(policy)
    old = outputs(policy, obs)
    old_density = log_density(old, action)

    def measure(flat: jax.Array) -> Trial:
        new = outputs(unravel(flat), obs)
        ratio = jnp.exp(log_density(new, action) - old_density)
        return Trial((ratio * gain).mean(), (ratio * cost_gain).mean(), divergence(old, new))

    g = jax.grad(lambda flat: measure(flat).reward)(flat)
    b = jax.grad(lambda flat: measure(flat).cost)(flat)
    mean_precision = jnp.exp(-2.0 * policy.log_std)
    precision = jnp.concatenate([mean_precision, jnp.full_like(mean_precision, 2.0)])
    product = trust_region.fisher_product(
        lambda flat: outputs(unravel(flat), obs), flat, precision, CG_DAMPING
    )
    step = trust_region.constrained_step(product, g, b, over, config.max_kl, CG_ITERATIONS)
    flat, share, trial = trust_region.line_search(
        measure, flat, step, over, config.max_kl, BACKTRACK, LINE_SEARCH_STEPS
    )
    metrics = {
        "policy/kl": trial.kl,
        "policy/reward_gain": trial.reward,
        "policy/cost_gain": trial.cost,
        "policy/case": step.case.astype(jnp.float32),
        "policy/share": share,
        "policy/std": jnp.exp(policy.log_std).mean(),
        "dual/nu": step.nu,
        "dual/lambda": step.lam,
    }
    return unravel(flat), metrics


# Values


def value(params: Params, obs: jax.Array) -> jax.Array:
    return networks.forward(params, obs, jnp.tanh)[..., 0]


Value = tuple[Params, Any]  # a network and the state of its optimiser


def fit_value(
    fitted: Value, key: jax.Array, obs: jax.Array, returns: jax.Array, config: CPOSettings
) -> tuple[Value, jax.Array]:
    """Fit a value network by epochs of Adam; return it with the mean loss of the last epoch."""
    batches = len(obs) // config.batch_size

    def step(fitted: Value, rows: jax.Array) -> tuple[Value, jax.Array]:
        def loss(params: Params) -> jax.Array:
            return bellman.loss(value(params, obs[rows]), returns[rows])

        found, gradient = jax.value_and_grad(loss)(fitted[0])
        return networks.adam_step(fitted[0], gradient, fitted[1], config.critic_lr), found

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(obs))[: batches * config.batch_size]
        carry, losses = jax.lax.scan(step, carry, order.reshape(batches, config.batch_size))
        return carry, losses.mean()

    keys = jax.random.split(key, config.value_epochs)
    fitted, losses = jax.lax.scan(epoch, fitted, keys)
    return fitted, losses[-1]


# Update


def update(state: CPOState, rollout: Rollout, config: CPOSettings) -> tuple[CPOState, Metrics]:
    """Take one iteration: advantages, policy step, value regressions, observation scale."""
    key, key_reward, key_cost = jax.random.split(state.key, 3)
    ended = rollout.terminated | rollout.truncated
    units = scaling.units_update_many(
        state.units, rollout.reward, rollout.cost, ended, config.gamma
    )
    sizes = scaling.unit_sizes(units)

    def scaled(obs: jax.Array) -> jax.Array:
        return scaling.inputs(state.scaler, obs)

    obs, next_obs = scaled(rollout.obs), scaled(rollout.next_obs)

    def advantage_and_return(
        params: Params, signal: jax.Array, final: jax.Array, lam: float
    ) -> tuple[jax.Array, jax.Array]:
        now, then = value(params, obs), value(params, next_obs)
        ahead = advantages(signal, now, then, final, ended, config.gamma, lam)
        return ahead.ravel(), (ahead + now).ravel()

    gain, returns = advantage_and_return(
        state.reward, rollout.reward / sizes.reward, rollout.terminated, config.gae_lambda
    )
    # a failure does not end what it costs, as in `replay.n_step`
    final = rollout.terminated & rollout.success
    cost_gain, cost_returns = advantage_and_return(
        state.cost, rollout.cost / sizes.cost, final, config.cost_gae_lambda
    )
    flat_obs = obs.reshape(-1, obs.shape[-1])
    flat_action = rollout.action.reshape(-1, rollout.action.shape[-1])
    over = (rollout.episode_cost - config.cost_limit) / sizes.cost / rollout.episode_length
    policy, metrics = policy_step(
        state.policy,
        flat_obs,
        flat_action,
        (gain - gain.mean()) / (gain.std() + 1e-8),
        cost_gain - cost_gain.mean(),  # centred, but in units of cost: the limit is
        over,
        config,
    )
    (reward, reward_opt), reward_loss = fit_value(
        (state.reward, state.reward_opt), key_reward, flat_obs, returns, config
    )
    (cost, cost_opt), cost_loss = fit_value(
        (state.cost, state.cost_opt), key_cost, flat_obs, cost_returns, config
    )
    state = state._replace(
        policy=policy,
        reward=reward,
        cost=cost,
        reward_opt=reward_opt,
        cost_opt=cost_opt,
        # only now: the policy that acted saw the old scale
        scaler=scaling.scaler_update_many(
            state.scaler, rollout.obs.reshape(-1, rollout.obs.shape[-1])
        ),
        units=units,
        key=key,
        step=state.step + 1,
    )
    return state, metrics | {
        "units/reward": sizes.reward,
        "units/cost": sizes.cost,
        "policy/violation": rollout.episode_cost - config.cost_limit,
        "reward/loss": reward_loss,
        "reward/v_mean": sizes.reward * returns.mean(),
        "cost/loss": cost_loss,
        "cost/v_mean": sizes.cost * cost_returns.mean(),
    }


# Init and act


def init(key: jax.Array, spec: EnvSpec, config: CPOSettings) -> CPOState:
    key, key_policy, key_reward, key_cost = jax.random.split(key, 4)
    size = scaling.input_size(spec)
    mean = networks.init(key_policy, (size, *config.hidden, spec.action_dim))
    log_std = jnp.full(spec.action_dim, np.log(config.std_init), jnp.float32)
    sizes = (size, *config.hidden, 1)
    reward, cost = networks.init(key_reward, sizes), networks.init(key_cost, sizes)
    return CPOState(
        policy=Policy(mean, log_std),
        reward=reward,
        cost=cost,
        reward_opt=optax.adam(config.critic_lr).init(reward),
        cost_opt=optax.adam(config.critic_lr).init(cost),
        scaler=scaling.scaler_init(spec),
        units=scaling.units_init(),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def act(
    state: CPOState, obs: jax.Array, cost_so_far: jax.Array, config: CPOSettings, explore: bool
) -> tuple[jax.Array, Carry, Metrics]:
    """Return the action (A,) for one observation: the mean, or a draw."""
    action = policy(state, obs[None], config)[0]
    if not explore:
        return jnp.clip(action, -1.0, 1.0), {"key": state.key}, {}
    key, key_draw = jax.random.split(state.key)
    draw = jax.random.normal(key_draw, action.shape, jnp.float32)
    noisy = action + jnp.exp(state.policy.log_std) * draw
    return jnp.clip(noisy, -1.0, 1.0), {"key": key}, {}


def values(state: CPOState, obs: jax.Array, action: jax.Array, config: CPOSettings) -> Metrics:
    """Return the values of observations (N, O) under the policy, whatever the action."""
    obs = scaling.inputs(state.scaler, obs)
    sizes = scaling.unit_sizes(state.units)
    return {
        "v_reward": sizes.reward * value(state.reward, obs),
        "v_cost": sizes.cost * value(state.cost, obs),
    }


def policy(state: CPOState, obs: jax.Array, config: CPOSettings) -> jax.Array:
    """Return the policy's means (N, A), not clipped."""
    obs = scaling.inputs(state.scaler, obs)
    return networks.forward(state.policy.mean, obs, jnp.tanh)
