"""The form of a JSON file of a run or a study, checked; `runtime.schema` says how it is written."""

from pathlib import Path
from typing import Any

from safecritic.core.files import FileError
from safecritic.runtime.schema import (  # what the forms are written with
    Count,
    Digest,
    Matching,
    Name,
    Within,
    problems,
)

__all__ = ["Count", "Digest", "Matching", "Name", "Within", "check"]


def check(kind: Any, value: Any, path: Path, key: str = "") -> None:
    """Raise FileError unless the value has this form."""
    for at, expected, got in problems(kind, value, key):
        where = f"{path}, key {at}" if at else str(path)
        raise FileError(
            f"{where}: expected {expected}, got {got}; restore the file from a copy, or remove "
            "what it belongs to and make it again"
        )
