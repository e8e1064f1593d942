"""Run a trained policy as it is deployed: no exploration noise, screen on."""

import html
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluation.critic_quality import CriticSteps, critic_quality, critic_steps
from safecritic.run.episode import ACT_COLUMNS, Episode, episode_row, over_known
from safecritic.run.folder import finite_or_none, write_json
from safecritic.runtime.escape import Escape, Rule, differ
from safecritic.tasks.checks import StepChecks

POLICY = "deployed: no exploration noise, screen on"
POLICY_WITHOUT = "no exploration noise, screen switched off"


class Policy:
    """A deployed policy, obs -> action in [-1, 1]^A; `spent` is the cost of the episode so far.

    `acting` holds q_cost, screened and changed of the last action. An `escape` answers in its
    place where it is stuck; `reset` begins an episode.
    """

    def __init__(
        self, act: Any, state: Any, action_dim: int, seed: int, escape: Escape | None = None
    ):
        import jax

        self._act = act
        self.escape = escape
        self._state = state._replace(key=jax.random.fold_in(state.key, seed))
        first = action_dim + len(ACT_COLUMNS)
        self._places = (action_dim, first, first + action_dim)
        self.spent = 0.0
        self.acting: tuple[float, ...] = ()

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        carry, packed = self._act(self._state, np.array(obs, np.float32), np.float32(self.spent))
        self._state = self._state._replace(**carry)
        action, acting, proposed, q_proposed = np.split(np.array(packed), self._places)
        q_cost, screened, changed = acting.tolist()
        if changed > 0.0 and len(proposed) and not differ(action, proposed):
            changed = 0.0
        self.acting = (q_cost, screened, changed)
        if self.escape is None:
            return action
        way = self.escape(obs, action, self.spent, proposed)
        if way is None:
            return action
        if self.escape.gives_way:
            self.acting = (float(q_proposed[0]), 1.0, 0.0)
        else:
            self.acting = (math.nan, 1.0, 1.0)  # Q_C was not asked
        return way

    def reset(self) -> None:
        """Begin an episode."""
        self.spent = 0.0
        if self.escape is not None:
            self.escape.reset()


def escape_of(state: Any, config: Any, obs_dim: int) -> Escape | None:
    """Return the escape of a trained agent, or None if it has no screen or does not scale."""
    screen = getattr(config, "screen", None)
    if screen is None or screen.escape_after == 0 or config.observation_scaling != "running":
        return None
    from safecritic.agents.scaling import CLIP, LEAST_VARIANCE

    variance = np.asarray(state.scaler.var, np.float64)[:obs_dim]
    rule = Rule(
        screen.escape_after,
        screen.escape_for,
        screen.escape_near,
        float(config.cost_limit),
        np.asarray(state.scaler.mean, np.float64)[:obs_dim],
        np.sqrt(np.maximum(variance, LEAST_VARIANCE)),
        CLIP,
    )
    return Escape(rule)


def run_episode(
    env: Any, policy: Policy, seed: int | None
) -> tuple[Episode, np.ndarray, np.ndarray]:
    """Run one episode; return its record, observations (N, O) and actions (N, A)."""
    episode, observations, actions = Episode(), [], []
    checks = StepChecks(env)
    obs = checks.reset(seed=seed)
    policy.reset()
    while not (episode.terminated or episode.truncated):
        policy.spent = episode.cost
        action = policy(obs)
        if not np.isfinite(action).all():
            raise ValueError(f"the policy's action is not finite: {action.tolist()}")
        observations.append(obs)
        actions.append(action)
        step = checks.step(action)
        obs, episode.terminated, episode.truncated = step.obs, step.terminated, step.truncated
        episode.add(step, policy.acting)
        episode.count_parts(step.info)
    return episode, np.stack(observations), np.stack(actions)


def rollout_costs(
    env: Any, policy: Any, obs: np.ndarray, decisions: int, spent: float = 0.0
) -> list[float]:
    """Follow a policy from `obs`, where the environment is; return the cost of each decision.

    There are at most `decisions` of them; `spent` is the cost of the episode before.
    """
    costs: list[float] = []
    if hasattr(policy, "reset"):  # a plain function has no past
        policy.reset()
    for _ in range(decisions):
        policy.spent = spent + sum(costs)
        obs, _, terminated, truncated, info = env.step(policy(obs))
        costs.append(info["cost"])
        if terminated or truncated:
            break
    return costs


