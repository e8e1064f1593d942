"""What an environment returns, checked at every reset and step before anything learns from it.

    checks = StepChecks(env)
    obs = checks.reset(seed=0)
    obs, reward, cost, terminated, truncated, info, steps = checks.step(action)

A cost must be there, finite and not negative; the reward finite; the observation a finite vector of
the declared length. A value whose size no network can learn from counts as not finite: it would be
in the replay for good. The common case is a handful of comparisons; what is wrong is found out only
after one of them has failed.
"""

import math
import warnings
from typing import Any, NamedTuple

import gymnasium
import numpy as np

LARGEST = 1e10  # squares of squares of anything below fit into float32
_LARGEST_SQUARE = LARGEST**2

# what overflows here becomes an error with a name; `np.errstate` would cost as much as the checks
warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning, __name__)


class Step(NamedTuple):
    """A step, checked: numbers are floats, ends are booleans."""

    obs: np.ndarray  # float32
    reward: float
    cost: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    steps: int  # environment steps that the action was held for

    @property
    def success(self) -> bool:
        """Whether it reached the goal; not where the environment says nothing of success."""
        return bool(self.info.get("success", False))


class EnvError(RuntimeError):
    """An environment that raised an error, or returned what cannot be learned from.

    `quantity` is what was wrong; `finite` is False if it was a number, but not a usable one.
    """

    def __init__(self, message: str, quantity: str = "", finite: bool = True):
        super().__init__(message)
        self.quantity, self.finite = quantity, finite


class StepChecks:
    """Resets and steps an adapted environment and checks what it returns."""

    def __init__(self, env: gymnasium.Env):
        self.env = env
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.shape = env.observation_space.shape
        self.counts = reports_steps(env)

    def reset(self, **options: Any) -> np.ndarray:
        """Start an episode and return its observation."""
        try:
            result: Any = self.env.reset(**options)
        except Exception as error:
            raise self._raised("reset", error) from error
        if not (isinstance(result, tuple) and len(result) == 2):
            raise EnvError(
                f"reset of {self.name} must return (observation, info), got {_kind(result)}"
            )
        return self._vector(result[0])

    def step(self, action: Any) -> Step:
        """Take a step."""
        try:
            result: Any = self.env.step(action)
        except Exception as error:
            raise self._raised("step", error) from error
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
            return Step(vector, reward, cost, terminated, truncated, info, steps)
        return self._step(result)

    def _step(self, result: Any) -> Step:
        """Return a step in an unusual form, or raise with what is wrong about it."""
        if not (isinstance(result, tuple | list) and len(result) == 5):
            raise EnvError(
                f"step of {self.name} must return five values, got {_kind(result)}: observation, "
                "reward, terminated, truncated, info"
            )
        obs, reward, terminated, truncated, info = result
        if not isinstance(info, dict):
            raise EnvError(f"info of {self.name} must be a dict, got {_kind(info)}", "info")
        vector = self._vector(obs)
        value = self._number("reward", reward)
        if "cost" not in info:
            raise EnvError(
                f"{self.name} left 'cost' out of info in this step: if that means no cost, say so, "
                "adapt(env, cost=lambda obs, action, info: info.get('cost', 0.0))",
                "cost",
            )
        cost = self._number("cost", info["cost"])
        if cost < 0:
            raise EnvError(
                f"the cost of {self.name} must be >= 0, got {cost:g}: it cannot be earned back; "
                "put gains into the reward, or compute another cost, adapt(env, cost=...)",
                "cost",
            )
        ends = [self._end(*one) for one in (("terminated", terminated), ("truncated", truncated))]
        steps = 1
        if self.counts:
            steps = int(self._number("info['steps']", info.get("steps", 1)))
        elif "steps" in info:  # means something else in an environment that holds no actions
            info = {name: x for name, x in info.items() if name != "steps"}
        return Step(vector, value, cost, ends[0], ends[1], info, steps)

    def _vector(self, obs: Any) -> np.ndarray:
        try:
            array = np.asarray(obs)
        except Exception:
            array = np.array(None)
        if array.dtype.kind not in "fiub" or array.shape != self.shape:
            got = _kind(obs) if array.dtype.kind not in "fiub" else f"shape {array.shape}"
            raise EnvError(
                f"the observation of {self.name} must be numbers of shape {self.shape}, as its "
                f"observation_space says, got {got}",
                "observation",
            )
        with np.errstate(over="ignore"):
            vector = array.astype(np.float32)
        # the sum of the squares, as in `step`
        if not vector.astype(np.float64).dot(vector) < _LARGEST_SQUARE:
            raise self._unusable("observation", _worst(array))
        return vector

    def _number(self, quantity: str, value: Any) -> float:
        array = np.asarray(value) if not isinstance(value, str | bytes) else np.array(None)
        if array.dtype.kind not in "fiub" or array.size != 1:
            raise EnvError(
                f"the {quantity} of {self.name} must be one number, got {_kind(value)}", quantity
            )
        number = float(array.item())
        if not abs(number) < LARGEST:
            raise self._unusable(quantity, number)
        return number

    def _end(self, name: str, value: Any) -> bool:
        if isinstance(value, bool | np.bool_) or (
            np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iub" and value in (0, 1)
        ):
            return bool(value)
        raise EnvError(f"{name} of {self.name} must be True or False, got {_kind(value)}", name)

    def _unusable(self, quantity: str, value: float) -> EnvError:
        return EnvError(
            f"the {quantity} of {self.name} must be finite and within {LARGEST:g}, got {value:g}: "
            "clip or scale it in the environment",
            quantity,
            finite=False,
        )

    def _raised(self, what: str, error: Exception) -> EnvError:
        text = " ".join(str(error).split())[:400]
        return EnvError(f"{what} of {self.name} raised {type(error).__name__}: {text}")


def reports_steps(env: gymnasium.Env) -> bool:
    """Return whether `info["steps"]` is the number of steps an action was held for."""
    from safecritic.tasks.repeat import RepeatAction, holds_actions

    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, RepeatAction):
            return True
        layer = layer.env
    return holds_actions(layer)


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "None" if value is None else type(value).__name__


def _worst(array: np.ndarray) -> float:
    """Return a number that is not finite, or else the largest."""
    flat = array.astype(np.float64).ravel()
    odd = flat[~np.isfinite(flat)]
    return float(odd[0] if odd.size else flat[np.argmax(np.abs(flat))])


def check_held_cost(name: str, info: Any) -> None:
    """Raise unless a step in the middle of a held action reports a cost, as every step must."""
    cost = info.get("cost") if isinstance(info, dict) else None
    try:
        usable = not isinstance(cost, str) and 0.0 <= float(cost) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError):
        usable = False
    if not usable:
        got = _kind(cost) if not isinstance(cost, float | int) else f"{cost:g}"
        raise ValueError(f"the cost of {name} must be finite and >= 0 in every step, got {got}")
