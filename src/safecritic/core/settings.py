"""Settings of the methods: plain frozen dataclasses that nest, and their checks. Imports no JAX.

A field whose type is a `Group` holds settings of its own; one whose type is `SomeGroup | None` is
an optional part of the method, which None (outside: False) switches off. In files and on the
command line a setting has one name with dots, `screen.tolerance`. The comment behind a field or
above it is its help. `agents/settings.py` has the settings of each method.
"""

import dataclasses
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

from safecritic.core.names import suggest

BLOCK = 256  # rows searched for neighbours: a random block of the replay
REACH = 8  # rows on either side of the sample, searched as well


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that belong together, and the bounds of those that have one."""

    POSITIVE: ClassVar[tuple[str, ...]] = ()
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ()
    SHARES: ClassVar[tuple[str, ...]] = ()  # between 0 and 1

    def check(self, prefix: str = "") -> None:
        """Raise ValueError for a setting no run could start with."""
        require_types(self, prefix)
        for kind in type(self).__mro__[-2::-1]:  # from Group on
            for bound, rule, holds in BOUNDS:
                for name in vars(kind).get(bound, ()):
                    value = getattr(self, name)
                    require(holds(value), prefix + name, rule, value)


@dataclass(frozen=True, kw_only=True)
class Settings(Group):
    """Settings of every method; names follow Stable-Baselines3."""

    POSITIVE: ClassVar[tuple[str, ...]] = ("batch_size", "critic_lr", "action_repeat")
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("cost_limit",)

    cost_limit: float = 1.0  # budget: what an episode may cost in total, not discounted
    gamma: float = 0.95  # discount of reward and cost per decision: 0.95 looks about 20 ahead
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers of every network
    critic_lr: float = 1e-3  # step size of the reward critic (Adam)
    batch_size: int = 64  # transitions drawn from the replay buffer for each update
    action_repeat: int = 1  # environment steps for which each action is held

    @property
    def warm_up(self) -> int:
        """Return the number of steps before the first update."""
        raise NotImplementedError

    def check(self, prefix: str = "") -> None:
        super().check(prefix)
        require(0 <= self.gamma < 1, "gamma", "in [0, 1)", self.gamma)
        require(
            isinstance(self.hidden, tuple)
            and len(self.hidden) > 0
            and all(isinstance(n, int) and n > 0 for n in self.hidden),
            "hidden",
            "one or more layer widths > 0, such as (256, 256)",
            self.hidden,
        )
        for name in group_types(type(self)):
            group = getattr(self, name)
            if group is not None:
                group.check(f"{name}.")


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings(Settings):
    """Settings of the methods that learn from a replay buffer, one update per decision."""

    POSITIVE: ClassVar[tuple[str, ...]] = ("buffer_size", "actor_lr")
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise_sigma", "learning_starts")

    actor_lr: float = 3e-4  # step size of the policy (Adam)
    tau: float = 5e-3  # share by which target networks move towards the trained ones, per update
    buffer_size: int = 200_000  # transitions that the replay buffer holds, the newest ones
    learning_starts: int = 1_000  # steps with random actions before the first update
    # size of the exploration noise (Ornstein-Uhlenbeck) at the start, for actions in [-1, 1]
    noise_sigma: float = 0.2

    @property
    def warm_up(self) -> int:
        return self.learning_starts

    # What else `replay.sample` asks for

    @property
    def cost_steps(self) -> int:
        return 1  # of cost in a target

    @property
    def costly_share(self) -> float:
        return 0.0  # of a batch, drawn among transitions with cost > 0

    @property
    def neighbour_block(self) -> int:
        return 0  # rows of the replay searched for neighbours

    def check(self, prefix: str = "") -> None:
        super().check(prefix)
        require(0 < self.tau <= 1, "tau", "in (0, 1]", self.tau)
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds buffer_size {self.buffer_size}: "
                "no batch could be drawn (--batch-size, --buffer-size)"
            )


# Names with dots


def group_types(kind: type) -> dict[str, type[Group]]:
    """Return the groups within a settings class by the name of their field."""
    groups = {}
    for field in dataclasses.fields(kind):
        inner = next(iter(get_args(field.type)), field.type)
        if isinstance(inner, type) and issubclass(inner, Group):
            groups[field.name] = inner
    return groups


def part_types(kind: type) -> dict[str, type[Group]]:
    """Return those of them that are optional parts of the method."""
    optional = {field.name for field in dataclasses.fields(kind) if get_args(field.type)}
    return {name: group for name, group in group_types(kind).items() if name in optional}


def setting_fields(
    kind: type, parts: tuple[str, ...]
) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yield name and field of every setting of a class that has these optional parts."""
    groups, optional = group_types(kind), part_types(kind)
    yield from ((x.name, x) for x in dataclasses.fields(kind) if x.name not in groups)
    for name, group in groups.items():
        if name in parts or name not in optional:
            yield from ((f"{name}.{x.name}", x) for x in dataclasses.fields(group))


