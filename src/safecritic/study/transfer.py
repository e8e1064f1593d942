"""The files of a run on their way from one machine to another, as bytes by name.

Names and sizes are checked before the first file is written, so that no other machine can write
outside of the run's folder. `summary.json` comes last: without it a run is not done.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from safecritic.core import files
from safecritic.core.files import FileError
from safecritic.evaluate.measures import MOST_BYTES
from safecritic.run import checkpoint

Contents = dict[str, bytes]

NAMES = {  # of the files of a run, with the most bytes of each
    "config.json": files.JSON_BYTES,
    "episodes.csv": files.TABLE_BYTES,
    "updates.csv": files.TABLE_BYTES,
    "resources.json": files.JSON_BYTES,
    "curves.png": MOST_BYTES,
    "error.json": files.JSON_BYTES,
    "error.txt": files.TEXT_BYTES,
    "evaluation.json": files.JSON_BYTES,
    "measures.safetensors": MOST_BYTES,
    "measures.json": files.JSON_BYTES,
    "summary.json": files.JSON_BYTES,
}
EVENTS = r"events\.out\.tfevents\.\d{1,20}\.[\w.-]{1,200}"
STATES = ("checkpoint", "failed")  # folders of a run that hold a state
ARRAYS = rf"({'|'.join(STATES)})/{checkpoint.ARRAYS}"
DONE = ("measures.json", "summary.json")
TRIES = 5  # for a checkpoint that is replaced while it is read


def stamp(run: Path) -> tuple[int, int] | None:
    """Return what tells the current checkpoint of a run from another; None if there is none."""
    try:
        about = os.lstat(run / "checkpoint" / checkpoint.INDEX)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def collect(run: Path) -> Contents:
    """Return the files of a run, also while it is running.

    States are read before tables, which only grow: so the tables hold what a checkpoint says.
    """
    files.require_folder(run)
    contents: Contents = {}
    for state in STATES:
        contents |= _collect_state(run, state)
    for name in sorted(os.listdir(run)) if run.is_dir() else []:
        if name in NAMES or re.fullmatch(EVENTS, name):
            with contextlib.suppress(FileNotFoundError):
                contents[name] = files.read_bytes(run / name, _most(name))
    return contents


def _collect_state(run: Path, state: str) -> Contents:
    folder = files.require_folder(run / state)
    for _ in range(TRIES):
        try:
            data = files.read_bytes(folder / checkpoint.INDEX, files.JSON_BYTES)
            arrays = checkpoint.check_index(folder / checkpoint.INDEX, data)["arrays"]
            blob = files.read_bytes(folder / arrays, checkpoint.MOST_BYTES)
        except FileNotFoundError:
            continue  # no state, or replaced twice in this moment
        return {f"{state}/{arrays}": blob, f"{state}/{checkpoint.INDEX}": data}
    return {}


def _most(name: str) -> int:
    return NAMES.get(name, files.TABLE_BYTES)


def write(run: Path, contents: Mapping[str, bytes]) -> None:
    """Write files that came from another machine into a run's folder; refuse other names."""
    for name, data in contents.items():
        check(run, name, data)
    files.make_folder(run)

    def put(names: Iterable[str]) -> None:
        for name in names:
            if name in contents:
                files.write_bytes(run / name, contents[name])

    put(name for name in contents if "/" not in name and name not in DONE)
    for state in STATES:
        _write_state(run, state, contents)
    put(DONE)


def _write_state(run: Path, state: str, contents: Mapping[str, bytes]) -> None:
    index = contents.get(f"{state}/{checkpoint.INDEX}")
    if index is None:
        return
    folder = run / state
    arrays = checkpoint.check_index(folder / checkpoint.INDEX, index)["arrays"]
    blob = contents.get(f"{state}/{arrays}")
    if blob is None:
        raise FileError(f"{folder / checkpoint.INDEX} came without its arrays: send both")
    checkpoint.receive(folder, index, blob)


def check(run: Path, name: str, data: bytes) -> None:
    """Raise unless this is a file that a run writes."""
    if not isinstance(name, str) or not isinstance(data, bytes):
        raise FileError(f"a file sent for {run} has no name or no content: it is not written")
    state = name.endswith(f"/{checkpoint.INDEX}") and name.partition("/")[0] in STATES
    known = name in NAMES or state or any(re.fullmatch(x, name) for x in (EVENTS, ARRAYS))
    if not known or name.count("/") > 1:
        raise FileError(
            f"{files.shown(name)}, sent for {run}, is not the name of a file of a run: it is not "
            "written"
        )
    most = checkpoint.MOST_BYTES if "/" in name else _most(name)
    if len(data) > most:
        raise FileError(f"{name}, sent for {run}, has {len(data):,} bytes, at most {most:,}")
