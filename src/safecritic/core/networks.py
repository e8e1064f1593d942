"""Multilayer perceptrons as plain pytrees: a tuple of layers `{"w": ..., "b": ...}`.

A layer that has a gain "g" and an offset "o" besides is normalised: its sums, bias included, get
mean 0 and variance 1 over the units, then gain and offset.

Several networks of one shape are a tuple of them, not one stacked array: XLA's batched product is
several times slower on CPU than one product after another. Relu between layers, or as given.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from safecritic.runtime import decide

Params = tuple[dict[str, jax.Array], ...]
Members = tuple[Params, ...]
Activation = Callable[[jax.Array], jax.Array]
Tree = TypeVar("Tree")  # one network or several


@partial(jax.jit, static_argnames=("sizes", "members", "final", "normalise"))
def init_members(
    key: jax.Array,
    sizes: tuple[int, ...],
    members: int,
    final: float = 3e-3,
    normalise: bool = False,
) -> Members:
    """Return networks with weights within 1/sqrt(inputs), of the last layer within `final`."""
    shapes = [(n_in + 1, n_out) for n_in, n_out in itertools.pairwise(sizes)]
    # One draw for all layers: a draw for each would take seconds to compile.
    total = sum(rows * n_out for rows, n_out in shapes)
    drawn = jax.random.uniform(key, (members, total), jnp.float32, minval=-1.0, maxval=1.0)

    def layers(flat: jax.Array) -> Params:
        params: list[dict[str, jax.Array]] = []
        done = 0
        for rows, n_out in shapes:
            layer = flat[done : done + rows * n_out].reshape(rows, n_out)
            done += rows * n_out
            layer = layer * (final if len(params) == len(shapes) - 1 else (rows - 1) ** -0.5)
            params.append({"w": layer[:-1], "b": layer[-1]})
            if normalise and len(params) < len(shapes):
                gain = jnp.ones(n_out, jnp.float32)
                params[-1] |= {"g": gain, "o": jnp.zeros_like(gain)}
        return tuple(params)

    return tuple(layers(drawn[m]) for m in range(members))


def init(key: jax.Array, sizes: tuple[int, ...], final: float = 3e-3) -> Params:
    """Return one network with DDPG's first weights."""
    return init_members(key, sizes, 1, final)[0]


def shift(sums: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    """Return a layer's sums (..., out) with its bias, normalised if it has a gain."""
    return decide.normalise(jnp, sums + layer["b"], layer)


def forward_inputs(
    params: Params, x: jax.Array, activation: Activation = jax.nn.relu
) -> tuple[jax.Array, jax.Array]:
    """Return the output for `x` (B, in), and the input of the last layer."""
    for layer in params[:-1]:
        x = activation(shift(x @ layer["w"], layer))
    return x @ params[-1]["w"] + params[-1]["b"], x


def forward(params: Params, x: jax.Array, activation: Activation = jax.nn.relu) -> jax.Array:
    """Return the output (B, out) for `x` (B, in)."""
    return forward_inputs(params, x, activation)[0]


def actor(params: Params, obs: jax.Array) -> jax.Array:
    """Return actions (B, A) in [-1, 1] for observations (B, O)."""
    return jnp.tanh(forward(params, obs))


def critic(params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return raw values (B,) of observations and actions."""
    return forward(params, join(obs, action))[..., 0]


def critics(members: Members, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return raw values (members, B) of observations and actions."""
    return jnp.stack([critic(params, obs, action) for params in members])


def critic_of_many(params: Params, obs: jax.Array, actions: jax.Array) -> jax.Array:
    """Return raw values (B, k) of k actions (B, k, A) in each state: its sums are made once."""
    w, n_obs = params[0]["w"], obs.shape[-1]
    first = (obs @ w[:n_obs])[:, None, :] + actions @ w[n_obs:]
    hidden = jax.nn.relu(shift(first, params[0]))
    flat = forward(params[1:], hidden.reshape(-1, hidden.shape[-1]))
    return flat.reshape(actions.shape[:2])


def join(obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return observation and action as one vector (..., O + A)."""
    return jnp.concatenate([obs, action], axis=-1)


def length(tree: Any) -> jax.Array:
    """Return the norm of all numbers of a network or a gradient together."""
    # rows summed by a product: XLA's sum over all is slower on CPU
    squares = [jnp.atleast_2d(x * x) for x in jax.tree.leaves(tree)]
    return jnp.sqrt(sum((x @ jnp.ones_like(x[0])).sum() for x in squares))


def adam_step(params: Tree, gradient: Tree, opt: Any, lr: float) -> tuple[Tree, Any]:
    """Take one step of Adam; return the new parameters and the optimiser's state."""
    updates, opt = optax.adam(lr).update(gradient, opt)
    return optax.apply_updates(params, updates), opt


def update_target(target: Tree, online: Tree, tau: float) -> Tree:
    """Return target parameters moved a share `tau` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)


def ornstein_uhlenbeck(
    x: jax.Array, key: jax.Array, sigma: float | jax.Array, theta: float
) -> jax.Array:
    """Return the next value of an Ornstein-Uhlenbeck process: x - theta x + sigma N(0, 1)."""
    return x - theta * x + sigma * jax.random.normal(key, x.shape, jnp.float32)
