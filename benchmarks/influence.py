"""Influence (Eq. 1): as printed, with one gradient per sample or a Gram matrix, and as used.

    python benchmarks/influence.py

Batch 64, networks of 256 and 256 units (85,000 parameters). The first two give the same numbers,
which is checked; all are timed in turn within one process. "as used" has the running curvature of
the last layer as its reference, of which it factorises a hundredth per update.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from safecritic.agents import paper
from safecritic.core import influence, networks
from safecritic.core.networks import Params

DAMPING = 1e-2  # large enough for a float32 gradient to give the same digits
UPDATES = 100  # timed together: the curvature is factorised once in them


@jax.jit
def gram(params: Params, x: jax.Array) -> jax.Array:
    state: Any = SimpleNamespace(safety=(params,))
    return paper.influence_printed(state, x, DAMPING)[0]


@jax.jit
def per_sample(params: Params, x: jax.Array) -> jax.Array:
    def gradient(row: jax.Array) -> jax.Array:
        def q(params: Params) -> jax.Array:
            return networks.forward(params, row[None])[0, 0]

        return jax.flatten_util.ravel_pytree(jax.grad(q)(params))[0]

    g = jax.vmap(gradient)(x)
    sizes, vectors = jnp.linalg.eigh(g @ g.T)
    return jnp.sum(vectors**2 * sizes / (sizes + DAMPING), axis=-1)


@jax.jit
def as_used(
    params: Params, x: jax.Array, curvature: influence.Curvature
) -> tuple[jax.Array, influence.Curvature]:
    _, features = networks.forward_inputs(params, x)
    gradients = influence.last_layer_gradients(features, jnp.ones(len(x), jnp.float32))
    curvature = influence.curvature_update(curvature, gradients, 1e-3)
    return influence.curvature_influence(curvature, gradients), curvature


def main() -> None:
    (params,) = networks.init_members(jax.random.PRNGKey(0), (122, 256, 256, 1), 1, final=0.1)
    x = jax.random.normal(jax.random.PRNGKey(1), (64, 122), jnp.float32)
    np.testing.assert_allclose(gram(params, x), per_sample(params, x), rtol=1e-2)
    curvature = influence.curvature_init(256)

    def used() -> jax.Array:
        nonlocal curvature
        u, curvature = as_used(params, x, curvature)
        return u

    contestants = {
        "one gradient per sample": lambda: per_sample(params, x),
        "Gram matrix": lambda: gram(params, x),
        "as used": used,
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(5):
        for name, call in contestants.items():
            jax.block_until_ready(call())  # memory that the other one gave back
            start = time.perf_counter()
            for _ in range(UPDATES):
                jax.block_until_ready(call())
            times[name].append((time.perf_counter() - start) / UPDATES)
    middle = {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()}
    for name, ms in middle.items():
        print(
            f"{name:24} {ms:7.2f} ms, {middle['one gradient per sample'] / ms:5.0f} times as fast"
        )


if __name__ == "__main__":
    main()
