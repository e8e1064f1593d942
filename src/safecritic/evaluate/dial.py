"""The limit as a dial: what one trained policy costs and earns as its screen tolerates less.

>>> found = dial(agent, limits=(5, 10, 25))  # or: safecritic dial RUN --limits 5 10 25
>>> print(found)
>>> found.draw("dial.png")

Every tolerance is tried in the same scenes, so settings differ by what they do and not by luck.
The scenes chose the setting: certify it in others.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core import style
from safecritic.core.statistics import Interval, interval_of_mean
from safecritic.evaluate.episodes import run_episode
from safecritic.evaluate.verdict import ROUNDING
from safecritic.run.folder import finite_or_none, write_json

FACTORS = (math.inf, 4.0, 2.0, 1.0, 0.5, 0.25, 0.0)  # of the learned tolerance; inf: no screen
EPISODES, SEED = 50, 2_000_000  # of each setting; of the first scene


@dataclass
class Setting:
    """A tolerance, and the cost and reward of each scene with it."""

    tolerance: float  # infinite: no screen
    costs: np.ndarray
    rewards: np.ndarray

    @property
    def cost(self) -> Interval:
        """The mean cost of an episode, with its 95% interval."""
        return interval_of_mean(self.costs)

    @property
    def reward(self) -> float:
        """The mean reward of an episode."""
        return float(self.rewards.mean())

    @property
    def option(self) -> str:
        """What makes `certify` and `export` use it."""
        return "without screen" if math.isinf(self.tolerance) else f"--tolerance {self.tolerance:g}"


@dataclass(repr=False)
class Dial:
    """The settings that were tried, from no screen to the strictest one."""

    task: str
    settings: list[Setting]
    limits: tuple[float, ...]
    seed: int

    def choose(self, limit: float) -> Setting | None:
        """Return the setting of most reward whose whole interval is within a limit, if any."""
        within = [x for x in self.settings if x.cost.high <= limit + ROUNDING]
        return max(within, key=lambda setting: setting.reward, default=None)

    @property
    def words(self) -> list[str]:
        """What to use for each limit, a sentence each."""
        cheapest = min(self.settings, key=lambda setting: setting.cost.value)
        return [
            f"limit {limit:g}: {found.option}, reward {found.reward:.3g} at cost "
            f"{found.cost.value:.3g} ({found.cost.value / limit if limit else 0.0:.0%} of it)"
            if (found := self.choose(limit)) is not None
            else f"limit {limit:g}: no tolerance keeps it; the least cost is "
            f"{cheapest.cost.value:.3g} ({cheapest.option}): train with this limit (--cost-limit)"
            for limit in self.limits
        ]

    def __repr__(self) -> str:
        lines = [
            f"  {x.option:<20} cost {x.cost.value:.3g} (95% interval {max(x.cost.low, 0.0):.3g} to "
            f"{x.cost.high:.3g}), reward {x.reward:.3g}"
            for x in self.settings
        ]
        return "\n".join([f"Dial of a policy of {self.task}", *lines, *self.words])

    def save(self, path: str | Path) -> None:
        """Write every setting with the costs and rewards of its scenes as JSON."""
        rows = [
            {"tolerance": x.tolerance, "costs": x.costs.tolist(), "rewards": x.rewards.tolist()}
            for x in self.settings
        ]
        content = {"task": self.task, "seed": self.seed, "settings": rows}
        write_json(Path(path), finite_or_none(content))

    def draw(self, path: str | Path) -> Path:
        """Draw reward against cost, with the limits, as a picture."""
        import matplotlib

        with matplotlib.rc_context(style.STYLE):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7.2, 4.2), layout="constrained")
            axes = figure.subplots()
            costs = np.array([setting.cost for setting in self.settings])  # value, low, high
            rewards = [setting.reward for setting in self.settings]
            spread = np.abs(costs[:, 1:].T - costs[:, 0])
            axes.errorbar(costs[:, 0], rewards, xerr=spread, marker="o", color="#0072b2")
            names: dict[tuple[float, float], list[str]] = {}  # settings may do the same
            for x, place in zip(self.settings, zip(costs[:, 0], rewards, strict=True), strict=True):
                name = "no screen" if math.isinf(x.tolerance) else f"{x.tolerance:.2g}"
                names.setdefault(place, []).append(name)
            for place, together in names.items():
                axes.annotate(
                    ", ".join(together), place, (0, 8), textcoords="offset points", ha="center",
                    fontsize=8,
                )  # fmt: skip
            axes.margins(y=0.1)
            for limit in self.limits:
                axes.axvline(limit, color="#d55e00", ls="--", lw=1)
                axes.annotate(
                    f"limit {limit:g}", (limit, 0.02), xycoords=("data", "axes fraction"),
                    rotation=90, ha="right", va="bottom", fontsize=8, color="#d55e00",
                )  # fmt: skip
            axes.set(xlabel="cost of an episode", ylabel="reward of an episode")
            axes.set_title(f"{self.task}: one policy, by the tolerance of its screen", fontsize=11)
            axes.grid(color=style.GRID)
            axes.set_axisbelow(True)
            figure.savefig(path, dpi=150)
        return Path(path)


def dial(
    agent: Any,
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    limits: Sequence[float] = (),
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Dial:
    """Deploy an agent's policy at several tolerances in the same scenes.

    `limits` are those to choose for, without any the agent's own.
    """
    if episodes < 2:
        raise ValueError(f"episodes must be >= 2, got {episodes} (--episodes)")
    if any(not 0.0 <= limit < math.inf for limit in limits):
        raise ValueError(f"limits must be numbers >= 0, got {list(limits)} (--limits)")
    about = agent.policy().contract["network"]
    screen = about["screen"]
    if screen is None:
        raise ValueError(f"{agent.method} has no screen here, so there is no tolerance to turn")
    unit = about["cost_unit"] if screen["around"] else 1.0  # of `--tolerance`, as in the paper
    settings: list[Setting] = []
    total = episodes * len(FACTORS)
    with agent._lent_env("dial") as (env, _):
        for factor in FACTORS:
            policy = agent.policy(screen=math.isfinite(factor))
            tolerance = factor * screen["tolerance"] if factor else 0.0
            if math.isfinite(factor):
                parts = policy.network.parts
                policy.network.parts = parts._replace(tolerance=np.float32(tolerance))
            rows = []
            for number in range(episodes):
                episode = run_episode(env, policy, seed + number)[0]
                rows.append((episode.cost, float(episode.column("reward").sum())))
                advance(len(settings) * episodes + number + 1, total)
            costs, rewards = np.array(rows).T
            settings.append(Setting(unit * tolerance, costs, rewards))
    limits = tuple(limits) or (float(agent.config.cost_limit),)
    return Dial(agent.environment["task"], settings, limits, seed)
