"""The state of an environment as arrays and strings, to save it and put it back.

The environment must have `get_checkpoint` and `set_checkpoint`, as the tasks of this package do.
The counts of Gymnasium's `TimeLimit` wrappers are saved with it.
"""

from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np

from safecritic.files import printable
from safecritic.run.checkpoint import Arrays, CheckpointError


def is_restorable(env: Any) -> bool:
    """Return whether the environment can save its state and put it back."""
    return hasattr(env.unwrapped, "get_checkpoint") and hasattr(env.unwrapped, "set_checkpoint")


def capture(env: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return the state as arrays, their names prefixed with "env/", and values for JSON."""
    state = env.unwrapped.get_checkpoint()
    strings = {name: str(x) for name, x in state.items() if np.asarray(x).dtype.kind == "U"}
    arrays = {f"env/{name}": np.asarray(x) for name, x in state.items() if name not in strings}
    elapsed = [limit._elapsed_steps for limit in _time_limits(env)]
    return arrays, {"env": strings, "elapsed": elapsed}


def restore(env: Any, arrays: Arrays, numbers: dict[str, Any], seed: int) -> None:
    """Put back the state from `capture`; other entries of `arrays` and `numbers` are ignored."""
    env.reset(seed=seed)  # wrappers expect it before the first step
    strings = {name: np.array(string) for name, string in numbers["env"].items()}
    state = {name[4:]: x for name, x in arrays.items() if name.startswith("env/")} | strings
    limits, elapsed = _time_limits(env), numbers.get("elapsed") or []
    try:
        if len(limits) != len(elapsed):
            raise ValueError(f"{len(elapsed)} time limits were saved, there are {len(limits)}")
        env.unwrapped.set_checkpoint(state)
    except Exception as error:  # of an environment that may be the user's own
        text = printable(f"{type(error).__name__}: {error}"[:300])
        raise CheckpointError(
            f"the environment in the checkpoint cannot be put back ({text}): it belongs to another "
            "task or version, or it is damaged"
        ) from error
    for limit, steps in zip(limits, elapsed, strict=True):
        limit._elapsed_steps = steps


def _time_limits(env: Any) -> list[Any]:
    """Return the `TimeLimit` wrappers, whose counts are not in the environment's checkpoint."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(env)
        env = env.env
    return limits


def dropped_note(steps: int) -> str:
    """Return the note for an open episode of an environment that cannot be restored."""
    return (
        "this environment has no get_checkpoint/set_checkpoint: the open episode "
        f"({steps} steps) was dropped and a new one started, so the run differs from an "
        "uninterrupted one"
    )
