"""What every agent shares: common settings, observation scaling, checks of settings."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from safecritic import _jax  # noqa: F401
from safecritic.networks import EnvSpec, Tree

SCALINGS = ("running", "none")
CLIP = 10.0  # scaled observations stay within +-10 spreads
SHARP_SIZE = 3.0  # of a sharpened input at its largest
LEAST_VARIANCE = 1e-4  # a nearly constant input is not blown up


@dataclass(frozen=True, kw_only=True)
class Common:
    """Settings of every method; names follow Stable-Baselines3."""

    gamma: float = 0.95  # discount of reward and cost
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers of every network
    critic_lr: float = 1e-3  # step size of the reward critic
    batch_size: int = 64  # samples of an update
    cost_limit: float = 1.0  # budget: undiscounted cost of an episode
    observation_scaling: str = "running"  # by running mean and spread, or "none" (paper)

    @property
    def warm_up(self) -> int:
        """Steps before the first update."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OffPolicy(Common):
    """Settings of the methods that learn from a replay, an update per step."""

    tau: float = 5e-3  # rate at which target networks follow
    buffer_size: int = 200_000  # transitions in the replay
    learning_starts: int = 1_000  # random steps before the first update; not printed
    actor_lr: float = 3e-4  # step size of the actor; paper: 2e-3
    noise_sigma: float = 0.2  # of the Ornstein-Uhlenbeck exploration noise
    noise_theta: float = 0.15  # its pull to 0; not printed: DDPG's value
    n_step: int = 1  # steps of reward in a target
    costly_share: float = 0.0  # share of a batch drawn among transitions with cost > 0

    @property
    def warm_up(self) -> int:
        return self.learning_starts

    # What else ``replay.sample`` asks for

    @property
    def safety_n_step(self) -> int:
        return self.n_step

    @property
    def neighbour_block(self) -> int:
        return 0


class Scaler(NamedTuple):
    """Running mean and variance of the observations, kept in the agent's state."""

    mean: jax.Array
    var: jax.Array
    count: jax.Array  # type: ignore[assignment]
    near: jax.Array  # (O,) bool: which observations are a closeness


def scaler_init(spec: EnvSpec) -> Scaler:
    return Scaler(
        mean=jnp.zeros(spec.obs_dim, jnp.float32),
        var=jnp.ones(spec.obs_dim, jnp.float32),
        count=jnp.zeros((), jnp.float32),
        near=jnp.zeros(spec.obs_dim, bool).at[jnp.array(spec.closeness, int)].set(True),
    )


def scaler_update(scaler: Scaler, obs: jax.Array) -> Scaler:
    """Welford's step with one observation."""
    obs = jnp.asarray(obs, jnp.float32)
    count = scaler.count + 1.0
    delta = obs - scaler.mean
    mean = scaler.mean + delta / count
    # The initial variance of 1 has weight 0: the first observation removes it.
    var = scaler.var + (delta * (obs - mean) - scaler.var) / count
    return Scaler(mean, var, count, scaler.near)


def scaler_update_many(scaler: Scaler, obs: jax.Array) -> Scaler:
    """The same with N observations (N, O) at once."""
    number = jnp.float32(len(obs))
    count = scaler.count + number
    delta = obs.mean(axis=0) - scaler.mean
    share = number / count
    mean = scaler.mean + share * delta
    within = (1.0 - share) * scaler.var + share * obs.var(axis=0)
    return Scaler(mean, within + share * (1.0 - share) * delta**2, count, scaler.near)


def scale(scaler: Scaler, obs: jax.Array, scaling: str) -> jax.Array:
    obs = jnp.asarray(obs, jnp.float32)
    if scaling == "none":
        return obs
    spread = jnp.sqrt(jnp.maximum(scaler.var, LEAST_VARIANCE))
    return jnp.clip((obs - scaler.mean) / spread, -CLIP, CLIP)


