"""Is the exported file the policy that was evaluated? Its episodes beside those of `evaluate`.

    python benchmarks/closed_loop.py runs/usc-CarGoal1-seed0 ...

Exports each run, lets the runtime drive the task from the file in the scenes of `evaluate`, with
ONNX Runtime and with NumPy, and counts the episodes of the same cost. Rounding differs between the
engines, so two choices that are worth the same may be made either way.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from safecritic import api
from safecritic.deploy.certificate import run_episode
from safecritic.runtime import load
from safecritic.tasks.repeat import single_steps

CLOSE = 1e-3  # of a cost, which may be a distance or a speed, after an episode of rounding


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--episodes", type=int, default=100, help="of each run (default 100)")
    parser.add_argument("--seed", type=int, default=api.EVALUATION_SEED, help="of the first scene")
    options = parser.parse_args()
    scenes = range(options.seed, options.seed + options.episodes)
    print("| run | engine | equal episodes | cost, evaluate | cost, file | faults |")
    print("|---|---|---|---|---|---|")
    for run in options.runs:
        agent = api.Agent.load(run)
        there = agent.evaluate(options.episodes, options.seed).episodes
        expected = np.array([row["cost"] for row in there])
        with tempfile.TemporaryDirectory() as folder:
            path = agent.export(Path(folder) / "policy.safecritic")
            for engine in ("onnx", "numpy"):
                policy = load(path, engine=engine, clock=None, on_fault=lambda *_: None)
                with agent.lent_env("this") as (env, _), single_steps(env) as (bare, _):
                    cost = np.array([run_episode(policy, bare, scene)[0] for scene in scenes])
                equal = int((np.abs(cost - expected) <= CLOSE).sum())
                print(
                    f"| {run.name} | {engine} | {equal} of {len(cost)} | {expected.mean():.3f} "
                    f"| {cost.mean():.3f} | {policy.counts['faults']} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
