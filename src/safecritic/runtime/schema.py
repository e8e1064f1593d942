"""JSON that is bounded before it is parsed, and its form as a dataclass.

    @dataclass
    class Spec:
        obs_dim: Annotated[int, Within(1, 10**6)]
        cost_max: float | None

    for key, expected, got in problems(Spec, parse(data)):
        ...

Other keys are allowed unless the class sets `CLOSED`. A field with a default may be missing.
`float` means a finite number.
"""

import dataclasses
import json
import math
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

CONTAINERS = 200_000  # lists and objects in a JSON file
VALUES = 1_000_000
DEPTH = 24
SHOWN = 60  # characters of a wrong value in a message
LONGEST_LIST = 100_000
LONGEST_TEXT = 4_000
LONGEST_NAME = 200


@dataclass(frozen=True)
class Within:
    """Bounds of a number, or of the length of a list."""

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

_WORDS: dict[Any, str] = {
    str: f"a text of at most {LONGEST_TEXT:,} letters",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    type(None): "null",
}
Problem = tuple[str, str, str]  # the key, what was expected and what came


def parse(data: bytes) -> Any:
    """Return what JSON text holds; ValueError if it is too large, too deep or says a key twice."""
    containers, values = data.count(b"[") + data.count(b"{"), data.count(b",")
    if containers > CONTAINERS or values > VALUES:
        raise ValueError(f"it has {containers:,} lists and {values:,} values")
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [[content]]
    for _ in range(DEPTH + 1):
        inside = (x.values() if isinstance(x, dict) else x for x in level)
        level = [x for values in inside for x in values if isinstance(x, list | dict)]
        if not level:
            return content
    raise ValueError(f"it is nested more than {DEPTH} deep")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is there twice")
    return content


def printable(text: str) -> str:
    """Return a text without what a terminal would take as a command."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def shown(value: Any) -> str:
    """Return a wrong value for a message: short, on one line."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        text = f"a whole number of {value.bit_length():,} bits"
    elif isinstance(value, str | int | float | bool | None):
        text = repr(value)
    elif isinstance(value, list | dict):
        text = f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    else:
        text = type(value).__name__
    return printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def problems(kind: Any, value: Any, key: str = "") -> Iterator[Problem]:
    """Yield what of a value does not have this form."""
    origin, options = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin is Annotated:
        yield from _marked(kind, value, key)
    elif dataclasses.is_dataclass(kind):
        yield from _object(kind, value, key)
    elif origin is Literal:
        if not any(type(value) is type(x) and value == x for x in options):
            yield key, "one of " + ", ".join(map(repr, options)), shown(value)
    elif origin in (Union, types.UnionType):
        first = [next(problems(option, value, key), None) for option in options]
        if None not in first:
            # the form that got furthest explains best
            yield max((x for x in first if x is not None), key=lambda problem: len(problem[0]))
    elif origin is list:
        if not isinstance(value, list) or len(value) > LONGEST_LIST:
            yield key, f"a list of at most {LONGEST_LIST:,}", shown(value)
            return
        for number, item in enumerate(value):
            yield from problems(options[0], item, f"{key}[{number}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield key, "an object", shown(value)
            return
        for name, item in value.items():
            if len(name) > LONGEST_NAME:
                yield key, f"names of at most {LONGEST_NAME} letters", shown(name)
            yield from problems(options[1], item, _inside(key, shown(name)[1:-1]))
    elif not _is(kind, value):
        yield key, _WORDS[kind], shown(value)


def _is(kind: Any, value: Any) -> bool:
    """Return whether a value is of a plain kind."""
    if kind is str:
        return isinstance(value, str) and len(value) <= LONGEST_TEXT
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isfinite(value)
        except OverflowError:  # a whole number beyond every float
            return False
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _marked(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    inner, *marks = get_args(kind)
    problem = next(problems(inner, value, key), None)
    if problem is not None:
        yield problem
        return
    for mark in marks:
        if isinstance(mark, Matching):
            if not re.fullmatch(mark.pattern, value):
                yield key, mark.words, shown(value)
        elif isinstance(mark, Within):
            many = isinstance(value, list | dict)
            if not mark.low <= (len(value) if many else value) <= mark.high:
                noun = "a length" if many else _WORDS.get(inner, "a value")
                yield key, f"{noun}{mark}", shown(value)


def _object(kind: Any, value: Any, key: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield key, "an object", shown(value)
        return
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, field in fields.items():
        if name in value:
            yield from problems(field.type, value[name], _inside(key, name))
        elif field.default is dataclasses.MISSING:
            yield _inside(key, name), "a value", "nothing: the key is missing"
    if getattr(kind, "CLOSED", False):
        for name in value.keys() - fields.keys():
            yield key, f"no other keys than {', '.join(fields)}", shown(name)


def _inside(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
