"""The folder of a run: everything a report needs, in files that any tool can read.

    config.json      method, task, seed, every setting, versions
    episodes.csv     one line per training episode
    updates.csv      one line per log interval: metrics of the updates, quality of the safety critic
    events.out.*     the same numbers for TensorBoard
    checkpoint/      the whole state (checkpoint.py)
    curves.png       reward, cost with its limit, success, multiplier
    summary.json     means over the last episodes
    error.json       why the last attempt stopped, if an error stopped it (failure.py)
    wandb.json       id of the W&B run, if there is one
    evaluation.json  written by `safecritic evaluate`

A checkpoint and summary.json record lengths and checksums of the tables at the time they were
written; a resumed run first truncates them to those lengths.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import secrets
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core import files
from safecritic.core.files import FileError, write_json
from safecritic.run import records
from safecritic.run.checkpoint import INDICES, CheckpointError, exists
from safecritic.run.episode import EPISODE_COLUMNS

Columns = dict[str, list[float]]

CRITIC_COLUMNS = (
    "critic/auc",
    "critic/q_mean",
    "critic/realised_mean",
    "critic/ratio",
    "critic/error_mean",
    "critic/steps",
)
WHOLE = ("episode", "step", "length", "terminated")
RANGES = (  # of the columns of episodes.csv
    ("cost", 0.0, math.inf),
    ("contacts", 0.0, math.inf),
    ("discounted_cost", 0.0, math.inf),
    ("success", 0.0, 1.0),
    ("screened", 0.0, 1.0),
    ("screen_changed", 0.0, 1.0),
    ("terminated", 0.0, 1.0),
)
PACKAGES = ("safecritic", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco", "safetensors")


class RunFolderError(FileError):
    """A run folder that cannot be created, read or written."""


def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the packages that affect a run."""
    installed = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


class Table:
    """A table of a run that lines are appended to; keeps the checksum of all it holds."""

    def __init__(self, path: Path, columns: tuple[str, ...]):
        self.path = path
        self._file = os.fdopen(files.open_to_append(path), "r+b", buffering=0)
        header = ",".join(columns).encode() + b"\r\n"
        start = self._file.read(len(header))
        self._sha256 = self._hash(os.fstat(self._file.fileno()).st_size)
        if not start:
            self.append(list(columns))
        elif start.rstrip() != header.rstrip():
            self.close()
            raise RunFolderError(
                f"{path} has other columns than this version writes: use the version that wrote "
                "it, or choose another folder with --out"
            )

    def append(self, cells: list[str]) -> None:
        """Append a line."""
        line = ",".join(cells).encode() + b"\r\n"
        rest = memoryview(line)
        while rest:  # raises when the disk is full
            rest = rest[self._file.write(rest) :]
        self._sha256.update(line)

    def cut(self) -> dict[str, Any]:
        """Return the length and the checksum of the table, with every line flushed to disk."""
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        return {"bytes": size, "sha256": self._sha256.hexdigest()}

    def cut_back(self, cut: dict[str, Any]) -> None:
        """Drop the lines written after `cut()` returned this."""
        sha256 = self._hash(cut["bytes"])
        if sha256.hexdigest() != cut["sha256"]:
            raise CheckpointError(
                f"{self.path} was altered since the checkpoint was written: its checksum does not "
                "match, or lines were removed; restore the file or start the run again"
            )
        self._file.truncate(cut["bytes"])
        self._sha256 = sha256

    def _hash(self, number: int) -> Any:
        """Return the checksum of the first bytes."""
        self._file.seek(0)
        sha256 = hashlib.sha256()
        while number > 0 and (block := self._file.read(min(number, 2**20))):
            sha256.update(block)
            number -= len(block)
        return sha256

    def close(self) -> None:
        self._file.close()


