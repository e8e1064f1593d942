"""How well can cost be foreseen at all? AUC of Q_C beside a network that was told what followed.

    safecritic train usc CarButton1
    python benchmarks/ceiling.py runs/usc-CarButton1-seed0

The policy is deployed in fresh episodes. On some of them a network as large as Q_C, with the inputs
that Q_C has, learns which decisions had cost ahead within 1/(1 - gamma) decisions: the answer that
Q_C is asked for by its AUC, as a label. Its AUC on the other episodes is what these inputs tell of
that answer, as far as so many episodes teach it (it is looked at 20 times, and the best counts).
Where Q_C has no less, more training will not make it better; a shorter horizon or other inputs may.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from safecritic import api
from safecritic.agents.cost_critic import critic_inputs
from safecritic.agents.safety_critic import SafetyCriticSettings
from safecritic.evaluation.critic_quality import CriticSteps, auc, usable_steps
from safecritic.evaluation.statistics import Interval, bootstrap
from told import told

SEED = 40_000  # of the first scene, far from all others


def scenes(
    agent: api.Agent, episodes: int, seed: int
) -> tuple[np.ndarray, CriticSteps, np.ndarray]:
    """Return inputs, outcome and episode of the decisions whose outcome was seen."""
    found = agent.evaluate(episodes=episodes, seed=seed)
    usable = [usable_steps(trace, agent.config.gamma) for trace in found.traces]
    number = np.repeat(np.arange(episodes), [int(mask.sum()) for mask in usable])
    obs = found.observations[np.concatenate(usable)]
    state = agent.training.device.agent
    inputs = critic_inputs(state, jnp.asarray(obs, jnp.float32), agent.config)
    return np.asarray(inputs), found.steps, number


def interval(scores: np.ndarray, steps: CriticSteps, number: np.ndarray) -> Interval:
    """Return an AUC with its 95% interval over episodes."""
    rows = [np.flatnonzero(number == one) for one in np.unique(number)]

    def of(parts: Any) -> np.ndarray:
        drawn = [np.concatenate([rows[int(at)] for at in some]) for some in parts[0]]
        return np.array([auc(scores[at], steps.positive[at]) for at in drawn])

    return bootstrap([np.arange(len(rows))], of, resamples=500)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs with a safety critic")
    parser.add_argument("--episodes", type=int, default=1_000, help="to learn from (default 1,000)")
    parser.add_argument("--held-out", type=int, default=200, help="to judge by (default 200)")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=SEED, help=f"first scene (default {SEED})")
    options = parser.parse_args()
    print("| run | decisions | with cost ahead | AUC of Q_C | AUC of the told network |")
    print("|---|---|---|---|---|")
    for run in options.runs:
        agent = api.Agent.load(run)
        if not isinstance(agent.config, SafetyCriticSettings):
            parser.error(f"{run} holds an agent of {agent.method}, which has no safety critic")
        x, known, _ = scenes(agent, options.episodes, options.seed + options.held_out)
        held, steps, number = scenes(agent, options.held_out, options.seed)
        network = told(
            x,
            known.positive,
            held,
            lambda scores, seen=steps.positive: auc(scores, seen),
            optax.sigmoid_binary_cross_entropy,
            agent.config.hidden,
            options.updates,
        )
        cells = [
            f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"
            for one in (interval(scores, steps, number) for scores in (steps.q_cost, network.held))
        ]
        share = f"{steps.positive.mean():.0%}"
        print(f"| {run.name} | {len(x):,} | {share} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
