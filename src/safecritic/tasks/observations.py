"""What the numbers of an observation are: parts with names, and which of them are closenesses.

A closeness is a number in [0, 1] that grows as something comes near: a lidar. The methods also see
it raised to a power, so it must be declared; bounds of [0, 1] alone do not make one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple, flatdim, flatten_space

from safecritic.names import suggest

Closeness = str | slice | Iterable[int | str]
EXPECTED = 'places, a slice, or names of parts, such as [3, 4], "10-25,30" or "lidar"'


@dataclass(frozen=True)
class Part:
    """A part of the observation: its name ("" for a plain vector), its places and its space."""

    name: str
    start: int
    stop: int
    space: gymnasium.Space


def parts(space: gymnasium.Space) -> list[Part]:
    """Return the parts of an observation in the order in which `flatten` puts them."""
    listed: list[Part] = []
    for name, leaf in _leaves("", space):
        start = listed[-1].stop if listed else 0
        listed.append(Part(name, start, start + flatdim(leaf), leaf))
    return listed


def _leaves(name: str, space: gymnasium.Space) -> list[tuple[str, gymnasium.Space]]:
    if isinstance(space, Dict):
        inner: Iterable[tuple[Any, gymnasium.Space]] = space.spaces.items()
    elif isinstance(space, Tuple):
        inner = enumerate(space.spaces)
    else:
        return [(name, space)]
    prefix = f"{name}/" if name else ""
    return [leaf for key, below in inner for leaf in _leaves(f"{prefix}{key}", below)]


def refuse_images(space: gymnasium.Space) -> None:
    """Raise TypeError for an observation that is an image, or has one among its parts."""
    for name, leaf in _leaves("", space):
        if not isinstance(leaf, Box):
            continue
        if len(leaf.shape) >= 3 or (len(leaf.shape) == 2 and leaf.dtype == np.uint8):
            what = f"its part {name!r}" if name else "it"
            raise TypeError(
                f"observations must not be images: {what} is {leaf.dtype} of shape {leaf.shape}, "
                "and the networks here see a vector of features, not pixels. Observe a vector "
                "instead, gymnasium.wrappers.TransformObservation(env, function, "
                "gymnasium.spaces.Box(...)); if it is no image, gymnasium.wrappers."
                "FlattenObservation(env)"
            )


def resolve_closeness(given: Closeness, space: gymnasium.Space) -> tuple[int, ...]:
    """Return the places of the declared closenesses in the flat observation, in order.

    Args:
        given: places, names of parts (all of `sensors/...` with `sensors`), ranges such as "10-25"
            with both ends, several of these with commas between them; or a slice.
        space: the environment's own observation space.

    Raises:
        ValueError: a place that does not exist, or whose bounds are not within [0, 1].
    """
    flat: Any = flatten_space(space)
    low, high = flat.low.ravel(), flat.high.ravel()
    known = parts(space)
    places: set[int] = set()
    for one in _listed(given):
        places.update(_places(one, known, len(low)))
    for place in sorted(places):
        if not (low[place] >= 0.0 and high[place] <= 1.0):
            name = next(part.name for part in known if part.start <= place < part.stop)
            raise ValueError(
                f"closeness {place}{f' (in {name!r})' if name else ''} is bounded to "
                f"[{low[place]:g}, {high[place]:g}], expected bounds within [0, 1], 1 for near: "
                "leave it out, or rescale it first, gymnasium.wrappers.TransformObservation(env, "
                "function, gymnasium.spaces.Box(...))"
            )
    return tuple(sorted(places))


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [word.strip() for word in given.split(",")]
    if isinstance(given, slice | Integral):
        return [given]
    try:
        return [word for one in given for word in (_listed(one) if isinstance(one, str) else [one])]
    except TypeError:
        raise ValueError(f"closeness must be {EXPECTED}, got {given!r} (--closeness)") from None


def _places(one: Any, known: list[Part], size: int) -> Iterable[int]:
    """Return the places that one entry of a declaration means."""
    if isinstance(one, Integral) and not isinstance(one, bool | np.bool_):
        first = last = int(one)
    elif isinstance(one, slice):
        covered = range(size)[one]
        for end in (one.start, one.stop):
            if end is not None and abs(end) > size:
                raise ValueError(f"closeness {one} is out of range: {_extent(size)}")
        if not covered:
            raise ValueError(f"closeness {one} is empty: {_extent(size)}")
        return covered
    elif isinstance(one, str):
        named = [p for p in known if p.name and f"{p.name}/".startswith(f"{one}/")]
        if named:
            return [place for part in named for place in range(part.start, part.stop)]
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", one)
        if numbers is None:
            raise ValueError(_unknown_name(one, known))
        first = int(numbers[1])
        last = first if numbers[2] is None else int(numbers[2])
    else:
        raise ValueError(f"closeness must be {EXPECTED}, got {one!r} (--closeness)")
    if not 0 <= first <= last < size:
        raise ValueError(f"closeness {one} is out of range: {_extent(size)}")
    return range(first, last + 1)


def _extent(size: int) -> str:
    return f"the observation has {size} numbers, 0 to {size - 1} (--closeness)"


def _unknown_name(name: str, known: list[Part]) -> str:
    names = [part.name for part in known if part.name]
    if not names:
        return f"closeness must be {EXPECTED}, got {name!r}: this observation has no named parts"
    return f"closeness {name!r} is no part of the observation: {suggest(name, names)}"
