"""Exit codes, and errors and warnings for the user: one line each, no traceback."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class UsageError(Exception):
    """A command that cannot be carried out; its message is one line for the user."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the library refuses before a run starts into a `UsageError`."""
    import gymnasium

    from safecritic.run.checkpoint import CheckpointError
    from safecritic.run.folder import RunFolderError

    refusals = (ValueError, TypeError, ImportError, CheckpointError, RunFolderError)
    try:
        yield
    except (*refusals, gymnasium.error.Error) as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        raise UsageError(" ".join(str(error).split())) from error


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
