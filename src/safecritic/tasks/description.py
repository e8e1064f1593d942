"""What was understood of an environment, to be read before a long training. Imports no JAX.

>>> print(describe("Pendulum-v1"))  # or: safecritic tasks Pendulum-v1
"""

import math
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks import registry
from safecritic.tasks.adapter import (
    OWN_COST,
    SUCCESS_KEYS,
    Adapted,
    FiveValues,
    NoCostError,
    closeness_of,
    declared_of,
    layers,
    make_env,
)
from safecritic.tasks.observations import Part, parts

STEPS, SECONDS = 1_000, 5.0
MOST_RANGES = 8  # of one part, before they are merged
WIDTH = 100  # of a line
NO_COST = "none, as declared: 0 at every step"


@dataclass(frozen=True)
class Range:
    """Neighbouring numbers of the observation with the same bounds."""

    name: str  # of the part they belong to
    start: int
    stop: int
    low: float  # bounds of the space; the widest if they differ
    high: float
    seen: tuple[float, float]  # smallest and largest in the random steps
    same_bounds: bool = True


@dataclass(frozen=True)
class RandomSteps:
    """What happened in the random steps."""

    steps: int
    cost: tuple[float, float]  # smallest and largest of a step
    costly_share: float  # of the steps
    total_cost: float
    reward: tuple[float, float]
    episode_costs: tuple[float, ...]  # of the episodes that ended
    episode_rewards: tuple[float, ...]
    lengths: tuple[int, ...]
    terminated: int  # episodes that ended by themselves; the others were cut off
    failures: int  # those of them that ended without success
    success_steps: int  # that reported success or its absence
    success_episodes: int  # that ended with at least one such step


