"""Ways to alter the files of a run or a study, with and without a checksum that fits afterwards.

An alteration is drawn by `random.Random`, so that a failing one can be repeated by its number.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safecritic.core import files

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e30, 1e308, -1e308,
    float("nan"), float("inf"), "", "x", "=1+1", "../../etc/passwd", "a" * 10_000,
    "<img src=x onerror=alert(1)>", "\x1b[2J", "os:system", [], {}, [[]], [1, 2], {"a": 1},
    [[[[[[1]]]]]], ["x"] * 1000,
]  # fmt: skip
CELLS = ["", "x", "nan", "inf", "-1", "1e400", "1_000", '"', '=cmd|"/c calc"!A0', "0x10", "  ", "²"]


def repeat(attack: Callable[[int], None], times: int) -> None:
    """Call an attack with the same numbers in every session, and name one that fails."""
    options: dict[str, Any] = {"max_examples": times, "deadline": None, "derandomize": True}
    options |= {"database": None, "suppress_health_check": list(HealthCheck)}
    settings(**options)(given(st.integers(0, 2**32))(attack))()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the ways to every value inside JSON content."""
    ways = [at] if at else []
    items: Any = []
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = enumerate(content)
    for key, value in items:
        ways += places(value, (*at, key))
    return ways


def change(content: Any, rng: random.Random) -> str:
    """Change, remove or add one value somewhere inside; return what was done."""
    ways = places(content)
    if not ways:
        content["extra"] = rng.choice(ODD)
        return "added to nothing"
    way = rng.choice(ways)
    inside = content
    for key in way[:-1]:
        inside = inside[key]
    what = rng.random()
    if what < 0.2:
        del inside[way[-1]]
        return f"removed {way}"
    value = rng.choice(ODD)
    if what < 0.3 and isinstance(inside, dict):
        inside[rng.choice(["extra", "", "sha", "\u202e"])] = value
        return f"added {value!r} beside {way}"
    if what < 0.45 and isinstance(inside[way[-1]], int | float):
        value = inside[way[-1]] * rng.choice([-1, 2, 10, 1000]) + rng.choice([0, 1])
    inside[way[-1]] = value
    return f"{way} = {str(value)[:40]!r}"


def alter_json(path: Path, rng: random.Random) -> str:
    """Alter a JSON file; in most cases its checksum fits afterwards."""
    if rng.random() < 0.25:
        return alter_bytes(path, rng)
    content = json.loads(path.read_text())
    if rng.random() < 0.1:
        path.write_text(rng.choice([deep(50), deep(100_000), "[]", "null", "7", "", "{", '"x"']))
        return "other JSON"
    content.pop("sha256", None)
    done = change(content, rng)
    if rng.random() < 0.8:
        content["sha256"] = files.digest(content)
        done += ", checksum fits"
    path.write_text(json.dumps(content))
    return done


def alter_table(path: Path, rng: random.Random) -> str:
    """Alter a table by its bytes, its lines or its cells."""
    kind = rng.random()
    if kind < 0.3:
        return alter_bytes(path, rng)
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    if kind < 0.5:
        del lines[at]
        done = f"without line {at}"
    elif kind < 0.6:
        lines.insert(at, rng.choice(["", ",", "x" * 200_000, lines[0]]))
        done = f"another line {at}"
    else:
        cells = lines[at].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(CELLS)
        lines[at] = ",".join(cells)
        done = f"another cell in line {at}"
    path.write_text("\r\n".join(lines) + "\r\n")
    return done


def alter_arrays(path: Path, rng: random.Random) -> str:
    """Alter an array file; the index that names it is not touched."""
    if rng.random() < 0.3:
        return alter_bytes(path, rng)
    arrays = {name: x.copy() for name, x in safetensors.numpy.load(path.read_bytes()).items()}
    done = change_arrays(arrays, rng)
    path.write_bytes(safetensors.numpy.save(arrays))
    return done


