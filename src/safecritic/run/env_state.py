"""An environment's simulation as arrays and words, for environments that can be put back.

An environment can if it has ``get_checkpoint`` and ``set_checkpoint``, as the tasks of this package
have; Gymnasium's TimeLimit around it is kept too.
"""

from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np

from safecritic.run.checkpoint import Arrays


def can_be_kept(env: Any) -> bool:
    return hasattr(env.unwrapped, "get_checkpoint") and hasattr(env.unwrapped, "set_checkpoint")


def take(env: Any) -> tuple[Arrays, dict[str, Any]]:
    """Arrays, their names beginning with "env/", and what is to be kept as JSON beside them."""
    kept = env.unwrapped.get_checkpoint()
    words = {name: str(x) for name, x in kept.items() if np.asarray(x).dtype.kind == "U"}
    arrays = {f"env/{name}": np.asarray(x) for name, x in kept.items() if name not in words}
    elapsed = [limit._elapsed_steps for limit in _time_limits(env)]
    return arrays, {"env": words, "elapsed": elapsed}


def put_back(env: Any, arrays: Arrays, numbers: dict[str, Any], seed: int) -> None:
    """Go on from what `take` gave; other arrays and numbers may stand among them."""
    env.reset(seed=seed)  # wrappers expect it before the first step
    words = {name: np.array(word) for name, word in numbers["env"].items()}
    kept = {name[4:]: x for name, x in arrays.items() if name.startswith("env/")}
    env.unwrapped.set_checkpoint(kept | words)
    for limit, steps in zip(_time_limits(env), numbers["elapsed"], strict=True):
        limit._elapsed_steps = steps


def _time_limits(env: Any) -> list[Any]:
    """Gymnasium's TimeLimit counts outside the environment's own checkpoint."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            found.append(env)
        env = env.env
    return found


LOST = (
    "this environment has no get_checkpoint/set_checkpoint: the open episode ({steps} steps) is "
    "dropped and a new one started, so the run is not the uninterrupted one"
)
