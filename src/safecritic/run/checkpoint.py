"""Checkpoints: arrays in safetensors, everything else in JSON. Loading one runs no code.

A checkpoint is a folder with two generations:

    checkpoint.json                 counters, random streams, the settings it belongs to; name and
                                    SHA-256 of its arrays
    previous.json                   the same of the checkpoint before
    arrays-<digest>.safetensors     parameters, optimiser states, replay rows, simulation

The arrays are written to disk first, then the current index becomes the previous one, and last the
new index is renamed over the current one in a single step, which makes the new checkpoint valid.
Only then are arrays that no index names deleted. A process killed at any moment, or a full disk,
leaves the last good checkpoint in place.
"""

import contextlib
import errno
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import safetensors.numpy

from safecritic import files
from safecritic.files import FileError
from safecritic.schema import Count, Digest, Matching, check

FORMAT = 4
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
    """Make this the current checkpoint in `folder`; if that fails, the last one stays valid.

    `settings` are those it belongs to: `load` refuses to use it with others.
    """
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
        return read_index(path)["arrays"]
    except (FileError, OSError):
        return None


def _remove_unused(folder: Path, used: set[str | None]) -> None:
    files.remove_leftovers(folder)
    for old in folder.iterdir():
        if old.name not in used and re.fullmatch(ARRAYS, old.name):
            with contextlib.suppress(OSError):
                os.unlink(old)


def read_index(path: Path) -> dict[str, Any]:
    """Return an index, checked; a FileError says what is wrong with it."""
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
    """Read a checkpoint; raise CheckpointError if any byte has changed since it was written.

    Args:
        folder: where `save` wrote it.
        generation: "checkpoint", or "previous" for the one before.
        most: bytes that its arrays can have.
    """
    arrays, index = load_with_index(folder, generation, most)
    return arrays, index["numbers"]


def load_index(folder: str | Path, generation: str = "checkpoint") -> dict[str, Any]:
    """Read the index of a checkpoint; see `load`."""
    folder = Path(folder)
    path = folder / INDICES[generation]
    try:
        files.require_folder(folder)
        return read_index(path)
    except FileNotFoundError:
        raise CheckpointError(f"no checkpoint in {folder} (expected {path})") from None
    except FileError as error:
        raise CheckpointError(f"{error}{other_generation(folder, generation)}") from error


def load_with_index(
    folder: str | Path, generation: str = "checkpoint", most: int = MOST_BYTES
) -> tuple[Arrays, dict[str, Any]]:
    """Read a checkpoint as `load` does, with its whole index."""
    folder = Path(folder)
    index = load_index(folder, generation)
    path = folder / index["arrays"]
    try:
        if index["arrays_bytes"] > most:
            raise FileError(
                f"{folder / INDICES[generation]} has arrays of {index['arrays_bytes']:,} bytes, "
                f"its settings allow {most:,}: it does not belong to them; restore the folder"
            )
        size = os.lstat(path).st_size
        if size < index["arrays_bytes"]:
            raise FileError(
                f"{path} is truncated: expected {index['arrays_bytes']} bytes, got {size}"
            )
        return files.read_arrays(path, index["arrays_bytes"], index["arrays_sha256"]), index
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}"
            f"{other_generation(folder, generation)}"
        ) from error
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