def change_arrays(arrays: dict[str, np.ndarray], rng: random.Random) -> str:
    """Change one array: a value, its type, its shape, or remove it."""
    name = rng.choice(sorted(arrays))
    x = arrays[name]
    kind = rng.choice(["remove", "value", "value", "value", "type", "shape", "empty", "add"])
    if kind == "remove":
        del arrays[name]
    elif kind == "add":
        arrays["device/other"] = np.full(3, np.nan)
    elif kind == "type":
        arrays[name] = x.astype(rng.choice([np.float64, np.int64, np.uint8, np.float16, np.bool_]))
    elif kind == "shape":
        arrays[name] = np.concatenate([x.reshape(-1), x.reshape(-1)[:1]])
    elif kind == "empty":
        arrays[name] = x.reshape(-1)[:0]
    elif x.size:
        value = rng.choice([np.nan, np.inf, -1, 2, 10**6, -(10**6), 1e30, 2**31 - 1])
        flat = x.reshape(-1).copy()
        with np.errstate(all="ignore"):
            flat[rng.randrange(x.size)] = np.array(value).astype(x.dtype)
        arrays[name] = flat.reshape(x.shape)
    return f"{kind} {name}"


def alter_checkpoint(folder: Path, rng: random.Random) -> str:
    """Alter arrays or numbers of a checkpoint so that all its checksums fit."""
    index = json.loads((folder / "checkpoint.json").read_text())
    path = folder / index["arrays"]
    if rng.random() < 0.5:
        arrays = dict(safetensors.numpy.load(path.read_bytes()))
        done = change_arrays(arrays, rng)
        blob = safetensors.numpy.save(arrays)
        digest = hashlib.sha256(blob).hexdigest()
        path.unlink()
        index |= {"arrays": f"arrays-{digest[:16]}.safetensors", "arrays_bytes": len(blob)}
        index["arrays_sha256"] = digest
        (folder / index["arrays"]).write_bytes(blob)
    else:
        done = change(index["numbers"], rng)
    files.write_json(folder / "checkpoint.json", index)
    return f"{done}, checksums fit"


def alter_settings(run: Path, rng: random.Random) -> str:
    """Alter the settings of a run and of its checkpoint in the same way."""
    config = json.loads((run / "config.json").read_text())
    index = json.loads((run / "checkpoint" / "checkpoint.json").read_text())
    if index.get("settings") is None:
        return "nothing"
    names = ("method", "task", "seed", "config", "environment")
    part = {name: config[name] for name in names}
    done = change(part, rng)
    files.write_json(
        run / "config.json", {k: x for k, x in config.items() if k not in names} | part
    )
    files.write_json(run / "checkpoint" / "checkpoint.json", index | {"settings": part})
    return f"settings: {done}, checksums fit"


def alter_bytes(path: Path, rng: random.Random) -> str:
    """Flip, cut, repeat or replace bytes."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "cut", "twice", "zeros", "noise", "empty"])
    at = rng.randrange(len(data)) if data else 0
    if kind == "flip" and data:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "twice":
        data += bytes(data)
    elif kind == "zeros":
        data[at : at + 50] = bytes(50)
    elif kind == "noise":
        data[at : at + 50] = rng.randbytes(50)
    else:
        data.clear()
    path.write_bytes(bytes(data))
    return f"{kind} at {at}"


def replace_file(path: Path, rng: random.Random, outside: Path) -> str:
    """Put something else in the place of a file: a link, a pipe, a folder, nothing."""
    kind = rng.choice(["link", "loop", "zero", "pipe", "folder", "nothing", "unreadable link"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "unreadable link":
        path.symlink_to(outside.parent / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    return f"{kind} in its place"


def alter(folder: Path, path: Path, rng: random.Random, outside: Path) -> str:
    """Alter one file of a folder; return what was done, for the message of a failing test."""
    by_kind: dict[str, Callable[[Path, random.Random], str]] = {
        ".json": alter_json,
        ".csv": alter_table,
        ".safetensors": alter_arrays,
    }
    chance = rng.random()
    if path.name == "checkpoint.json" and chance < 0.5:
        return f"{path.name}: {alter_checkpoint(path.parent, rng)}"
    if path.name == "config.json" and chance < 0.3 and (path.parent / "checkpoint").is_dir():
        return alter_settings(path.parent, rng)
    if chance < 0.85:
        return f"{path.name}: {by_kind.get(path.suffix, alter_bytes)(path, rng)}"
    return f"{path.name}: {replace_file(path, rng, outside)}"


def assert_clear(text: str, done: str) -> None:
    """Assert that a refusal is one line that says something."""
    assert "\n" not in text, done
    assert 20 < len(text) < 1_500, (done, text)
