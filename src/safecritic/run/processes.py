"""What the processes that work for others share."""

import os
import sys


def cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_core(number: int) -> None:
    """Keep this process on one of the cores it may use, which need not be numbered from 0."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def search_path() -> str:
    """Where this process finds modules, for the PYTHONPATH of another."""
    return os.pathsep.join(word for word in sys.path if word)


def worker_environment(path: str | None = None) -> dict[str, str]:
    """For a worker on one core: one thread, and the modules this process (or `path`) finds."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": search_path() if path is None else path}
