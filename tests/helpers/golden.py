"""The recorded trajectories of the original tasks."""

import os
from pathlib import Path

import numpy as np


def golden_dir() -> Path:
    """Return `tests/golden`, or the folder that SAFECRITIC_GOLDEN names."""
    return Path(os.environ.get("SAFECRITIC_GOLDEN") or Path(__file__).parents[1] / "golden")


def golden_files(pattern: str) -> list[Path]:
    """Return the recordings of this pattern; none is an error, or parity would pass untested."""
    files = sorted(golden_dir().glob(pattern))
    if not files:
        raise FileNotFoundError(
            f"no {pattern} in {golden_dir()}: put the recordings there or set SAFECRITIC_GOLDEN"
        )
    return files


def load_golden(path: Path) -> dict[str, np.ndarray]:
    """Load one recording."""
    with np.load(path, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}
