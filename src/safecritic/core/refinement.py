"""Refinement of uncertain predictions from their neighbours in the replay (Eq. 8-10).

Neighbours are looked for among a few hundred candidates: the rows around each sample, where in
tasks with a new layout per episode most of the nearest lie, and a random block of the buffer
(`benchmarks/neighbours.py` measures the recall).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic.core import networks
from safecritic.core.networks import Tree, length
from safecritic.core.replay import Replay
from safecritic.core.settings import BLOCK, REACH

OWN = 0.5  # weight of the sample's own target beside its neighbours'
LONGEST = 1.0  # largest norm of the step's gradient
BETA = 1.0  # weight of the distance to the target critic in Eq. 9
EPSILON = 1e-2  # distance to the target critic that is free in Eq. 9


class Neighbours(NamedTuple):
    rows: jax.Array  # (n, K) in the replay buffer
    distance: jax.Array  # (n, K)
    valid: jax.Array  # (n, K) False where fewer than K rows could be used


def find_neighbours(
    store: Replay,
    start: jax.Array,
    rows: jax.Array,
    points: jax.Array,
    critic_obs: Callable[[jax.Array], jax.Array],
    number: int,
) -> Neighbours:
    """Eq. 8: the K nearest candidates to each of n `rows`, which are `points` (n, D).

    Observations are compared as `critic_obs` makes them. The n uncertain rows are no candidates,
    and no row counts twice.
    """
    offsets = jnp.array([*range(-REACH, 0), *range(1, REACH + 1)], jnp.int32)
    around = rows[:, None] + offsets
    block = start + jnp.arange(min(BLOCK, len(store.cost)), dtype=jnp.int32)
    index = jnp.concatenate([around, jnp.broadcast_to(block, (len(rows), len(block)))], axis=1)
    usable = (index >= 0) & (index < store.size) & ~(index[..., None] == rows).any(axis=-1)
    again = jnp.abs(block - rows[:, None]) <= REACH  # they are among the rows around it
    usable &= jnp.concatenate([jnp.ones(around.shape, bool), ~again], axis=1)

    def squared(at: jax.Array) -> jax.Array:
        at = jnp.clip(at, 0, len(store.cost) - 1)
        seen = networks.join(critic_obs(store.obs[at]), store.action[at])
        return jnp.sum((seen - points[:, None]) ** 2, axis=-1)

    distance = jnp.sqrt(jnp.concatenate([squared(around), squared(block)], axis=1))
    least, place = jax.lax.top_k(-jnp.where(usable, distance, jnp.inf), number)
    valid = jnp.isfinite(least)
    nearest = jnp.take_along_axis(index, place, axis=1)
    return Neighbours(jnp.where(valid, nearest, rows[:, None]), -least, valid)


def interpolate(values: jax.Array, distance: jax.Array, valid: jax.Array) -> jax.Array:
    """Eq. 8: sum_k w_k c_k with w_k proportional to 1 / distance, over the valid neighbours (n, K).

    A neighbour at (nearly) no distance other than the sample itself takes all the weight.
    """
    proximity = jnp.where(valid, 1.0 / jnp.maximum(distance, 1e-6), 0.0)
    total = jnp.maximum(proximity.sum(-1, keepdims=True), 1e-30)
    return jnp.sum(proximity / total * values, axis=-1)


def loss(
    q: jax.Array, q_old: jax.Array, target: jax.Array, valid: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 9: mean of 1/2 (Q_C - c^)^2 + beta max(0, KL - eps)^2, KL = (Q_C - Q_C_old)^2 / 2.

    The KL is that of two Gaussians of unit std. `valid` (n,) drops samples without
    neighbours; members (..., n) are summed.
    """
    kl = 0.5 * (q - q_old) ** 2
    each = 0.5 * (q - target) ** 2 + BETA * jnp.maximum(kl - EPSILON, 0.0) ** 2
    share = valid / jnp.maximum(valid.sum(), 1.0)
    return jnp.sum(each * share), {
        "refine/kl": jnp.sum(kl.mean(axis=0) * share),
        "refine/target_gap": jnp.sum((target - q.mean(axis=0)) * share),
    }


def step(params: Tree, gradient: Tree, lr: float) -> tuple[Tree, jax.Array]:
    """Eq. 10: a plain gradient step, apart from the critic's own Adam and its moments.

    A gradient longer than `LONGEST` is cut to it: the cubic gradient of the penalty could make a
    plain step run away. Returns the parameters and 1 if it was cut, otherwise 0.
    """
    size = length(gradient)
    factor = jnp.float32(lr) * jnp.minimum(1.0, LONGEST / jnp.maximum(size, 1e-12))
    cut = (size > LONGEST).astype(jnp.float32)
    return jax.tree.map(lambda p, g: p - factor * g, params, gradient), cut
