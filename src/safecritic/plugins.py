"""Plugins: installed packages that add methods, tasks, measures or tables of the report.

A package names a function or a module in its `pyproject.toml`:

    [project.entry-points."safecritic.plugins"]
    my-plugin = "my_package.plugin:register"

`import safecritic` calls the function, or imports the module, which calls `methods.register` and
its like. Rows name agents and environments by dotted names, so a plugin need not import them, and
JAX with them, before they are used.
"""

import os
import sys
import warnings

GROUP = "safecritic.plugins"


def load() -> None:
    """Load the installed plugins; one that fails is left out, with a warning."""
    if not any(_may_name_plugins(folder) for folder in sys.path):
        return
    from importlib.metadata import entry_points  # takes longer to import than the search above

    for entry in entry_points(group=GROUP):
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except (Exception, SystemExit) as error:
            text = f"plugin {entry.name!r} ({entry.value}) failed: {type(error).__name__}: {error}"
            if _is_being_imported(entry.module):
                text += "; import safecritic before it, or let the entry point name a module"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _may_name_plugins(folder: str) -> bool:
    """Say whether a folder of `sys.path` may hold the metadata of a package with plugins."""
    try:
        with os.scandir(folder or ".") as entries:
            infos = [e.path for e in entries if e.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        return True  # a zip file: leave it to `importlib.metadata`
    except OSError:
        return False
    for path in infos:
        try:
            with open(os.path.join(path, "entry_points.txt"), "rb") as file:
                if GROUP.encode() in file.read():
                    return True
        except OSError:
            continue
    return False


def _is_being_imported(name: str) -> bool:
    """Say whether a module's import has begun and not ended, as when it imports safecritic."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