def rollout_horizon(gamma: float) -> int:
    """Return 3 / (1 - gamma), the decisions after which gamma^t is below 0.05."""
    return int(np.ceil(3.0 / (1.0 - gamma))) if gamma < 1 else 10**9


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
    screen: bool = True  # whether the method's screen, if it has one, was on

    @property
    def cost_parts(self) -> dict[str, CostPart]:
        """What the cost is made of, largest first; empty unless the environment reports parts.

        Parts are what `info` has under `cost_...`, such as `cost_hazards`.
        """
        names = dict.fromkeys(name for trace in self.traces for name in trace.parts)
        sums = {name: [trace.parts.get(name, 0.0) for trace in self.traces] for name in names}
        parts = {
            name: CostPart(float(np.mean(each)), sum(x > 0 for x in each))
            for name, each in sums.items()
        }
        return dict(sorted(parts.items(), key=lambda item: -item[1].mean))

    @property
    def policy(self) -> str:
        """What was run."""
        return POLICY if self.screen else POLICY_WITHOUT

    def __repr__(self) -> str:
        lines = [f"  {name:<14}{text}" for name, text in self._summary().items()]
        return "\n".join(["Evaluation", *lines])

    def _repr_html_(self) -> str:
        """Return a small table, as notebooks show it."""
        rows = [
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._summary().items()
        ]
        return f"<table>{''.join(rows)}</table>"

    def _summary(self) -> dict[str, str]:
        """Return what a person looks for first; a number that does not exist is left out."""
        limit = "" if self.cost_limit is None else f" (limit {self.cost_limit:g})"
        last = self.seed + len(self.episodes) - 1
        summary = {
            "policy": self.policy,
            "episodes": f"{len(self.episodes)}, seeds {self.seed} to {last}",
            "reward": f"{self.means['reward']:.2f}",
            "cost": f"{self.means['cost']:.2f}{limit}",
        }
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
        return summary

    def save(self, path: str | Path) -> None:
        """Write everything but the steps as JSON."""
        content = {
            "policy": self.policy,
            "seed": self.seed,
            "means": self.means,
            "safety_critic": self.critic,
            "cost_parts": {name: part._asdict() for name, part in self.cost_parts.items()},
            "episodes": self.episodes,
        }
        write_json(Path(path), finite_or_none(content))  # whole or not at all: a report may look


def evaluate(
    env: Any, policy: Policy, values: Any, config: Any, episodes: int, seed: int
) -> Evaluation:
    """Run deployment episodes, number i from seed + i, and compare Q_C with what followed.

    `values(obs, action)` gives the influence of a batch where the method has one.
    """
    runs = [run_episode(env, policy, seed + number) for number in range(episodes)]
    traces, observations, actions = (list(parts) for parts in zip(*runs, strict=True))
    obs, action = np.concatenate(observations), np.concatenate(actions)
    rows = [
        {"episode": number, **episode_row(trace, config.gamma, env)}
        for number, trace in enumerate(traces)
    ]
    influence = influence_of(values, obs, action, config.batch_size)
    steps = critic_steps(traces, config.gamma, influence)
    return Evaluation(
        rows, mean_row(rows), critic_quality(steps), seed, traces, steps, obs, config.cost_limit
    )


def mean_row(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the means over episodes, where known; of the nearest hazard the minimum."""
    columns = {
        name: np.array([row[name] for row in rows], np.float64)
        for name in rows[0]
        if name != "episode"
    }
    means = {name: over_known(np.mean, column) for name, column in columns.items()}
    nearest = "hazard_distance_min"
    return means | {nearest: over_known(np.min, columns[nearest])}


def influence_of(
    values: Any, obs: np.ndarray, action: np.ndarray, batch_size: int
) -> np.ndarray | None:
    """Return the influence of every step, or None if the method has none.

    It is taken in random batches of the size it is taken in during training.
    """
    order = np.random.default_rng(0).permutation(len(obs))
    influence = np.empty(len(obs))
    for start in range(0, len(obs), batch_size):
        batch = np.take(order, range(start, start + batch_size), mode="wrap")
        batch_influence = values(obs[batch], action[batch]).get("influence")
        if batch_influence is None:
            return None
        influence[batch] = batch_influence
    return influence
