"""Which cost limits bind in an environment: what policies that know no limit cost, and others.

>>> found = limits("CarGoal1", steps=20_000)  # or: safecritic limits CarGoal1
>>> print(found)
>>> found.draw("limits.png")

A limit above the cost of an unconstrained policy asks for nothing. One far below the cost of a
policy that was trained to be cheap may be out of reach.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from safecritic.core import style
from safecritic.core.statistics import Interval, interval_of_mean
from safecritic.evaluate.episodes import run_episode
from safecritic.evaluate.verdict import ROUNDING
from safecritic.run.episode import episode_row, over_known
from safecritic.run.folder import finite_or_none, write_json
from safecritic.run.rollout import FunctionPolicy

STEPS, EPISODES = 20_000, 20
SHARE = 0.25  # of the unconstrained policy's cost: the limit of the constrained one
STILL, RANDOM, FREE, BOUND = "standing still", "random", "unconstrained", "constrained"
LOOKS = {STILL: "#6b7280", RANDOM: "#9ca3af", FREE: "#d55e00", BOUND: "#0072b2"}


@dataclass
class Policy:
    """A policy that was tried, with the cost, reward and success of each of its episodes."""

    name: str
    about: str
    rows: list[dict[str, float]]

    def column(self, name: str) -> np.ndarray:
        """Return one number of each episode."""
        return np.array([row[name] for row in self.rows], np.float64)

    @property
    def cost(self) -> Interval:
        """The mean cost of an episode, with its 95% interval."""
        return interval_of_mean(self.column("cost"))

    @property
    def reward(self) -> float:
        """The mean reward of an episode."""
        return float(self.column("reward").mean())

    @property
    def success(self) -> float:
        """The share of episodes with success; NaN if it is not known."""
        return over_known(np.mean, self.column("success"))


@dataclass(repr=False)
class Limits:
    """What was found; printing it says which limits bind."""

    task: str
    steps: int
    policies: dict[str, Policy]

    @property
    def range(self) -> tuple[float, float] | None:
        """The limits that bind and were seen to be within reach; None if there are none."""
        low, high = (self.policies[name].cost.value for name in (BOUND, FREE))
        return (low, high) if high > low + ROUNDING else None

    @property
    def suggestion(self) -> float | None:
        """A limit in the middle of the range, with two digits."""
        return None if self.range is None else float(f"{sum(self.range) / 2:.2g}")

    @property
    def words(self) -> str:
        """Which limits bind, in a few sentences."""
        free, still = self.policies[FREE].cost, self.policies[STILL].cost
        if free.value <= ROUNDING:
            return (
                f"The unconstrained policy costs nothing after {self.steps:,} steps: every limit "
                "is kept without being learned. Does it earn what it should? If not, train longer "
                "(--steps); if so, there is nothing to limit."
            )
        if self.range is None:
            return (
                f"After {self.steps:,} steps the constrained policy costs no less than the "
                f"unconstrained one, {free.value:.3g}: no limit below that was seen to be within "
                "reach. Train longer (--steps)."
            )
        low, high = self.range
        least = ""
        if 0 < still.value < low:
            least = f" Standing still costs {still.value:.3g}: below that there is nothing."
        return (
            f"A limit above {high:.3g} asks for nothing: the unconstrained policy costs that. "
            f"Limits from {low:.3g} to {high:.3g} bind and are within reach: the constrained "
            f"policy costs {low:.3g}. Nothing that was trained for {self.steps:,} "
            f"steps costs less."
            f"{least} In the middle: --cost-limit {self.suggestion:g} "
            f"(cost_limit={self.suggestion:g})."
        )

    def __repr__(self) -> str:
        lines = [f"Limits on {self.task}"]
        for policy in self.policies.values():
            mean, low, high = policy.cost
            interval = f"95% interval {max(low, 0.0):.3g} to {high:.3g}"
            cost = f"cost {mean:.3g} ({interval})"
            lines.append(f"  {policy.name:<15}{cost}, reward {policy.reward:.3g}")
        return "\n".join([*lines, self.words])

    def save(self, path: str | Path) -> None:
        """Write every episode, the range and the suggestion as JSON."""
        content = {
            "task": self.task,
            "steps": self.steps,
            "range": None if self.range is None else list(self.range),
            "suggestion": self.suggestion,
            "policies": {name: policy.rows for name, policy in self.policies.items()},
        }
        write_json(Path(path), finite_or_none(content))

    def draw(self, path: str | Path) -> Path:
        """Draw reward against cost, and the limits that bind, as a picture."""
        import matplotlib

        with matplotlib.rc_context(style.STYLE):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7.2, 4.2), layout="constrained")
            axes = figure.subplots()
            if self.range is not None:
                axes.axvspan(*self.range, color="#dff3e4", label="limits that bind", zorder=0)
            for name, policy in self.policies.items():
                cost, reward = policy.column("cost"), policy.column("reward")
                axes.plot(cost, reward, ".", color=LOOKS[name], alpha=0.35, zorder=2)
                label = f"{name}: {policy.cost.value:.3g}"
                axes.plot(
                    cost.mean(), reward.mean(), "o", ms=10, mec="white", color=LOOKS[name],
                    label=label, zorder=3,
                )  # fmt: skip
            axes.set(xlabel="cost of an episode", ylabel="reward of an episode")
            axes.set_title(f"{self.task}: what policies cost, and which limits bind", fontsize=11)
            axes.grid(color=style.GRID)
            axes.set_axisbelow(True)
            figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
            figure.savefig(path, dpi=150)
        return Path(path)


def limits(
    env: str | gymnasium.Env,
    *,
    steps: int = STEPS,
    episodes: int = EPISODES,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
    progress_bar: bool = False,
    **declared: Any,
) -> Limits:
    """Return what standing still, acting at random, DDPG and a constrained USC cost.

    DDPG is trained for `steps` steps, then USC with a quarter of DDPG's cost as its limit; each of
    the four is deployed for some `episodes`. `declared` are keywords of `safecritic.adapt`.

    Examples:
        >>> print(limits("CarGoal1", steps=20_000).words)  # doctest: +SKIP
    """
    from safecritic.agent_classes import DDPG, USC
    from safecritic.api import EVALUATION_SEED

    if episodes < 2:
        raise ValueError(f"episodes must be >= 2, got {episodes} (--episodes)")
    # the limit means nothing to DDPG, and one that is given is not warned of
    settings: dict[str, Any] = {"seed": seed, **declared}
    settings["learning_starts"] = min(1_000, steps // 4)
    free = DDPG(env, cost_limit=0.0, **settings)
    if free.environment["declared"].get("no_cost"):
        raise ValueError("an environment without a cost has no limit: leave out --no-cost")
    n, rng = free.training.spec.action_dim, np.random.default_rng(seed)
    policies: dict[str, Policy] = {}

    def try_out(name: str, about: str, function: Callable[[np.ndarray], Any]) -> None:
        say(f"{name}: {episodes} episodes")
        with free._lent_env("limits") as (used, _):
            traces = [
                run_episode(used, FunctionPolicy(function), EVALUATION_SEED + at)[0]
                for at in range(episodes)
            ]
            rows = [episode_row(trace, free.config.gamma, used) for trace in traces]
        policies[name] = Policy(name, about, rows)

    try_out(STILL, "the middle of every action", lambda obs: np.zeros(n, np.float32))
    try_out(RANDOM, "uniform actions", lambda obs: rng.uniform(-1, 1, n).astype(np.float32))
    say(f"{FREE}: DDPG, {steps:,} steps")
    free.learn(steps, progress_bar=progress_bar)
    policies[FREE] = Policy(FREE, f"DDPG, {steps:,} steps", free.evaluate(episodes).episodes)
    limit = SHARE * policies[FREE].cost.value
    say(f"{BOUND}: USC with the limit {limit:.3g}, {steps:,} steps")
    bound = USC(env, cost_limit=limit, **settings).learn(steps, progress_bar=progress_bar)
    about = f"USC at the limit {limit:.3g}, {steps:,} steps"
    policies[BOUND] = Policy(BOUND, about, bound.evaluate(episodes).episodes)
    return Limits(free.environment["task"], steps, policies)
