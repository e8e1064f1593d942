"""Random scenes: where everything stands at the start of an episode.

Placement follows Safety Gymnasium draw for draw, from the same random stream, so that seed 7 here
is the scene of seed 7 there. Objects are placed one after another, each uniformly in the arena and
far enough from those before it; a hundred misses in a row throw the whole layout away. The Button
tasks need about 50 layouts, 7,700 numbers, for one that fits: numbers are drawn in blocks and the
generator is wound back to where scalar draws would have left it. Where the original's own scene is
not needed, `sample_layouts` gives one of the same distribution in a fifth of the time.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from safecritic.tasks.navigation.layout import Layout
from safecritic.tasks.navigation.objects import KINDS, Arena

MAX_TRIES = 100
MAX_LAYOUTS = 10_000
MAX_GOAL_TRIES = 10_000


class PlacementError(RuntimeError):
    """The objects do not fit into the arena."""

    def __init__(self, arena: Arena):
        objects = ", ".join(f"{n} {name}" for name, n in arena.counts.items())
        super().__init__(
            f"robot, goal, {objects} do not fit into an arena of +-{arena.extent} m with the "
            "distances kept between them: make the arena larger (extent=)"
        )


class RandomStream:
    """NumPy's RandomState, read in blocks, its position kept as if read number by number."""

    BLOCK = 512

    def __init__(self, seed: int):
        self._generator = np.random.RandomState(seed)
        self._start: Any = None  # the generator's state before the current block
        self._block = np.empty(0)
        self._list: list[float] = []  # the same numbers
        self._used = 0

    def available(self, n: int) -> tuple[np.ndarray, int]:
        """Return uniform numbers in [0, 1), at least n of them unread, and where those start."""
        if self._start is None:
            self._start, self._used = self._generator.get_state(), 0
            self._block = self._generator.random_sample(max(n, self.BLOCK))
            self._list = []
        while len(self._block) - self._used < n:
            size = max(n, len(self._block))
            self._block = np.concatenate([self._block, self._generator.random_sample(size)])
        return self._block, self._used

    def numbers(self, n: int) -> tuple[list[float], int]:
        """Return what `available` does, as plain numbers."""
        block, used = self.available(n)
        if len(self._list) != len(block):
            self._list += block[len(self._list) :].tolist()
        return self._list, used

    def advance(self, n: int) -> None:
        """Mark n numbers as read."""
        if self._start is None or len(self._block) - self._used < n:
            self.available(n)
        self._used += n

    def uniform(self, low: float, high: float) -> float:
        """Draw one number in [low, high)."""
        block, i = self.available(1)
        self._used += 1
        return low + (high - low) * float(block[i])

    def choice(self, n: int) -> int:
        """Draw one of 0 to n - 1, as `RandomState.choice` does."""
        self._wind_back()
        return int(self._generator.choice(n))

    def _wind_back(self) -> None:
        """Put the generator where reading number by number would have left it."""
        if self._start is not None:
            self._generator.set_state(self._start)
            self._generator.random_sample(self._used)
            self._start = None

    def get_state(self) -> np.ndarray:
        """Return the generator's state as one array."""
        self._wind_back()
        state: Any = self._generator.get_state()
        _, keys, position, has_gauss, gauss = state
        return np.concatenate([keys.astype(np.float64), [position, has_gauss, gauss]])

    def set_state(self, state: np.ndarray) -> None:
        """Continue from what `get_state` returned."""
        keys = state[:-3].astype(np.uint32)
        self._generator.set_state(("MT19937", keys, int(state[-3]), int(state[-2]), state[-1]))
        self._start = None


def sample_layout(arena: Arena, stream: RandomStream) -> Layout:
    """Place and turn everything and choose the goal, in the original's order of draws."""
    if arena.start is not None:
        x, y = (stream.uniform(*side) for side in arena.start)
        stream.advance(2 * arena.fixed)
        turn = stream.uniform(0, 2 * math.pi)
        stream.advance(arena.fixed)
        return {"agent": np.array([x, y, turn])}
    order = arena.placement_order()
    positions = _place(arena, stream)
    rotations = [stream.uniform(0, 2 * math.pi) for _ in order]

    layout = _layout(arena, order, positions, rotations)
    if arena.buttons:
        layout["goal_button"] = stream.choice(arena.buttons)
    else:
        goal = sample_goal(arena, stream, layout)
        if goal is None:
            raise PlacementError(arena)
        layout["goal"] = goal
    return layout


def _layout(
    arena: Arena, order: list[str], positions: list[tuple[float, float]], rotations: list[float]
) -> Layout:
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("agent", *arena.counts)}
    for kind, place, turn in zip(order, positions, rotations, strict=True):
        if kind != "goal":
            rows[kind].append((*place, turn)[: KINDS[kind].columns])
    layout: Layout = {name: np.array(r) for name, r in rows.items()}
    return layout | {"agent": layout["agent"][0]}


