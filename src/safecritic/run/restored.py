"""Checks of a checkpoint's content before a run continues from it.

A checksum says that the bytes are those that were written; these checks say that a run can go on
from them: counters that agree, cursors within the buffer, numbers that are finite.
"""

from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core.files import FileError
from safecritic.core.interface import EnvSpec
from safecritic.core.schema import check
from safecritic.run.checkpoint import INDEX, Arrays, CheckpointError
from safecritic.run.episode import EPISODE_COLUMNS, STEP_COLUMNS, WINDOW
from safecritic.tasks.checks import LARGEST

REPLAY = "device/replay/"


def first_unusable(arrays: Arrays) -> str | None:
    """Return the name of an array from which no run can go on; None if there is none.

    What an episode does not report is NaN in its record, so records are not looked at.
    """
    for name, x in arrays.items():
        if name.startswith("device/") or name.endswith("/obs") or name == "pending":
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                return name
            if name == "device/first_nonfinite_step" and x.any():
                return name
    return None


def require(holds: Any, what: str, expected: Any, got: Any) -> None:
    """Raise CheckpointError with what was expected of a checkpoint and what it has."""
    if not holds:
        raise CheckpointError(
            f"{what} in the checkpoint must be {expected}, got {got}: it is damaged, or belongs to "
            "other settings"
        )


def check_numbers(schema: type, numbers: dict[str, Any]) -> None:
    """Check the numbers beside the arrays against their form."""
    try:
        check(schema, numbers, Path(INDEX), "numbers")
    except FileError as error:
        raise CheckpointError(str(error)) from error
    course = numbers["watch"]["course"]
    pairs = all(len(pair) == 2 and pair[0] is not None for pair in course)
    require(pairs, "watch.course", "pairs of a cost and a multiplier", "others")


def check_array(
    arrays: Arrays, name: str, dtype: Any, shape: tuple[int | None, ...], finite: bool = True
) -> np.ndarray:
    """Return an array of this type and shape (None: any length); with `finite` also finite."""
    x = arrays.get(name)
    require(x is not None, name, "there", "nothing")
    assert x is not None
    fits = x.dtype == dtype and x.ndim == len(shape)
    fits = fits and all(n is None or n == m for n, m in zip(shape, x.shape, strict=True))
    require(fits, name, f"{np.dtype(dtype)} {shape}", f"{x.dtype} {x.shape}")
    usable = np.isfinite(x) if finite else ~np.isinf(x)
    require(usable.all(), name, "finite" if finite else "finite or unknown", "others")
    return x


def check_window(arrays: Arrays, numbers: dict[str, Any]) -> None:
    """Check the rows of the last episodes."""
    window = check_array(arrays, "window", np.float64, (None, len(EPISODE_COLUMNS)), finite=False)
    expected = min(numbers["episodes"], WINDOW)
    require(len(window) == expected, "window", f"{expected} episodes", len(window))
    watched = numbers["watch"]
    same = watched["episodes"] == numbers["episodes"]
    require(same, "watch.episodes", numbers["episodes"], watched["episodes"])
    require(watched["steps"] <= numbers["step"], "watch.steps", "steps of the run", "more")
    known = window[:, [EPISODE_COLUMNS.index(name) for name in ("episode", "step", "length")]]
    require(not np.isnan(known).any(), "window", "episodes with a number and a length", "others")
    first = numbers["episodes"] - expected + 1
    counted = np.arange(first, first + expected)
    require((known[:, 0] == counted).all(), "window", "the last episodes, in order", "others")
    costs = window[:, EPISODE_COLUMNS.index("cost")]
    require((costs >= 0).all(), "window", "costs >= 0", "others")


def check_records(steps: np.ndarray) -> None:
    """Check the steps of open episodes."""
    for name in ("reward", "cost", "steps"):
        column = steps[:, STEP_COLUMNS.index(name)]
        require(np.isfinite(column).all(), f"{name} of the open episodes", "finite", "others")
        if name != "reward":
            least = 1 if name == "steps" else 0
            require((column >= least).all(), f"{name} of the open episodes", f">= {least}", "less")


def check_off_policy(arrays: Arrays, numbers: dict[str, Any], spec: EnvSpec) -> None:
    """Check the episodes that ended and the transition that waits."""
    lengths, terminated = numbers["lengths"], numbers["terminated"]
    require(len(lengths) == len(terminated), "terminated", f"{len(lengths)} ends", len(terminated))
    steps = check_array(arrays, "unassessed", np.float64, (None, len(STEP_COLUMNS)), finite=False)
    require(len(steps) == sum(lengths), "unassessed", f"{sum(lengths)} rows", len(steps))
    check_records(steps)
    waiting = 0
    if "pending" in arrays:
        row = check_array(arrays, "pending", np.float32, (2 * spec.obs_dim + spec.action_dim + 6,))
        cost, waiting = row[spec.obs_dim + spec.action_dim + 1 :][:2]
        require(cost >= 0 and waiting >= 1, "pending", "a cost >= 0 and a step or more", "less")
    expected = int(arrays["device/step"]) + int(waiting)
    require(expected == numbers["step"], "step", f"{expected}, as in its arrays", numbers["step"])


def check_replay(arrays: Arrays, capacity: int, step: int) -> None:
    """Check the cursors of the replay and its rows."""
    ring = {name.removeprefix(REPLAY): x for name, x in arrays.items() if name.startswith(REPLAY)}
    size, cursor = int(ring["size"]), int(ring["cursor"])
    start, count = int(ring["costly_start"]), int(ring["costly_size"])
    require(0 <= size <= min(capacity, step), "replay size", f"0 to {min(capacity, step)}", size)
    rows = {name: len(x) for name, x in ring.items() if x.ndim}
    require(set(rows.values()) == {size}, "replay rows", f"{size} in each array", rows)
    expected = "below its capacity" if size == capacity else str(size)
    right = 0 <= cursor < capacity if size == capacity else cursor == size
    require(right, "replay cursor", expected, cursor)
    require(0 <= start < capacity, "replay costly_start", f"0 to {capacity - 1}", start)
    costly = int((ring["cost"] > 0).sum())
    require(count == costly, "replay costly_size", f"{costly}, its rows with a cost", count)
    queue = ring["costly"][(start + np.arange(count)) % capacity] if count else np.zeros(0, int)
    require(((queue >= 0) & (queue < max(size, 1))).all(), "replay costly", "its rows", "others")
    require((ring["cost"][queue] > 0).all(), "replay costly", "rows with a cost", "others")
    require((ring["cost"] >= 0).all(), "replay cost", ">= 0", "less")
    for name in ("obs", "action", "reward", "cost", "next_obs"):
        largest = np.abs(ring[name]).max(initial=0.0)
        require(largest < LARGEST, f"replay {name}", f"within {LARGEST:g}", f"{largest:g}")


def check_streams(arrays: Arrays, streams: Any, spec: EnvSpec) -> None:
    """Check the open episodes and the observations of the environments."""
    for at in range(len(streams or [])):
        name = f"stream{at}/steps"
        check_records(check_array(arrays, name, np.float64, (None, len(STEP_COLUMNS)), False))
        if f"stream{at}/obs" in arrays:
            check_array(arrays, f"stream{at}/obs", np.float32, (spec.obs_dim,))
