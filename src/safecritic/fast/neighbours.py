"""Neighbours in the replay buffer (Eq. 8) from a few hundred candidates instead of all rows.

Candidates are the rows around each sample, where in tasks with a new layout per episode most of
the nearest lie, and a random block of the buffer. `benchmarks/neighbours.py` measures the recall.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from safecritic import networks, replay
from safecritic.critics.refinement import Refinement, nearest, squared_distances
from safecritic.replay import Neighbourhood


class Neighbours(NamedTuple):
    rows: jax.Array  # (n, K) in the replay buffer
    distance: jax.Array  # (n, K)
    valid: jax.Array  # (n, K) False where fewer than K rows could be used


def find_neighbours(
    neighbourhood: Neighbourhood,
    rows: jax.Array,
    points: jax.Array,
    critic_obs: Callable[[jax.Array], jax.Array],
    part: Refinement,
) -> Neighbours:
    """Eq. 8, the K nearest of the candidates to each of n `rows`, which are `points` (n, D).

    Observations are compared as `critic_obs` makes them. The row itself is left out, no row counts
    twice, and with `refine_confident` the n uncertain rows are left out too.
    """
    window = replay.window(neighbourhood, rows, part.refine_reach)
    block = replay.block(neighbourhood, part.refine_block)

    def gaps(obs: jax.Array, action: jax.Array) -> jax.Array:
        return networks.join(critic_obs(obs), action) - points[:, None, :]

    to_window = jnp.sum(gaps(window.obs, window.action) ** 2, axis=-1)
    to_block = squared_distances(points, networks.join(critic_obs(block.obs), block.action))
    usable_window = window.index >= 0
    own = jnp.abs(block.index - rows[:, None]) <= part.refine_reach
    usable_block = (block.index >= 0) & ~own
    if part.refine_confident:
        usable_window &= ~(window.index[..., None] == rows).any(axis=-1)
        usable_block &= ~(block.index[:, None] == rows).any(axis=-1)
    squared = (
        jnp.where(usable_window, to_window, jnp.inf),
        jnp.where(usable_block, to_block, jnp.inf),
    )
    place, valid = nearest(jnp.concatenate(squared, axis=-1), part.refine_neighbours)

    width = window.index.shape[1]
    nearest_rows = neighbourhood.start + place - width
    if width:
        in_window = jnp.take_along_axis(window.index, jnp.minimum(place, width - 1), axis=-1)
        nearest_rows = jnp.where(place < width, in_window, nearest_rows)
    nearest_rows = jnp.where(valid, nearest_rows, rows[:, None])
    kept = replay.transitions(neighbourhood.store, nearest_rows)
    distance = jnp.sqrt(jnp.sum(gaps(kept.obs, kept.action) ** 2, axis=-1))
    return Neighbours(nearest_rows, distance, valid)
