"""Exit codes, and errors and warnings for the user: one line each, no traceback.

What an error means follows from its type alone.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # explained in `safecritic --help`


class UsageError(Exception):
    """A command that cannot be carried out; its message is one line for the user."""


def answer(error: Exception) -> tuple[int, str]:
    """Return the exit code and the line for an error that ends a command."""
    import gymnasium

    from safecritic.core.files import FileError
    from safecritic.tasks.checks import EnvError
    from safecritic.tasks.observations import UnfitEnvError

    # what the library raises for what it refuses: settings, names, files, environments
    refused = (UsageError, ValueError, ImportError, FileError, EnvError, UnfitEnvError)
    if isinstance(error, (*refused, gymnasium.error.Error)):
        return USAGE, " ".join(str(error).split())
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return USAGE, f"{where}{error.strerror or error}; check the permissions and the disk"
    return FAILED, unexpected(error)


def stopped(error: Exception) -> str | None:
    """Return the line for an error that stops a run; None if it was not foreseen."""
    from safecritic.core.files import FileError
    from safecritic.run.callbacks import WandbError
    from safecritic.run.failure import RunStopped
    from safecritic.run.workers import WorkerError

    foreseen = (RunStopped, FileError, WandbError, WorkerError)
    return str(error) if isinstance(error, foreseen) else None


def unexpected(error: Exception) -> str:
    """Return an error that was not foreseen in one line."""
    text = " ".join(str(error).split())[:300]
    return (
        f"{type(error).__name__}: {text} (not foreseen: SAFECRITIC_TRACEBACK=1 shows where; please "
        "report it)"
    )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print the library's warnings as plain lines to stderr; show others as Python does."""
    from safecritic.run.watch import RunWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", RunWarning)
        show_as_python = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, RunWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                show_as_python(message, category, *where, **more)

        warnings.showwarning = show
        yield
