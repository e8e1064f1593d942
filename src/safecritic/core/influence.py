"""Gauss-Newton influence (Eq. 1) against the replay, and the weight it gives (Eq. 2).

Eq. 1 compares a sample's gradient g of Q_C with those of the batch. With more parameters than
samples every u is then close to 1 (`agents/paper.py` has that form). Here the sum over the batch is
B times the running mean C of g g^T over the replay, g by the last layer's parameters alone: u falls
where data is dense.
"""

import os
from typing import NamedTuple

# LAPACK, loaded on first use, with one thread: the same bits on any number of cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp

DECAY = 0.999  # of the running curvature, per update
EVERY = 4  # updates between two batches added to it: a tenth of an update's time
REFRESH = 100  # updates between two factorisations
LEAST_RIDGE = 1e-12  # keeps the whitener finite in float32 while there are no gradients at all


class Curvature(NamedTuple):
    """Running second moment of a member's last-layer gradients and the whitener made from it."""

    moment: jax.Array  # (P, P)
    whitener: jax.Array  # (P, P): inverse Cholesky factor of B C + dI
    weight: jax.Array  # sum of the running mean's weights
    age: jax.Array  # updates so far


def curvature_init(width: int) -> Curvature:
    """Return the curvature before the first update."""
    whitener = jnp.eye(width + 1, dtype=jnp.float32)
    weight, age = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
    return Curvature(jnp.zeros_like(whitener), whitener, weight, age)


def last_layer_gradients(features: jax.Array, slope: jax.Array) -> jax.Array:
    """Return gradients (B, width + 1) of Q_C by the last layer's weights and bias."""
    return jnp.concatenate([features * slope[:, None], slope[:, None]], axis=-1)


def curvature_update(curvature: Curvature, gradients: jax.Array, damping: float) -> Curvature:
    """Add a batch's gradients (B, P) to the running moment, and renew the whitener now and then.

    The moment learns from every `EVERY`-th batch, the whitener is made anew every `REFRESH`
    updates; `damping` is relative to the mean of the moment's diagonal.
    """
    batch, size = gradients.shape
    kept = DECAY**EVERY

    def add(_: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        moment, weight = sums
        # tied to the moment: by itself XLA would compute the product whether it is added or not
        g, weight = jax.lax.optimization_barrier((gradients, weight))
        moment = kept * moment + (1.0 - kept) / batch * (g.T @ g)
        return moment, kept * weight + (1.0 - kept)

    # A loop that runs once or not at all: unlike a branch it leaves the moment where it is.
    times = (curvature.age % EVERY == 0).astype(jnp.int32)
    moment, weight = jax.lax.fori_loop(0, times, add, (curvature.moment, curvature.weight))

    def renew() -> jax.Array:
        c = moment * (batch / weight)
        eye = jnp.eye(size)
        # not `jnp.trace`, whose rounding depends on the number of cores
        ridge = damping * jnp.diagonal(c).sum() / size + LEAST_RIDGE
        factor = jnp.linalg.cholesky(c + ridge * eye)
        return jax.scipy.linalg.solve_triangular(factor, eye, lower=True)

    whitener = jax.lax.cond(curvature.age % REFRESH == 0, renew, lambda: curvature.whitener)
    return Curvature(moment, whitener, weight, curvature.age + 1)


def curvature_influence(curvature: Curvature, gradients: jax.Array) -> jax.Array:
    """Eq. 1 with the replay as reference: u = v / (1 + v) (B,), v = g^T (B C + dI)^-1 g.

    That is g^T (B C + g g^T + dI)^-1 g: the sample belongs to its own reference, as in the
    printed sum, so u stays below 1.
    """
    outside = jnp.sum((gradients @ curvature.whitener.T) ** 2, axis=-1)
    return outside / (1.0 + outside)


def uncertainty_weight(u: jax.Array, q: jax.Array) -> jax.Array:
    """Eq. 2: log(1 + u) (1 + [Q_C above the batch mean]), no gradient through it."""
    u, q = jax.lax.stop_gradient((u, q))
    return jnp.log1p(u) * (1.0 + (q > q.mean()))