def sample_goal(arena: Arena, stream: RandomStream, scene: Layout) -> np.ndarray | None:
    """Draw a place for the goal, clear of all objects in `scene`; None if there is no room."""
    names = ("agent", *arena.counts)
    kinds = [(name, np.atleast_2d(scene[name])[:, :2]) for name in names]
    others = np.concatenate([places for _, places in kinds])
    radii = np.concatenate([[arena.keepout(k)] * len(p) for k, p in kinds]) + arena.goal_keepout
    low, high = _range(arena, "goal")
    chunk = 64
    for start in range(0, MAX_GOAL_TRIES, chunk):
        n = min(chunk, MAX_GOAL_TRIES - start)
        block, i = stream.available(2 * n)
        tries = low + (high - low) * block[i : i + 2 * n].reshape(n, 2)
        free = _free(tries, others, radii * radii)
        if free.any():
            first = int(free.argmax())
            stream.advance(2 * (first + 1))
            return tries[first].copy()
        stream.advance(2 * n)
    return None


def _range(arena: Arena, kind: str) -> tuple[float, float]:
    side = arena.extent - arena.keepout(kind)
    if side <= 0:
        raise PlacementError(arena)
    return -side, side


def _free(tries: np.ndarray, others: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return which places are clear of all others, by the squares of the distances to keep."""
    dx = tries[:, :1] - others[:, 0]
    dy = tries[:, 1:] - others[:, 1]
    return (dx * dx + dy * dy >= squares).all(axis=1)


@functools.cache
def _plan(arena: Arena) -> list[tuple[bool, tuple[float, float, list[float], np.ndarray]]]:
    """Return for each object its range and its least distances from those before it, squared.

    Those that keep most away come first, since they turn down most places.
    """
    plan, before = [], list[float]()
    for kind in arena.placement_order():
        low, high = _range(arena, kind)
        keepout = arena.keepout(kind)
        squares = np.square(np.array(before) + keepout)
        plan.append((keepout >= 0.3, (low, high - low, squares.tolist(), squares)))
        before.insert(0 if keepout >= 0.3 else len(before), keepout)
    return plan


def _place(arena: Arena, stream: RandomStream) -> list[tuple[float, float]]:
    plan = _plan(arena)
    for _ in range(MAX_LAYOUTS):
        places: list[tuple[float, float]] = []
        sorted_places: list[tuple[float, float]] = []
        for large, room in plan:
            place = _draw(stream, sorted_places, *room)
            if place is None:
                break
            places.append(place)
            sorted_places.insert(0 if large else len(places), place)
        else:
            return places
    raise PlacementError(arena)


def _draw(
    stream: RandomStream,
    placed: list[tuple[float, float]],
    low: float,
    width: float,
    limits: list[float],
    squares: np.ndarray,
) -> tuple[float, float] | None:
    """Draw up to a hundred places; return the first that is clear of everything placed.

    The first few in plain Python, which is faster while most of them succeed, the rest at once.
    """
    few = 12
    numbers, at = stream.numbers(2 * MAX_TRIES)
    for k in range(at, at + 2 * few, 2):
        x, y = low + width * numbers[k], low + width * numbers[k + 1]
        for (px, py), limit in zip(placed, limits):  # noqa: B905 (strict costs time here)
            dx, dy = x - px, y - py
            if dx * dx + dy * dy < limit:
                break
        else:
            stream.advance(k + 2 - at)
            return x, y
    block, at = stream.available(2 * MAX_TRIES)
    tries = low + width * block[at + 2 * few : at + 2 * MAX_TRIES].reshape(-1, 2)
    free = _free(tries, np.array(placed), squares)
    first = int(free.argmax())
    if not free[first]:
        stream.advance(2 * MAX_TRIES)
        return None
    stream.advance(2 * (few + first + 1))
    return float(tries[first, 0]), float(tries[first, 1])


def sample_layouts(
    arena: Arena, generator: np.random.Generator, attempts: int = 64
) -> list[Layout]:
    """Try many layouts of a Button task at once; return those that succeed.

    Rules and distribution are those of `sample_layout`, the random stream is another, and it takes
    a fifth of the time: one layout in about fifty succeeds, and all share each array operation.
    """
    order = arena.placement_order()
    keepout = np.array([arena.keepout(kind) for kind in order])
    x, y = np.empty((2, attempts, len(order)))
    for i, kind in enumerate(order):
        low, high = _range(arena, kind)
        reach = np.square(keepout[:i] + keepout[i])[:, None]
        pending = np.arange(len(x))
        for tries in (3, 17, MAX_TRIES - 20):
            tx, ty = generator.uniform(low, high, (2, len(pending), tries))
            square = np.square(tx[:, None, :] - x[pending, :i, None])
            square += np.square(ty[:, None, :] - y[pending, :i, None])
            taken = (square < reach).any(axis=1)
            row, first = np.arange(len(pending)), taken.argmin(axis=1)
            x[pending, i], y[pending, i] = tx[row, first], ty[row, first]
            pending = pending[taken[row, first]]
            if not len(pending):
                break
        if len(pending):
            alive = np.ones(len(x), dtype=bool)
            alive[pending] = False
            x, y = x[alive], y[alive]
            if not len(x):
                return []
    rotations = generator.uniform(0, 2 * math.pi, x.shape)
    goals = generator.integers(arena.buttons, size=len(x))
    return [
        _layout(arena, order, np.stack([x[k], y[k]], 1).tolist(), rotations[k].tolist())
        | {"goal_button": int(goals[k])}
        for k in range(len(x))
    ]
