"""The sections of the page, and what makes their tables and figures.

`tables.TABLES` and `figures.FIGURES` hold a list of functions for each section; `register` of
either module appends to one. A section that is not listed here comes last on the page.
"""

import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from safecritic.study.table import in_order

INTRODUCTIONS = {
    "Kept or not": "Does each method keep the limit, and is its safety critic of use?",
    "Limits": "What each method does with a tighter or a looser cost limit.",
    "Training": "Reward and cost while learning, exploration included.",
    "Deployment": "The trained policies: no exploration noise, screen on.",
    "Cost maps": "What the safety critic predicts for each place, against what is true there.",
    "Uncertainty": "Is the influence high where the critic is wrong?",
    "The paper's claims": "What the paper says of USC, taken one by one.",
    "Time and memory": "",
    "Runs": "",
    "Settings": "What the runs were made with.",
}


def add(registry: dict[str, list[Any]], section: str, function: Any) -> None:
    """Append a function to a section, new or not; refuse a function that is already there."""
    for other, functions in registry.items():
        if function in functions:
            raise ValueError(f"{function} is registered already, in the section {other!r}")
    registry.setdefault(section, []).append(function)


def slug(name: str) -> str:
    """Return a name for files and links: letters, digits and . _ - alone.

    A name that had to change gets a checksum, so that two never become the same.

    >>> slug("curves-CarGoal1"), slug("curves-mine/Plain-v0")
    ('curves-CarGoal1', 'curves-mine-Plain-v0-0ff0ee2c')
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-")[:80] or "unnamed"
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"


def collect(registry: dict[str, list[Any]], make: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """Return what the functions make, in the order of the page and without what is empty."""
    items: dict[str, Any] = {}
    for section in in_order(registry, INTRODUCTIONS):
        made = (item for function in registry[section] for item in make(function))
        for item in (item for item in made if not item.empty):
            item.name, item.section = slug(item.name), section
            if item.name in items:
                kind = type(item).__name__.lower()
                raise ValueError(f"{item.name!r} is the name of two {kind}s: choose another name")
            items[item.name] = item
    return list(items.values())