def sharpen(scaler: Scaler, obs: jax.Array, scaling: str, power: float, gain: float) -> jax.Array:
    """Observations as the safety critic sees them: what is near stands out.

    A lidar tells 1 - distance/range, so the edge of a hazard moves it by a few hundredths. Raised
    to a power only near things are left; everything else is scaled as usual, times ``gain``.
    """
    scaled = scale(scaler, obs, scaling)
    if power == 1.0:
        return scaled
    closeness = jnp.clip(jnp.asarray(obs, jnp.float32), 0.0, 1.0)
    # A whole power is a few products, any other a logarithm and an exponential.
    raised = closeness ** (int(power) if power == int(power) else power)
    # no lidar, nothing to make room for
    others = jnp.where(scaler.near.any(), jnp.float32(gain), 1.0)
    return jnp.where(scaler.near, SHARP_SIZE * raised, others * scaled)


def adam_step(params: Tree, gradient: Tree, opt: Any, lr: float) -> tuple[Tree, Any]:
    """One step of Adam: the new parameters and the optimiser's state."""
    step, opt = optax.adam(lr).update(gradient, opt)
    return jax.tree.map(jnp.add, params, step), opt


def require(holds: bool, name: str, rule: str, value: Any) -> None:
    """Raise in the common form: what was expected, what came, where to change it."""
    if not holds:
        flag = name.replace("_", "-")
        raise ValueError(f"{name} must be {rule}, got {value!r} (--{flag})")


def require_types(config: Any) -> None:
    """Each setting has the type its field declares; NaN is not a number here."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if field.type is float:
            holds = whole or (isinstance(value, float) and not math.isnan(value))
            require(holds, field.name, "a number", value)
        elif field.type is int:
            require(whole, field.name, "a whole number", value)
        elif field.type is bool:
            require(isinstance(value, bool), field.name, "True or False", value)
        elif field.type is str:
            require(isinstance(value, str), field.name, "a name", value)


def require_one_of(config: Any, name: str, choices: tuple[Any, ...]) -> None:
    value = getattr(config, name)
    require(value in choices, name, "one of " + ", ".join(map(str, choices)), value)


def require_positive(config: Any, *names: str) -> None:
    for name in names:
        require(getattr(config, name) > 0, name, "> 0", getattr(config, name))


def require_not_negative(config: Any, *names: str) -> None:
    for name in names:
        require(getattr(config, name) >= 0, name, ">= 0", getattr(config, name))


def require_share(config: Any, *names: str) -> None:
    for name in names:
        require(0 <= getattr(config, name) <= 1, name, "between 0 and 1", getattr(config, name))


def validate_common(config: Common) -> None:
    """Refuse settings no run of any method could start with."""
    require_types(config)
    require(0 <= config.gamma < 1, "gamma", "in [0, 1)", config.gamma)
    require_positive(config, "batch_size", "critic_lr")
    require_not_negative(config, "cost_limit")
    require_one_of(config, "observation_scaling", SCALINGS)
    require(
        isinstance(config.hidden, tuple)
        and len(config.hidden) > 0
        and all(isinstance(n, int) and n > 0 for n in config.hidden),
        "hidden",
        "one or more layer widths > 0, such as (256, 256)",
        config.hidden,
    )


def validate(config: OffPolicy) -> None:
    """The same for methods with a replay."""
    validate_common(config)
    require(0 < config.tau <= 1, "tau", "in (0, 1]", config.tau)
    require_positive(config, "buffer_size", "actor_lr", "n_step")
    require_not_negative(config, "noise_sigma", "noise_theta", "learning_starts")
    require_share(config, "costly_share", "noise_theta")
    if config.batch_size > config.buffer_size:
        raise ValueError(
            f"batch_size {config.batch_size} exceeds buffer_size {config.buffer_size}: "
            "no batch could be drawn (--batch-size, --buffer-size)"
        )
