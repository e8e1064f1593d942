"""Settings of the methods: base classes, optional parts, and checks. Imports no JAX.

A method's settings are a frozen dataclass. A field whose type is `SomePart | None` is an optional
part with settings of its own; outside (command line, TOML, JSON, keywords) names are flat: a
part's settings stand beside all others, and the part's name is a switch, `screen=False`. The
comment behind a field is its help.
"""

import dataclasses
import inspect
import io
import math
import tokenize
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

from safecritic.names import suggest


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of settings with a title of its own in the help; knows how to check itself."""

    TITLE: ClassVar[str]

    def check(self) -> None:
        """Raise ValueError for a setting no run could start with."""
        require_types(self)


@dataclass(frozen=True, kw_only=True)
class Part(Group):
    """Settings of an optional part of a method."""


@dataclass(frozen=True, kw_only=True)
class Settings(Group):
    """Settings of every method; names follow Stable-Baselines3."""

    TITLE: ClassVar[str] = "learning"

    gamma: float = 0.95  # discount of reward and cost
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers of every network
    critic_lr: float = 1e-3  # step size of the reward critic
    batch_size: int = 64  # samples per update
    cost_limit: float = 1.0  # budget: undiscounted cost of an episode
    units: Literal["measured", "task"] = "measured"  # of reward and cost inside; paper: task
    action_repeat: int = 1  # environment steps for which an action is held; paper: 1
    sharpening: float = 8.0  # power of inputs that are a closeness (lidars); paper: 1, none
    sharpening_for: Literal["all", "critic"] = "all"  # networks that see those
    observation_scaling: Literal["running", "none"] = "running"  # by mean and spread; paper: none

    @property
    def warm_up(self) -> int:
        """Return the number of steps before the first update."""
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        require(0 <= self.gamma < 1, "gamma", "in [0, 1)", self.gamma)
        require_positive(self, "batch_size", "critic_lr")
        require_not_negative(self, "cost_limit")
        require_positive(self, "sharpening", "action_repeat")
        require(
            isinstance(self.hidden, tuple)
            and len(self.hidden) > 0
            and all(isinstance(n, int) and n > 0 for n in self.hidden),
            "hidden",
            "one or more layer widths > 0, such as (256, 256)",
            self.hidden,
        )
        for name in part_types(type(self)):
            part = getattr(self, name)
            if part is not None:
                part.check()


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings(Settings):
    """Settings of the methods that learn from a replay buffer, one update per step."""

    tau: float = 5e-3  # rate at which target networks follow
    buffer_size: int = 200_000  # transitions in the replay buffer
    learning_starts: int = 1_000  # random steps before the first update; the paper gives no value
    actor_lr: float = 3e-4  # step size of the actor; paper: 2e-3
    noise_sigma: float = 0.2  # spread of the Ornstein-Uhlenbeck exploration noise
    noise_theta: float = 0.15  # pull of that noise to 0; the paper gives no value
    noise_half_life: float = 20_000.0  # updates in which that noise halves; paper: 0, it stays
    n_step: int = 1  # steps of reward in a target
    reward_critics: Literal[1, 2] = 1  # networks of Q_R; of two, the smaller value is the target
    layer_norm: Literal["reward", "all", "none"] = "reward"  # of which critics; paper: none
    actor_every: int = 1  # updates of the critics for one of the actor
    actor_pull: float = 0.0  # weight of the actor's squared output before its tanh
    deployed_actor: Literal["average", "last"] = "average"  # its slow copy; paper: last
    target_noise: float = 0.0  # spread of the noise that smooths the targets of Q_R
    costly_share: float = 0.0  # share of a batch drawn among transitions with cost > 0

    @property
    def warm_up(self) -> int:
        return self.learning_starts

    # What else `replay.sample` asks for

    @property
    def safety_n_step(self) -> int:
        return self.n_step

    @property
    def neighbour_block(self) -> int:
        return 0

    def check(self) -> None:
        super().check()
        require(0 < self.tau <= 1, "tau", "in (0, 1]", self.tau)
        require_positive(self, "buffer_size", "actor_lr", "n_step", "actor_every")
        require_not_negative(self, "target_noise", "noise_half_life", "actor_pull")
        require_not_negative(self, "noise_sigma", "noise_theta", "learning_starts")
        require_share(self, "costly_share", "noise_theta")
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds buffer_size {self.buffer_size}: "
                "no batch could be drawn (--batch-size, --buffer-size)"
            )


# Flat names


def part_types(kind: type) -> dict[str, type[Part]]:
    """Return the optional parts of a settings class by name."""
    parts = {}
    for field in dataclasses.fields(kind):
        if isinstance(field.type, types.UnionType):
            first = get_args(field.type)[0]
            if isinstance(first, type) and issubclass(first, Part):
                parts[field.name] = first
    return parts


def part_fields(kind: type) -> dict[str, set[str]]:
    """Return the names of the settings of each optional part of a settings class."""
    return {
        name: {field.name for field in dataclasses.fields(part)}
        for name, part in part_types(kind).items()
    }


def setting_names(kind: type, parts: tuple[str, ...]) -> list[str]:
    """Return the flat names of all settings of a class that has these parts."""
    return [field.name for field, _ in setting_fields(kind, parts)] + list(parts)


def setting_fields(
    kind: type, parts: tuple[str, ...]
) -> Iterator[tuple[dataclasses.Field[Any], type[Group]]]:
    """Yield every setting of a class with these parts, and the group that declares it."""
    optional = part_types(kind)
    own = [
        (x, _declaring(kind, x.name)) for x in dataclasses.fields(kind) if x.name not in optional
    ]
    # a group that is mixed in comes first among the fields, but last for a reader
    yield from sorted(own, key=lambda row: not issubclass(row[1], Settings))
    for name in parts:
        for field in dataclasses.fields(optional[name]):
            yield field, optional[name]


def _declaring(kind: type, name: str) -> type[Group]:
    """Return the first class, from the base up, that declares a field."""
    return next(c for c in reversed(kind.__mro__) if name in inspect.get_annotations(c))


def build(kind: type, parts: tuple[str, ...], flat: Mapping[str, Any]) -> Any:
    """Return the settings of a class from flat names; `parts` are those the method has."""
    flat = {name: tuple(x) if isinstance(x, list) else x for name, x in flat.items()}  # from JSON
    optional = part_types(kind)
    own = {f.name for f in dataclasses.fields(kind)} - optional.keys()
    values: dict[str, Any] = {name: x for name, x in flat.items() if name in own}
    used = set(values) | (flat.keys() & set(parts))
    for name in parts:
        on = flat.get(name, True)
        require(isinstance(on, bool), name, "True or False", on)
        names = part_fields(kind)[name]
        given = {key: x for key, x in flat.items() if key in names}
        used |= given.keys()
        if on:
            values[name] = optional[name](**given)
    for name in flat:
        if name not in used:
            known = setting_names(kind, parts)
            raise ValueError(f"unknown setting {name!r}: {suggest(name, known)}")
    settings = kind(**values)
    settings.check()
    return settings


def flatten(settings: Settings) -> dict[str, Any]:
    """Return the settings by their flat names, an absent part as `False`."""
    flat: dict[str, Any] = {}
    optional = part_types(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name not in optional:
            flat[field.name] = value
            continue
        flat[field.name] = value is not None
        if value is not None:
            flat |= {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return flat


def replace(settings: Any, **changes: Any) -> Any:
    """Return the settings with some changed, by their flat names; `screen=False` drops a part."""
    kind = type(settings)
    optional = part_fields(kind)
    parts = tuple(name for name in optional if getattr(settings, name) is not None)
    absent = optional.keys() - set(parts)
    for part in parts:
        if changes.get(part) is False:
            absent |= optional[part]
    flat = {name: x for name, x in flatten(settings).items() if name not in absent}
    return build(kind, parts, flat | changes)


def helps(kind: type) -> dict[str, str]:
    """Return the comment behind each field of a dataclass, those of its bases included."""
    comments: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        lines = inspect.getsource(base)
        name = ""
        for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(lines)).readline):
            if token.type == tokenize.COMMENT and name:
                comments[name] = token.string.removeprefix("#").strip()
            field = token.line.partition(":")[0].strip()
            name = field if field in inspect.get_annotations(base) else ""
    return comments


# Checks


def require(holds: bool, name: str, rule: str, value: Any) -> None:
    """Raise ValueError that says what was expected, what came and where to change it."""
    if not holds:
        flag = name.replace("_", "-")
        raise ValueError(f"{name} must be {rule}, got {value!r} (--{flag})")


def require_types(settings: Any) -> None:
    """Require each setting to have the type its field declares; NaN is not a number here."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if field.type is float:
            holds = whole or (isinstance(value, float) and not math.isnan(value))
            require(holds, field.name, "a number", value)
        elif field.type is int:
            require(whole, field.name, "a whole number", value)
        elif field.type is bool:
            require(isinstance(value, bool), field.name, "True or False", value)
        elif get_origin(field.type) is Literal:
            choices = get_args(field.type)
            holds = any(type(value) is type(choice) and value == choice for choice in choices)
            require(holds, field.name, "one of " + ", ".join(map(str, choices)), value)


def require_positive(settings: Any, *names: str) -> None:
    for name in names:
        require(getattr(settings, name) > 0, name, "> 0", getattr(settings, name))


def require_not_negative(settings: Any, *names: str) -> None:
    for name in names:
        require(getattr(settings, name) >= 0, name, ">= 0", getattr(settings, name))


def require_share(settings: Any, *names: str) -> None:
    for name in names:
        require(0 <= getattr(settings, name) <= 1, name, "between 0 and 1", getattr(settings, name))
