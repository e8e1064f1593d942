"""Multilayer perceptrons as plain pytrees: a tuple of layers ``{"w": ..., "b": ...}``.

A network is either single, ``w`` of shape (in, out), or a stack of members with a leading axis,
``w`` of shape (members, in, out); the same functions serve both. Relu between layers.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401

Params = tuple[dict[str, jax.Array], ...]

OUTPUTS = ("linear", "softplus", "bounded")


class EnvSpec(NamedTuple):
    """What an agent knows of its environment; actions always lie in [-1, 1]."""

    obs_dim: int
    action_dim: int
    cost_max: float | None = None  # largest cost of one step, if known
    closeness: tuple[int, ...] = ()  # observations bounded to [0, 1], 1 for near: lidars


@partial(jax.jit, static_argnames=("sizes", "members", "final"))
def init(
    key: jax.Array, sizes: tuple[int, ...], members: int | None = None, final: float = 3e-3
) -> Params:
    """Layers of DDPG's initialisation: uniform within 1/sqrt(inputs), the last within ``final``."""
    lead = () if members is None else (members,)
    shapes = [(n_in + 1, n_out) for n_in, n_out in itertools.pairwise(sizes)]
    # One draw for all layers: a draw for each would take seconds to compile.
    total = sum(rows * n_out for rows, n_out in shapes)
    flat = jax.random.uniform(key, (*lead, total), jnp.float32, minval=-1.0, maxval=1.0)
    layers: list[dict[str, jax.Array]] = []
    done = 0
    for rows, n_out in shapes:
        part = flat[..., done : done + rows * n_out].reshape(*lead, rows, n_out)
        done += rows * n_out
        part = part * (final if len(layers) == len(shapes) - 1 else (rows - 1) ** -0.5)
        layers.append({"w": part[..., :-1, :], "b": part[..., -1, :]})
    return tuple(layers)


def linear(x: jax.Array, w: jax.Array) -> jax.Array:
    """x w, member by member for a stack: XLA's batched product is several times slower on CPU."""
    if w.ndim == 2:
        return x @ w
    return jnp.stack([(x if x.ndim == 2 else x[m]) @ w[m] for m in range(w.shape[0])])


def forward_inputs(params: Params, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The output for ``x`` (B, in) and the inputs of every layer."""
    inputs = [x]
    for layer in params[:-1]:
        x = jax.nn.relu(linear(x, layer["w"]) + layer["b"][..., None, :])
        inputs.append(x)
    out = linear(x, params[-1]["w"]) + params[-1]["b"][..., None, :]
    return out, tuple(inputs)


def forward(params: Params, x: jax.Array) -> jax.Array:
    return forward_inputs(params, x)[0]


def actor(params: Params, obs: jax.Array) -> jax.Array:
    """Actions (B, A) in [-1, 1] for observations (B, O)."""
    return jnp.tanh(forward(params, obs))


def critic(params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Raw values (B,), or (members, B) for a stack."""
    return forward(params, join(obs, action))[..., 0]


def critic_many(params: Params, obs: jax.Array, actions: jax.Array) -> jax.Array:
    """Raw values (..., B, m) of m actions (B, m, A) for each observation (B, O).

    The observation's share of the first layer is computed once for all m.
    """
    n_obs = obs.shape[-1]
    batch, m = actions.shape[:2]
    first = params[0]
    shared = linear(obs, first["w"][..., :n_obs, :]) + first["b"][..., None, :]
    own = linear(actions.reshape(batch * m, -1), first["w"][..., n_obs:, :])
    hidden = shared[..., None, :] + own.reshape(*own.shape[:-2], batch, m, own.shape[-1])
    hidden = jax.nn.relu(hidden).reshape(*own.shape)
    return forward(params[1:], hidden)[..., 0].reshape(*own.shape[:-2], batch, m)


def join(obs: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([obs, action], axis=-1)


def cost_output(z: jax.Array, kind: str, bound: jax.Array, sharpness: float) -> jax.Array:
    """Cost value from a critic's raw output.

    linear: z. softplus: log(1 + exp(k z)) / k with k = ``sharpness``, never negative.
    bounded: B (1 - exp(-softplus / B)), which also stays below B = ``bound`` and equals the
    softplus for costs far below B.
    """
    if kind == "linear":
        return z
    positive = jax.nn.softplus(sharpness * z) / sharpness
    if kind == "softplus":
        return positive
    return -bound * jnp.expm1(-positive / bound)


def track(target: Params, online: Params, tau: float) -> Params:
    """Target parameters moved a share ``tau`` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)
