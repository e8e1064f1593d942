"""The record of an episode: a row of numbers per decision, and its line of the episodes table."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ACT_COLUMNS = ("q_cost", "screened", "changed")  # from `act`; NaN without a safety critic
# of a decision: `steps` are those for which its action was held, reward and cost their sums
STEP_COLUMNS = ("reward", "cost", "success", "hazard_distance", "steps", *ACT_COLUMNS)
WINDOW = 100  # episodes in the running means
PART, TOTAL = "cost_", "cost_sum"  # names in `info`; the second is Safety Gymnasium's sum of all
EPISODE_COLUMNS = (
    "episode",
    "step",
    "length",
    "reward",
    "cost",
    "contacts",
    "discounted_cost",
    "success",
    "hazard_distance_mean",
    "hazard_distance_min",
    "q_cost",
    "screened",
    "screen_changed",
    "terminated",
    "multiplier",
)


@dataclass(frozen=True)
class Intervals:
    """Environment steps between the lines, measurements and checkpoints that a run writes."""

    log_every: int = 1_000
    critic_every: int = 5_000  # quality of the safety critic; a multiple of log_every
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                flag = name.replace("_", "-")
                raise ValueError(f"{name} must be >= 1, got {value} (--{flag})")
        if self.critic_every % self.log_every:
            raise ValueError(
                f"critic_every must be a multiple of log_every {self.log_every}, "
                f"got {self.critic_every} (--critic-every)"
            )


@dataclass
class Episode:
    """The decisions of an episode (rows in the order of STEP_COLUMNS) and how it ended."""

    steps: list[tuple[float, ...]] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    parts: dict[str, float] = field(default_factory=dict)  # of its cost, if they were counted

    def __post_init__(self) -> None:
        # so far; in the order of the steps, as `add` does, so that a restored one is the same
        self.cost = sum(self.column("cost").tolist(), 0.0)

    @classmethod
    def of(cls, table: np.ndarray, terminated: bool = False, truncated: bool = False) -> "Episode":
        """Return the episode of a `steps_table`."""
        return cls([tuple(row) for row in table.tolist()], terminated, truncated)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.terminated or self.truncated

    def add(self, step: Any, predicted: tuple[float, ...]) -> None:
        """Append a transition; `predicted` is in the order of ACT_COLUMNS."""
        self.terminated, self.truncated = step.terminated, step.truncated
        self.cost += step.cost
        success, distance = (_optional(step.info.get(k)) for k in ("success", "hazard_distance"))
        success = success if success in (0.0, 1.0) else math.nan
        row = (step.reward, step.cost, success, distance, float(step.steps), *predicted)
        self.steps.append(row)

    def count_parts(self, info: dict[str, Any]) -> None:
        """Add the parts of a decision's cost: what the environment reports as `cost_...`."""
        for name, value in info.items():
            if isinstance(name, str) and name.startswith(PART) and name != TOTAL:
                number, part = _optional(value), name.removeprefix(PART)
                if not math.isnan(number) and part.isidentifier():
                    self.parts[part] = self.parts.get(part, 0.0) + number

    def column(self, name: str) -> np.ndarray:
        """Return one of STEP_COLUMNS over the decisions."""
        at = STEP_COLUMNS.index(name)
        return np.array([step[at] for step in self.steps], dtype=np.float64)

    @property
    def length(self) -> int:
        """The number of environment steps."""
        return int(self.column("steps").sum())

    @property
    def starts(self) -> np.ndarray:
        """The environment steps before each decision."""
        return np.cumsum([0.0, *self.column("steps")])[:-1]


def _optional(value: Any) -> float:
    """Return a number that an environment may report; NaN if it is no finite one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def episode_row(episode: Episode, gamma: float, env: Any) -> dict[str, float]:
    """Return the episode's line of the table; what the environment does not report is NaN."""
    cost, hazard = episode.column("cost"), episode.column("hazard_distance")
    success = over_known(np.max, episode.column("success"))
    return {
        "length": episode.length,
        "reward": episode.column("reward").sum(),
        "cost": cost.sum(),
        "contacts": cost.sum() / float(getattr(env.unwrapped, "cost_unit", 1.0)),
        "discounted_cost": discounted_sums(cost, gamma)[0],
        "success": success if getattr(env.unwrapped, "has_goal", True) else math.nan,
        "hazard_distance_mean": over_known(np.mean, hazard),
        "hazard_distance_min": over_known(np.min, hazard),
        "q_cost": over_known(np.mean, episode.column("q_cost")),
        "screened": over_known(np.mean, episode.column("screened")),
        "screen_changed": over_known(np.mean, episode.column("changed")),
        "terminated": float(episode.terminated),
    }


def over_known(function: Any, values: np.ndarray) -> float:
    """Apply a function to the values that are not NaN; return NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(function(known)) if known.size else float("nan")


def discounted_sums(costs: np.ndarray, gamma: float) -> np.ndarray:
    """Return the sum of gamma^k cost[t+k] to the end of the episode, for every decision t."""
    sums, ahead = np.empty(len(costs)), 0.0
    for t in range(len(costs) - 1, -1, -1):
        ahead = costs[t] + gamma * ahead
        sums[t] = ahead
    return sums


def steps_table(episode: Episode) -> np.ndarray:
    """Return the record of an episode as an array (decisions, columns)."""
    return np.array(episode.steps, np.float64).reshape(-1, len(STEP_COLUMNS))
