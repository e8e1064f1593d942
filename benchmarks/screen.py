"""What the remaining budget changes in a screen, and what that is worth, on the same scenes.

    python benchmarks/screen.py RUN ... --scenes 200 --limits 1 2 5 --out screen.png

Each run is deployed three times on the same scenes: with its screen, whose tolerance falls with the
remaining budget; with the same tolerance kept constant; and without a screen. With `--limits` that
is done for budgets other than the one it was trained with. `changed` is the
share of the decisions that differ between a whole and a spent budget in the states of the first.
Differences have 95% bootstrap intervals over the scenes of all runs of one task and limit.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.agent_classes import agent_class
from safecritic.run.rollout import Rollout

WAYS = ("budget", "constant", "off")
SEED = 20_000  # of the first scene: no other benchmark uses these


def deploy(agent: Any, way: str, limit: float, scenes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cost, success and reward of every scene (N, 3), and all observations."""
    policy = agent.policy(screen=way != "off")
    policy.limit = limit
    policy.network.parts = policy.network.parts._replace(budget=way == "budget", limit=limit)
    rollout, rows, seen = Rollout(agent.env), [], []
    for seed in range(SEED, SEED + scenes):
        rollout.reset(seed=seed)
        steps = list(rollout.play(policy))
        reward = sum(step.reward for step in steps)
        rows.append((rollout.episode.cost, float(any(step.success for step in steps)), reward))
        seen += [step.obs for step in steps]
    return np.array(rows), np.stack(seen)


def share_changed(agent: Any, limit: float, observations: np.ndarray) -> float:
    """Return the share of decisions that differ between a whole and a spent budget."""
    network = agent.policy().network
    network.parts = network.parts._replace(limit=limit)
    whole, spent = (
        network.decide(observations, np.full(len(observations), left, np.float32))
        for left in (limit, -1e-6)
    )
    apart = np.abs(whole.unit_action - spent.unit_action).max(axis=1) > 1e-3
    return float(apart.mean())


def measure(paths: list[Path], scenes: int, limits: list[float]) -> list[dict[str, Any]]:
    """Return one row for each task, limit and way to deploy."""
    groups: dict[tuple[str, float], list[Any]] = {}
    for path in paths:
        method = json.loads((path / "config.json").read_text())["method"]
        agent = agent_class(method).load(path)
        for limit in limits or [agent.config.cost_limit]:
            groups.setdefault((agent.environment["task"], limit), []).append(agent)
    table = []
    for (task, limit), agents in groups.items():
        results = {way: [deploy(agent, way, limit, scenes) for agent in agents] for way in WAYS}
        episodes = {way: np.concatenate([rows for rows, _ in results[way]]) for way in WAYS}
        seen = [obs for _, obs in results["budget"]]
        changed = [
            share_changed(agent, limit, obs) for agent, obs in zip(agents, seen, strict=True)
        ]
        for way in WAYS:
            cost, success, reward = episodes[way].mean(axis=0)
            row = {"task": task, "limit": limit, "screen": way, "cost": cost, "success": success}
            row |= {"reward": reward, "policies": len(agents)}
            if way != "off":
                gap = episodes[way][:, 0] - episodes["off"][:, 0]
                row["saved"] = (gap.mean(), *paired_interval(gap))
            if way == "budget":
                row["changed"] = float(np.mean(changed))
            table.append(row)
            print(text(row), flush=True)
    return table


def paired_interval(gaps: np.ndarray) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the mean of paired differences."""
    rng = np.random.default_rng(0)
    means = rng.choice(gaps, (2_000, len(gaps))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def text(row: dict[str, Any]) -> str:
    """Return a row of the table in Markdown."""
    saved = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*row["saved"]) if "saved" in row else ""
    changed = f"{row['changed']:.1%}" if "changed" in row else ""
    return (
        f"| {row['task']} | {row['limit']:g} | {row['screen']} | {row['cost']:.2f} | {saved} "
        f"| {row['success']:.1%} | {row['reward']:.2f} | {changed} |"
    )


def draw(table: list[dict[str, Any]], path: Path) -> None:
    """Draw cost against the limit for each way to deploy, and the decisions that change."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(row["task"] for row in table))
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(4.2 * len(tasks), 3.4), squeeze=False, layout="constrained"
    )
    colours = dict(zip(WAYS, ("#0072b2", "#e69f00", "#8c8c8c"), strict=True))
    names = {
        "budget": "tolerance falls with the budget",
        "constant": "constant",
        "off": "no screen",
    }
    for axis, task in zip(axes[0], tasks, strict=True):
        rows = [row for row in table if row["task"] == task]
        limits = sorted({row["limit"] for row in rows})
        for number, way in enumerate(WAYS):
            costs = [row["cost"] for row in rows if row["screen"] == way]
            at = np.arange(len(costs)) + 0.26 * (number - 1)
            axis.bar(at, costs, 0.24, color=colours[way], label=names[way])
        for place, limit in enumerate(limits):
            axis.hlines(limit, place - 0.42, place + 0.42, color="#222222", lw=1.2)
        shares = [row["changed"] for row in rows if "changed" in row]
        labels = [
            f"limit {limit:g}\n{share:.0%}" for limit, share in zip(limits, shares, strict=True)
        ]
        axis.set_xticks(range(len(limits)), labels, fontsize=8)
        axis.set_title(task, fontsize=10)
        axis.set_xlabel("below: decisions that differ, nothing or all spent", fontsize=8)
        axis.set_ylabel("cost per episode (line: the limit)", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    names_of = axes[0][0].get_legend_handles_labels()
    figure.legend(*names_of, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument(
        "--limits", type=float, nargs="*", default=[], help="budgets to deploy with"
    )
    parser.add_argument("--out", type=Path, help="PNG to draw")
    options = parser.parse_args()
    print("| task | limit | screen | cost | against none | success | reward | changed |")
    print("|---|---|---|---|---|---|---|---|")
    table = measure(options.runs, options.scenes, options.limits)
    if options.out:
        draw(table, options.out)


if __name__ == "__main__":
    main()
