"""The one reader and the one writer of all files of a run or a study. Imports no JAX.

Reading: regular files only, no link is followed, and size, depth, length and form are bounded. What
is refused is a `FileError` that names the file, the key and what to do. A JSON file of this package
carries the SHA-256 of its content, so that damage and edits by hand are noticed.

Writing: under a new name in the same folder, then renamed, so that a file is whole or not there.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.runtime import schema as forms
from safecritic.runtime.schema import printable, shown

JSON_BYTES = 32 * 2**20
TABLE_BYTES = 96 * 2**20
TABLE_CELLS = 8_000_000
TABLE_COLUMNS = 1_000
LINE_BYTES = 64 * 1024
TEXT_BYTES = 2**20
CHECKSUM = "sha256"
PART = ".part"  # end of the name of a file that is being written

# a link is not followed, and a pipe without a writer does not block
_SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFREG: "a file",
}


class FileError(RuntimeError):
    """A file or folder that cannot be read or written: says which, what is wrong and what to do."""


def damaged(path: Path, why: str) -> FileError:
    """Return the error for a file that cannot have been written as it is."""
    return FileError(f"{path} is damaged: {why}; restore it from a copy, or remove it")


def unreadable(path: Path, error: OSError) -> FileError:
    """Return the error for what the system does not let us read."""
    return FileError(
        f"{path} cannot be read: {error.strerror or error}; check its permissions and its disk"
    )


def is_there(path: Path) -> bool:
    """Return whether there is something of this name, a link or a device too."""
    return os.path.lexists(path)


def refuse_special(path: Path) -> None:
    """Raise unless the path is free or a regular file, which may be replaced."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise FileError(f"{path} must be a regular file, and is {_kind(mode)}: remove it")


def require_folder(path: Path) -> Path:
    """Return a folder inside a run or a study; it may be missing, but not be a link or a file."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISDIR(mode):
        raise FileError(f"{path} must be a folder, and is {_kind(mode)}: remove it")
    return path


def make_folder(path: Path) -> Path:
    """Make a folder inside a run or a study; a link in its place is refused."""
    require_folder(path).mkdir(parents=True, exist_ok=True)
    return require_folder(path)


def _mode(path: Path) -> int | None:
    """Return what is at the path, None if nothing is; a link is refused."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISLNK(mode):
        raise FileError(
            f"{path} is a link, and links inside a folder are not followed: put the file itself "
            "there, or remove the link"
        )
    return mode


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _open(path: Path, flags: int) -> int:
    """Return the handle of a regular file; links, folders, devices and pipes are refused."""
    try:
        handle = os.open(path, flags | _SAFE, 0o666)
    except OSError:
        refuse_special(path)  # says more
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise FileError(f"{path} must be a regular file, and is {_kind(mode)}: remove it")
    return handle


def read_bytes(path: Path, most: int, what: str = "a file of a run") -> bytes:
    """Return the content of a regular file of at most `most` bytes; FileNotFoundError if none."""
    try:
        file = os.fdopen(_open(path, os.O_RDONLY), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileError(
                f"{path} has {size:,} bytes, {what} has at most {most:,}: it is not one that "
                "safecritic wrote, or it is damaged; restore it or remove it"
            )
        data = file.read(size + 1)
    if len(data) != size:
        raise FileError(f"{path} changed while it was read: try again when nobody writes to it")
    return data


def write_bytes(path: Path, data: bytes, durable: bool = False) -> None:
    """Write a file completely or not at all; with `durable` it is on the disk when this returns.

    Raises OSError if the folder cannot be written to.
    """
    with replacing(path) as temporary, os.fdopen(_open(temporary, os.O_WRONLY), "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if durable and os.name == "posix":  # the rename itself must reach the disk too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a new file in the same folder; without an error it replaces `path`."""
    refuse_special(path)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}{PART}{path.suffix}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666))
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes had begun to write; only the owner of the folder may call it."""
    for path in folder.glob(f".*-*{PART}*"):
        if re.fullmatch(rf"\..+-[0-9a-f]{{16}}{re.escape(PART)}(\.\w+)?", path.name):
            with contextlib.suppress(OSError):
                os.unlink(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def read_text(path: Path) -> str:
    """Return a short text file as printable lines; an empty text if there is none."""
    try:
        data = read_bytes(path, TEXT_BYTES, "a text file")
    except FileNotFoundError:
        return ""
    return "\n".join(map(printable, data.decode("utf-8", errors="replace").splitlines()))


def open_to_append(path: Path) -> int:
    """Return the handle of a file to read and append to; links of any kind are refused."""
    handle = _open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    names = os.fstat(handle).st_nlink
    if names > 1:
        os.close(handle)
        raise FileError(
            f"{path} has {names} names (hard links), and writing to it would change another file: "
            "copy the folder and use the copy"
        )
    return handle


def locked_file(path: Path) -> io.BufferedReader:
    """Open a file and lock it until it is closed or the process ends; ImportError on Windows."""
    import fcntl

    file = os.fdopen(open_to_append(path), "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, error.strerror, str(path)) from error
    return file


# ---------------------------------------------------------------- JSON


def write_json(path: Path, content: dict[str, Any], durable: bool = False) -> None:
    """Write an object as JSON, with its checksum."""
    content = {name: x for name, x in content.items() if name != CHECKSUM}
    content[CHECKSUM] = digest(content)
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode(), durable)


def digest(content: Any) -> str:
    """Return the SHA-256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, schema: Any = None) -> dict[str, Any]:
    """Return an object that `write_json` wrote, without its checksum, checked by its dataclass."""
    return check_json(path, read_bytes(path, JSON_BYTES, "a JSON file"), schema)


