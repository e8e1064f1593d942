"""Folders that are made once for all of pytest's worker processes."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled, in whichever worker process needed it first."""
    base = factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    out = shared / "once" / name
    out.parent.mkdir(exist_ok=True)
    done = out.with_suffix(".done")
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.is_file():
            shutil.rmtree(out, ignore_errors=True)  # what a failure has left
            make(out)
            done.touch()
    return out
