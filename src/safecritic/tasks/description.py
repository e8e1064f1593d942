"""What was understood of an environment, to be read before a long training. Imports no JAX.

>>> print(describe("Pendulum-v1"))  # or: safecritic tasks Pendulum-v1
"""

import math
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks import registry
from safecritic.tasks.adapter import (
    SUCCESS_KEYS,
    Adapted,
    FiveValues,
    NoCostError,
    declared_of,
    make_env,
    proximity_of,
)
from safecritic.tasks.checks import layers
from safecritic.tasks.observations import Part, parts

MOST_RANGES = 8  # of one part, before they are merged
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

    def __str__(self) -> str:
        bounds = f"in [{_number(self.low)}, {_number(self.high)}]"
        bounds += "" if self.same_bounds else " or less"
        if math.isinf(self.low) and math.isinf(self.high):
            bounds = "unbounded" if self.same_bounds else "partly unbounded"
        name = f"{self.name}: " if self.name else ""
        return f"{name}{bounds}, seen {_span(self.seen)}"


class RandomSteps:
    """What happens in the random steps: the cost and the reward of each, and how episodes end."""

    def __init__(self, env: Any, steps: int, seconds: float, seed: int):
        rng, end = np.random.default_rng(seed), time.monotonic() + seconds
        n = env.action_space.shape[0]
        obs, _ = env.reset(seed=seed)
        low = high = np.array(obs, np.float64)
        self.costs: list[float] = []
        self.rewards: list[float] = []
        self.terminated = 0  # episodes that ended by themselves; the others were cut off
        self.failures = 0  # those of them that ended without success
        self.success_key: str | None = None
        ends = [0]  # steps at which episodes ended
        success: list[bool] = []  # whether a step reported it
        keys: set[str] = set()  # of info
        while len(self.costs) < steps and time.monotonic() < end:
            action = rng.uniform(-1.0, 1.0, n).astype(np.float32)
            obs, reward, terminated, truncated, info = env.step(action)
            low, high = np.minimum(low, obs), np.maximum(high, obs)
            self.rewards.append(float(reward))
            self.costs.append(info["cost"])
            success.append("success" in info)
            keys.update(info)
            self.success_key = self.success_key or _success_key(env, info)
            if terminated or truncated:
                self.terminated += bool(terminated)
                self.failures += bool(terminated) and not info.get("success", False)
                ends.append(len(self.costs))
                obs, _ = env.reset()
                low, high = np.minimum(low, obs), np.maximum(high, obs)
        self.observed = np.stack([low, high])
        self.episodes = [slice(*ends[at : at + 2]) for at in range(len(ends) - 1)]  # that ended
        # of these, whether success or its absence was reported
        self.told = [any(success[episode]) for episode in self.episodes]
        self.notes = []
        declared = declared_of(env).get("success_key")
        if declared is not None and declared not in keys:
            self.notes.append(f"info[{declared!r}], declared as success, never appeared")
        if len(self.costs) < steps:
            self.notes.append(f"stopped after {seconds:g} s; {steps:,} steps were planned")
        if len(bad := np.flatnonzero(~np.isfinite(low + high))):
            text = f"observations {places_text(bad)} were not finite: training would stop"
            self.notes.append(text)
        if not np.isfinite(self.rewards).all():
            self.notes.append("rewards were not finite: training would stop")

    def sums(self, values: list[float]) -> list[float]:
        """Return the sum of some values of the steps for each episode that ended."""
        return [sum(values[episode]) for episode in self.episodes]

    def __str__(self) -> str:
        if not self.episodes:
            return "none ended"
        lengths = [episode.stop - episode.start for episode in self.episodes]
        times = " to ".join(f"{n:,}" for n in sorted({min(lengths), max(lengths)}))
        by = "itself" if self.terminated == 1 else "themselves"
        return (
            f"{len(lengths)} ended after {times} steps: {self.terminated} by {by} (terminated), "
            f"{len(lengths) - self.terminated} cut off (truncated)"
        )


