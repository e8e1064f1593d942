"""The agent classes (`USC`, `DDPG`, ...), one for each row of the table of methods.

The keywords of each are declared here for type checkers and editors; tests compare them with the
settings. Signatures and docstrings with all defaults are made when Python is asked for them, and
the class of a method that is registered later when it is first asked for.
"""

import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypedDict, Unpack

import gymnasium

from safecritic.agents.methods import METHODS, OF_THE_TASK, Method, get, make_config
from safecritic.agents.settings import (
    Conservative,
    Controller,
    CostCritic,
    Influence,
    Multiplier,
    Refinement,
    Screen,
)
from safecritic.api import Agent
from safecritic.core.settings import Group, helps
from safecritic.tasks.adapter import Cost
from safecritic.tasks.observations import Proximity

__all__ = ["CPO", "CSC", "DDPG", "RCPO", "SC", "USC", "USCNR", "PIDLag", "agent_class"]

Env = str | gymnasium.Env
Values = Mapping[str, Any]  # of a group's settings, by name


class _Any(TypedDict, total=False):
    """Keywords of every class."""

    seed: int
    paper_defaults: bool
    cost_key: str | None
    missing_cost: Literal["zero"] | None
    cost: Cost | None
    success_key: str | None
    proximity: Proximity | None
    cost_limit: float | None
    gamma: float
    hidden: tuple[int, ...]
    critic_lr: float
    batch_size: int
    action_repeat: int | None


class _CPO(_Any, total=False):
    rollout_steps: int
    rollout_envs: int
    rollout_workers: int
    gae_lambda: float
    cost_gae_lambda: float
    max_kl: float
    value_epochs: int
    std_init: float


class _OffPolicy(_Any, total=False):
    actor_lr: float
    tau: float
    buffer_size: int
    learning_starts: int
    noise_sigma: float


class _DDPG(_OffPolicy, total=False):
    no_cost: bool


class _RCPO(_OffPolicy, total=False):
    multiplier: Multiplier | Values


class _PIDLag(_OffPolicy, total=False):
    safety: CostCritic | Values
    multiplier: Controller | Values


class _SC(_OffPolicy, total=False):
    safety: CostCritic | Values
    kl_weight: float
    multiplier: Multiplier | Values
    screen: Screen | Values | bool


class _CSC(_SC, total=False):
    conservative: Conservative | Values | bool


class _USCNR(_CSC, total=False):
    influence: Influence | Values | bool


class _USC(_USCNR, total=False):
    refinement: Refinement | Values | bool


class DDPG(Agent, method="ddpg"):
    def __init__(self, env: Env, **settings: Unpack[_DDPG]) -> None:
        super().__init__(env, **settings)


class PIDLag(Agent, method="pid-lag"):
    def __init__(self, env: Env, **settings: Unpack[_PIDLag]) -> None:
        super().__init__(env, **settings)


class CPO(Agent, method="cpo"):
    def __init__(self, env: Env, **settings: Unpack[_CPO]) -> None:
        super().__init__(env, **settings)


class RCPO(Agent, method="rcpo"):
    def __init__(self, env: Env, **settings: Unpack[_RCPO]) -> None:
        super().__init__(env, **settings)


class SC(Agent, method="sc"):
    def __init__(self, env: Env, **settings: Unpack[_SC]) -> None:
        super().__init__(env, **settings)


class CSC(Agent, method="csc"):
    def __init__(self, env: Env, **settings: Unpack[_CSC]) -> None:
        super().__init__(env, **settings)


class USCNR(Agent, method="usc-nr"):
    def __init__(self, env: Env, **settings: Unpack[_USCNR]) -> None:
        super().__init__(env, **settings)


class USC(Agent, method="usc"):
    def __init__(self, env: Env, **settings: Unpack[_USC]) -> None:
        super().__init__(env, **settings)


# Signatures and docstrings

HELPS = {
    "env": "name of a task, id of a registered environment, or an environment that reports a cost",
    "seed": "seed of networks, exploration, replay buffer and environment",
    "paper_defaults": "start from the paper's values instead of ours",
    "cost_key": "key of the cost in `info`; None: `cost`",
    "missing_cost": '"zero": a step whose `info` lacks the key costs nothing; None: it is an error',
    "cost": "function of (observation, action, info) after a step that computes the cost",
    "success_key": "key of success in `info`; None: `success`, `is_success` or `goal_met`",
    "proximity": "proximity inputs: observations in [0, 1], 1 for near, such as lidars, by places "
    'or names, as in "10-25,30"; None: what the environment declares',
    "no_cost": "the environment has no cost",
}


