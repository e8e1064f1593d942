"""Plugins: installed packages that add methods, tasks, measures or tables of the report.

A package names a function or a module in its `pyproject.toml`:

    [project.entry-points."safecritic.plugins"]
    my-plugin = "my_package.plugin:register"

`import safecritic` calls the function, or imports the module, which calls `methods.register` and
its like. Rows name agents and environments by dotted names, so a plugin need not import them, and
JAX with them, before they are used.
"""

import sys
import warnings
from importlib.metadata import entry_points


def load() -> None:
    """Load the installed plugins; one that fails is left out, with a warning."""
    for entry in entry_points(group="safecritic.plugins"):
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except (Exception, SystemExit) as error:
            text = f"plugin {entry.name!r} ({entry.value}) failed: {type(error).__name__}: {error}"
            if _is_being_imported(entry.module):
                text += "; import safecritic before it, or let the entry point name a module"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _is_being_imported(name: str) -> bool:
    """Say whether a module's import has begun and not ended, as when it imports safecritic."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