class Description:
    """What was understood of an environment, with what random steps show; printing it explains it.

    The environment is reset and stepped: reset it before use. One that reports no cost is described
    all the same.

    Args:
        env: a task, the id of any registered environment, or an environment, adapted or not.
        steps: how many random steps to take at most.
        seconds: how long to take them at most.
        seed: seed of the environment and of the actions.
        declared: keywords of `adapt`.

    Examples:
        >>> print(describe("CarGoal1", steps=100))  # doctest: +ELLIPSIS
        CarGoal1...
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        steps: int = 1_000,
        seconds: float = 5.0,
        seed: int = 0,
        **declared: Any,
    ):
        self.seed, self.info_keys = seed, []
        self.cost_source: str | None = None  # None: none was found
        try:
            adapted, self.name = make_env(env, **declared)
            self.cost_source = _cost_source(adapted)
        except NoCostError as error:
            self.info_keys = error.keys
            adapted, self.name = make_env(env, **(declared | {"cost_key": None}), no_cost=True)
        self.task = registry.find(self.name)
        self.has_goal = getattr(adapted.unwrapped, "has_goal", True)
        self.random = RandomSteps(adapted, steps, seconds, seed)
        self.success_key = self.random.success_key
        own = next((layer.env for layer in layers(adapted) if isinstance(layer, Adapted)), adapted)
        self.action: Any = own.action_space
        listed, space = parts(own.observation_space), adapted.observation_space
        seen = self.random.observed
        self.observation = [each for part in listed for each in _ranges(part, space, seen)]
        self.proximity = proximity_of(adapted)
        floats = [x for x in listed if isinstance(x.space, Box) and x.space.dtype.kind == "f"]
        places = (at for part in floats for at in range(part.start, part.stop))
        unit_bounds = (at for at in places if (space.low[at], space.high[at]) == (0.0, 1.0))
        # bounded to [0, 1], but not declared as a proximity input
        self.unit_bounds = [at for at in unit_bounds if at not in self.proximity]
        if isinstance(env, str):
            adapted.close()

    def __repr__(self) -> str:
        done, task = self.random, self.task
        places = [places_text(range(part.start, part.stop)) for part in self.observation]
        width = max(map(len, places), default=0)
        near = f"{places_text(self.proximity)}, declared: in [0, 1], 1 for near"
        keys = ", ".join(map(repr, self.info_keys)) or "no keys"
        share = 100 * np.mean(np.array(done.costs) > 0) if done.costs else math.nan
        costs = f"{_span(done.costs)} per step, above 0 in {share:.3g}% of the steps"
        success = f"info[{self.success_key!r}]"
        if self.success_key is None:
            success = f"unknown: info has none of {', '.join(SUCCESS_KEYS)}"
        size = self.observation[-1].stop if self.observation else 0
        rows = [("observation", _counted(size, "number"))]
        parts = zip(places, self.observation, strict=True)
        rows += [("", f"{where:<{width}}  {part}") for where, part in parts]
        rows += [
            ("proximity", near if self.proximity else "none declared"),
            ("action", self._action()),
            ("cost", self.cost_source or f"none found: info has {keys}"),
            ("success", success if self.has_goal else "none: the task has no goal"),
            ("", ""),
            (f"in {len(done.costs):,} random steps (seed {self.seed}):", ""),
            ("cost", costs + _mean(done.sums(done.costs)) if self.cost_source else "unknown"),
            ("reward", f"{_span(done.rewards)} per step{_mean(done.sums(done.rewards))}"),
            ("episodes", str(done)),
            *(("note", note) for note in (*done.notes, *self._advice())),
            ("limit", self._limit()),
        ]
        lines = [f"{self.name}: {task.summary}" if task else self.name]
        for name, text in rows:
            head = f"  {name:<12} "
            words = textwrap.TextWrapper(100, head, " " * 15, break_long_words=False)
            words.break_on_hyphens = False
            lines += words.wrap(text) or [head.rstrip()]
        return "\n".join(lines)

    def _action(self) -> str:
        low, high = self.action.low.ravel().tolist(), self.action.high.ravel().tolist()
        if len(set(low)) == len(set(high)) == 1:
            box = f" in [{_number(low[0])}, {_number(high[0])}]"
        else:
            box = f", from [{', '.join(map(_number, low))}] to [{', '.join(map(_number, high))}]"
        unit = set(low) == {-1.0} and set(high) == {1.0}
        scaled = "; the methods act in [-1, 1], which is scaled to that"
        return _counted(len(low), "number") + box + (", as the methods act" if unit else scaled)

    def _advice(self) -> Iterator[str]:
        """Yield what may be wrong, and the declaration that would mend it."""
        done, key, ended = self.random, self.success_key, len(self.random.episodes)
        silent = ended - sum(done.told)
        costs = self.cost_source not in (None, NO_COST)
        if self.unit_bounds and not self.proximity:
            places = places_text(self.unit_bounds)
            yield (
                f"bounded to [0, 1]: {places}. If 1 means near there, as in a lidar, declare it: "
                f'--proximity {places} (proximity="{places}")'
            )
        if key is not None and silent:
            yield (
                f"{silent} of {ended} episodes had no info[{key!r}]; if its absence means failure, "
                f'declare it: --success-key {key} (success_key="{key}")'
            )
        if done.failures and costs:
            yield (
                f"{done.failures} of {done.terminated} that ended by themselves reported no "
                "success: they count as failures, after which costs are taken to go on. If such "
                'an end is the goal, say so in info["success"] (--success-key NAME)'
            )
        if done.costs and not any(done.costs) and costs and self.task is None:
            yield (
                f"no cost appeared: if it should have, is {self.cost_source} the right one? "
                "--cost-key NAME (cost_key=...) names another key"
            )
        if not ended:
            yield (
                "cost limits count by the episode: if episodes never end, give the environment a "
                "time limit, gymnasium.wrappers.TimeLimit(env, 1000)"
            )

    def _limit(self) -> str:
        if self.cost_source is None:
            return (
                "none without a cost: name its key with --cost-key NAME (cost_key=...); if a step "
                "without it costs nothing, add --missing-cost zero (missing_cost='zero'); compute "
                "it in Python, cost=lambda obs, action, info: ...; or train ddpg without one, "
                "--no-cost (no_cost=True)"
            )
        if self.cost_source == NO_COST:
            return "none without a cost: only ddpg can be trained"
        if self.task is not None:
            return f"{self.task.cost_limit:g} per episode, the task's (--cost-limit for another)"
        done = self.random
        costs = f"{_number(sum(done.costs))} in {len(done.costs):,} steps, and no episode ended"
        if done.episodes:
            costs = f"{_number(np.mean(done.sums(done.costs)))} per episode"
        return (
            f"no limit is known: the random policy costs {costs}; `safecritic limits ENV` "
            "shows which limits bind; give one with --cost-limit (cost_limit=...)"
        )


describe = Description


def _success_key(env: Any, info: dict[str, Any]) -> str | None:
    """Return the key that `info["success"]` was read from."""
    if "success" not in info:
        return None
    # `adapt` adds `success` itself, so another name for it is the environment's own
    keys = [declared_of(env).get("success_key")]
    keys += [layer.success_key for layer in layers(env) if isinstance(layer, FiveValues)]
    keys += [key for key in SUCCESS_KEYS[1:] if key in info]
    return next((key for key in keys if key), "success")


def _cost_source(env: Any) -> str:
    """Return where the cost comes from, in words."""
    declared = declared_of(env)
    key = declared.get("cost_key", "cost")
    if declared.get("no_cost"):
        return NO_COST
    if "cost" in declared:
        return f"computed by the function given ({declared['cost']})"
    if key == "cost" and any(isinstance(layer, FiveValues) for layer in layers(env)):
        return "the third of the six values of step"
    return f"info[{key!r}]" + (", 0 where it is missing" if declared.get("missing_cost") else "")


def _ranges(part: Part, space: Any, seen: np.ndarray) -> Iterator[Range]:
    """Yield the numbers of a part, grouped by their bounds."""
    bounds = [*zip(space.low.tolist(), space.high.tolist(), strict=True)]
    places = range(part.start, part.stop)
    starts = [at for at in places if at == part.start or bounds[at] != bounds[at - 1]]
    merged = len(starts) > MOST_RANGES
    starts = starts[:1] if merged else starts
    for start, stop in zip(starts, [*starts[1:], part.stop], strict=True):
        both = np.array([[space.low, space.high], seen])[:, :, start:stop]
        (low, high), extremes = zip(
            both[:, 0].min(1).tolist(), both[:, 1].max(1).tolist(), strict=True
        )
        yield Range(part.name, start, stop, low, high, extremes, same_bounds=not merged)


# Words


def _number(value: Any) -> str:
    return f"{value:,.0f}" if 1_000 <= abs(value) < math.inf else f"{value:.3g}"


def _span(values: Sequence[float]) -> str:
    return f"{_number(min(values))} to {_number(max(values))}" if values else "unknown"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _mean(sums: Sequence[float]) -> str:
    """Return the mean over episodes, as the end of a sentence."""
    of = f"mean of {len(sums)}" if len(sums) > 1 else "one episode"
    return f"; {_number(np.mean(sums))} per episode ({of})" if sums else ""


def places_text(places: Iterable[int]) -> str:
    """Return places in the form that `--proximity` takes.

    >>> places_text([3, 4, 5, 9])
    '3-5,9'
    """
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
