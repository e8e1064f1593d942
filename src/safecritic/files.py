"""The one reader and the one writer of all files of a run or a study. Imports no JAX.

Reading: regular files only, no link is followed, the size is known before a byte is read, and
depth, length and form are bounded. Where a file is missing and there is one of its name with .gz,
that one is unpacked, up to the same bound. Everything that is refused is a `FileError` that names
the file, the key and what to do. A JSON file of this package carries the SHA-256 of its content, so
that damage and edits by hand are noticed; a checksum does not tell a forged file from a true one.

Writing: under a new name in the same folder, then renamed, so that a file is whole or not there. A
link in its place is refused, never followed.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

JSON_BYTES = 32 * 2**20
JSON_CONTAINERS = 200_000  # lists and objects in a JSON file
JSON_VALUES = 1_000_000
JSON_DEPTH = 24
TABLE_BYTES = 96 * 2**20
TABLE_CELLS = 8_000_000
TABLE_COLUMNS = 1_000
LINE_BYTES = 64 * 1024
TEXT_BYTES = 2**20
SHOWN = 60  # characters of a wrong value in a message
CHECKSUM = "sha256"
PART = ".part"  # end of the name of a file that is being written
PACKED = ".gz"  # end of the name of a compressed file

_LINKS = getattr(os, "O_NOFOLLOW", 0)
_SAFE = _LINKS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


class FileError(RuntimeError):
    """A file or folder that cannot be read or written: says which, what is wrong and what to do."""


Kind = TypeVar("Kind", bound=type[FileError])


# ---------------------------------------------------------------- bytes


def read_bytes(path: Path, most: int, what: str = "a file of a run") -> bytes:
    """Return the content of a regular file of at most `most` bytes; FileNotFoundError if none.

    If there is a compressed file in its place (`packed_path`), what it holds is returned.
    """
    try:
        return _read_plain(path, most, what)
    except FileNotFoundError:
        packed = packed_path(path)
        if not is_there(packed):
            raise
    return _unpack(packed, _read_plain(packed, most, what), most, what)


def _unpack(path: Path, data: bytes, most: int, what: str) -> bytes:
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: with gzip's header and checksum
    try:
        content = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise damaged(path, f"it cannot be unpacked ({error})") from error
    if len(content) > most:
        raise FileError(
            f"{path} holds more than {most:,} bytes, the most that {what} has: it is not one that "
            "safecritic wrote, or it is damaged; restore it or remove it"
        )
    if not unpacker.eof or unpacker.unused_data:
        raise damaged(path, "something follows its end" if unpacker.eof else "its end is missing")
    return content


def packed_path(path: Path) -> Path:
    """Return the name of the compressed file that stands for this one."""
    return path.with_name(path.name + PACKED)


def packed(data: bytes) -> bytes:
    """Return the content of a compressed file; without a date, so that it is always the same."""
    return gzip.compress(data, 9, mtime=0)


def _read_plain(path: Path, most: int, what: str) -> bytes:
    with open_regular(path) as file:
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


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file to read; refuse links, folders, devices and pipes."""
    try:
        # O_NONBLOCK: a pipe without a writer would block here for ever
        handle = os.open(path, os.O_RDONLY | _SAFE | _BINARY)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) or path.is_symlink():
            raise _link(path) from None
        raise _unreadable(path, error) from error
    try:
        _require_regular(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def write_bytes(path: Path, data: bytes, durable: bool = False) -> None:
    """Write a file completely or not at all; with `durable` it is on the disk when this returns.

    Raises OSError if the folder cannot be written to.
    """
    path = Path(path)
    with replacing(path) as temporary:
        handle = os.open(temporary, os.O_WRONLY | _SAFE | _BINARY)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
    if durable and os.name == "posix":  # the rename itself must reach the disk too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Any:
    """Yield the name of a new empty file in the same folder; at the end it replaces `path`.

    For what other programs write, such as a film. If an error is raised, `path` stays as it was.
    """
    path = Path(path)
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
    """Return the handle of a file to read and append to, new or not; refuse links of any kind."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFE | _BINARY, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) or path.is_symlink():
            raise _link(path) from None
        raise
    try:
        about = os.fstat(handle)
        _require_regular(path, about.st_mode)
        if about.st_nlink > 1:
            raise FileError(
                f"{path} has {about.st_nlink} names (hard links), and writing to it would change "
                "another file: copy the folder and use the copy"
            )
    except BaseException:
        os.close(handle)
        raise
    return handle


def locked_file(path: Path) -> io.BufferedReader:
    """Open a file, new or not, and lock it until it is closed or the process ends, however it ends.

    Raises BlockingIOError if another process has locked it, ImportError on Windows.
    """
    import fcntl

    file = os.fdopen(open_to_append(path), "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, error.strerror, str(path)) from error
    return file


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes had begun to write; only the owner of the folder may call it."""
    for path in folder.glob(f".*-*{PART}*"):
        if re.fullmatch(rf"\..+-[0-9a-f]{{16}}{re.escape(PART)}(\.\w+)?", path.name):
            with contextlib.suppress(OSError):
                os.unlink(path)


def refuse_special(path: Path) -> None:
    """Raise unless the path is free or a regular file, which may be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise _link(path)
    _require_regular(path, mode)


def require_folder(path: Path) -> Path:
    """Return a folder inside a run or a study; it may be missing, but not be a link or a file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return path
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISLNK(mode):
        raise _link(path)
    if not stat.S_ISDIR(mode):
        raise FileError(f"{path} must be a folder, and is {_kind(mode)}: remove it")
    return path


def make_folder(path: Path) -> Path:
    """Make a folder inside a run or a study; a link in its place is refused."""
    require_folder(path).mkdir(parents=True, exist_ok=True)
    return require_folder(path)


def is_there(path: Path) -> bool:
    """Return whether there is something of this name, a link or a device too."""
    return os.path.lexists(path)


def _link(path: Path) -> FileError:
    return FileError(
        f"{path} is a link, and links inside a folder are not followed: put the file itself there, "
        "or remove the link"
    )


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise FileError(f"{path} must be a regular file, and is {_kind(mode)}: remove it")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFREG: "a file",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def _unreadable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"{path} cannot be read: {error.strerror or error}; check its permissions and its disk"
    )