class RunFolder:
    """The open files of one run; one process at a time can hold them."""

    def __init__(
        self, path: str | Path, metrics: tuple[str, ...], description: dict[str, Any] | None = None
    ):
        self.path = Path(path)
        self.settings = None if description is None else settings_of(description)
        self._update_columns = ("step", "time/steps_per_second", *metrics, *CRITIC_COLUMNS)
        self._open: dict[str, Any] = {}
        try:
            with self.writing():
                self.path.mkdir(parents=True, exist_ok=True)
                self._open["lock"] = lock_folder(self.path)
                files.remove_leftovers(self.path)
                self._refuse_special()
                if description is not None:
                    # first, because a folder without it is not recognised as a run
                    self.write_config(description)
                self._open["episodes"] = Table(self.path / "episodes.csv", EPISODE_COLUMNS)
                self._open["updates"] = Table(self.path / "updates.csv", self._update_columns)
        except BaseException:
            self.close()
            raise

    def _refuse_special(self) -> None:
        """Refuse now what could not be written when the run has taken its time."""
        for name in ("config.json", "summary.json", "curves.png"):
            files.refuse_special(self.path / name)
        for name in ("checkpoint", "failed"):
            for index in INDICES.values():
                files.refuse_special(files.require_folder(self.path / name) / index)

    def write_config(self, description: dict[str, Any]) -> None:
        """Write config.json: the description, the versions and the command."""
        content = description | {"versions": versions(), "command": sys.argv}
        with self.writing():
            write_json(self.path / "config.json", content)

    def write_episode(self, row: dict[str, float]) -> None:
        """Append a line to episodes.csv and to TensorBoard's events."""
        with self.writing():
            self._open["episodes"].append([_cell(name, row[name]) for name in EPISODE_COLUMNS])
            self._write_events(episode_scalars(row), int(row["step"]))

    def write_update(self, step: int, metrics: dict[str, float]) -> None:
        """Append a line to updates.csv and to TensorBoard's events; a missing metric is empty."""
        with self.writing():
            row = {"step": step} | metrics
            cells = [_cell(name, row.get(name, math.nan)) for name in self._update_columns]
            self._open["updates"].append(cells)
            self._write_events(metrics, step)

    def _write_events(self, values: dict[str, float], step: int) -> None:
        if "events" not in self._open:
            self._open["events"] = Events(self.path, step)
        self._open["events"].write_scalars(values, step)

    def positions(self) -> dict[str, Any]:
        """Return the lengths and checksums of the tables, with every line flushed to disk."""
        with self.writing():
            return {name: self._open[name].cut() for name in ("episodes", "updates")}

    def cut_back(self, positions: dict[str, Any]) -> None:
        """Drop the lines written after the checkpoint that recorded these positions."""
        for name in ("episodes", "updates"):
            self._open[name].cut_back(positions[name])

    def close(self) -> None:
        """Close the files and release the lock."""
        for file in reversed(self._open.values()):
            if hasattr(file, "close"):
                file.close()
        self._open = {}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an OSError (a full disk, no permission) into a RunFolderError."""
        try:
            yield
        except OSError as error:
            saved = exists(self.path / "checkpoint")
            raise RunFolderError(
                f"could not write to {self.path}: {error.strerror or error}; "
                + ("the last checkpoint is intact" if saved else "there is no checkpoint yet")
            ) from error


class Events:
    """A new file of events for TensorBoard.

    Not tensorboardX's own writers: one follows links, the other turns a full disk into a hang.
    """

    def __init__(self, folder: Path, step: int):
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        name = f"events.out.tfevents.{int(time.time())}.{platform.node()}.{secrets.token_hex(4)}"
        self._file = open(folder / name, "xb", buffering=0)  # noqa: SIM115
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # makes TensorBoard drop what an interrupted run wrote from this step on
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=step, session_log=start))

    def write_scalars(self, values: dict[str, float], step: int) -> None:
        """Append the finite values of a step."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=tag, simple_value=x) for tag, x in finite(values).items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=scalars)))

    def _write(self, event: Any) -> None:
        """Append an event: its length, a checksum, itself, a checksum."""
        from tensorboardX.record_writer import masked_crc32c

        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        record = length + struct.pack("<I", masked_crc32c(length))
        self._file.write(record + data + struct.pack("<I", masked_crc32c(data)))

    def close(self) -> None:
        self._file.close()


def prepare(path: str | Path, overwrite: bool) -> Path:
    """Check that a new run can be written to `path`, and delete the run there to be overwritten."""
    path = Path(path)
    try:
        if not path.exists():
            return path
        if path.is_dir() and all(_is_leftover(x.name) for x in path.iterdir()):
            return path
        if not (path / "config.json").is_file():
            raise RunFolderError(
                f"{path} exists and is not a run folder: choose another folder (--out)"
            )
        if not overwrite:
            raise RunFolderError(
                f"{path} already holds a run: continue it with --resume {path}, replace it with "
                "--overwrite, or choose another folder with --out"
            )
        with locked(path):
            pass
        shutil.rmtree(path)
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be used: {error.strerror or error}; choose another folder (--out)"
        ) from error
    return path


def _is_leftover(name: str) -> bool:
    """Return whether a run killed at its very start may have left this."""
    return name == ".lock" or (name.startswith(".config.json-") and files.PART in name)


