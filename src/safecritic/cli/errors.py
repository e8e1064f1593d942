"""Exit codes, and errors and warnings for the user: one line each, no traceback."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # explained in `safecritic --help`


class UsageError(Exception):
    """A command that cannot be carried out; its message is one line for the user."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the library refuses before a run starts into a `UsageError`."""
    import gymnasium

    from safecritic.files import FileError
    from safecritic.tasks.checks import EnvError

    refusals = (ValueError, TypeError, ImportError, FileError, EnvError)
    try:
        yield
    except (*refusals, gymnasium.error.Error) as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        raise UsageError(" ".join(str(error).split())) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        raise UsageError(os_error_text(error)) from error


def os_error_text(error: OSError) -> str:
    """Return what an operating system refused, and what to do."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; check the permissions and the disk"


def unexpected_text(error: Exception) -> str:
    """Return an error that nobody foresaw in one line."""
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
