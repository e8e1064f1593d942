"""Noise that the draws behind the conservative term (Eq. 3) add to a step of the safety critic.

    safecritic train csc CarGoal1
    safecritic train usc CarGoal1
    python benchmarks/conservative.py runs/csc-CarGoal1-seed0 runs/usc-CarGoal1-seed0

Takes batches of a finished run's replay and, for every `conservative_share`, the gradient of the
critic's loss with several draws on the same batch. Printed is its spread over the draws, as a share
of its spread over the batches: what the draws add to the noise that a step has anyway. Beside it
stands the mean caution.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from safecritic import api, replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.cost_critic import critic_inputs
from safecritic.agents.settings import replace

SHARES = (1.0, 0.5, 0.375, 0.25, 0.125)


def spread(gradients: Sequence[np.ndarray]) -> float:
    """Root of the total variance of vectors, without bias."""
    return float(np.sqrt(np.var(np.stack(gradients), axis=0, ddof=1).sum()))


def measure(
    agent: api.Agent, shares: Sequence[float], batches: int, draws: int
) -> tuple[list[float], float]:
    """What the draws add to the noise with each share of the states, and the mean caution."""
    device = agent.training.device

    def learner(**changes: Any) -> Any:
        config = replace(agent.config, **changes)

        @jax.jit
        def learn(store: Any, state: Any, key_batch: jax.Array, key: jax.Array) -> Any:
            sizes = scaling.unit_sizes(state.units, config)
            batch = scaling.in_units(replay.sample(store, key_batch, config), sizes)
            # From nothing, Adam's first moment is the gradient but for a factor.
            fresh = optax.adam(config.safety_lr).init(state.safety)
            bound = state.cost_bound / sizes.cost
            state = state._replace(key=key, safety_opt=fresh, cost_bound=bound)
            critic_obs = critic_inputs(state, batch.obs, config)
            learned, metrics = safety_critic.update_safety(state, batch, critic_obs, config)
            moment = jax.tree.leaves(learned.safety_opt[0].mu)
            return jnp.concatenate([m.ravel() for m in moment]), metrics

        def gradient(batch: int, draw: int) -> tuple[np.ndarray, float]:
            keys = jax.random.PRNGKey(batch), jax.random.PRNGKey(1_000 + draw)
            moment, metrics = learn(device.replay, device.agent, *keys)
            return np.asarray(moment), float(metrics.get("safety/caution", 1.0))

        return gradient

    exact = learner(conservative_share=1.0, conservative_gradient="exact")
    gradients, cautions = zip(*(exact(batch, 0) for batch in range(batches)), strict=True)
    anyway = spread(gradients)
    added = []
    for share in shares:
        drawn = learner(conservative_share=share)
        by_batch = [spread([drawn(b, d)[0] for d in range(draws)]) for b in range(batches)]
        added.append(float(np.sqrt(np.mean(np.square(by_batch)))) / anyway)
    return added, float(np.mean(cautions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs of csc, usc-nr or usc")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--draws", type=int, default=10, help="on each batch")
    options = parser.parse_args()
    width = max(20, *(len(run.name) for run in options.runs))
    print(f"{'share of the states':{width}}" + "".join(f" {s:7}" for s in SHARES) + "  caution")
    for run in options.runs:
        agent = api.Agent.load(run)
        added, caution = measure(agent, SHARES, options.batches, options.draws)
        cells = "".join(f" {noise:7.1%}" for noise in added)
        print(f"{run.name:{width}}{cells} {caution:8.2f}", flush=True)


if __name__ == "__main__":
    main()
