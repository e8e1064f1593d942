"""Safe reinforcement learning with safety critics.

`import safecritic` registers the tasks with Gymnasium; the learning side, which needs JAX, is
imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from safecritic.tasks import adapt, make, register

if TYPE_CHECKING:
    from safecritic.api import CSC, DDPG, SC, USC, USCNR

__version__ = "0.1.0"
__all__ = ["CSC", "DDPG", "SC", "USC", "USCNR", "adapt", "make"]

_LAZY = dict.fromkeys(("DDPG", "SC", "CSC", "USC", "USCNR"), "safecritic.api")

register()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
