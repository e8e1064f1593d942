"""Exit codes, and errors that the user can mend: one line, no traceback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
