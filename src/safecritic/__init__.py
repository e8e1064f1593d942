"""Safe reinforcement learning with safety critics.

`import safecritic` loads plugins and nothing else: `safecritic.runtime` runs where there is neither
JAX nor Gymnasium. Everything else is imported when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safecritic import plugins

__version__ = "0.1.0"

if TYPE_CHECKING:
    from safecritic import agent_classes
    from safecritic import tasks as tasks
    from safecritic.agent_classes import *  # noqa: F403
    from safecritic.agents import methods as methods
    from safecritic.api import load
    from safecritic.run.callbacks import BaseCallback, CheckpointCallback, EvalCallback
    from safecritic.study.limits import limits
    from safecritic.tasks import adapt, make, make_vec

    __all__: list[str] = ["BaseCallback", "CheckpointCallback", "EvalCallback"]
    __all__ += ["adapt", "limits", "load", "make", "make_vec", *agent_classes.__all__]

_MODULES = {"methods": "safecritic.agents.methods", "tasks": "safecritic.tasks"}
_NAMES = {
    **dict.fromkeys(("adapt", "make", "make_vec"), "safecritic.tasks"),
    **dict.fromkeys(
        ("BaseCallback", "CheckpointCallback", "EvalCallback"), "safecritic.run.callbacks"
    ),
    "limits": "safecritic.study.limits",
    "load": "safecritic.api",
}


def _public() -> list[str]:
    """Return the public names: a class for each method, those of plugins too."""
    methods = import_module("safecritic.agents.methods").METHODS
    return [*_NAMES, "agent_class", *(method.class_name for method in methods.values())]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name == "__all__":
        return _public()
    if not name.startswith("_") and name in _public():
        return getattr(import_module("safecritic.agent_classes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__all__", *_MODULES, *_public()})


plugins.load()