def printable(text: str) -> str:
    """Return a text without what a terminal would take as a command."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def shown(value: Any) -> str:
    """Return a wrong value for a message: short, on one line."""
    text = repr(value) if isinstance(value, str | int | float | bool | None) else _outline(value)
    return printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _outline(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    return type(value).__name__


# ---------------------------------------------------------------- JSON


def write_json(path: Path, content: dict[str, Any], durable: bool = False) -> None:
    """Write an object as JSON, with its checksum."""
    write_bytes(path, json_bytes(content), durable)


def json_bytes(content: dict[str, Any]) -> bytes:
    """Return the text of a JSON file, with its checksum."""
    content = {name: x for name, x in content.items() if name != CHECKSUM}
    content[CHECKSUM] = digest(content)
    return (json.dumps(content, indent=1) + "\n").encode()


def read_json(path: Path, schema: Any = None) -> dict[str, Any]:
    """Return an object that `write_json` wrote, checked, without its checksum.

    `schema` is a dataclass (see `safecritic.schema`). Raises FileNotFoundError if there is none.
    """
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
        from safecritic.schema import check

        check(schema, content, path)
    return content


def parse_json(path: Path, data: bytes) -> Any:
    """Return what JSON text holds; refuse what is too large, too deep or says a key twice."""
    containers = data.count(b"[") + data.count(b"{")
    if containers > JSON_CONTAINERS or data.count(b",") > JSON_VALUES:
        raise damaged(path, f"it has {containers:,} lists and {data.count(b','):,} values")
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except RecursionError:
        raise damaged(path, "it is nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError too
        raise damaged(path, printable(str(error)[:120])) from error
    level = [content]
    for _ in range(JSON_DEPTH):
        level = [x for one in level if isinstance(one, list | dict) for x in _inside(one)]
        if not level:
            return content
    raise damaged(path, f"it is nested more than {JSON_DEPTH} deep")


def _inside(container: Any) -> Iterable[Any]:
    values = container.values() if isinstance(container, dict) else container
    return (x for x in values if isinstance(x, list | dict))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key is there twice")
    return content


def digest(content: Any) -> str:
    """Return the SHA-256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def damaged(path: Path, why: str) -> FileError:
    """Return the error for a file that cannot have been written as it is."""
    return FileError(f"{path} is damaged: {why}; restore it from a copy, or remove it")


# ---------------------------------------------------------------- tables


def read_table(path: Path, columns: Sequence[str] = ()) -> dict[str, list[float]]:
    """Return the columns of a table of numbers; an empty cell is NaN. `columns` must be there."""
    return parse_table(path, read_bytes(path, TABLE_BYTES, "a table"), columns)


def parse_table(path: Path, data: bytes, columns: Sequence[str] = ()) -> dict[str, list[float]]:
    """Return the columns of the text of a table (see `read_table`)."""
    cells = data.count(b",") + data.count(b"\n")
    if cells > TABLE_CELLS:
        raise damaged(path, f"it has {cells:,} cells, at most {TABLE_CELLS:,} are read")
    lines = iter(io.BytesIO(data))
    header = _cells(path, 1, next(lines, b""))
    names = [name.decode("utf-8", errors="replace") for name in header]
    if len(names) > TABLE_COLUMNS or len(set(names)) < len(names) or not data:
        raise damaged(path, "line 1 must be the names of its columns, each once")
    for name in columns:
        if name not in names:
            raise damaged(path, f"it has no column {name!r}")
    table: dict[str, list[float]] = {name: [] for name in names}
    appends = [column.append for column in table.values()]
    number = 1
    for number, line in enumerate(lines, 2):
        row = _cells(path, number, line)
        if len(row) != len(names):
            raise damaged(path, f"line {number} has {len(row)} cells, expected {len(names)}")
        for append, cell in zip(appends, row, strict=True):
            append(_number(path, number, cell) if cell else math.nan)
    if not data.endswith(b"\n"):
        raise damaged(path, f"line {number} is cut off")
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
