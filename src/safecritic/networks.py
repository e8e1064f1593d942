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

from safecritic import _jax  # noqa: F401
from safecritic.fast.products import dense, dense_joint

Params = tuple[dict[str, jax.Array], ...]
Members = tuple[Params, ...]
Activation = Callable[[jax.Array], jax.Array]
Product = Callable[[jax.Array, jax.Array], jax.Array]
Tree = TypeVar("Tree")  # one network or several

NORM_EPSILON = 1e-5


@partial(jax.jit, static_argnames=("sizes", "members", "final", "normalise"))
def init_members(
    key: jax.Array,
    sizes: tuple[int, ...],
    members: int,
    final: float = 3e-3,
    normalise: bool = False,
) -> Members:
    """Return several networks with DDPG's first weights.

    They are uniform within 1/sqrt(inputs), those of the last layer within `final`.
    """
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
                params[-1] |= {
                    "g": jnp.ones(n_out, jnp.float32),
                    "o": jnp.zeros(n_out, jnp.float32),
                }
        return tuple(params)

    return tuple(layers(drawn[m]) for m in range(members))


def init(key: jax.Array, sizes: tuple[int, ...], final: float = 3e-3) -> Params:
    """Return one network with DDPG's first weights."""
    return init_members(key, sizes, 1, final)[0]


def shift(sums: jax.Array, layer: dict[str, jax.Array]) -> jax.Array:
    """Return a layer's sums (..., out) with its bias, normalised if it has a gain.

    Without the bias before it, the normalisation would take away the size of the inputs.
    """
    sums = sums + layer["b"]
    if "g" not in layer:
        return sums
    mean = sums.mean(axis=-1, keepdims=True)
    var = ((sums - mean) ** 2).mean(axis=-1, keepdims=True)
    return (sums - mean) * jax.lax.rsqrt(var + NORM_EPSILON) * layer["g"] + layer["o"]


def forward_inputs(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    product: Product = dense,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Return the output for `x` (B, in) and the inputs of every layer."""
    inputs = [x]
    for layer in params[:-1]:
        x = activation(shift(product(x, layer["w"]), layer))
        inputs.append(x)
    return x @ params[-1]["w"] + params[-1]["b"], tuple(inputs)


def forward(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    product: Product = dense,
) -> jax.Array:
    """Return the output (B, out) for `x` (B, in)."""
    return forward_inputs(params, x, activation, product)[0]


def actor(params: Params, obs: jax.Array) -> jax.Array:
    """Return actions (B, A) in [-1, 1] for observations (B, O)."""
    return jnp.tanh(forward(params, obs))


def saturation(params: Params, obs: jax.Array) -> jax.Array:
    """Return how far into the tanh an actor's actions are: the mean square of what it is given."""
    return jnp.mean(jnp.sum(forward(params, obs) ** 2, axis=-1))


def critic(params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return raw values (B,) of observations and actions."""
    hidden = jax.nn.relu(shift(dense_joint(obs, action, params[0]["w"]), params[0]))
    return forward(params[1:], hidden)[..., 0]


def critics(members: Members, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return raw values (members, B) of observations and actions."""
    return jnp.stack([critic(params, obs, action) for params in members])


def join(obs: jax.Array, action: jax.Array) -> jax.Array:
    """Return observation and action as one vector (..., O + A)."""
    return jnp.concatenate([obs, action], axis=-1)


def cost_output(z: jax.Array, kind: str, bound: jax.Array, sharpness: float) -> jax.Array:
    """Return the cost value for a critic's raw output z.

    linear: z. clipped: max(z, 0). softplus: log(1 + exp(k z)) / k with k = `sharpness`, never
    negative. bounded: B (1 - exp(-softplus / B)), which also stays below B = `bound` and equals
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


def length(tree: Any) -> jax.Array:
    """Return the norm of all numbers of a network or a gradient together."""
    # rows summed by a product: XLA's sum over all is slower on CPU
    squares = [jnp.atleast_2d(x * x) for x in jax.tree.leaves(tree)]
    return jnp.sqrt(sum((x @ jnp.ones_like(x[0])).sum() for x in squares))


def adam_step(params: Tree, gradient: Tree, opt: Any, lr: float) -> tuple[Tree, Any]:
    """Take one step of Adam; return the new parameters and the optimiser's state."""
    updates, opt = optax.adam(lr).update(gradient, opt)
    stepped: Any = optax.apply_updates(params, updates)
    return stepped, opt


def update_target(target: Tree, online: Tree, tau: float) -> Tree:
    """Return target parameters moved a share `tau` towards the online ones."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, online)
