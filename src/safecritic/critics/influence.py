"""Gauss-Newton influence (Eq. 1) without per-sample gradients, and the caution it gives (Eq. 2).

With G (B x P) the gradients of Q_C for the batch, Eq. 1 asks for diag(G (G^T G + dI)^-1 G^T), which
is diag(K (K + dI)^-1) with K = G G^T (B x B). For a perceptron

    K = sum over layers of (A A^T + 1) o (D D^T)

with A the inputs of the layer, D the gradients at its pre-activations and o elementwise; the 1 is
the bias. G is never formed. With more parameters than samples every u is close to 1, so the
remainder 1 - u = d diag((K + dI)^-1) is computed directly, in float64.

The larger reference set ("replay") replaces the sum over the batch by B times its running mean
over the replay, for the last layer alone: then u falls where data is dense.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from safecritic import networks
from safecritic.agents.settings import Part, require, require_positive
from safecritic.fast.products import times_transposed
from safecritic.networks import Members, Params

Doubt = Literal["influence", "spread", "error", "chance"]


@dataclass(frozen=True, kw_only=True)
class Influence(Part):
    """Eq. 1 and 2: how uncertain Q_C is about a sample, and the caution that follows."""

    TITLE: ClassVar[str] = "influence"

    reference: Literal["replay", "batch"] = "replay"  # what Eq. 1 compares with; paper: batch
    damping: float = 1e-6  # d of Eq. 1, for the reference "batch"
    replay_damping: float = 1e-3  # damping relative to the mean curvature, for "replay"
    curvature_decay: float = 0.999  # decay of the running curvature, per update
    curvature_every: int = 4  # updates between two batches added to the curvature
    curvature_refresh: int = 50  # updates between two factorisations of the curvature
    caution_from: Doubt = "influence"  # what caution follows; others show what u is worth
    caution_indicator: bool = True  # double the caution where Q_C is above the batch's mean

    def check(self) -> None:
        super().check()
        require_positive(self, "damping", "replay_damping")
        require_positive(self, "curvature_every", "curvature_refresh")
        decay = self.curvature_decay
        require(0 <= decay < 1, "curvature_decay", "in [0, 1)", decay)


def preactivation_gradients(
    params: Params, inputs: tuple[jax.Array, ...], slope: jax.Array
) -> tuple[jax.Array, ...]:
    """Return D of every layer, (B, width), from `slope` = dQ_C/dz of the raw output (B,)."""
    d = slope[:, None]
    gradients = [d]
    for layer, x in zip(params[:0:-1], inputs[:0:-1], strict=True):
        d = (d @ layer["w"].T) * (x > 0)
        gradients.append(d)
    return tuple(reversed(gradients))


def gram(inputs: tuple[jax.Array, ...], gradients: tuple[jax.Array, ...]) -> jax.Array:
    """Return K = G G^T (B, B) of one network in float64, layer by layer."""
    total = jnp.zeros((), jnp.float64)
    for a, d in zip(inputs, gradients, strict=True):
        a, d = a.astype(jnp.float64), d.astype(jnp.float64)
        total = total + (a @ a.T + 1.0) * (d @ d.T)
    return total


def _remainder_cholesky(k: jax.Array, damping: float) -> tuple[jax.Array, jax.Array]:
    """Return the remainder and whether the factor can be trusted."""
    n = k.shape[-1]
    eye = jnp.eye(n, dtype=k.dtype)
    # Unit diagonal: gradients of very different size then cost no accuracy.
    scale = jax.lax.rsqrt(jnp.diagonal(k) + damping)
    factor = jnp.linalg.cholesky((k + damping * eye) * scale[:, None] * scale)
    inverse = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
    remainder = damping * scale**2 * jnp.sum(inverse**2, axis=0)
    pivot = jnp.min(jnp.diagonal(factor))
    # A squared pivot near the rounding error of the diagonal carries no digits.
    sound = jnp.isfinite(remainder).all() & (pivot**2 > 1e-12)
    return remainder, sound


def _remainder_eigen(k: jax.Array, damping: float) -> jax.Array:
    n = k.shape[-1]
    size = jnp.maximum(jnp.max(jnp.abs(k)), jnp.finfo(k.dtype).tiny)
    lam, vectors = jnp.linalg.eigh(k / size)
    # Below the rounding error of the largest an eigenvalue is zero (duplicates, dead units).
    noise = n * jnp.finfo(k.dtype).eps * lam[-1]
    lam = jnp.where(lam > noise, lam, 0.0)
    share = damping / size
    return jnp.sum(vectors**2 * (share / (lam + share)), axis=-1)


def remainder(k: jax.Array, damping: float) -> jax.Array:
    """Eq. 1 as 1 - u = d diag((K + dI)^-1), in float64 and within [0, 1].

    A scaled Cholesky factor; when that breaks down (duplicates with a tiny d) a clamped
    eigen-decomposition, which cannot.
    """
    k = k.astype(jnp.float64)
    rest, sound = _remainder_cholesky(k, damping)
    rest = jax.lax.cond(sound, lambda: rest, lambda: _remainder_eigen(k, damping))
    return jnp.clip(rest, 0.0, 1.0)


def batch_remainder(
    members: Members, x: jax.Array, value: Callable[[jax.Array], jax.Array], damping: float
) -> jax.Array:
    """Eq. 1 with the batch as reference: 1 - u (B,) of the rows `x` (B, in), all in float64.

    `value` maps the raw outputs (members, B) to Q_C (B,): its slope is part of the gradient, and
    the parameters of all members are one vector, so that their Gram matrices add up.
    """
    members, x = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (members, x))
    passes = [networks.forward_inputs(params, x) for params in members]
    q, pull = jax.vjp(value, jnp.stack([z[:, 0] for z, _ in passes]))
    (slope,) = pull(jnp.ones_like(q))
    grams = [
        gram(inputs, preactivation_gradients(params, inputs, slope[m]))
        for m, (params, (_, inputs)) in enumerate(zip(members, passes, strict=True))
    ]
    return remainder(sum(grams[1:], grams[0]), damping)


LEAST_RIDGE = 1e-12  # keeps the whitener finite in float32 while there are no gradients at all


class Curvature(NamedTuple):
    """Running second moment of a member's last-layer gradients and the whitener made from it."""

    moment: jax.Array  # (P, P)
    whitener: jax.Array  # (P, P): inverse Cholesky factor of B C + dI
    weight: jax.Array  # sum of the running mean's weights
    age: jax.Array  # updates so far


