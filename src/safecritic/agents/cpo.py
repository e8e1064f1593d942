"""Constrained policy optimisation (Achiam, Held, Tamar, Abbeel, 2017): on-policy, a trust region.

    rollouts    of the present Gaussian policy, in several environments
    advantages  of reward and cost by GAE, from two value networks
    policy      the constrained step (``trust_region.py``) and its line search
    values      regression on the GAE returns, a few epochs of Adam

The constraint. Its paper bounds the discounted cost: J_C + E[A_C] / (1 - gamma) <= d, the factor
being the discounted number of steps. A budget here is the *undiscounted* cost of an episode, so the
number of steps is the mean length T of an episode: C + T E[A_C] <= cost_limit, C the mean cost of
the episodes that ended in the rollout. Divided by T, c = (C - cost_limit) / T and b = grad E[A_C].

Deviations from its paper: that scaling, as in its authors' later code; value networks instead of
linear features; observations scaled by their running mean and spread.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from safecritic import networks, trust_region
from safecritic.agents import settings as common
from safecritic.agents.settings import Common, Scaler
from safecritic.critics import bellman
from safecritic.networks import EnvSpec, Params
from safecritic.trust_region import Trial

Metrics = dict[str, jax.Array]


@dataclass(frozen=True, kw_only=True)
class CPOConfig(Common):
    """Settings of CPO."""

    gamma: float = 0.99  # discount of reward and cost
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers of every network
    batch_size: int = 128  # of the value regression
    rollout_steps: int = 8_000  # between two updates, over all environments
    rollout_envs: int = 8  # environments
    rollout_workers: int = 0  # processes that step them; 0: one per core; no effect on results
    gae_lambda: float = 0.97  # of the reward's advantages
    cost_gae_lambda: float = 0.97  # of the cost's
    max_kl: float = 0.01  # size of the trust region
    cg_iterations: int = 10  # of conjugate gradients
    cg_damping: float = 0.1  # added to the Fisher matrix
    backtrack: float = 0.8  # by which the line search shrinks a step
    line_search_steps: int = 10  # tries before no step is taken
    value_epochs: int = 8  # of the value regression, per rollout
    std_init: float = 0.6  # spread of the policy at the start

    @property
    def warm_up(self) -> int:
        return 0


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
    episode_cost: jax.Array  # mean over the episodes that ended
    episode_length: jax.Array


def validate(config: CPOConfig) -> None:
    """Refuse settings no run could start with."""
    common.validate_common(config)
    common.require_positive(
        config,
        *("rollout_steps", "rollout_envs", "max_kl", "cg_iterations", "line_search_steps"),
        *("value_epochs", "std_init"),
    )
    common.require_not_negative(config, "cg_damping", "rollout_workers")
    common.require_share(config, "gae_lambda", "cost_gae_lambda")
    common.require(0 < config.backtrack < 1, "backtrack", "between 0 and 1", config.backtrack)
    if config.rollout_steps % config.rollout_envs:
        raise ValueError(
            f"rollout_steps {config.rollout_steps} must be a multiple of rollout_envs "
            f"{config.rollout_envs}: each takes the same number (--rollout-steps)"
        )
    if config.batch_size > config.rollout_steps:
        raise ValueError(
            f"batch_size {config.batch_size} exceeds rollout_steps {config.rollout_steps}: "
            "no batch could be drawn (--batch-size, --rollout-steps)"
        )


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
    """GAE along the last axis: sum of (gamma lam)^k delta up to the end of the episode.

    ``terminated`` takes the bootstrap away; a truncated episode and the end of the rollout keep it.
    """
    delta = signal + gamma * jnp.where(terminated, 0.0, next_value) - value
    follow = gamma * lam * (1.0 - (terminated | truncated).astype(delta.dtype))

    def back(ahead: jax.Array, here: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found = here[0] + here[1] * ahead
        return found, found

    first = jnp.zeros(delta.shape[:-1], delta.dtype)
    steps = (jnp.moveaxis(delta, -1, 0), jnp.moveaxis(follow, -1, 0))
    return jnp.moveaxis(jax.lax.scan(back, first, steps, reverse=True)[1], 0, -1)


# Policy


def outputs(policy: Policy, obs: jax.Array) -> jax.Array:
    """Means and log spreads (N, 2A)."""
    mean = networks.forward(policy.mean, obs, jnp.tanh, jnp.matmul)
    return jnp.concatenate([mean, jnp.broadcast_to(policy.log_std, mean.shape)], axis=-1)


def log_density(out: jax.Array, action: jax.Array) -> jax.Array:
    """Of the Gaussian, without its constant, which ratios do not see."""
    mean, log_std = jnp.split(out, 2, axis=-1)
    return -jnp.sum(0.5 * ((action - mean) * jnp.exp(-log_std)) ** 2 + log_std, axis=-1)


def divergence(old: jax.Array, new: jax.Array) -> jax.Array:
    """KL(old, new) of the Gaussians, mean over states."""
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
    config: CPOConfig,
) -> tuple[Policy, Metrics]:
    """The constrained step and its line search; ``over`` is c, cost above the limit per step."""
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
        lambda flat: outputs(unravel(flat), obs), flat, precision, config.cg_damping
    )
    step = trust_region.constrained_step(product, g, b, over, config.max_kl, config.cg_iterations)
    found = trust_region.line_search(
        measure, flat, step, over, config.max_kl, config.backtrack, config.line_search_steps
    )
    metrics = {
        "policy/kl": found.trial.kl,
        "policy/reward_gain": found.trial.reward,
        "policy/cost_gain": found.trial.cost,
        "policy/case": step.case.astype(jnp.float32),
        "policy/share": found.share,
        "policy/std": jnp.exp(policy.log_std).mean(),
        "dual/nu": step.nu,
        "dual/lambda": step.lam,
    }
    return unravel(found.flat), metrics


# Values


def value(params: Params, obs: jax.Array) -> jax.Array:
    return networks.forward(params, obs, jnp.tanh, jnp.matmul)[..., 0]


def value_loss(params: Params, obs: jax.Array, returns: jax.Array) -> jax.Array:
    return bellman.loss(value(params, obs), returns)


def fit_value(
    params: Params, opt: Any, key: jax.Array, obs: jax.Array, returns: jax.Array, config: CPOConfig
) -> tuple[Params, Any, jax.Array]:
    """Epochs of Adam on batches without replacement; the mean loss of the last epoch."""
    batches = len(obs) // config.batch_size

    def one(carry: Any, rows: jax.Array) -> Any:
        params, opt = carry
        loss, gradient = jax.value_and_grad(value_loss)(params, obs[rows], returns[rows])
        return common.adam_step(params, gradient, opt, config.critic_lr), loss

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(obs))[: batches * config.batch_size]
        carry, losses = jax.lax.scan(one, carry, order.reshape(batches, config.batch_size))
        return carry, losses.mean()

    keys = jax.random.split(key, config.value_epochs)
    (params, opt), losses = jax.lax.scan(epoch, (params, opt), keys)
    return params, opt, losses[-1]


# Update


def update(state: CPOState, rollout: Rollout, config: CPOConfig) -> tuple[CPOState, Metrics]:
    """One iteration: advantages, policy step, value regressions, observation scale."""
    key, key_reward, key_cost = jax.random.split(state.key, 3)

    def scaled(obs: jax.Array) -> jax.Array:
        return common.scale(state.scaler, obs, config.observation_scaling)

    obs, next_obs = scaled(rollout.obs), scaled(rollout.next_obs)
    ends = (rollout.terminated, rollout.truncated)

    def judged(params: Params, signal: jax.Array, lam: float) -> tuple[jax.Array, jax.Array]:
        now, then = value(params, obs), value(params, next_obs)
        found = advantages(signal, now, then, *ends, config.gamma, lam)
        return found.ravel(), (found + now).ravel()

    gain, returns = judged(state.reward, rollout.reward, config.gae_lambda)
    cost_gain, cost_returns = judged(state.cost, rollout.cost, config.cost_gae_lambda)
    flat_obs = obs.reshape(-1, obs.shape[-1])
    flat_action = rollout.action.reshape(-1, rollout.action.shape[-1])
    over = (rollout.episode_cost - config.cost_limit) / rollout.episode_length
    policy, metrics = policy_step(
        state.policy,
        flat_obs,
        flat_action,
        (gain - gain.mean()) / (gain.std() + 1e-8),
        cost_gain - cost_gain.mean(),  # centred, but in units of cost: the limit is
        over,
        config,
    )
    reward, reward_opt, reward_loss = fit_value(
        state.reward, state.reward_opt, key_reward, flat_obs, returns, config
    )
    cost, cost_opt, cost_loss = fit_value(
        state.cost, state.cost_opt, key_cost, flat_obs, cost_returns, config
    )
    state = state._replace(
        policy=policy,
        reward=reward,
        cost=cost,
        reward_opt=reward_opt,
        cost_opt=cost_opt,
        # only now: the policy that acted saw the old scale
        scaler=common.scaler_update_many(state.scaler, rollout.obs.reshape(flat_obs.shape)),
        key=key,
        step=state.step + 1,
    )
    return state, metrics | {
        "policy/violation": rollout.episode_cost - config.cost_limit,
        "reward/loss": reward_loss,
        "reward/v_mean": returns.mean(),
        "cost/loss": cost_loss,
        "cost/v_mean": cost_returns.mean(),
    }


# Init and act


def init(key: jax.Array, spec: EnvSpec, config: CPOConfig) -> CPOState:
    key, key_policy, key_reward, key_cost = jax.random.split(key, 4)
    mean = networks.init(key_policy, (spec.obs_dim, *config.hidden, spec.action_dim))
    log_std = jnp.full(spec.action_dim, np.log(config.std_init), jnp.float32)
    sizes = (spec.obs_dim, *config.hidden, 1)
    reward, cost = networks.init(key_reward, sizes), networks.init(key_cost, sizes)
    return CPOState(
        policy=Policy(mean, log_std),
        reward=reward,
        cost=cost,
        reward_opt=optax.adam(config.critic_lr).init(reward),
        cost_opt=optax.adam(config.critic_lr).init(cost),
        scaler=common.scaler_init(spec),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def act(
    state: CPOState, obs: jax.Array, config: CPOConfig, explore: bool
) -> tuple[jax.Array, dict[str, jax.Array], Metrics]:
    """The action (A,) for one observation: the mean, or a draw."""
    action = policy(state, obs[None], config)[0]
    if not explore:
        return jnp.clip(action, -1.0, 1.0), {"key": state.key}, {}
    key, key_draw = jax.random.split(state.key)
    draw = jax.random.normal(key_draw, action.shape, jnp.float32)
    noisy = action + jnp.exp(state.policy.log_std) * draw
    return jnp.clip(noisy, -1.0, 1.0), {"key": key}, {}


def values(state: CPOState, obs: jax.Array, action: jax.Array, config: CPOConfig) -> Metrics:
    """The values of observations (N, O) under the policy, whatever the action."""
    obs = common.scale(state.scaler, obs, config.observation_scaling)
    return {"v_reward": value(state.reward, obs), "v_cost": value(state.cost, obs)}


def policy(state: CPOState, obs: jax.Array, config: CPOConfig) -> jax.Array:
    """The policy's means (N, A), not clipped."""
    obs = common.scale(state.scaler, obs, config.observation_scaling)
    return networks.forward(state.policy.mean, obs, jnp.tanh, jnp.matmul)
