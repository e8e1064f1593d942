"""Warnings of what probably goes wrong in a run, each given once and kept in summary.json."""

import itertools
import math
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from safecritic.run.episode import WINDOW

STEPS = 10_000  # without a cost, or without the end of an episode
MOST_SCREENED = 0.5  # share of the steps
LEAST_EPISODES = 50  # before the course of the multiplier says anything
MOST_EPISODES = 500  # kept of the last half of a run
PERIODS = 5  # of the episodes kept, each compared with the one before


class RunWarning(UserWarning):
    """A run that can go on, but perhaps not to where its user wants it."""


class Watch:
    """Watches the episodes of a run; `messages` are the warnings so far, by kind."""

    def __init__(self, cost_limit: float):
        self.cost_limit = cost_limit
        self.expects_cost = True
        self.messages: dict[str, str] = {}
        self.episodes = 0
        self.steps = 0  # of these episodes
        self.costly = False  # an episode with a cost has been seen
        # cost and multiplier of the last episodes
        self.course: deque[tuple[float, float]] = deque(maxlen=MOST_EPISODES)

    def add(self, row: dict[str, float]) -> None:
        """Take note of an episode, given its row of the table."""
        self.episodes += 1
        self.steps += int(row["length"])
        self.costly = self.costly or row["cost"] > 0
        self.course.append((row["cost"], row["multiplier"]))

    def look(self, window: Sequence[dict[str, float]], step: int, until: int) -> list[str]:
        """Return new warnings at `step` of `until`; `window` has the rows of the last episodes."""
        new = {k: text for k, text in self._all(window, step, until) if k not in self.messages}
        self.messages |= new
        return list(new.values())

    def _all(
        self, window: Sequence[dict[str, float]], step: int, until: int
    ) -> Iterator[tuple[str, str]]:
        if step >= STEPS and not self.episodes:
            yield (
                "endless",
                f"no episode has ended in {step:,} steps, and cost limits count by the episode: "
                "give the environment a time limit, gymnasium.wrappers.TimeLimit(env, 1000)",
            )
        if self.expects_cost and self.steps >= STEPS and not self.costly:
            yield (
                "no cost",
                f"no cost has appeared in {self.steps:,} steps: is the cost key right? "
                "safecritic.tasks.describe(env) and `safecritic tasks ENV` show what was "
                "understood; cost_key=... (--cost-key) names another key",
            )
        share = changed_share(window)
        if share > MOST_SCREENED:
            yield (
                "screen",
                f"the screen changed {share:.0%} of the actions of the last {WINDOW} episodes, so "
                "that it acts more often than the policy: raise screen.tolerance "
                "(--screen.tolerance), or check that the cost limit "
                f"{self.cost_limit:g} is within reach: `safecritic limits ENV` (--cost-limit)",
            )
        if 2 * step >= until and self.only_rises():
            costs, _ = self.last_half()
            mean = sum(costs) / len(costs)
            yield (
                "multiplier",
                f"the multiplier only rose over the last {len(costs)} episodes, and their cost "
                f"(mean {mean:.3g}) stayed above the limit {self.cost_limit:g}: perhaps no policy "
                "keeps it; `safecritic limits ENV` shows which limits bind (--cost-limit)",
            )

    def only_rises(self) -> bool:
        """Return whether the multiplier never fell in the last half, with costs above the limit.

        Means over a few periods are compared: single episodes are noisy.
        """
        if self.episodes < LEAST_EPISODES:
            return False
        costs, multipliers = map(_period_means, self.last_half())
        pairs = itertools.pairwise(multipliers)
        return (
            min(costs) > self.cost_limit
            and all(before <= after for before, after in pairs)  # never true of NaN
            and multipliers[-1] > multipliers[0]
        )

    def last_half(self) -> tuple[list[float], list[float]]:
        """Return costs and multipliers of the last half of the episodes, or of the last 500."""
        half = list(self.course)[-((self.episodes + 1) // 2) :]
        return [cost for cost, _ in half], [multiplier for _, multiplier in half]

    def state(self) -> dict[str, Any]:
        """Return the warnings and the episodes so far, as JSON."""
        kept = {name: getattr(self, name) for name in ("messages", "episodes", "steps", "costly")}
        course = [[cost, None if math.isnan(x) else x] for cost, x in self.course]
        return kept | {"messages": dict(self.messages), "course": course}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.messages, self.episodes = dict(state["messages"]), state["episodes"]
        self.steps, self.costly = state["steps"], state["costly"]
        course = ((cost, math.nan if x is None else x) for cost, x in state["course"])
        self.course = deque(course, MOST_EPISODES)


def changed_share(window: Sequence[dict[str, float]]) -> float:
    """Return the share of changed actions in a full window of episodes; 0 if it is not known."""
    if len(window) < WINDOW or any(math.isnan(row["screen_changed"]) for row in window):
        return 0.0
    steps = sum(row["length"] for row in window)
    return sum(row["screen_changed"] * row["length"] for row in window) / steps


def _period_means(values: list[float]) -> list[float]:
    """Return the means of the values in PERIODS parts of nearly equal length."""
    ends = [len(values) * k // PERIODS for k in range(PERIODS + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(ends)]


def warn_of_default_limit(
    env: Any, task: str, declared: dict[str, Any], limit: float, stacklevel: int
) -> None:
    """Warn that the limit of an environment of the user's own is only a default."""
    key = f" --cost-key {declared['cost_key']}" if "cost_key" in declared else ""
    by_id = isinstance(env, str)
    look = f"`safecritic limits {env}{key}`" if by_id else "safecritic.limits(env)"
    warnings.warn(
        f"no cost limit is known for {task}: {limit:g} per episode is only a default; see "
        f"which limits bind with {look} and choose one, cost_limit=... (--cost-limit)",
        RunWarning,
        stacklevel=stacklevel + 1,
    )
