"""The form of a JSON file as a dataclass, and a check that names the key that does not fit.

    @dataclass
    class Spec:
        obs_dim: Annotated[int, Within(1, 10**6)]
        cost_max: float | None

    check(Spec, content, path)

Keys that a dataclass does not name are left alone, unless it sets `CLOSED`: who reads a file uses
only what is checked. A field with a default may be missing. `float` means a finite number.
"""

import dataclasses
import math
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from safecritic.files import FileError, shown

LONGEST_LIST = 100_000
LONGEST_TEXT = 4_000


@dataclass(frozen=True)
class Within:
    """Bounds of a number, or of the length of a list or an object."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f" >= {self.low:,g}"
        return f" from {self.low:,g} to {self.high:,g}"


@dataclass(frozen=True)
class Matching:
    """A pattern that a text matches as a whole."""

    pattern: str
    words: str  # what it means, for the message


Count = Annotated[int, Within(0, 10**15)]
Name = Annotated[str, Matching(r"[\w./:-]{1,200}", "letters, digits and any of . / : - _")]
Digest = Annotated[str, Matching(r"[0-9a-f]{64}", "64 hexadecimal digits")]


def check(kind: Any, value: Any, path: Path, key: str = "") -> None:
    """Raise FileError unless the value has this form."""
    problem = next(_problems(kind, value, key), None)
    if problem is not None:
        at, expected, got = problem
        where = f"{path}, key {at}" if at else str(path)
        raise FileError(
            f"{where}: expected {expected}, got {got}; restore the file from a copy, or remove "
            "what it belongs to and make it again"
        )


Problem = tuple[str, str, str]


def _problems(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    """Yield what does not fit: the key, what was expected and what came."""
    origin = get_origin(kind)
    if kind is Any:
        return
    if origin is Annotated:
        yield from _annotated(kind, value, key)
    elif dataclasses.is_dataclass(kind):
        yield from _object(kind, value, key)
    elif origin is Literal:
        if not any(type(value) is type(x) and value == x for x in get_args(kind)):
            yield key, "one of " + ", ".join(map(repr, get_args(kind))), shown(value)
    elif origin in (Union, types.UnionType):
        options = get_args(kind)
        problems = [list(_problems(option, value, key)) for option in options]
        if all(problems):
            # the form that got furthest explains best
            yield max((one[0] for one in problems), key=lambda problem: len(problem[0]))
    elif origin is list:
        yield from _list(get_args(kind)[0], value, key)
    elif origin is dict:
        yield from _dict(get_args(kind)[1], value, key)
    elif not _is(kind, value):
        yield key, _WORDS[kind], shown(value)


_WORDS: dict[Any, str] = {
    str: f"a text of at most {LONGEST_TEXT:,} letters",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    type(None): "null",
    None: "null",
}


def _is(kind: Any, value: Any) -> bool:
    if kind is None or kind is type(None):
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and len(value) <= LONGEST_TEXT
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind is int:
        return isinstance(value, int)
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _annotated(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    inner, *marks = get_args(kind)
    problems = list(_problems(inner, value, key))
    yield from problems
    if problems:
        return
    for mark in marks:
        if isinstance(mark, Within):
            measured = len(value) if isinstance(value, list | dict) else value
            if not mark.low <= measured <= mark.high:
                noun = (
                    "a length" if isinstance(value, list | dict) else _WORDS.get(inner, "a value")
                )
                yield key, f"{noun}{mark}", shown(value)
        elif isinstance(mark, Matching) and not re.fullmatch(mark.pattern, value):
            yield key, mark.words, shown(value)


def _object(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield key, "an object", shown(value)
        return
    for field in dataclasses.fields(kind):
        at = f"{key}.{field.name}" if key else field.name
        if field.name in value:
            yield from _problems(field.type, value[field.name], at)
        elif field.default is dataclasses.MISSING:
            yield at, "a value", "nothing: the key is missing"
    if getattr(kind, "CLOSED", False):
        names = [field.name for field in dataclasses.fields(kind)]
        for name in value:
            if name not in names:
                yield key, f"no other keys than {', '.join(names)}", shown(name)


def _list(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    if not isinstance(value, list) or len(value) > LONGEST_LIST:
        yield key, f"a list of at most {LONGEST_LIST:,}", shown(value)
        return
    for number, item in enumerate(value):
        yield from _problems(kind, item, f"{key}[{number}]")


def _dict(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield key, "an object", shown(value)
        return
    for name, item in value.items():
        if len(name) > 200:
            yield key, "names of at most 200 letters", shown(name)
        yield from _problems(kind, item, f"{key}.{name}" if key else shown(name)[1:-1])
