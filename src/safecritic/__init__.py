"""Safe reinforcement learning with safety critics.

`import safecritic` loads plugins and is light otherwise, because `safecritic.runtime` runs where
there is neither JAX nor Gymnasium. The tasks are registered with Gymnasium as soon as that is
imported, before or after; everything else is imported when one of its names is first used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from safecritic import plugins

__version__ = "0.1.0"

if TYPE_CHECKING:
    from safecritic import agent_classes
    from safecritic import methods as methods
    from safecritic import tasks as tasks
    from safecritic.agent_classes import *  # noqa: F403
    from safecritic.tasks import adapt, make

    __all__: list[str] = ["adapt", "make", *agent_classes.__all__]

_MODULES = ("methods", "tasks")  # found as attributes without an import of their own


def _lazy_names() -> list[str]:
    """Return the names to import from `agent_classes` at first use."""
    methods = importlib.import_module("safecritic.methods")
    return ["agent_class", *(method.class_name for method in methods.METHODS.values())]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"safecritic.{name}")
    if name in ("adapt", "make"):
        return getattr(importlib.import_module("safecritic.tasks"), name)
    if name == "__all__":
        return ["adapt", "make", *_lazy_names()]
    if not name.startswith("_") and name in _lazy_names():
        return getattr(importlib.import_module("safecritic.agent_classes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__all__", "adapt", "make", *_MODULES, *_lazy_names()})


class _AfterGymnasium:
    """A finder that lets the import of Gymnasium end with that of the tasks, which registers them.

    So `import safecritic, gymnasium` in either order makes `gymnasium.make` know the tasks, and
    without Gymnasium nothing of it is imported.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                importlib.import_module("safecritic.tasks")

            loader.exec_module = execute_and_register
        return spec


if "gymnasium" in sys.modules:
    importlib.import_module("safecritic.tasks")
else:
    sys.meta_path.insert(0, _AfterGymnasium())
plugins.load()
