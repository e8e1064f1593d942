"""A rollout with random numbers of its own whose state can be saved and put back.

An environment is restored exactly if it has `get_checkpoint` and `set_checkpoint`, as the tasks of
this package do. The counts of Gymnasium's `TimeLimit` wrappers are saved with it.
"""

from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np

from safecritic.core.files import printable
from safecritic.run.checkpoint import Arrays, CheckpointError
from safecritic.run.episode import Episode, steps_table
from safecritic.run.rollout import Rollout

State = tuple[Arrays, dict[str, Any]]


class Stream(Rollout):
    """An environment, its open episode and its random numbers."""

    def __init__(self, env: Any, seed: int, rng: np.random.Generator):
        super().__init__(env)
        self.seed, self.rng = seed, rng

    def ready(self) -> np.ndarray:
        """Return the observation to act on; the first time, of the reset with the seed."""
        return self.reset(seed=self.seed) if self.obs is None else self.obs

    def state(self) -> State:
        """Return the stream as arrays and numbers."""
        arrays = {"steps": steps_table(self.episode)}
        numbers: dict[str, Any] = {"rng": self.rng.bit_generator.state}
        if self.obs is None:
            return arrays, numbers
        arrays["obs"] = self.obs
        if not is_restorable(self.env):
            return arrays, numbers
        env_arrays, env_numbers = _capture(self.env)
        return arrays | env_arrays, numbers | env_numbers

    def restore(self, state: State) -> list[str]:
        """Restore the stream from `state()`; return notes on what could not be restored."""
        arrays, numbers = state
        self.rng.bit_generator.state = numbers["rng"]
        episode = Episode.of(arrays["steps"])
        obs = arrays.get("obs")
        if obs is None:
            self.obs, self.episode = None, episode
            return []
        if "env" in numbers and is_restorable(self.env):
            self.reset(seed=self.seed)  # wrappers expect it before the first step
            _put_back(self.env, arrays, numbers)
            self.obs, self.episode = obs, episode
            return []
        self.reset(seed=int(self.rng.integers(2**31)))
        return dropped_note(episode.length)


def join(states: list[State] | None) -> tuple[Arrays, list[dict[str, Any]] | None]:
    """Return the states of streams as arrays named "stream0/..." and a list of their numbers."""
    if states is None:
        return {}, None
    arrays = {
        f"stream{at}/{name}": x
        for at, (content, _) in enumerate(states)
        for name, x in content.items()
    }
    return arrays, [numbers for _, numbers in states]


def split(arrays: Arrays, streams: list[dict[str, Any]] | None) -> list[State] | None:
    """Return the states of streams from what `join` returned, among other arrays."""
    if streams is None:
        return None
    contents: list[Arrays] = [{} for _ in streams]
    for name, x in arrays.items():
        stream, _, inner = name.partition("/")
        number = stream.removeprefix("stream")
        if number.isdigit() and int(number) < len(contents):
            contents[int(number)][inner] = x
    return list(zip(contents, streams, strict=True))


def dropped_note(steps: int) -> list[str]:
    """Return the note for an open episode of an environment that cannot be restored."""
    if not steps:
        return []
    return [
        "this environment has no get_checkpoint/set_checkpoint: the open episode "
        f"({steps} steps) was dropped and a new one started, so the run differs from an "
        "uninterrupted one"
    ]


def is_restorable(env: Any) -> bool:
    """Return whether the environment can save its state and put it back."""
    return hasattr(env.unwrapped, "get_checkpoint") and hasattr(env.unwrapped, "set_checkpoint")


def _capture(env: Any) -> State:
    """Return the environment's state as arrays named "env/..." and values for JSON."""
    try:
        state = {str(name): np.asarray(x) for name, x in env.unwrapped.get_checkpoint().items()}
        if any(x.dtype.kind not in "biufU" for x in state.values()):
            raise TypeError("an entry is no array of numbers and no text")
    except Exception as error:  # of an environment that may be the user's own
        text = printable(f"{type(error).__name__}: {error}"[:300])
        raise CheckpointError(
            f"get_checkpoint of the environment must return a dict of arrays, and failed ({text}): "
            "mend it, or take it away, and a resumed run begins a new episode"
        ) from error
    strings = {name: str(x) for name, x in state.items() if x.dtype.kind == "U"}
    arrays = {f"env/{name}": x for name, x in state.items() if name not in strings}
    elapsed = [limit._elapsed_steps for limit in _time_limits(env)]
    return arrays, {"env": strings, "elapsed": elapsed}


def _put_back(env: Any, arrays: Arrays, numbers: dict[str, Any]) -> None:
    state = {name[4:]: x for name, x in arrays.items() if name.startswith("env/")}
    state |= {name: np.array(string) for name, string in numbers["env"].items()}
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
