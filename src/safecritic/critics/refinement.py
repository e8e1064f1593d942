"""Refinement of uncertain predictions from their neighbours in the replay (Eq. 8-10)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from safecritic.agents.settings import Part, require_not_negative, require_positive, require_share
from safecritic.networks import Tree, length


@dataclass(frozen=True, kw_only=True)
class Refinement(Part):
    """Eq. 8-10: refine the most uncertain samples; of its numbers the paper gives `refine_lr`."""

    TITLE: ClassVar[str] = "refinement"

    refine_target: Literal["n-step", "bellman", "cost"] = "n-step"  # of neighbours; paper: cost
    refine_own: float = 0.5  # weight of the sample's own target beside its neighbours'; paper: 0
    refine_top: int = 8  # number of samples refined, n
    refine_neighbours: int = 5  # number of neighbours of each sample, K
    refine_lr: float = 1e-3  # step size of Eq. 10
    refine_clip: float = 1.0  # largest norm of the gradient; 0: no limit; paper: 0
    refine_beta: float = 1.0  # weight of the distance to the target critic in Eq. 9
    refine_epsilon: float = 1e-2  # distance to the target critic that is free in Eq. 9
    refine_confident: bool = True  # leave out neighbours that are among the n uncertain samples
    refine_block: int = 256  # rows searched for neighbours: a random block of the replay
    refine_reach: int = 8  # rows on either side of the sample, searched as well

    def check(self) -> None:
        super().check()
        require_positive(self, "refine_top", "refine_neighbours", "refine_block")
        require_not_negative(self, "refine_lr", "refine_beta", "refine_epsilon")
        require_not_negative(self, "refine_reach", "refine_clip")
        require_share(self, "refine_own")


def squared_distances(points: jax.Array, candidates: jax.Array) -> jax.Array:
    """Return |p - c|^2 (n, M) by one matrix product: for ranking, as it loses digits near zero."""
    cross = points @ candidates.T
    return (points**2).sum(-1)[:, None] + (candidates**2).sum(-1) - 2.0 * cross


def nearest(squared: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return places (n, K) of the k least squared distances (n, C), and which are finite."""
    value, place = jax.lax.top_k(-squared, k)
    return place, jnp.isfinite(value)


def interpolate(values: jax.Array, distance: jax.Array, valid: jax.Array) -> jax.Array:
    """Eq. 8: sum_k w_k c_k with w_k proportional to 1 / distance, over the valid neighbours (n, K).

    A neighbour at (nearly) no distance other than the sample itself takes all the weight.
    """
    closeness = jnp.where(valid, 1.0 / jnp.maximum(distance, 1e-6), 0.0)
    total = jnp.maximum(closeness.sum(-1, keepdims=True), 1e-30)
    return jnp.sum(closeness / total * values, axis=-1)


def loss(
    q: jax.Array,
    q_old: jax.Array,
    target: jax.Array,
    valid: jax.Array,
    beta: float,
    epsilon: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 9: mean of 1/2 (Q_C - c^)^2 + beta max(0, KL - eps)^2, KL = (Q_C - Q_C_old)^2 / 2.

    The KL is that of two Gaussians of unit spread. `valid` (n,) drops samples without
    neighbours; members (..., n) are summed.
    """
    kl = 0.5 * (q - q_old) ** 2
    each = 0.5 * (q - target) ** 2 + beta * jnp.maximum(kl - epsilon, 0.0) ** 2
    share = valid / jnp.maximum(valid.sum(), 1.0)
    return jnp.sum(each * share), {
        "refine/kl": jnp.sum(kl.mean(axis=0) * share),
        "refine/target_gap": jnp.sum((target - q.mean(axis=0)) * share),
    }


def step(params: Tree, gradient: Tree, lr: float, longest: float) -> tuple[Tree, jax.Array]:
    """Eq. 10: a plain gradient step, apart from the critic's own Adam and its moments.

    A gradient longer than `longest` is cut to it (0: never): a plain step on a few samples has
    no bound of its own, and the cubic gradient of the penalty can make it run away. Beside the
    new parameters stands 1 if it was cut, otherwise 0.
    """
    factor, cut = jnp.asarray(lr, jnp.float32), jnp.zeros((), jnp.float32)
    if longest > 0:
        size = length(gradient)
        factor *= jnp.minimum(1.0, longest / jnp.maximum(size, 1e-12))
        cut = (size > longest).astype(jnp.float32)
    return jax.tree.map(lambda p, g: p - factor * g, params, gradient), cut
