"""Multilayer perceptrons as plain pytrees: a tuple of layers ``{"w": ..., "b": ...}``.

Several networks of one shape are a tuple of them, not one stacked array: XLA's batched product is
several times slower on CPU than one product after another. Relu between layers, or as given.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401

Params = tuple[dict[str, jax.Array], ...]
Members = tuple[Params, ...]
Activation = Callable[[jax.Array], jax.Array]
Tree = TypeVar("Tree")  # one network or several

OUTPUTS = ("linear", "clipped", "softplus", "bounded")


class EnvSpec(NamedTuple):
    """What an agent knows of its environment; actions always lie in [-1, 1]."""

    obs_dim: int
    action_dim: int
    cost_max: float | None = None  # largest cost of one step, if known
    closeness: tuple[int, ...] = ()  # observations bounded to [0, 1], 1 for near: lidars


@partial(jax.jit, static_argnames=("sizes", "members", "final"))
def init_members(
    key: jax.Array, sizes: tuple[int, ...], members: int, final: float = 3e-3
) -> Members:
    """DDPG's initialisation: uniform within 1/sqrt(inputs), the last layer within ``final``."""
    shapes = [(n_in + 1, n_out) for n_in, n_out in itertools.pairwise(sizes)]
    # One draw for all layers: a draw for each would take seconds to compile.
    total = sum(rows * n_out for rows, n_out in shapes)
    drawn = jax.random.uniform(key, (members, total), jnp.float32, minval=-1.0, maxval=1.0)

    def layers(flat: jax.Array) -> Params:
        found: list[dict[str, jax.Array]] = []
        done = 0
        for rows, n_out in shapes:
            part = flat[done : done + rows * n_out].reshape(rows, n_out)
            done += rows * n_out
            part = part * (final if len(found) == len(shapes) - 1 else (rows - 1) ** -0.5)
            found.append({"w": part[:-1], "b": part[-1]})
        return tuple(found)

    return tuple(layers(drawn[m]) for m in range(members))


def init(key: jax.Array, sizes: tuple[int, ...], final: float = 3e-3) -> Params:
    return init_members(key, sizes, 1, final)[0]


def forward_inputs(
    params: Params, x: jax.Array, activation: Activation = jax.nn.relu
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The output for ``x`` (..., in) and the inputs of every layer."""
    inputs = [x]
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
        inputs.append(x)
    return x @ params[-1]["w"] + params[-1]["b"], tuple(inputs)


def forward(params: Params, x: jax.Array, activation: Activation = jax.nn.relu) -> jax.Array:
    return forward_inputs(params, x, activation)[0]


def actor(params: Params, obs: jax.Array) -> jax.Array:
    """Actions (B, A) in [-1, 1] for observations (B, O)."""
    return jnp.tanh(forward(params, obs))


def critic(params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Raw values (B,)."""
    return forward(params, join(obs, action))[..., 0]


def critics(members: Members, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Raw values (members, B)."""
    return jnp.stack([critic(params, obs, action) for params in members])


def critic_many(params: Params, obs: jax.Array, actions: jax.Array) -> jax.Array:
    """Raw values (B, m) of m actions (B, m, A) for each observation (B, O).

    The observation's share of the first layer is computed once for all m.
    """
    n_obs = obs.shape[-1]
    batch, m = actions.shape[:2]
    w, b = params[0]["w"], params[0]["b"]
    own = actions.reshape(batch * m, -1) @ w[n_obs:]
    hidden = (obs @ w[:n_obs] + b)[:, None, :] + own.reshape(batch, m, -1)
    hidden = jax.nn.relu(hidden).reshape(batch * m, -1)
    return forward(params[1:], hidden)[:, 0].reshape(batch, m)


def join(obs: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([obs, action], axis=-1)


def cost_output(z: jax.Array, kind: str, bound: jax.Array, sharpness: float) -> jax.Array:
    """Cost value from a critic's raw output.

    linear: z. clipped: max(z, 0). softplus: log(1 + exp(k z)) / k with k = ``sharpness``, never
    negative. bounded: B (1 - exp(-softplus / B)), which also stays below B = ``bound`` and equals
    the softplus for costs far below B.
    """
    if kind == "linear":
        return z
    if kind == "clipped":
        return jnp.maximum(z, 0.0)
    positive = jax.nn.softplus(sharpness * z) / sharpness
    if kind == "softplus":
        return positive
    return -bound * jnp.expm1(-positive / bound)


def track(target: Tree, online: Tree, tau: float) -> Tree:
    """Target parameters moved a share ``tau`` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)
