"""Checkpoints: arrays in safetensors, everything else in JSON. Loading one runs no code.

A checkpoint is a folder with two generations:

    checkpoint.json                 counters, random streams, the settings it belongs to; name and
                                    SHA-256 of its arrays
    previous.json                   the same of the checkpoint before
    arrays-<digest>.safetensors     parameters, optimiser states, replay rows, simulation

The arrays are written first, then the current index becomes the previous one, and last the new
index is renamed over the current one. Only then are arrays that no index names deleted: a process
killed at any moment, or a full disk, leaves the last good checkpoint there.
"""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy

from safecritic.core import files
from safecritic.core.files import FileError
from safecritic.core.schema import Count, Digest, Matching, check

FORMAT = 5
INDEX = "checkpoint.json"
PREVIOUS = "previous.json"
INDICES = {"checkpoint": INDEX, "previous": PREVIOUS}  # by generation
ARRAYS = r"arrays-[0-9a-f]{16}\.safetensors"
MOST_BYTES = 2**40  # where the caller knows no bound

Arrays = dict[str, np.ndarray]


class CheckpointError(FileError):
    """A checkpoint that cannot be written, or that is missing, damaged or does not fit."""


@dataclass
class Index:
    """The form of checkpoint.json."""

    arrays: Annotated[str, Matching(ARRAYS, "the name of its arrays' file")]
    arrays_sha256: Digest
    arrays_bytes: Count
    numbers: dict[str, Any]
    settings: dict[str, Any] | None


def exists(folder: str | Path, generation: str = "checkpoint") -> bool:
    """Return whether there is a checkpoint, whole or not."""
    return files.is_there(Path(folder) / INDICES[generation])


def save(
    folder: str | Path,
    arrays: Arrays,
    numbers: dict[str, Any],
    settings: dict[str, Any] | None = None,
) -> None:
    """Make this the current checkpoint in `folder`; `settings` are those it belongs to."""
    folder = Path(folder)
    # safetensors writes the memory of a non-contiguous array in the wrong order
    blob = safetensors.numpy.save({k: np.array(v, order="C") for k, v in arrays.items()})
    digest = hashlib.sha256(blob).hexdigest()
    index = {
        "format": FORMAT,
        "arrays": f"arrays-{digest[:16]}.safetensors",
        "arrays_sha256": digest,
        "arrays_bytes": len(blob),
        "numbers": numbers,
        "settings": settings,
    }
    try:
        files.make_folder(folder)
        try:
            _write(folder, index, blob)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not exists(folder, "previous"):
                raise
            # the older generation is worth less than the new one
            files.refuse_special(folder / PREVIOUS)
            os.unlink(folder / PREVIOUS)
            _remove_unused(folder, {_named(folder / INDEX)})
            _write(folder, index, blob)
    except OSError as error:
        kept = "the previous checkpoint is intact" if exists(folder) else "nothing was saved"
        raise CheckpointError(
            f"could not write a checkpoint of {len(blob) / 1e6:.1f} MB to {folder}: "
            f"{error.strerror or error}; {kept}"
        ) from error


def receive(folder: Path, index: bytes, blob: bytes) -> None:
    """Make a checkpoint that another machine wrote the current one; a damaged one is refused."""
    path = folder / INDEX
    content = check_index(path, index)
    if len(blob) != content["arrays_bytes"] or (
        hashlib.sha256(blob).hexdigest() != content["arrays_sha256"]
    ):
        raise CheckpointError(f"the arrays sent for {path} are not those it names: send them again")
    if _named(path) == content["arrays"] and files.read_json(path) == content:
        return
    files.make_folder(folder)
    _write(folder, content, blob)


def _write(folder: Path, index: dict[str, Any], blob: bytes) -> None:
    files.write_bytes(folder / index["arrays"], blob, durable=True)
    before = _named(folder / INDEX)
    if before is not None:
        current = files.read_bytes(folder / INDEX, files.JSON_BYTES)
        files.write_bytes(folder / PREVIOUS, current, durable=True)
    files.write_json(folder / INDEX, index, durable=True)
    _remove_unused(folder, {index["arrays"], before or _named(folder / PREVIOUS)})


def _named(path: Path) -> str | None:
    """Return the arrays that an index names; None if it is missing or damaged."""
    try:
        return _read_index(path)["arrays"]
    except (FileError, OSError):
        return None


def _remove_unused(folder: Path, used: set[str | None]) -> None:
    files.remove_leftovers(folder)
    for old in folder.iterdir():
        if old.name not in used and re.fullmatch(ARRAYS, old.name):
            with contextlib.suppress(OSError):
                os.unlink(old)


def _read_index(path: Path) -> dict[str, Any]:
    return check_index(path, files.read_bytes(path, files.JSON_BYTES, "a JSON file"))


def check_index(path: Path, data: bytes) -> dict[str, Any]:
    """Return the index in the text of a file, checked."""
    index = files.check_json(path, data)
    if index.get("format") != FORMAT:
        raise FileError(
            f"{path} has format {files.shown(index.get('format'))}, this version reads {FORMAT}: "
            "load it with the version of safecritic that wrote it"
        )
    check(Index, index, path)
    return index


def load(
    folder: str | Path, generation: str = "checkpoint", most: int = MOST_BYTES
) -> tuple[Arrays, dict[str, Any]]:
    """Read arrays, of at most so many bytes, and numbers; any byte that changed is refused."""
    arrays, index = load_with_index(folder, generation, most)
    return arrays, index["numbers"]


def load_index(folder: str | Path, generation: str = "checkpoint") -> dict[str, Any]:
    """Read the index of a checkpoint; see `load`."""
    path = Path(folder) / INDICES[generation]
    with _advised(Path(folder), generation):
        files.require_folder(Path(folder))
        try:
            return _read_index(path)
        except FileNotFoundError:
            raise CheckpointError(f"no checkpoint in {folder} (expected {path})") from None


def load_with_index(
    folder: str | Path, generation: str = "checkpoint", most: int = MOST_BYTES
) -> tuple[Arrays, dict[str, Any]]:
    """Read a checkpoint as `load` does, with its index."""
    folder = Path(folder)
    index = load_index(folder, generation)
    path, number = folder / index["arrays"], index["arrays_bytes"]
    with _advised(folder, generation):
        if number > most:
            raise FileError(
                f"{folder / INDICES[generation]} has arrays of {number:,} bytes, its settings "
                f"allow {most:,}: it does not belong to them; restore the folder"
            )
        try:
            size = os.lstat(path).st_size
        except OSError as error:
            raise files.unreadable(path, error) from error
        if size < number:
            raise FileError(f"{path} is truncated: expected {number} bytes, got {size}")
        return files.read_arrays(path, number, index["arrays_sha256"]), index


@contextlib.contextmanager
def _advised(folder: Path, generation: str) -> Iterator[None]:
    """Add to a refusal that the checkpoint before is still there."""
    try:
        yield
    except CheckpointError:
        raise
    except FileError as error:
        raise CheckpointError(f"{error}{other_generation(folder, generation)}") from error


def other_generation(folder: Path, generation: str = "checkpoint") -> str:
    """Return the advice to use the checkpoint before, if there is a whole one."""
    if generation != "checkpoint" or (name := _named(folder / PREVIOUS)) is None:
        return ""
    if not (folder / name).is_file():
        return ""
    step = files.read_json(folder / PREVIOUS)["numbers"].get("step")
    at = f" (step {step:,})" if isinstance(step, int) else ""
    return f"; the checkpoint before it{at} is still there: --state previous (state='previous')"
