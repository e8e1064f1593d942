"""What an environment returns, checked at every reset and step before anything learns from it.

    checks = StepChecks(env)
    obs = checks.check_reset(env.reset(seed=0))
    reward, cost, obs, terminated, truncated, info, steps = checks.check_step(env.step(action))

A value whose size no network can learn from counts as not finite: it would be in the replay for
good. The common case is a handful of comparisons; what is wrong is found out after one has failed.
"""

import math
import reprlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np

OWN_COST = "adapt(env, cost=lambda obs, action, info: ...)"  # advice in errors
LARGEST = 1e10  # squares of squares of anything below fit into float32
_LARGEST_SQUARE = LARGEST**2

# what overflows here becomes an error with a name; `np.errstate` would cost as much as the checks
warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning, __name__)


class Step(NamedTuple):
    """What a step returned, checked: numbers are floats, ends are booleans."""

    reward: float
    cost: float
    obs: np.ndarray  # float32
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    steps: int  # environment steps that the action was held for


class EnvError(RuntimeError):
    """An environment that raised an error, or returned what cannot be learned from.

    `quantity` is what was wrong; `finite` is False if it was a number, but not a usable one.
    """

    def __init__(self, message: str, quantity: str = "", finite: bool = True):
        super().__init__(message)
        self.quantity, self.finite = quantity, finite


class StepChecks:
    """Checks what an adapted environment returns from reset and step."""

    def __init__(self, env: gymnasium.Env):
        self.name = name_of(env)
        self.shape = env.observation_space.shape
        self.counts = reports_steps(env)

    def check_reset(self, result: Any) -> np.ndarray:
        """Return the observation of a reset."""
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong("result of reset", "(observation, info)", result)
        return self._vector(result[0])

    def check_step(self, result: Any) -> Step:
        """Return what a step returned."""
        try:
            obs, reward, terminated, truncated, info = result
            cost = info["cost"]
            vector = obs.astype(np.float32)
            steps = info["steps"] if self.counts else 1
            usable = (
                vector.shape == self.shape
                and obs.dtype.kind == "f"
                and vector.dot(vector) < _LARGEST_SQUARE
                and isinstance(reward, float)
                and -LARGEST < reward < LARGEST
                and isinstance(cost, float)
                and 0.0 <= cost < LARGEST
                and terminated.__class__ is bool
                and truncated.__class__ is bool
                and steps.__class__ is int
                and 0 < steps < LARGEST
                and (self.counts or "steps" not in info)
            )
        except Exception:  # whatever it was, it is found out below
            usable = False
        if usable:
            return Step(reward, cost, vector, terminated, truncated, info, steps)
        return self._step(result)

    def _step(self, result: Any) -> Step:
        """Return a step in an unusual form, or raise with what is wrong about it."""
        if not (isinstance(result, tuple | list) and len(result) == 5):
            five = "five values: observation, reward, terminated, truncated, info"
            raise self._wrong("result of step", five, result)
        obs, reward, terminated, truncated, info = result
        if not isinstance(info, dict):
            raise self._wrong("info", "a dict", info)
        vector = self._vector(obs)
        value = self._number("reward", reward)
        if "cost" not in info:
            raise EnvError(missing_cost(self.name, "cost"), "cost")
        cost = self._number("cost", info["cost"])
        if cost < 0:
            hint = ": put gains into the reward, or compute another cost, adapt(env, cost=...)"
            raise self._wrong("cost", ">= 0", cost, hint)
        ends = self._end("terminated", terminated), self._end("truncated", truncated)
        steps = 1
        if self.counts:
            steps = int(self._number("info['steps']", info.get("steps", 1)))
        elif "steps" in info:  # means something else in an environment that holds no actions
            info = {name: x for name, x in info.items() if name != "steps"}
        return Step(value, cost, vector, *ends, info, steps)

    def _vector(self, obs: Any) -> np.ndarray:
        array = _numbers(obs)
        if array is None or array.shape != self.shape:
            expected = f"numbers of shape {self.shape}, as its observation_space says"
            raise self._wrong("observation", expected, obs if array is None else array.shape)
        with np.errstate(over="ignore"):
            vector = array.astype(np.float32)
        # the sum of the squares, as in `check_step`
        if not vector.astype(np.float64).dot(vector) < _LARGEST_SQUARE:
            flat = array.astype(np.float64)  # the first NaN, or else the largest number
            raise self._unusable("observation", float(flat[np.argmax(np.abs(flat))]))
        return vector

    def _number(self, quantity: str, value: Any) -> float:
        array = _numbers(value)
        if array is None or array.size != 1:
            raise self._wrong(quantity, "one number", value)
        number = float(array.item())
        if not abs(number) < LARGEST:
            raise self._unusable(quantity, number)
        return number

    def _end(self, name: str, value: Any) -> bool:
        array = _numbers(value)
        if array is not None and array.dtype.kind != "f" and array.ndim == 0 and value in (0, 1):
            return bool(value)
        raise self._wrong(name, "True or False", value)

    def _unusable(self, quantity: str, value: float) -> EnvError:
        expected, hint = f"finite and within {LARGEST:g}", ": clip or scale it in the environment"
        return self._wrong(quantity, expected, value, hint, finite=False)

    def _wrong(
        self, quantity: str, expected: str, got: Any, hint: str = "", finite: bool = True
    ) -> EnvError:
        text = f"the {quantity} of {self.name} must be {expected}, got {reprlib.repr(got)}{hint}"
        return EnvError(text, quantity, finite)


def check_cost(value: Any, name: str) -> float:
    """Return the cost of a step as a float; it must be finite and not negative."""
    if type(value) is float and 0.0 <= value < math.inf:
        return value
    array = _numbers(value)
    cost = float(array.item()) if array is not None and array.size == 1 else math.nan
    if not 0.0 <= cost < math.inf:
        raise ValueError(
            f"the cost of {name} must be one number, finite and >= 0, got {value!r}: compute it, "
            f"{OWN_COST}"
        )
    return cost


def missing_cost(name: str, key: str) -> str:
    """Return what to do where a step of an environment has no cost."""
    return (
        f"{name} left {key!r} out of info in this step: if that means no cost, say so with "
        'missing_cost="zero" (--missing-cost zero)'
    )


def layers(env: gymnasium.Env) -> Iterator[Any]:
    """Yield the environment and what it wraps, from the outside in."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def name_of(env: gymnasium.Env) -> str:
    """Return the id of an environment, or its class."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def reports_steps(env: gymnasium.Env) -> bool:
    """Return whether `info["steps"]` is the number of steps an action was held for."""
    return any(getattr(layer, "reports_steps", False) is True for layer in layers(env))


def _numbers(value: Any) -> np.ndarray | None:
    """Return the value as an array if it consists of numbers; a masked one has lost some."""
    if isinstance(value, np.ma.MaskedArray):
        return None
    try:
        array = np.asarray(value)
    except Exception:
        return None
    return array if array.dtype.kind in "fiub" else None
