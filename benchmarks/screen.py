"""What the screen is worth: the same scenes with it, without its escape, and without it.

    safecritic study tasks.toml --out runs/tasks
    python benchmarks/screen.py runs/tasks/runs/usc-CarButton1-seed*
    python benchmarks/screen.py RUN --set tolerance=1.0 --set screen_price=0.5    # another screen

Deploys each policy in the same fresh scenes three times and prints cost, success and reward, means
over scenes and then over policies, and the differences from the policy without its screen with
their 95% interval: scenes are drawn again within each policy (bootstrap). Runs are loaded with
today's defaults of what their version did not know.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from mechanisms import policy_of
from safecritic import api
from safecritic.agents.settings import replace
from safecritic.evaluation.evaluate import Policy, escape_of, run_episode
from safecritic.evaluation.statistics import bootstrap
from safecritic.run.episode import episode_row

SEED = 70_000  # of the first scene, far from all others
COLUMNS = {"cost": 2, "success": 3, "reward": 2}


def rows(agent: api.Agent, policy: Policy, scenes: int, seed: int) -> np.ndarray:
    """Return cost, success and reward of each scene, (scenes, 3)."""
    found = []
    with agent.lent_env("this") as (env, _):
        for number in range(scenes):
            trace, _, _ = run_episode(env, policy, seed + number)
            row = episode_row(trace, agent.config.gamma, env)
            found.append([row[name] for name in COLUMNS])
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs of one task")
    parser.add_argument("--scenes", type=int, default=500, help="of each policy (default 500)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"first scene (default {SEED})")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the screen"
    )
    options = parser.parse_args()
    changes = {}
    for text in options.set:
        name, _, value = text.partition("=")
        changes[name] = json.loads(value) if value[:1] in "-.0123456789" else value
    kinds: dict[str, list[np.ndarray]] = {"off": [], "without escape": [], "on": []}
    for run in options.runs:
        agent = api.Agent.load(run)
        if getattr(agent.config, "screen", None) is None:
            parser.error(f"{run} holds an agent of {agent.method} without a screen")
        policies = {
            "off": policy_of(agent, options.seed, screen=False),
            "without escape": policy_of(agent, options.seed, **changes),
            "on": policy_of(agent, options.seed, **changes),
        }
        config = replace(agent.config, **changes)
        state, size = agent.training.device.agent, agent.training.spec.obs_dim
        policies["on"].escape = escape_of(state, config, size)
        for name, policy in policies.items():
            kinds[name].append(rows(agent, policy, options.scenes, options.seed))
        means = ", ".join(f"{name} {x[-1][:, 0].mean():.2f}" for name, x in kinds.items())
        print(f"{run.name}: cost {means}", flush=True)
    print(f"\n| screen | {' | '.join(COLUMNS)} | costliest |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    off = kinds["off"]
    for name, parts in kinds.items():
        cells = []
        for at, digits in enumerate(COLUMNS.values()):
            text = f"{np.mean([part[:, at].mean() for part in parts]):.{digits}f}"
            if name != "off":
                gaps = [part[:, at] - base[:, at] for part, base in zip(parts, off, strict=True)]
                gap = bootstrap(
                    gaps, lambda drawn: np.mean([x.mean(axis=1) for x in drawn], axis=0)
                )
                form = f"+.{digits}f"
                text += f" ({gap.value:{form}} [{gap.low:{form}}, {gap.high:{form}}])"
            cells.append(text)
        most = max(part[:, 0].max() for part in parts)
        print(f"| {name} | {' | '.join(cells)} | {most:.0f} |")


if __name__ == "__main__":
    main()