def curvature_init(width: int) -> Curvature:
    """Return the curvature before the first update."""
    size = width + 1
    return Curvature(
        moment=jnp.zeros((size, size), jnp.float32),
        whitener=jnp.eye(size, dtype=jnp.float32),
        weight=jnp.zeros((), jnp.float32),
        age=jnp.zeros((), jnp.int32),
    )


def last_layer_gradients(features: jax.Array, slope: jax.Array) -> jax.Array:
    """Return gradients (B, width + 1) of Q_C by the last layer's weights and bias."""
    return jnp.concatenate([features * slope[:, None], slope[:, None]], axis=-1)


def curvature_update(curvature: Curvature, gradients: jax.Array, part: Influence) -> Curvature:
    """Add a batch's gradients (B, P) to the running moment, and renew the whitener now and then.

    The moment learns from every `curvature_every`-th batch, the whitener is made anew every
    `curvature_refresh` updates. `curvature_decay` is that of one update; `replay_damping` is
    relative to the mean of the moment's diagonal.
    """
    batch, size = gradients.shape
    kept = part.curvature_decay**part.curvature_every

    def add(_: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        moment, weight = sums
        # tied to the moment: by itself XLA would compute the product whether it is added or not
        g, weight = jax.lax.optimization_barrier((gradients, weight))
        moment = kept * moment + (1.0 - kept) / batch * (g.T @ g)
        return moment, kept * weight + (1.0 - kept)

    # A loop that runs once or not at all: unlike a branch it leaves the moment where it is.
    times = (curvature.age % part.curvature_every == 0).astype(jnp.int32)
    moment, weight = jax.lax.fori_loop(0, times, add, (curvature.moment, curvature.weight))

    def renew() -> jax.Array:
        c = moment.astype(jnp.float64) * (batch / weight)
        eye = jnp.eye(size, dtype=jnp.float64)
        ridge = part.replay_damping * jnp.trace(c) / size + LEAST_RIDGE
        factor = jnp.linalg.cholesky(c + ridge * eye)
        whitener = jax.scipy.linalg.solve_triangular(factor, eye, lower=True)
        return whitener.astype(jnp.float32)

    whitener = jax.lax.cond(
        curvature.age % part.curvature_refresh == 0, renew, lambda: curvature.whitener
    )
    return Curvature(moment, whitener, weight, curvature.age + 1)


def curvature_influence(curvature: Curvature, gradients: jax.Array) -> jax.Array:
    """Eq. 1 with the replay as reference: u = v / (1 + v) (B,), v = g^T (B C + dI)^-1 g.

    That is g^T (B C + g g^T + dI)^-1 g: the sample belongs to its own reference, as in the
    printed sum, so u stays below 1.
    """
    outside = jnp.sum(times_transposed(gradients, curvature.whitener) ** 2, axis=-1)
    return outside / (1.0 + outside)


def caution(u: jax.Array, q: jax.Array, indicator: bool = True) -> jax.Array:
    """Eq. 2: log(1 + u) (1 + [Q_C above the batch mean]), no gradient through it."""
    u, q = jax.lax.stop_gradient((u, q))
    return jnp.log1p(u) * (1.0 + (q > q.mean())) if indicator else jnp.log1p(u)


def other_doubt(q: jax.Array, targets: jax.Array, chance: jax.Array, source: str) -> jax.Array:
    """Return what may stand in the place of u, (B,) in [0, 1), to show what u is worth.

    `q` (members, B) and `targets` (B,): the spread of the members or the error of their mean, each
    relative to its mean over the batch as x / (1 + x); or `chance`, which knows nothing.
    """
    if source == "chance":
        return chance
    x = q.std(axis=0) if source == "spread" else jnp.abs(q.mean(axis=0) - targets)
    x = jax.lax.stop_gradient(x / jnp.maximum(x.mean(), LEAST_RIDGE))
    return x / (1.0 + x)
