"""Multilayer perceptrons as plain pytrees: a tuple of layers ``{"w": ..., "b": ...}``.

Several networks of one shape are a tuple of them, not one stacked array: XLA's batched product is
several times slower on CPU than one product after another. Relu between layers, or as given.

The products of the off-policy methods (``dense``, ``dense_joint``) have their gradients written
out, in the order of factors that runs fastest on CPU; see docs/speed.md.
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
Product = Callable[[jax.Array, jax.Array], jax.Array]
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


@jax.custom_vjp
def dense(x: jax.Array, w: jax.Array) -> jax.Array:
    """x w. In reverse mode only: CPO's Fisher products, which go forward, use ``jnp.matmul``."""
    return x @ w


def _dense_forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x, w)


def _dense_backward(seen: tuple[jax.Array, jax.Array], d: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = seen
    return times_transposed(d, w), x.T @ d


dense.defvjp(_dense_forward, _dense_backward)


def times_transposed(d: jax.Array, w: jax.Array) -> jax.Array:
    """d w^T as (w d^T)^T.

    The weights are then read along their rows; the barriers keep XLA from turning it back.
    """
    return jax.lax.optimization_barrier(w @ jax.lax.optimization_barrier(d.T)).T


@jax.custom_vjp
def dense_joint(obs: jax.Array, action: jax.Array, w: jax.Array) -> jax.Array:
    """join(obs, action) w, whose gradient by the action alone costs a product as small as it."""
    return join(obs, action) @ w


def _joint_forward(
    obs: jax.Array, action: jax.Array, w: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    return join(obs, action) @ w, (obs, action, w)


def _joint_backward(
    seen: tuple[jax.Array, jax.Array, jax.Array], d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    obs, action, w = seen
    n_obs = obs.shape[-1]
    # Whichever of the three nobody asks for is not computed.
    return times_transposed(d, w[:n_obs]), d @ w[n_obs:].T, join(obs, action).T @ d


dense_joint.defvjp(_joint_forward, _joint_backward)


def forward_inputs(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    product: Product = dense,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The output for ``x`` (B, in) and the inputs of every layer."""
    inputs = [x]
    for layer in params[:-1]:
        x = activation(product(x, layer["w"]) + layer["b"])
        inputs.append(x)
    return x @ params[-1]["w"] + params[-1]["b"], tuple(inputs)


def forward(
    params: Params,
    x: jax.Array,
    activation: Activation = jax.nn.relu,
    product: Product = dense,
) -> jax.Array:
    return forward_inputs(params, x, activation, product)[0]


def actor(params: Params, obs: jax.Array) -> jax.Array:
    """Actions (B, A) in [-1, 1] for observations (B, O)."""
    return jnp.tanh(forward(params, obs))


def critic(params: Params, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Raw values (B,)."""
    hidden = jax.nn.relu(dense_joint(obs, action, params[0]["w"]) + params[0]["b"])
    return forward(params[1:], hidden)[..., 0]


def critics(members: Members, obs: jax.Array, action: jax.Array) -> jax.Array:
    """Raw values (members, B)."""
    return jnp.stack([critic(params, obs, action) for params in members])


class Pass(NamedTuple):
    """A critic's raw values of k actions for each observation, and what its layers saw."""

    raw: jax.Array  # (B, k)
    hidden: tuple[jax.Array, ...]  # (B, k, width) each: the inputs of every layer but the first

    def first(self) -> "Pass":
        """Of the first action of each observation: (B,) and (B, width)."""
        return Pass(self.raw[:, 0], tuple(x[:, 0] for x in self.hidden))

    def at(self, place: jax.Array) -> "Pass":
        """Of the k actions of each observation the one at ``place`` (B,): (B,) and (B, width)."""
        each = jnp.arange(len(place))

        def take(x: jax.Array) -> jax.Array:
            return x.at[each, place].get(mode="promise_in_bounds")

        return Pass(take(self.raw), tuple(take(x) for x in self.hidden))


def critic_pass(params: Params, obs: jax.Array, actions: jax.Array) -> Pass:
    """k actions (B, k, A) for each observation (B, O).

    The observation's share of the first layer is computed once for all k.
    """
    n_obs = obs.shape[-1]
    batch, k = actions.shape[:2]
    w, b = params[0]["w"], params[0]["b"]
    first = (obs @ w[:n_obs] + b)[:, None, :]
    # An action has few numbers: term by term this is one pass over the units, with the relu.
    for number in range(actions.shape[-1]):
        first = first + actions[..., number, None] * w[n_obs + number]
    first = jax.nn.relu(first)
    out, inputs = forward_inputs(params[1:], first.reshape(batch * k, -1))
    hidden = tuple(x.reshape(batch, k, -1) for x in inputs)
    return Pass(out[:, 0].reshape(batch, k), hidden)


def critic_many(params: Params, obs: jax.Array, actions: jax.Array) -> jax.Array:
    """Raw values (B, k) of k actions (B, k, A) for each observation (B, O)."""
    return critic_pass(params, obs, actions).raw


Rows = tuple[jax.Array, ...]
Passes = tuple[Pass, ...]


@jax.custom_vjp
def recall(params: Params, inputs: Rows, passes: Passes) -> Rows:
    """Raw values (n,) of each of several inputs (n, in), with their gradient by ``params``.

    They are known from ``passes``, a pass of each: there is no second one, and the inputs get no
    gradient.
    """
    return tuple(passed.raw for passed in passes)


def _recall_forward(
    params: Params, inputs: Rows, passes: Passes
) -> tuple[Rows, tuple[Params, Rows, Passes]]:
    return recall(params, inputs, passes), (params, inputs, passes)


def _recall_backward(seen: tuple[Params, Rows, Passes], d: Rows) -> tuple[Params, None, None]:
    params, inputs, passes = seen
    slopes = [each[:, None] for each in d]
    found: list[dict[str, jax.Array]] = []
    for number in range(len(params) - 1, -1, -1):
        rows = [passed.hidden[number - 1] for passed in passes] if number else inputs
        pairs = list(zip(rows, slopes, strict=True))
        # One column: as a row it needs no transposed copy of x.
        w = [(d.T @ x).T if d.shape[1] == 1 else x.T @ d for x, d in pairs]
        b = [d.sum(axis=0) for d in slopes]
        found.append({"w": sum(w[1:], w[0]), "b": sum(b[1:], b[0])})
        if number:
            slopes = [times_transposed(d, params[number]["w"]) * (x > 0) for x, d in pairs]
    return tuple(reversed(found)), None, None


recall.defvjp(_recall_forward, _recall_backward)


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