def settings_of(description: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint belongs to, of the content of config.json."""
    names = ("method", "paper_defaults", "task", "seed", "config", "environment")
    return json.loads(json.dumps({name: description[name] for name in names}))


def run_digest(settings: Any, tables: Any) -> str:
    """Return what names a run as far as it is: SHA-256 of its settings and of its episodes.

    updates.csv has times in it, in which a run that was interrupted differs.
    """
    return files.digest({"settings": settings, "episodes": tables["episodes"]})


def read_config(path: str | Path) -> dict[str, Any]:
    """Read the config.json of a run folder or a saved agent."""
    file = Path(path) / "config.json"
    try:
        content = files.read_json(file, records.Config)
    except FileNotFoundError:
        raise RunFolderError(f"{path} is not a run folder: it has no config.json") from None

    def refuse(key: str, expected: str) -> None:
        text = f"{file}, key {key}: expected {expected}; restore the file from a copy"
        raise RunFolderError(text)

    for name, value in content["config"].items():
        if not records.is_setting(value):
            refuse(f"config.{files.printable(name)}", f"a setting, got {files.shown(value)}")
    environment = content["environment"]
    spec = environment["spec"]
    low, high = (_as_array(environment[name]) for name in ("action_low", "action_high"))
    if low is None or high is None or low.shape != high.shape or low.size != spec["action_dim"]:
        bounds = f"the bounds of {spec['action_dim']} actions, as in action_high"
        refuse("environment.action_low", bounds)
    if any(place >= spec["obs_dim"] for place in spec["proximity"]):
        refuse("environment.spec.proximity", f"places below {spec['obs_dim']}")
    return content


def _as_array(values: Any) -> np.ndarray | None:
    """Return nested lists of finite numbers as an array; None for anything else."""
    try:
        numbers = np.array(values)
    except ValueError:
        return None
    return numbers if numbers.dtype.kind in "fi" and np.isfinite(numbers).all() else None


def read_episodes(run: Path, cut: dict[str, Any] | None = None, whole: bool = False) -> Columns:
    """Read episodes.csv of a run, checked; see `read_run_table`."""
    path = run / "episodes.csv"
    table = read_run_table(path, EPISODE_COLUMNS, cut, whole)
    for line, (number, length) in enumerate(zip(table["episode"], table["length"], strict=True), 2):
        if number != line - 1 or not length >= 1:
            raise files.damaged(path, f"line {line} must be episode {line - 1} of 1 step or more")
    for before, after in itertools.pairwise(table["step"]):
        if not before <= after:
            raise files.damaged(path, f"its column step falls from {before:g} to {after:g}")
    for name, low, high in RANGES:
        for line, value in enumerate(table[name], 2):
            if not (math.isnan(value) or low <= value <= high):
                expected = f"expected {low:g} to {high:g}"
                raise files.damaged(path, f"line {line} has {name} {value:g}, {expected}")
    return table


def read_run_table(
    path: Path, columns: Sequence[str], cut: dict[str, Any] | None = None, whole: bool = False
) -> Columns:
    """Read a table of a run that begins as a `cut` of it says and, if `whole`, ends there."""
    try:
        data = files.read_bytes(path, files.TABLE_BYTES, "a table")
    except FileNotFoundError:
        if cut is None:
            raise
        raise RunFolderError(f"{path} is missing: restore it from a copy") from None
    if cut is not None:
        start = data[: cut["bytes"]]
        same = len(start) == cut["bytes"] and hashlib.sha256(start).hexdigest() == cut["sha256"]
        if not same or (whole and len(data) > len(start)):
            raise RunFolderError(
                f"{path} was altered since the run wrote it: its checksum does not match; undo the "
                "change or restore the file"
            )
    return files.parse_table(path, data, columns)


def read_table(path: str | Path) -> Columns:
    """Read a table as columns of numbers; an empty cell is NaN."""
    return files.read_table(Path(path))


def episode_scalars(row: dict[str, float]) -> dict[str, float]:
    """Return the values of a line of episodes.csv under the names of docs/metrics.md."""
    return {f"episode/{k}": v for k, v in row.items() if k not in ("episode", "step")}


def finite(values: dict[str, float]) -> dict[str, float]:
    """Return the values that are neither NaN nor infinite."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def read_json(path: Path, schema: Any = None) -> dict[str, Any]:
    """Read a JSON file of a run, checked; return an empty dict if there is none."""
    try:
        return files.read_json(path, schema)
    except FileNotFoundError:
        return {}


def finite_or_none(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {k: finite_or_none(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite_or_none(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return ""
    return str(int(value)) if name in WHOLE else repr(float(value))


def lock_folder(path: Path) -> Any:
    """Lock a folder until the returned file is closed or the process ends, however it ends."""
    try:
        return files.locked_file(path / ".lock")
    except ImportError:  # Windows refuses to truncate or replace files that are open elsewhere
        return contextlib.nullcontext()
    except BlockingIOError:
        raise RunFolderError(
            f"{path} is in use by another process: wait for it or stop it"
        ) from None
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written to: {error.strerror or error}; check its permissions and "
            "its disk"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder for a while, see `lock_folder`."""
    with lock_folder(path):
        yield
