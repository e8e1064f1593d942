"""Safe reinforcement learning with safety critics.

`import safecritic` registers the tasks with Gymnasium and loads plugins; the learning side, which
needs JAX, is imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from safecritic import plugins
from safecritic.methods import METHODS
from safecritic.tasks import adapt, make, register_with_gymnasium

__version__ = "0.1.0"
__all__: list[str] = ["adapt", "make"]

if TYPE_CHECKING:
    from safecritic import agent_classes
    from safecritic.agent_classes import *  # noqa: F403

    __all__ += agent_classes.__all__


def _lazy_names() -> list[str]:
    """Return the names to import from `agent_classes` at first use."""
    return ["agent_class", *(method.class_name for method in METHODS.values())]


def __getattr__(name: str) -> Any:
    if name in _lazy_names():
        return getattr(importlib.import_module("safecritic.agent_classes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy_names()})


register_with_gymnasium()
plugins.load()

if not TYPE_CHECKING:
    __all__ += _lazy_names()
