"""What the numbers of an observation are: named parts, and which of them are proximity inputs.

A proximity input is a number in [0, 1] that grows as something comes near: a lidar. The methods
also see ramps of it over several distances, so it must be declared; bounds of [0, 1] alone do not
make one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple, flatdim, flatten_space

from safecritic.core.names import suggest

Proximity = str | slice | Iterable[int | str]
# advice in errors
TRANSFORM = "gymnasium.wrappers.TransformObservation(env, function, gymnasium.spaces.Box(...))"
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
    for path, leaf in leaves(space):
        start = listed[-1].stop if listed else 0
        listed.append(Part("/".join(map(str, path)), start, start + flatdim(leaf), leaf))
    return listed


def leaves(space: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the spaces within a space, with the keys that lead to each."""
    if isinstance(space, Dict | Tuple):
        inner: Any = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, below in inner:
            yield from leaves(below, (*path, key))
    else:
        yield path, space


class UnfitEnvError(TypeError):
    """An environment whose observations, actions or methods cannot be used here."""


def refuse_images(space: gymnasium.Space) -> None:
    """Raise UnfitEnvError for an observation that is an image, or has one among its parts."""
    for path, leaf in leaves(space):
        if not isinstance(leaf, Box):
            continue
        if len(leaf.shape) >= 3 or (len(leaf.shape) == 2 and leaf.dtype == np.uint8):
            what = f"its part {'/'.join(map(str, path))!r}" if path else "it"
            raise UnfitEnvError(
                f"observations must not be images: {what} is {leaf.dtype} of shape {leaf.shape}, "
                "and the networks here see a vector of features, not pixels. Observe a vector "
                f"instead, {TRANSFORM}; if it is no image, "
                "gymnasium.wrappers.FlattenObservation(env)"
            )


def resolve_proximity(given: Proximity, space: gymnasium.Space) -> tuple[int, ...]:
    """Return the places of the declared proximity inputs in the flat observation, in order.

    Places, names of parts (`sensors` for all of `sensors/...`), ranges with both ends ("10-25"),
    several of these with commas between them, or a slice; all bounded within [0, 1].
    """
    flat: Any = flatten_space(space)
    low, high = flat.low.ravel(), flat.high.ravel()
    known = parts(space)
    places = sorted({at for entry in _listed(given) for at in _places(entry, known, len(low))})
    for at in places:
        if not (low[at] >= 0.0 and high[at] <= 1.0):
            name = next(part.name for part in known if part.start <= at < part.stop)
            raise ValueError(
                f"proximity {at}{f' (in {name!r})' if name else ''} is bounded to "
                f"[{low[at]:g}, {high[at]:g}], expected bounds within [0, 1], 1 for near: "
                f"leave it out, or rescale it first, {TRANSFORM}"
            )
    return tuple(places)


def _listed(given: Any) -> Iterator[Any]:
    """Yield the entries of a declaration one by one."""
    if isinstance(given, str):
        yield from (word.strip() for word in given.split(","))
    elif isinstance(given, Iterable):
        for entry in given:
            yield from _listed(entry) if isinstance(entry, str) else [entry]
    else:
        yield given


def _places(entry: Any, known: list[Part], size: int) -> Iterable[int]:
    """Return the places that one entry of a declaration means."""
    extent = f"the observation has {size} numbers, 0 to {size - 1} (--proximity)"
    if isinstance(entry, slice):
        places = range(size)[entry]
        beyond = any(end is not None and abs(end) > size for end in (entry.start, entry.stop))
        if beyond or not places:
            raise ValueError(f"proximity {entry} is out of range or is empty: {extent}")
        return places
    if isinstance(entry, str):
        named = [p for p in known if p.name and f"{p.name}/".startswith(f"{entry}/")]
        if named:
            return [place for part in named for place in range(part.start, part.stop)]
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", entry)
        if numbers is None:
            names = [part.name for part in known if part.name]
            hint = suggest(entry, names) if names else "this observation has no named parts"
            raise ValueError(f"proximity must be {EXPECTED}, got {entry!r}: {hint}")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    elif isinstance(entry, Integral) and not isinstance(entry, bool | np.bool_):
        first = last = int(entry)
    else:
        raise ValueError(f"proximity must be {EXPECTED}, got {entry!r} (--proximity)")
    if not 0 <= first <= last < size:
        raise ValueError(f"proximity {entry} is out of range: {extent}")
    return range(first, last + 1)