def check_json(path: Path, data: bytes, schema: Any = None) -> dict[str, Any]:
    """Return the object in the text of a JSON file, checked; see `read_json`."""
    content = parse_json(path, data)
    if not isinstance(content, dict):
        raise damaged(path, f"expected an object, got {shown(content)}")
    recorded = content.pop(CHECKSUM, None)
    if recorded is None:
        raise damaged(
            path, f"its key {CHECKSUM!r} is missing (another program or version wrote it)"
        )
    if recorded != digest(content):
        raise FileError(
            f"{path} was altered: its checksum ({CHECKSUM}) does not match; undo the change or "
            "restore the file. Settings are given to a new run, not edited here"
        )
    if schema is not None:
        from safecritic.core.schema import check

        check(schema, content, path)
    return content


def parse_json(path: Path, data: bytes) -> Any:
    """Return what JSON text holds; refuse what is too large, too deep or says a key twice."""
    try:
        return forms.parse(data)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError too
        raise damaged(path, printable(str(error)[:120])) from error


# ---------------------------------------------------------------- tables


def read_table(path: Path, columns: Sequence[str] = ()) -> dict[str, list[float]]:
    """Return the columns of a table of numbers; an empty cell is NaN. `columns` must be there."""
    return parse_table(path, read_bytes(path, TABLE_BYTES, "a table"), columns)


def parse_table(path: Path, data: bytes, columns: Sequence[str] = ()) -> dict[str, list[float]]:
    """Return the columns of the text of a table (see `read_table`)."""
    cells = data.count(b",") + data.count(b"\n")
    if cells > TABLE_CELLS:
        raise damaged(path, f"it has {cells:,} cells, at most {TABLE_CELLS:,} are read")
    lines = io.BytesIO(data).readlines()
    names = [cell.decode("utf-8", errors="replace") for cell in _cells(path, 1, [*lines, b""][0])]
    if len(names) > TABLE_COLUMNS or len(set(names)) < len(names) or not data:
        raise damaged(path, "line 1 must be the names of its columns, each once")
    for name in columns:
        if name not in names:
            raise damaged(path, f"it has no column {name!r}")
    table: dict[str, list[float]] = {name: [] for name in names}
    for number, line in enumerate(lines[1:], 2):
        row = _cells(path, number, line)
        if len(row) != len(names):
            raise damaged(path, f"line {number} has {len(row)} cells, expected {len(names)}")
        for column, cell in zip(table.values(), row, strict=True):
            column.append(_number(path, number, cell) if cell else math.nan)
    if not data.endswith(b"\n"):
        raise damaged(path, f"line {len(lines)} is cut off")
    return table


def _cells(path: Path, number: int, line: bytes) -> list[bytes]:
    if len(line) > LINE_BYTES:
        raise damaged(path, f"line {number} has {len(line):,} bytes")
    return line.rstrip(b"\r\n").split(b",")


def _number(path: Path, line: int, cell: bytes) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    # Python would read 1_000 as well
    if not math.isfinite(value) or b"_" in cell:
        raise damaged(path, f"line {line} has {shown(cell.decode(errors='replace'))}, no number")
    return value


# ---------------------------------------------------------------- arrays


def read_arrays(path: Path, most: int, sha256: str) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file of at most `most` bytes and with this SHA-256."""
    try:
        data = read_bytes(path, most, "a file of these arrays")
    except FileNotFoundError:
        raise FileError(f"{path} is missing: restore it from a copy") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise FileError(f"{path} was altered: its checksum does not match; restore it from a copy")
    return parse_arrays(path, data)


def parse_arrays(path: Path, data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays in the bytes of a safetensors file."""
    import safetensors.numpy

    try:
        arrays = safetensors.numpy.load(data)
        # a type that NumPy lacks, or a shape it cannot have, is found only now
        if sum(x.nbytes for x in arrays.values()) > len(data):
            raise ValueError("its arrays are larger than the file")
        return arrays
    except Exception as error:  # its own type, and NumPy's many
        raise damaged(path, printable(f"{type(error).__name__}: {error}"[:120])) from error
