"""Episodes of a deployed policy: no exploration noise, screen on. What they cost and reached."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluate.critic_quality import CriticSteps, critic_quality, critic_steps
from safecritic.evaluate.verdict import Verdict, of_costs, of_critic
from safecritic.run.episode import Episode, episode_row, over_known
from safecritic.run.folder import finite_or_none, write_json
from safecritic.run.rollout import Rollout

SEED = 10_000  # far from the seeds people train with
# by whether the screen was on; None: the method has no screen
POLICY = {
    None: "deployed: no exploration noise",
    True: "deployed: no exploration noise, screen on",
    False: "no exploration noise, screen switched off",
}


def run_episode(env: Any, policy: Any, seed: int | None) -> tuple[Episode, np.ndarray, np.ndarray]:
    """Run one episode; return its record, observations (N, O) and actions (N, A)."""
    rollout = Rollout(env)
    rollout.reset(seed=seed)
    steps = list(rollout.play(policy))
    observations, actions = ([getattr(step, name) for step in steps] for name in ("obs", "action"))
    return rollout.episode, np.stack(observations), np.stack(actions)


def discounted_costs(rollout: Rollout, policy: Any, gamma: float) -> list[float]:
    """Return the costs of a policy from here on, until gamma^t is below 0.05."""
    decisions = math.ceil(3.0 / (1.0 - gamma)) if gamma < 1 else None
    return [step.cost for step in itertools.islice(rollout.play(policy), decisions)]


class CostPart(NamedTuple):
    """One of the parts of the cost."""

    mean: float  # of an episode
    episodes: int  # in which it occurred


@dataclass(repr=False)
class Evaluation:
    """Deployment episodes: a row for each, their means, and the quality of the safety critic."""

    episodes: list[dict[str, float]]
    means: dict[str, float]
    critic: dict[str, float]  # empty for a method without a safety critic
    seed: int
    traces: list[Episode]  # the steps of each episode
    steps: CriticSteps  # those on which Q_C can be compared with the outcome
    observations: np.ndarray  # (N, O), adapted, of all steps
    cost_limit: float | None = None
    screen: bool | None = None  # whether the screen was on; None: the method has none
    run: str | None = None  # digest of the run whose policy it was; None: of none as it is saved

    @property
    def verdict(self) -> Verdict | None:
        """Whether these episodes keep the limit; None if there is none."""
        if self.cost_limit is None:
            return None
        return of_costs([row["cost"] for row in self.episodes], self.cost_limit)

    @property
    def critic_verdict(self) -> Verdict | None:
        """Whether the safety critic is of use; None for a method without one."""
        if not self.critic:
            return None
        return of_critic(self.critic["auc"], self.critic["ratio"])

    @property
    def nearest(self) -> float:
        """The least distance to a hazard in any episode; NaN if it is not known."""
        rows = [row.get("hazard_distance_min", math.nan) for row in self.episodes]
        return over_known(np.min, np.array(rows))

    @property
    def cost_parts(self) -> dict[str, CostPart]:
        """What the cost is made of, largest first: what `info` has under `cost_...`."""
        parts = {}
        for name in dict.fromkeys(name for trace in self.traces for name in trace.parts):
            sums = [trace.parts.get(name, 0.0) for trace in self.traces]
            parts[name] = CostPart(float(np.mean(sums)), sum(x > 0 for x in sums))
        return dict(sorted(parts.items(), key=lambda item: -item[1].mean))

    def __repr__(self) -> str:
        limit = "" if self.cost_limit is None else f" (limit {self.cost_limit:g})"
        last = self.seed + len(self.episodes) - 1
        summary = {
            "policy": POLICY[self.screen],
            "episodes": f"{len(self.episodes)}, seeds {self.seed} to {last}",
            "reward": f"{self.means['reward']:.2f}",
            "cost": f"{self.means['cost']:.2f}{limit}",
        }
        if self.verdict is not None:
            summary["limit"] = str(self.verdict)
        if len(self.cost_parts) > 1:
            parts = [f"{name} {part.mean:.2f}" for name, part in self.cost_parts.items()]
            summary["its parts"] = ", ".join(parts)
        auc, ratio = (self.critic.get(name, math.nan) for name in ("auc", "ratio"))
        numbers = {
            "success": (self.means["success"], "{:.0%}"),
            "AUC of Q_C": (auc, "{:.3f} (1 is best, 0.5 is chance)"),
            "ratio of Q_C": (ratio, "{:.2f} (mean Q_C / realised discounted cost)"),
        }
        for name, (value, text) in numbers.items():
            if not math.isnan(value):
                summary[name] = text.format(value)
        if self.critic_verdict is not None:
            summary["Q_C"] = str(self.critic_verdict)
        lines = [f"  {name:<14}{text}" for name, text in summary.items()]
        return "\n".join(["Evaluation", *lines])

    def save(self, path: str | Path) -> None:
        """Write everything but the steps as JSON."""
        content = {
            "policy": POLICY[self.screen],
            "screen": self.screen,
            "seed": self.seed,
            "run": self.run,
            "means": self.means,
            "verdict": self.verdict and self.verdict._asdict(),
            "safety_critic": self.critic,
            "cost_parts": {name: part._asdict() for name, part in self.cost_parts.items()},
            "episodes": self.episodes,
        }
        write_json(Path(path), finite_or_none(content))  # whole or not at all: a report may look


def evaluate(
    env: Any, policy: Any, values: Any, config: Any, episodes: int, seed: int
) -> Evaluation:
    """Run episodes, number i from seed + i; `values(obs, action)` gives the influence."""
    runs = [run_episode(env, policy, seed + number) for number in range(episodes)]
    traces, observations, actions = (list(parts) for parts in zip(*runs, strict=True))
    obs, action = np.concatenate(observations), np.concatenate(actions)
    rows = [episode_row(trace, config.gamma, env) for trace in traces]
    means = {name: over_known(np.mean, np.array([row[name] for row in rows])) for name in rows[0]}
    rows = [{"episode": number, **row} for number, row in enumerate(rows)]
    influence = influence_of(values, obs, action, config.batch_size)
    steps = critic_steps(traces, config.gamma, influence)
    quality = critic_quality(steps)
    return Evaluation(rows, means, quality, seed, traces, steps, obs, config.cost_limit)


def influence_of(
    values: Any, obs: np.ndarray, action: np.ndarray, batch_size: int
) -> np.ndarray | None:
    """Return the influence of every step, in random batches as in training; None without one."""
    order = np.random.default_rng(0).permutation(len(obs))
    influence = np.empty(len(obs))
    for start in range(0, len(obs), batch_size):
        batch = np.take(order, range(start, start + batch_size), mode="wrap")
        batch_influence = values(obs[batch], action[batch]).get("influence")
        if batch_influence is None:
            return None
        influence[batch] = batch_influence
    return influence
