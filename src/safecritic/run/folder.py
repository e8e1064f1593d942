"""The folder of a run: everything a report needs, in files that any tool can read.

    config.json      method, task, seed, every setting, versions
    episodes.csv     one line per training episode
    updates.csv      one line per log interval: metrics of the updates, quality of the safety critic
    events.out.*     the same numbers for TensorBoard
    checkpoint/      the whole state (checkpoint.py)
    curves.png       reward, cost with its limit, success, multiplier
    summary.json     means over the last episodes
    wandb.json       id of the W&B run, if there is one
    evaluation.json  written by `safecritic evaluate`

A checkpoint records the lengths of the tables at the time it was written; a resumed run first
truncates them to those lengths.
"""

import csv
import importlib.metadata
import io
import json
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safecritic.run.checkpoint import CheckpointError
from safecritic.run.episode import EPISODE_COLUMNS

CRITIC_COLUMNS = (
    "critic/auc",
    "critic/q_mean",
    "critic/realised_mean",
    "critic/ratio",
    "critic/error_mean",
    "critic/steps",
)
WHOLE = ("episode", "step", "length", "terminated")
PACKAGES = ("safecritic", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco", "safetensors")


class RunFolderError(RuntimeError):
    """A run folder that cannot be created, read or written."""


def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the packages that affect a run."""
    installed = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


class RunFolder:
    """The open files of one run; one process at a time can hold them."""

    def __init__(
        self, path: str | Path, metrics: tuple[str, ...], description: dict[str, Any] | None = None
    ):
        self.path = Path(path)
        self._update_columns = ("step", "time/steps_per_second", *metrics, *CRITIC_COLUMNS)
        with self.writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.path)
            if description is not None:
                # first, because a folder without it is not recognised as a run
                self.write_config(description)
            self._episodes = self._table("episodes.csv", EPISODE_COLUMNS)
            self._updates = self._table("updates.csv", self._update_columns)
        self._events: Any = None

    def _table(self, name: str, columns: tuple[str, ...]) -> io.TextIOWrapper:
        """Open a table to append to; write its header if it is new."""
        file = (self.path / name).open("a+", newline="")
        file.seek(0)
        header = next(csv.reader(file), None)
        file.seek(0, io.SEEK_END)
        if header is None:
            csv.writer(file).writerow(columns)
            file.flush()
        elif header != list(columns):
            raise RunFolderError(
                f"{file.name} has other columns than this version writes: use the version that "
                "wrote it, or choose another folder with --out"
            )
        return file

    def write_config(self, description: dict[str, Any]) -> None:
        """Write config.json: the description, the versions and the command."""
        content = description | {"versions": versions(), "command": sys.argv}
        with self.writing():
            write_json(self.path / "config.json", content)

    def write_episode(self, row: dict[str, float]) -> None:
        """Append a line to episodes.csv and to TensorBoard's events."""
        with self.writing():
            cells = [_cell(name, row[name]) for name in EPISODE_COLUMNS]
            csv.writer(self._episodes).writerow(cells)
            self._episodes.flush()
            self._write_events(episode_scalars(row), int(row["step"]))

    def write_update(self, step: int, metrics: dict[str, float]) -> None:
        """Append a line to updates.csv and to TensorBoard's events; a missing metric is empty."""
        with self.writing():
            row = {"step": step} | metrics
            cells = [_cell(name, row.get(name, math.nan)) for name in self._update_columns]
            csv.writer(self._updates).writerow(cells)
            self._updates.flush()
            self._write_events(metrics, step)

    def _write_events(self, values: dict[str, float], step: int) -> None:
        # not SummaryWriter, whose thread makes a full disk a hang instead of an error
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        if self._events is None:
            self._events = EventsWriter(str(self.path / "events"))
            # makes TensorBoard drop what an interrupted run wrote from this step on
            start = SessionLog(status=SessionLog.START)
            self._events.write_event(Event(wall_time=time.time(), step=step, session_log=start))
        scalars = [
            Summary.Value(tag=tag, simple_value=value) for tag, value in finite(values).items()
        ]
        self._events.write_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=scalars))
        )
        self._events.flush()

    def positions(self) -> dict[str, int]:
        """Return the lengths of the tables in bytes, with every line flushed to disk."""
        lengths = {}
        with self.writing():
            for file in (self._episodes, self._updates):
                file.flush()
                os.fsync(file.fileno())
                lengths[Path(file.name).name] = os.fstat(file.fileno()).st_size
        return lengths

    def cut_back(self, positions: dict[str, int]) -> None:
        """Drop the lines written after the checkpoint that recorded these positions."""
        for file in (self._episodes, self._updates):
            name = Path(file.name).name
            length = os.fstat(file.fileno()).st_size
            if length < positions[name]:
                raise CheckpointError(
                    f"{self.path / name} has {length} bytes but had {positions[name]} when the "
                    "checkpoint was written: lines were removed from it; restore the file or "
                    "start the run again"
                )
            file.truncate(positions[name])

    def close(self) -> None:
        """Close the files and release the lock."""
        for file in (self._episodes, self._updates, self._events, self._lock):
            if file is not None:
                file.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an OSError (a full disk, no permission) into a RunFolderError."""
        try:
            yield
        except OSError as error:
            raise RunFolderError(
                f"could not write to {self.path}: {error.strerror or error}; the last checkpoint "
                "is intact"
            ) from error


def prepare(path: str | Path, overwrite: bool) -> Path:
    """Check that a new run can be written to `path`, and delete the run there to be overwritten."""
    path = Path(path)
    leftovers = (".lock", "config.json.part")  # of a run killed at its very start
    if path.exists() and (
        not path.is_dir() or any(x.name not in leftovers for x in path.iterdir())
    ):
        ours = (path / "config.json").is_file()
        if overwrite and ours:
            if (lock := lock_folder(path)) is not None:
                lock.close()
            shutil.rmtree(path)
        elif ours:
            raise RunFolderError(
                f"{path} already holds a run: continue it with --resume {path}, replace it with "
                "--overwrite, or choose another folder with --out"
            )
        else:
            raise RunFolderError(
                f"{path} exists and is not a run folder: choose another folder (--out)"
            )
    return path


def read_config(path: str | Path) -> dict[str, Any]:
    """Read the config.json of a run folder or a saved agent."""
    file = Path(path) / "config.json"
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        raise RunFolderError(f"{path} is not a run folder: it has no config.json") from None
    except ValueError as error:
        raise RunFolderError(f"{file} is damaged: {error}") from error


def read_table(path: str | Path) -> dict[str, list[float]]:
    """Read a table as columns of numbers; an empty cell is NaN."""
    with Path(path).open(newline="") as file:
        header, *lines = csv.reader(file)
    return {
        name: [float(line[at]) if line[at] else math.nan for line in lines]
        for at, name in enumerate(header)
    }


def episode_scalars(row: dict[str, float]) -> dict[str, float]:
    """Return the values of a line of episodes.csv under the names of docs/metrics.md."""
    return {f"episode/{k}": v for k, v in row.items() if k not in ("episode", "step")}


def finite(values: dict[str, float]) -> dict[str, float]:
    """Return the values that are neither NaN nor infinite."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file; return an empty dict if there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file under a temporary name and rename it, so that no reader sees half of it."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)


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
    """Lock a folder until the returned file is closed or the process ends, however it ends.

    Two processes writing to one folder would mix their tables.
    """
    try:
        import fcntl
    except ImportError:  # Windows refuses to truncate or replace files that are open elsewhere
        return None
    file = (path / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunFolderError(
            f"{path} is in use by another process: wait for it or stop it"
        ) from None
    return file