def setting_names(kind: type, parts: tuple[str, ...]) -> list[str]:
    """Return the names of all settings of a class, its switches of parts included."""
    return [name for name, _ in setting_fields(kind, parts)] + list(parts)


def dotted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by names with dots: groups may be given as such, as mappings, or as False.

    >>> dotted({"gamma": 0.9, "screen": {"tolerance": 0.1}, "refinement": False})
    {'gamma': 0.9, 'screen.tolerance': 0.1, 'refinement': False}
    """
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Group):
            value = {x.name: getattr(value, x.name) for x in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": x for key, x in value.items()}
        elif value is None and "." not in name:
            flat[name] = False
        else:
            flat[name] = tuple(value) if isinstance(value, list) else value  # from JSON or TOML
    return flat


def build(kind: type, parts: tuple[str, ...], given: Mapping[str, Any]) -> Any:
    """Return the checked settings of a class; `parts` are those the method has."""
    flat = dotted(given)
    known = setting_names(kind, parts)
    for name in flat:
        if name not in known:
            raise ValueError(f"unknown setting {name!r}: {suggest(name, known)}")
    groups, optional = group_types(kind), part_types(kind)
    values = {name: x for name, x in flat.items() if "." not in name and name not in groups}
    for group, inner in groups.items():
        on = flat.get(group, group not in optional or group in parts)
        require(isinstance(on, bool), group, "True, False or its settings", on)
        dot = f"{group}."
        inside = {name.removeprefix(dot): x for name, x in flat.items() if name.startswith(dot)}
        values[group] = inner(**inside) if on else None
    settings = kind(**values)
    settings.check()
    return settings


def flatten(settings: Settings) -> dict[str, Any]:
    """Return all settings by name, an absent part as False."""
    flat: dict[str, Any] = {}
    optional = part_types(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in optional:
            flat[field.name] = value is not None
        if value is not None:
            flat |= dotted({field.name: value})
    return flat


def replace(settings: Any, **changes: Any) -> Any:
    """Return the settings with some changed: `screen=False` drops a part."""
    kind = type(settings)
    changed = dotted(changes)
    off = [name for name, value in changed.items() if value is False and name in part_types(kind)]
    flat = {k: x for k, x in flatten(settings).items() if k.partition(".")[0] not in off}
    absent = {name for name in part_types(kind) if flat.get(name) is False}
    flat = {name: x for name, x in flat.items() if name not in absent}
    parts = tuple(name for name in part_types(kind) if name not in absent)
    return build(kind, parts, flat | changed)


def helps(kind: type) -> dict[str, str]:
    """Return the help of each setting, its comment, and of each group, its docstring."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        fields, above = {x.name for x in dataclasses.fields(kind)}, [""]
        for line in textwrap.dedent(inspect.getsource(base)).splitlines():
            text = line.strip()
            name = text.partition(":")[0]
            if name in fields:
                texts[name] = line.partition("  # ")[2] or " ".join(above).strip()
            above = [*above, text[1:].strip()] if text.startswith("#") else [""]
    for name, group in group_types(kind).items():
        texts[name] = inspect.cleandoc(group.__doc__ or "")
        texts |= {f"{name}.{key}": text for key, text in helps(group).items()}
    return texts


# Checks


def require(holds: bool, name: str, rule: str, value: Any) -> None:
    """Raise ValueError that says what was expected, what came and where to change it."""
    if not holds:
        flag = name.replace("_", "-")
        raise ValueError(f"{name} must be {rule}, got {value!r} (--{flag})")


def require_types(settings: Any, prefix: str = "") -> None:
    """Require each setting to have the type its field declares; NaN is not a number here."""
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name
        whole = isinstance(value, int) and not isinstance(value, bool)
        if field.type is float:
            holds = whole or (isinstance(value, float) and not math.isnan(value))
            require(holds, name, "a number", value)
        elif field.type is int:
            require(whole, name, "a whole number", value)
        elif field.type is bool:
            require(isinstance(value, bool), name, "True or False", value)
        elif get_origin(field.type) is Literal:
            choices = get_args(field.type)
            holds = any(type(value) is type(choice) and value == choice for choice in choices)
            require(holds, name, "one of " + ", ".join(map(str, choices)), value)


BOUNDS: list[tuple[str, str, Callable[[Any], bool]]] = [
    ("POSITIVE", "> 0", lambda value: value > 0),
    ("NOT_NEGATIVE", ">= 0", lambda value: value >= 0),
    ("SHARES", "between 0 and 1", lambda value: 0 <= value <= 1),
]
