"""Cores and environment variables of worker processes."""

import os
import sys
import tempfile
from pathlib import Path
from typing import IO

from safecritic.core import files

_held: list[IO[bytes]] = []  # locks of cores, as long as this process lives


def cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int:
    """Return the bytes of memory of this machine; a terabyte if it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**40


def use_core(number: int) -> None:
    """Pin this process to one of the cores it may use, which need not be numbered from 0.

    The one of this number, or else the next that no worker of another study of this user is on.
    """
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        first = number % len(allowed)
        in_turn = allowed[first:] + allowed[:first]
        os.sched_setaffinity(0, {next(filter(_take, in_turn), in_turn[0])})


def _take(core: int) -> bool:
    """Lock a core until this process ends; return False if another has it."""
    folder = Path(tempfile.gettempdir()) / f"safecritic-cores-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
            _held.append(files.locked_file(folder / str(core)))
    except BlockingIOError:
        return False
    except (OSError, files.FileError):
        pass  # where locks are not to be had, the number decides
    return True


def search_path() -> str:
    """Return the folders this process imports from, as PYTHONPATH for another process."""
    return os.pathsep.join(folder for folder in sys.path if folder)


def worker_environment(path: str | None = None) -> dict[str, str]:
    """Return the environment of a worker on one core: one thread, and `path` or this PYTHONPATH."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": search_path() if path is None else path}