@dataclass(frozen=True, repr=False)
class Description:
    """What was understood of an environment; printing it explains it."""

    name: str
    summary: str
    observation: tuple[Range, ...]
    closeness: tuple[int, ...]
    unit_bounds: tuple[int, ...]  # bounded to [0, 1], but not declared as a closeness
    action_low: tuple[float, ...]  # the environment's own
    action_high: tuple[float, ...]
    cost_source: str | None  # None: none was found
    info_keys: tuple[str, ...]
    success_key: str | None
    has_goal: bool
    cost_limit: float | None  # the task's, if it is one
    random: RandomSteps
    seed: int = 0
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the description as lines of text."""
        head = f"{self.name}: {self.summary}" if self.summary else self.name
        size = self.observation[-1].stop if self.observation else 0
        rows = [("observation", _counted(size, "number"))]
        shown = [_places_text(range(one.start, one.stop)) for one in self.observation]
        width = max(map(len, shown), default=0)
        rows += [
            ("", f"{places:<{width}}  {_range_text(one)}")
            for places, one in zip(shown, self.observation, strict=True)
        ]
        rows.append(("closeness", self._closeness_text()))
        rows.append(("action", self._action_text()))
        rows.append(("cost", self.cost_source or self._no_cost_text()))
        rows.append(("success", self._success_text()))
        rows.append(("", ""))
        done = self.random
        rows.append((f"in {done.steps:,} random steps (seed {self.seed}):", ""))
        rows.append(("cost", self._random_cost_text()))
        rows.append(("reward", self._random_reward_text()))
        rows.append(("episodes", self._episodes_text()))
        rows += [("note", note) for note in self._notes()]
        rows.append(("limit", self._limit_text()))
        return [head, *(line for name, text in rows for line in _wrapped(name, text))]

    def _closeness_text(self) -> str:
        if not self.closeness:
            return "none declared"
        return f"{_places_text(self.closeness)}, declared: in [0, 1], 1 for near"

    def _action_text(self) -> str:
        low, high = self.action_low, self.action_high
        count = _counted(len(low), "number")
        if len(set(low)) == len(set(high)) == 1:
            text = f"{count} in [{_number(low[0])}, {_number(high[0])}]"
        else:
            ends = (", ".join(map(_number, end)) for end in (low, high))
            text = "{}, from [{}] to [{}]".format(count, *ends)
        if set(low) == {-1.0} and set(high) == {1.0}:
            return f"{text}, as the methods act"
        return f"{text}; the methods act in [-1, 1], which is scaled to that"

    def _no_cost_text(self) -> str:
        keys = ", ".join(map(repr, self.info_keys))
        return f"none found: info has {keys or 'no keys'}"

    def _success_text(self) -> str:
        if not self.has_goal:
            return "none: the task has no goal"
        if self.success_key is None:
            return f"unknown: info has none of {', '.join(SUCCESS_KEYS)}"
        return f"info[{self.success_key!r}]"

    def _random_cost_text(self) -> str:
        done = self.random
        if self.cost_source is None:
            return "unknown"
        text = f"{_number(done.cost[0])} to {_number(done.cost[1])} per step, "
        text += f"above 0 in {100 * done.costly_share:.3g}% of the steps"
        return text + _per_episode(done.episode_costs)

    def _random_reward_text(self) -> str:
        done = self.random
        text = f"{_number(done.reward[0])} to {_number(done.reward[1])} per step"
        return text + _per_episode(done.episode_rewards)

    def _episodes_text(self) -> str:
        done = self.random
        ended = len(done.lengths)
        if not ended:
            return "none ended"
        shortest, longest = min(done.lengths), max(done.lengths)
        length = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        cut = ended - done.terminated
        return (
            f"{ended} ended after {length} steps: {done.terminated} by "
            f"{'itself' if done.terminated == 1 else 'themselves'} (terminated), "
            f"{cut} cut off (truncated)"
        )

    def _notes(self) -> list[str]:
        done = self.random
        notes = list(self.notes)
        if self.unit_bounds and not self.closeness:
            places = _places_text(self.unit_bounds)
            notes.append(
                f"bounded to [0, 1]: {places}. If 1 means near there, as in a lidar, declare it: "
                f'--closeness {places} (closeness="{places}")'
            )
        if self.success_key is not None and done.success_episodes < len(done.lengths):
            key = self.success_key
            notes.append(
                f"{len(done.lengths) - done.success_episodes} of {len(done.lengths)} episodes had "
                f"no info[{key!r}]; if its absence means failure, declare it: --success-key {key} "
                f'(success_key="{key}")'
            )
        if done.failures and self.cost_source not in (None, NO_COST):
            notes.append(
                f"{done.failures} of {done.terminated} that ended by themselves reported no "
                "success: they count as failures, after which costs are taken to go on. If such "
                'an end is the goal, say so in info["success"] (--success-key NAME)'
            )
        free = done.costly_share == 0 and self.cost_source not in (None, NO_COST)
        if free and self.cost_limit is None:
            notes.append(
                f"no cost appeared: if it should have, is {self.cost_source} the right one? "
                "--cost-key NAME (cost_key=...) names another key"
            )
        if not done.lengths:
            notes.append(
                "cost limits count by the episode: if episodes never end, give the environment a "
                "time limit, gymnasium.wrappers.TimeLimit(env, 1000)"
            )
        return notes

    def _limit_text(self) -> str:
        if self.cost_source is None:
            return (
                "none without a cost: name its key with --cost-key NAME (cost_key=...), compute "
                f"it in Python, {OWN_COST}, or train ddpg without one, --no-cost (no_cost=True)"
            )
        if self.cost_source == NO_COST:
            return "none without a cost: only ddpg can be trained"
        if self.cost_limit is not None:
            return f"{self.cost_limit:g} per episode, the task's (--cost-limit for another)"
        done = self.random
        if done.episode_costs:
            costs = f"{_number(_mean(done.episode_costs))} per episode"
        else:
            costs = f"{_number(done.total_cost)} in {done.steps:,} steps, and no episode ended"
        return (
            f"no limit is known: the random policy costs {costs}; choose a budget and give it "
            "with --cost-limit (cost_limit=...)"
        )


def describe(
    env: str | gymnasium.Env,
    *,
    steps: int = STEPS,
    seconds: float = SECONDS,
    seed: int = 0,
    **declared: Any,
) -> Description:
    """Return what was understood of an environment, with what up to `steps` random steps show.

    The environment is reset and stepped: reset it before use. One that reports no cost is described
    all the same; anything else that `adapt` refuses is refused here.

    Args:
        env: a task, the id of any registered environment, or an environment, adapted or not.
        steps: how many random steps to take at most.
        seconds: how long to take them at most.
        seed: seed of the environment and of the actions.
        declared: keywords of `adapt`.
    """
    info_keys: tuple[str, ...] = ()
    has_cost = True
    try:
        adapted, name = make_env(env, **declared)
    except NoCostError as error:
        has_cost, info_keys = False, tuple(error.keys)
        others = {key: x for key, x in declared.items() if key != "cost_key"}
        adapted, name = make_env(env, **others, no_cost=True)
    task = registry.find(name)
    own = next((one.env for one in layers(adapted) if isinstance(one, Adapted)), adapted)
    random, seen, notes, key = _random_steps(adapted, steps, seconds, seed)
    closeness = closeness_of(adapted)
    listed = parts(own.observation_space)
    actions: Any = own.action_space
    if isinstance(env, str):
        adapted.close()
    return Description(
        name=name,
        summary=task.summary if task else "",
        observation=tuple(one for part in listed for one in _ranges(part, adapted, seen)),
        closeness=closeness,
        unit_bounds=_unit_bounds(listed, adapted.observation_space, closeness),
        action_low=tuple(actions.low.ravel().tolist()),
        action_high=tuple(actions.high.ravel().tolist()),
        cost_source=_cost_source(adapted) if has_cost else None,
        info_keys=info_keys,
        success_key=key,
        has_goal=getattr(adapted.unwrapped, "has_goal", True),
        cost_limit=task.cost_limit if task else None,
        random=random,
        seed=seed,
        notes=notes,
    )


def _random_steps(
    env: Any, steps: int, seconds: float, seed: int
) -> tuple[RandomSteps, np.ndarray, tuple[str, ...], str | None]:
    """Step at random; return what happened, ranges (2, O), notes and the key of success."""
    rng = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    n = env.action_space.shape[0]
    obs, _ = env.reset(seed=seed)
    low, high = np.array(obs, np.float64), np.array(obs, np.float64)
    rewards: list[float] = []
    costs: list[float] = []
    ends: list[int] = []  # steps at which episodes ended
    success: list[bool] = []  # whether a step reported it
    keys: set[str] = set()  # of info
    terminations = failures = 0
    key = None
    while len(rewards) < steps and time.monotonic() < end:
        action = rng.uniform(-1.0, 1.0, n).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        low, high = np.minimum(low, obs), np.maximum(high, obs)
        rewards.append(float(reward))
        costs.append(info["cost"])
        success.append("success" in info)
        keys.update(info)
        key = key or _success_key(env, info)
        if terminated or truncated:
            terminations += bool(terminated)
            failures += bool(terminated) and not info.get("success", False)
            ends.append(len(rewards))
            obs, _ = env.reset()
            low, high = np.minimum(low, obs), np.maximum(high, obs)
    notes = []
    declared = declared_of(env).get("success_key")
    if declared is not None and declared not in keys:
        notes.append(f"info[{declared!r}], declared as success, never appeared")
    if len(rewards) < steps:
        notes.append(f"stopped after {seconds:g} s; {steps:,} steps were planned")
    if not np.isfinite([*low, *high]).all():
        bad = np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high)).tolist()
        notes.append(f"observations {_places_text(bad)} were not finite: training would stop")
    if not np.isfinite(rewards).all():
        notes.append("rewards were not finite: training would stop")
    episodes = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
    random = RandomSteps(
        steps=len(rewards),
        cost=_extremes(costs),
        costly_share=float(np.mean(np.array(costs) > 0)) if costs else math.nan,
        total_cost=sum(costs),
        reward=_extremes(rewards),
        episode_costs=tuple(sum(costs[one]) for one in episodes),
        episode_rewards=tuple(sum(rewards[one]) for one in episodes),
        lengths=tuple(one.stop - one.start for one in episodes),
        terminated=terminations,
        failures=failures,
        success_steps=sum(success),
        success_episodes=sum(any(success[one]) for one in episodes),
    )
    return random, np.stack([low, high]), tuple(notes), key


def _success_key(env: Any, info: dict[str, Any]) -> str | None:
    """Return the key that `info["success"]` was read from."""
    if "success" not in info:
        return None
    declared = declared_of(env).get("success_key")
    declared = declared or next(
        (one.success_key for one in layers(env) if isinstance(one, FiveValues)), None
    )
    # `adapt` adds `success` itself, so another name for it is the environment's own
    others = [key for key in SUCCESS_KEYS[1:] if key in info]
    return declared or (others[0] if others else "success")


def _cost_source(env: Any) -> str:
    declared = declared_of(env)
    if declared.get("no_cost"):
        return NO_COST
    if "cost" in declared:
        return f"computed by the function given ({declared['cost']})"
    key = declared.get("cost_key", "cost")
    if key == "cost" and any(isinstance(one, FiveValues) for one in layers(env)):
        return "the third of the six values of step"
    return f"info[{key!r}]"


def _ranges(part: Part, env: Any, seen: np.ndarray) -> list[Range]:
    """Return the numbers of a part, grouped by their bounds."""
    space = env.observation_space
    bounds = list(zip(space.low.tolist(), space.high.tolist(), strict=True))
    starts = [
        place
        for place in range(part.start, part.stop)
        if place == part.start or bounds[place] != bounds[place - 1]
    ]
    merged = len(starts) > MOST_RANGES
    starts = starts[:1] if merged else starts
    stops = [*starts[1:], part.stop]
    return [
        Range(
            part.name,
            start,
            stop,
            low=min(low for low, _ in bounds[start:stop]),
            high=max(high for _, high in bounds[start:stop]),
            seen=(float(seen[0, start:stop].min()), float(seen[1, start:stop].max())),
            same_bounds=not merged,
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def _unit_bounds(listed: Iterable[Part], space: Any, closeness: Sequence[int]) -> tuple[int, ...]:
    """Return the places bounded to [0, 1] that nobody declared; one-hot codes do not count."""
    return tuple(
        place
        for part in listed
        if isinstance(part.space, Box) and np.issubdtype(part.space.dtype, np.floating)
        for place in range(part.start, part.stop)
        if (space.low[place], space.high[place]) == (0.0, 1.0) and place not in closeness
    )


# Words


def _wrapped(name: str, text: str) -> list[str]:
    """Return a row as lines of at most WIDTH characters, where its words allow."""
    head = f"  {name:<12} "
    wrapped = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * 15,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped or [head.rstrip()]


def _number(value: float) -> str:
    if math.isfinite(value) and abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _extremes(values: Sequence[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (math.nan, math.nan)


def _per_episode(values: Sequence[float]) -> str:
    if not values:
        return ""
    of = f"mean of {len(values)}" if len(values) > 1 else "one episode"
    return f"; {_number(_mean(values))} per episode ({of})"


def _places_text(places: Iterable[int]) -> str:
    """Return places in the form that `--closeness` takes.

    >>> _places_text([3, 4, 5, 9])
    '3-5,9'
    """
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _range_text(one: Range) -> str:
    if math.isinf(one.low) and math.isinf(one.high):
        bounds = "unbounded" if one.same_bounds else "partly unbounded"
    else:
        bounds = f"in [{_number(one.low)}, {_number(one.high)}]"
        bounds += "" if one.same_bounds else " or less"
    low, high = map(_number, one.seen)
    name = f"{one.name}: " if one.name else ""
    return f"{name}{bounds}, seen {low} to {high}"
