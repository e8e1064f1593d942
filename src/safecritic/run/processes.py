"""Cores and environment variables of worker processes."""

import os
import sys


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
    """Pin this process to one of the cores it may use, which need not be numbered from 0."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def search_path() -> str:
    """Return the folders this process imports from, as PYTHONPATH for another process."""
    return os.pathsep.join(folder for folder in sys.path if folder)


def worker_environment(path: str | None = None) -> dict[str, str]:
    """Return the environment of a worker on one core: one thread, and this process's PYTHONPATH.

    `path` replaces that PYTHONPATH.
    """
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": search_path() if path is None else path}
