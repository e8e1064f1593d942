"""Influence (Eq. 1): the Gram matrix layer by layer against one gradient per sample.

    python benchmarks/influence.py

Batch 64, networks of 256 and 256 units (85,000 parameters); both sides give the same numbers, which
is checked, and are timed in turn within one process.
"""

from __future__ import annotations

import time

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from safecritic import networks
from safecritic.critics import influence
from safecritic.networks import Members

DAMPING = 1e-2  # large enough for a float32 gradient to give the same digits


def value(z: jax.Array) -> jax.Array:
    return z.max(axis=0)


@jax.jit
def layer_by_layer(members: Members, x: jax.Array) -> jax.Array:
    return influence.batch_remainder(members, x, value, DAMPING)


@jax.jit
def per_sample(members: Members, x: jax.Array) -> jax.Array:
    def gradient(row: jax.Array) -> jax.Array:
        def q(members: Members) -> jax.Array:
            return value(jnp.stack([networks.forward(p, row[None])[:, 0] for p in members]))[0]

        return jax.flatten_util.ravel_pytree(jax.grad(q)(members))[0]

    g = jax.vmap(gradient)(x).astype(jnp.float64)
    return influence.remainder(g @ g.T, DAMPING)


def main() -> None:
    members = networks.init_members(jax.random.PRNGKey(0), (122, 256, 256, 1), 1, final=0.1)
    x = jax.random.normal(jax.random.PRNGKey(1), (64, 122), jnp.float32)
    contestants = {"layer by layer": layer_by_layer, "per sample": per_sample}
    results = {name: np.asarray(call(members, x)) for name, call in contestants.items()}
    np.testing.assert_allclose(*results.values(), rtol=1e-2)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(9):
        for name, call in contestants.items():
            jax.block_until_ready(call(members, x))  # memory that the other one gave back
            start = time.perf_counter()
            for _ in range(3):
                jax.block_until_ready(call(members, x))
            times[name].append((time.perf_counter() - start) / 3)
    middle = {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()}
    for name, ms in middle.items():
        print(f"{name:15} {ms:7.2f} ms")
    print(f"ratio {middle['per sample'] / middle['layer by layer']:.0f}")


if __name__ == "__main__":
    main()
