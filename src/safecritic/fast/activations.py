"""A critic's pass with what its layers saw, made once and read by several.

Influence (Eq. 1), margin and gradient (Eq. 3) all need the critic on the data's actions. The
gradient by the parameters is the one `jax.grad` would give, from the pass that was made already.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic.fast.products import times_transposed
from safecritic.networks import Members, Params, forward_inputs, shift


class Activations(NamedTuple):
    """Raw values of k actions for each observation, and the inputs of the layers."""

    raw: jax.Array  # (B, k)
    hidden: tuple[jax.Array, ...]  # (B, k, width) each: the inputs of every layer but the first

    def first(self) -> "Activations":
        """Return those of the first action of each observation: (B,) and (B, width)."""
        return Activations(self.raw[:, 0], tuple(x[:, 0] for x in self.hidden))

    def at(self, place: jax.Array) -> "Activations":
        """Return those of the action at `place` (B,) of each observation: (B,) and (B, width)."""
        each = jnp.arange(len(place))

        def take(x: jax.Array) -> jax.Array:
            return x.at[each, place].get(mode="promise_in_bounds")

        return Activations(take(self.raw), tuple(take(x) for x in self.hidden))


def forward_actions(params: Params, obs: jax.Array, actions: jax.Array) -> Activations:
    """Return a critic's pass over k actions (B, k, A) for each observation (B, O).

    The observation's share of the first layer is computed once for all k.
    """
    n_obs = obs.shape[-1]
    batch, k = actions.shape[:2]
    w = params[0]["w"]
    first = (obs @ w[:n_obs])[:, None, :]
    # An action has few numbers: term by term this is one pass over the units, with the relu.
    for number in range(actions.shape[-1]):
        first = first + actions[..., number, None] * w[n_obs + number]
    first = jax.nn.relu(shift(first, params[0]))
    out, inputs = forward_inputs(params[1:], first.reshape(batch * k, -1))
    hidden = tuple(x.reshape(batch, k, -1) for x in inputs)
    return Activations(out[:, 0].reshape(batch, k), hidden)


def forward_members(members: Members, obs: jax.Array, action: jax.Array) -> tuple[Activations, ...]:
    """Return each member's pass over one action (B, A) for each observation (B, O)."""
    return tuple(forward_actions(params, obs, action[:, None]).first() for params in members)


def raw_values(passes: tuple[Activations, ...]) -> jax.Array:
    """Return the members' raw values, stacked along a first axis."""
    return jnp.stack([one.raw for one in passes])


Passes = tuple[Activations, ...]


@jax.custom_vjp
def value_from_activations(params: Params, inputs: jax.Array, one: Activations) -> jax.Array:
    """Return raw values (n,) of inputs (n, in), with their gradient by `params`.

    They are known from the pass `one`: there is no second one, and the inputs get no gradient.
    """
    return one.raw


def _forward(
    params: Params, inputs: jax.Array, one: Activations
) -> tuple[jax.Array, tuple[Params, jax.Array, Activations]]:
    return one.raw, (params, inputs, one)


def _backward(
    seen: tuple[Params, jax.Array, Activations], d: jax.Array
) -> tuple[Params, None, None]:
    params, inputs, one = seen
    slope = d[:, None]
    gradients: list[dict[str, jax.Array]] = []
    for number in range(len(params) - 1, -1, -1):
        x = one.hidden[number - 1] if number else inputs
        # One column: as a row it needs no transposed copy of x.
        w = (slope.T @ x).T if slope.shape[1] == 1 else x.T @ slope
        gradients.append({"w": w, "b": slope.sum(axis=0)})
        if number:
            slope = times_transposed(slope, params[number]["w"]) * (x > 0)
    return tuple(reversed(gradients)), None, None


value_from_activations.defvjp(_forward, _backward)
