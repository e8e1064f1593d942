"""Safe reinforcement learning with safety critics.

`import safecritic` registers the tasks with Gymnasium; the learning side, which needs JAX, is
imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from safecritic.tasks import adapt, make, register_with_gymnasium

if TYPE_CHECKING:
    from safecritic.api import CPO, CSC, DDPG, RCPO, SC, USC, USCNR, PIDLag

__version__ = "0.1.0"
__all__ = ["CPO", "CSC", "DDPG", "RCPO", "SC", "USC", "USCNR", "PIDLag", "adapt", "make"]

_LAZY = dict.fromkeys(
    ("DDPG", "PIDLag", "CPO", "RCPO", "SC", "CSC", "USCNR", "USC"), "safecritic.api"
)

register_with_gymnasium()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
