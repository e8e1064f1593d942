"""Recall of the refinement's neighbour search (Eq. 8) against an exact search of the replay.

    safecritic train usc CarGoal1
    python benchmarks/neighbours.py runs/usc-CarGoal1-seed0

Takes random rows of a finished run's replay and compares the K neighbours that the run's search
finds (REACH rows on either side, a random block of BLOCK rows) with the K nearest of all rows: the
share found, and how much farther the found ones lie. Times are per batch, in the same process.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from safecritic import api
from safecritic.agents.cost_critic import critic_inputs
from safecritic.core import networks, refinement

SEARCHES = ((0, 256), (0, 1_024), (0, 4_096), (4, 256), (8, 0), (8, 256), (16, 256), (8, 1_024))


def median_ms(call: Any, repeats: int = 15) -> float:
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run of usc")
    parser.add_argument("--batches", type=int, default=40)
    options = parser.parse_args()
    agent = api.Agent.load(options.run)
    state, store, config = agent.training.device.agent, agent.training.device.replay, agent.config
    size, k, top = int(store.size), config.refinement.neighbours, config.refinement.top

    def critic_obs(obs: jax.Array) -> jax.Array:
        return critic_inputs(state, obs)

    stored = networks.join(critic_obs(store.obs[:size]), store.action[:size])

    @jax.jit
    def exact(rows: jax.Array, stored: jax.Array) -> jax.Array:
        """Distances (n, K) of the nearest of all rows, the row itself and the n rows left out."""
        points = stored[rows]
        squared = (points**2).sum(-1)[:, None] + (stored**2).sum(-1) - 2.0 * points @ stored.T
        squared = squared.at[:, rows].set(jnp.inf)
        _, place = jax.lax.top_k(-squared, k)
        return jnp.linalg.norm(stored[place] - points[:, None], axis=-1)

    def search(reach: int, block: int) -> Any:
        @jax.jit
        def distances(key: jax.Array, rows: jax.Array, store: Any) -> jax.Array:
            refinement.REACH, refinement.BLOCK = reach, block  # read while this is traced
            start = jax.random.randint(key, (), 0, jnp.maximum(store.size - block, 0) + 1)
            points = networks.join(critic_obs(store.obs[rows]), store.action[rows])
            nearest = refinement.find_neighbours(store, start, rows, points, critic_obs, k)
            return jnp.where(nearest.valid, nearest.distance, jnp.inf)

        return distances

    rng = np.random.default_rng(0)
    batches = [
        jnp.asarray(rng.choice(size, top, replace=False), jnp.int32) for _ in range(options.batches)
    ]
    truth = [np.asarray(exact(rows, stored)) for rows in batches]
    print(f"{size} rows, {k} neighbours, {options.batches} batches of {top}")
    print(f"exact search: {median_ms(lambda: exact(batches[0], stored)):.2f} ms")
    print(f"{'reach':>6} {'block':>6} {'recall':>7} {'distance':>9} {'ms':>6}")
    for reach, block in SEARCHES:
        call = search(reach, block)
        recalls, ratios = [], []
        for number, rows in enumerate(batches):
            distance = np.asarray(call(jax.random.PRNGKey(number), rows, store))
            # A row found is one of the K nearest if it is no farther than the K-th of them.
            limit = truth[number][:, -1:] * (1 + 1e-4) + 1e-4
            recalls.append((distance <= limit).mean())
            usable = np.isfinite(distance)
            ratios.append(np.mean(distance[usable]) / truth[number].mean())
        ms = median_ms(lambda call=call: call(jax.random.PRNGKey(0), batches[0], store))
        print(f"{reach:6} {block:6} {np.mean(recalls):7.3f} {np.mean(ratios):8.2f}x {ms:6.2f}")


if __name__ == "__main__":
    main()
