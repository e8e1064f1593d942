"""The agent classes (`USC`, `DDPG`, ...), one for each row of the table of methods.

A class is made when it is first asked for, so a method that is registered later has one too. Type
checkers and editors read `agent_classes.pyi`, which `safecritic.signatures` writes.
"""

from typing import Any

from safecritic import signatures
from safecritic.api import Agent
from safecritic.methods import METHODS, Method, get

_CLASSES: dict[str, type[Agent]] = {}  # by the method's name


def agent_class(name: str) -> type[Agent]:
    """Return the class of a method, given the method's name."""
    method = get(name)
    if method.name not in _CLASSES:
        _CLASSES[method.name] = _make(method)
    return _CLASSES[method.name]


class _Docstring:
    """Writes a class's docstring when it is read: to collect the settings' help takes a while."""

    def __get__(self, agent: Agent | None, kind: type[Agent]) -> str:
        return signatures.docstring(get(kind.method))


def _make(method: Method) -> type[Agent]:
    def __init__(self: Agent, env: Any, **settings: Any) -> None:
        Agent.__init__(self, env, **settings)

    env = Agent.__init__.__annotations__["env"]
    __init__.__signature__ = signatures.signature(method, env)
    __init__.__qualname__ = f"{method.class_name}.__init__"
    content = {
        "__init__": __init__,
        "__doc__": _Docstring(),
        "__module__": __name__,
        "method": method.name,
    }
    return type(method.class_name, (Agent,), content)


def __getattr__(name: str) -> Any:
    for method in METHODS.values():
        if method.class_name == name:
            return agent_class(method.name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(method.class_name for method in METHODS.values())})
