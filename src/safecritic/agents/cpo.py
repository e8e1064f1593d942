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
linear features; observations scaled by their running mean and spread.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from safecritic import networks, trust_region
from safecritic.agents import scaling
from safecritic.agents.interface import Carry, EnvSpec, Metrics
from safecritic.agents.scaling import Scaler, Units
from safecritic.agents.settings import (
    Settings,
    require,
    require_not_negative,
    require_positive,
    require_share,
)
from safecritic.critics import bellman
from safecritic.networks import Params
from safecritic.trust_region import Trial


@dataclass(frozen=True, kw_only=True)
class CPOSettings(Settings):
    """Settings of CPO."""

    TITLE: ClassVar[str] = "trust region"

    gamma: float = 0.99  # discount of reward and cost
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers of every network
    batch_size: int = 128  # samples per step of the value regression
    rollout_steps: int = 8_000  # environment steps between two updates, over all environments
    rollout_envs: int = 8  # environments stepped together
    rollout_workers: int = 0  # processes that step them; 0: one per core; no effect on results
    gae_lambda: float = 0.97  # GAE's lambda for the reward
    cost_gae_lambda: float = 0.97  # GAE's lambda for the cost
    max_kl: float = 0.01  # size of the trust region
    cg_iterations: int = 10  # iterations of conjugate gradients
    cg_damping: float = 0.1  # added to the Fisher matrix
    backtrack: float = 0.8  # factor by which the line search shrinks a step
    line_search_steps: int = 10  # tries before no step is taken
    value_epochs: int = 8  # epochs of the value regression, per rollout
    std_init: float = 0.6  # spread of the policy at the start

    @property
    def warm_up(self) -> int:
        return 0

    def check(self) -> None:
        super().check()
        require_positive(
            self,
            *("rollout_steps", "rollout_envs", "max_kl", "cg_iterations", "line_search_steps"),
            *("value_epochs", "std_init"),
        )
        require_not_negative(self, "cg_damping", "rollout_workers")
        require_share(self, "gae_lambda", "cost_gae_lambda")
        require(0 < self.backtrack < 1, "backtrack", "between 0 and 1", self.backtrack)
        if self.rollout_steps % self.rollout_envs:
            raise ValueError(
                f"rollout_steps {self.rollout_steps} must be a multiple of rollout_envs "
                f"{self.rollout_envs}: each takes the same number (--rollout-steps)"
            )
        if self.batch_size * self.action_repeat > self.rollout_steps:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds rollout_steps {self.rollout_steps}"
                f"{f' / action_repeat {self.action_repeat}' if self.action_repeat > 1 else ''}: "
                "no batch could be drawn (--batch-size, --rollout-steps)"
            )


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
    """Return means and log spreads (N, 2A)."""
    mean = networks.forward(policy.mean, obs, jnp.tanh, jnp.matmul)
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
        lambda flat: outputs(unravel(flat), obs), flat, precision, config.cg_damping
    )
    step = trust_region.constrained_step(product, g, b, over, config.max_kl, config.cg_iterations)
    result = trust_region.line_search(
        measure, flat, step, over, config.max_kl, config.backtrack, config.line_search_steps
    )
    metrics = {
        "policy/kl": result.trial.kl,
        "policy/reward_gain": result.trial.reward,
        "policy/cost_gain": result.trial.cost,
        "policy/case": step.case.astype(jnp.float32),
        "policy/share": result.share,
        "policy/std": jnp.exp(policy.log_std).mean(),
        "dual/nu": step.nu,
        "dual/lambda": step.lam,
    }
    return unravel(result.flat), metrics


# Values


def value(params: Params, obs: jax.Array) -> jax.Array:
    return networks.forward(params, obs, jnp.tanh, jnp.matmul)[..., 0]


def value_loss(params: Params, obs: jax.Array, returns: jax.Array) -> jax.Array:
    return bellman.loss(value(params, obs), returns)


def fit_value(
    params: Params,
    opt: Any,
    key: jax.Array,
    obs: jax.Array,
    returns: jax.Array,
    config: CPOSettings,
) -> tuple[Params, Any, jax.Array]:
    """Fit a value network by epochs of Adam; return it with the mean loss of the last epoch."""
    batches = len(obs) // config.batch_size

    def one(carry: Any, rows: jax.Array) -> Any:
        params, opt = carry
        loss, gradient = jax.value_and_grad(value_loss)(params, obs[rows], returns[rows])
        return networks.adam_step(params, gradient, opt, config.critic_lr), loss

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(obs))[: batches * config.batch_size]
        carry, losses = jax.lax.scan(one, carry, order.reshape(batches, config.batch_size))
        return carry, losses.mean()

    keys = jax.random.split(key, config.value_epochs)
    (params, opt), losses = jax.lax.scan(epoch, (params, opt), keys)
    return params, opt, losses[-1]


# Update


def update(state: CPOState, rollout: Rollout, config: CPOSettings) -> tuple[CPOState, Metrics]:
    """Take one iteration: advantages, policy step, value regressions, observation scale."""
    key, key_reward, key_cost = jax.random.split(state.key, 3)
    ended = rollout.terminated | rollout.truncated
    units = scaling.units_update_many(
        state.units, rollout.reward, rollout.cost, ended, config.gamma
    )
    sizes = scaling.unit_sizes(units, config)

    def scaled(obs: jax.Array) -> jax.Array:
        return scaling.inputs(state.scaler, obs, config)

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
        scaler=scaling.scaler_update_many(
            state.scaler, rollout.obs.reshape(-1, rollout.obs.shape[-1]), config
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
    size = scaling.input_size(spec, config)
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
        scaler=scaling.scaler_init(spec, config),
        units=scaling.units_init(),
        key=key,
        step=jnp.zeros((), jnp.int32),
    )


def act(
    state: CPOState, obs: jax.Array, spent: jax.Array, config: CPOSettings, explore: bool
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
    obs = scaling.inputs(state.scaler, obs, config)
    sizes = scaling.unit_sizes(state.units, config)
    return {
        "v_reward": sizes.reward * value(state.reward, obs),
        "v_cost": sizes.cost * value(state.cost, obs),
    }


def policy(state: CPOState, obs: jax.Array, config: CPOSettings) -> jax.Array:
    """Return the policy's means (N, A), not clipped."""
    obs = scaling.inputs(state.scaler, obs, config)
    return networks.forward(state.policy.mean, obs, jnp.tanh, jnp.matmul)
