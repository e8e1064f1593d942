"""Checkpoints: arrays in safetensors, everything else in JSON. Loading one runs no code.

A checkpoint is a folder with two files:

    checkpoint.json                 counters and random streams; name and SHA-256 of the arrays file
    arrays-<digest>.safetensors     parameters, optimiser states, replay rows, simulation

The arrays are written to disk first. Then the JSON file is written under a temporary name and
renamed over the previous one in a single step, which makes the new checkpoint valid, and only then
are the previous arrays deleted. A process killed at any moment, or a full disk, leaves the last
good checkpoint in place.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

FORMAT = 2
INDEX = "checkpoint.json"

Arrays = dict[str, np.ndarray]


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or that is missing, damaged or does not fit."""


def exists(folder: str | Path) -> bool:
    return (Path(folder) / INDEX).is_file()


def save(folder: str | Path, arrays: Arrays, numbers: dict[str, Any]) -> None:
    """Replace the checkpoint in `folder`; if that fails, the previous one stays valid."""
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
    }
    text = json.dumps({**index, "sha256": _digest(index)}, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / str(index["arrays"]), blob)
        _write(folder / INDEX, text.encode())
    except OSError as error:
        kept = "the previous checkpoint is intact" if exists(folder) else "nothing was saved"
        raise CheckpointError(
            f"could not write a checkpoint of {len(blob) / 1e6:.1f} MB to {folder}: "
            f"{error.strerror or error}; {kept}"
        ) from error
    for old in folder.glob("arrays-*"):
        if old.name != index["arrays"]:
            old.unlink(missing_ok=True)


def load(folder: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """Read a checkpoint; raise CheckpointError if any byte has changed since it was written."""
    folder = Path(folder)
    if not exists(folder):
        raise CheckpointError(f"no checkpoint in {folder} (expected {folder / INDEX})")
    try:
        index = json.loads((folder / INDEX).read_text())
        recorded = index.pop("sha256")
    except (ValueError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder / INDEX} is damaged: {error!r}") from error
    if recorded != _digest(index):
        raise CheckpointError(f"{folder / INDEX} was altered: its checksum does not match")
    if index["format"] != FORMAT:
        raise CheckpointError(
            f"{folder / INDEX} has format {index['format']}, this version reads {FORMAT}: "
            "load it with the version of safecritic that wrote it"
        )
    path = folder / index["arrays"]
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if len(blob) != index["arrays_bytes"]:
        raise CheckpointError(
            f"{path} is truncated: expected {index['arrays_bytes']} bytes, got {len(blob)}"
        )
    if hashlib.sha256(blob).hexdigest() != index["arrays_sha256"]:
        raise CheckpointError(f"{path} was altered: its checksum does not match")
    try:
        return safetensors.numpy.load(blob), index["numbers"]
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _digest(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: under a temporary name, flushed, then renamed."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if os.name == "posix":  # the rename itself must reach the disk too
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