def signature(method: Method) -> inspect.Signature:
    """Return the signature of `__init__` of a method's class: declarations and settings."""
    rows: list[tuple[str, Any, Any]] = [("seed", int, 0), ("paper_defaults", bool, False)]
    rows += [("cost_key", str | None, None), ("missing_cost", Literal["zero"] | None, None)]
    rows += [("cost", Cost | None, None), ("success_key", str | None, None)]
    rows.append(("proximity", Proximity | None, None))
    if not method.constrained:
        rows.append(("no_cost", bool, False))
    config = make_config(method.name)
    for field in dataclasses.fields(config):
        default = getattr(config, field.name)
        if field.name in OF_THE_TASK:  # `make_config` takes it from there
            kind: Any = field.type
            rows.append((field.name, kind | None, None))
        elif default is not None:  # None: a part that the method does not have
            rows.append((field.name, field.type, default))
    kinds = inspect.Parameter
    first = [
        kinds("self", kinds.POSITIONAL_OR_KEYWORD),
        kinds("env", kinds.POSITIONAL_OR_KEYWORD, annotation=Env),
    ]
    given = [
        kinds(name, kinds.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, annotation, default in rows
    ]
    return inspect.Signature([*first, *given], return_annotation=None)


class _Docstring:
    """Writes a class's docstring when it is read: to collect the settings' help takes a while."""

    def __get__(self, agent: Agent | None, kind: type[Agent]) -> str:
        method = get(kind.method)
        texts = dict(HELPS)
        with suppress(OSError, TypeError):  # there is no source to read them from
            texts |= helps(method.settings_type())
        summary = method.summary[:1].upper() + method.summary[1:].rstrip(".") + "."
        lines = [*textwrap.wrap(summary, 96), "", "Args:"]

        def add(name: str, text: str, default: Any = inspect.Parameter.empty, at: int = 4) -> None:
            shown = "" if default is inspect.Parameter.empty else f" (default: {default!r})"
            words = textwrap.TextWrapper(96, " " * at, " " * (at + 4))
            lines.extend(words.wrap(f"{name}: {text}{shown}"))

        for name, key in list(signature(method).parameters.items())[1:]:
            text = texts.get(name, "")
            if isinstance(key.default, Group):
                switch = " False leaves it out." if name in method.parts else ""
                add(name, f"{text}{switch} Its settings, as a mapping or a group:")
                for field in dataclasses.fields(key.default):
                    value = getattr(key.default, field.name)
                    add(field.name, texts.get(f"{name}.{field.name}", ""), value, at=8)
            else:
                of_the_task = "; None: the task's" if name in OF_THE_TASK else ""
                add(name, text + of_the_task, key.default)
        limit = ", cost_limit=1.0" if method.constrained else ""
        lines += ["", "Examples:"]
        lines += [f'    >>> agent = safecritic.{method.class_name}("CarGoal1"{limit}, seed=0)']
        lines += ["    >>> agent.learn(total_timesteps=40_000)  # doctest: +SKIP"]
        return "\n".join(lines)


# The classes by the method's name

_CLASSES: dict[str, type[Agent]] = {}


def _add(kind: type[Agent]) -> None:
    """Add a class; Python makes its signature and docstring from its method's settings."""
    init: Any = kind.__init__
    init.__signature__ = signature(get(kind.method))
    kind.__doc__ = _Docstring()  # type: ignore[assignment]
    _CLASSES[kind.method] = kind


for _kind in (DDPG, PIDLag, CPO, RCPO, SC, CSC, USCNR, USC):
    _add(_kind)


def agent_class(name: str) -> type[Agent]:
    """Return the class of a method, given the method's name; it makes that of a plugin's.

    Examples:
        >>> agent_class("usc-nr")
        <class 'safecritic.agent_classes.USCNR'>
    """
    method = get(name)
    if method.name not in _CLASSES:

        def __init__(self: Agent, env: Any, **settings: Any) -> None:
            Agent.__init__(self, env, **settings)

        __init__.__qualname__ = f"{method.class_name}.__init__"
        content: dict[str, Any] = {"__init__": __init__, "__module__": __name__}
        _add(type(method.class_name, (Agent,), content, method=method.name))
    return _CLASSES[method.name]


def __getattr__(name: str) -> Any:
    for method in METHODS.values():
        if method.class_name == name:
            return agent_class(method.name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(method.class_name for method in METHODS.values())})
