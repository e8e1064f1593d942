"""A network as large as Q_C that is told what really followed: how much of it can be known.

`ceiling.py` tells it whether cost lay ahead, `actions.py` how much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from safecritic import networks

CHECKS = 20  # times that the network is looked at while it learns; the best counts


class Told(NamedTuple):
    """The best network seen while it learned."""

    predict: Callable[[np.ndarray], np.ndarray]  # of inputs (N, I), what follows (N,)
    held: np.ndarray  # what it predicts for the inputs it was judged by


def learn(
    inputs: np.ndarray,
    labels: np.ndarray,
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    hidden: tuple[int, ...],
    updates: int,
) -> Any:
    """Yield the network's averaged parameters now and then while it learns the labels."""
    params = networks.init(jax.random.PRNGKey(0), (inputs.shape[1], *hidden, 1))
    optimiser = optax.adamw(5e-4, weight_decay=1e-3)

    def error(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return loss(networks.forward(params, x)[:, 0], y).mean()

    @jax.jit
    def some(carry: Any, keys: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            params, opt, mean = carry
            at = jax.random.randint(key, (256,), 0, len(x))
            change, opt = optimiser.update(jax.grad(error)(params, x[at], y[at]), opt, params)
            params = optax.apply_updates(params, change)
            return (params, opt, networks.update_target(mean, params, 0.002)), None

        return jax.lax.scan(step, carry, keys)[0]

    x, y = jnp.asarray(inputs), jnp.asarray(labels, jnp.float32)
    carry = params, optimiser.init(params), params
    for keys in jax.random.split(jax.random.PRNGKey(1), (CHECKS, updates // CHECKS)):
        carry = some(carry, keys)
        yield carry[2]


def told(
    inputs: np.ndarray,
    labels: np.ndarray,
    held: np.ndarray,
    judge: Callable[[np.ndarray], float],
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    hidden: tuple[int, ...],
    updates: int,
) -> Told:
    """Teach a network the labels; `judge` says how good its predictions of `held` are."""
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0) + 1e-3
    forward = jax.jit(lambda params, rows: networks.forward(params, rows)[:, 0])

    def of(params: Any) -> Callable[[np.ndarray], np.ndarray]:
        return lambda rows: np.asarray(forward(params, (rows - mean) / spread))

    looked = learn((inputs - mean) / spread, labels, loss, hidden, updates)
    seen = [Told(of(params), of(params)(held)) for params in looked]
    return max(seen, key=lambda one: judge(one.held))
