"""Any Gymnasium environment with a cost, in the form that the methods of this package need.

    env = adapt("SafetyPointGoal1Gymnasium-v0")               # cost in info["cost"]
    env = adapt(safety_gymnasium.make("SafetyPointGoal1-v0")) # six values from step
    env = adapt("Pendulum-v1", cost=lambda obs, action, info: float(abs(obs[2]) > 4.0))

    obs, info = env.reset(seed=0)                             # a float vector
    obs, reward, terminated, truncated, info = env.step(np.zeros(env.action_space.shape))
    info["cost"], info["success"]                             # float >= 0, bool

An adapted environment returns five values from `step`, observes a vector of floats and takes
actions in [-1, 1]. One that does so already, as this package's tasks do, is returned as it is.
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, flatten, flatten_space
from gymnasium.utils import RecordConstructorArgs

from safecritic.tasks import registry

Cost = Callable[[Any, np.ndarray, dict[str, Any]], float]

SUCCESS_KEYS = ("success", "is_success", "goal_met")
OWN_COST = "adapt(env, cost=lambda obs, action, info: ...)"  # advice in errors


def adapt(
    env: gymnasium.Env | str, *, cost_key: str = "cost", cost: Cost | None = None
) -> gymnasium.Env:
    """Return the environment with its cost in `info["cost"]`, ready for training.

    It is probed with one reset and one step in the middle of the action box, so that anything
    missing is an error now and not during training. Reset it before use.

    Args:
        env: an environment, or the id of a registered one.
        cost_key: the key of the cost in `info`.
        cost: a function of (observation, action, info) after a step, all three in the
            environment's own form, for an environment that reports no cost or the wrong one.

    Raises:
        TypeError: not an environment, actions that are not continuous, an observation that
            cannot become a vector, or a step that is neither Gymnasium's nor Safety Gymnasium's.
        ValueError: unbounded actions, no cost, or a cost that is negative or not finite.
    """
    if isinstance(env, str):
        env = gymnasium.make(env)
    if not isinstance(env, gymnasium.Env):
        hint = (
            ": adapt each environment, then vectorise"
            if isinstance(env, gymnasium.vector.VectorEnv)
            else ": pass an environment or the id of a registered one"
        )
        raise TypeError(f"env must be a gymnasium.Env, got {type(env).__name__}{hint}")
    _check_actions(env.action_space)
    observations = _vector_space(env.observation_space)

    result, action = _probe(env)
    if len(result) == 6:
        env = FiveValues(env)
        result = five_values(result, _name(env))
    obs, _, _, _, info = result
    if cost is None and cost_key not in info:
        raise ValueError(
            f"{_name(env)} reports no cost: expected a sixth value from step or "
            f"info[{cost_key!r}], info has {sorted(info) or 'no keys'}; name the right key, "
            f"adapt(env, cost_key=...), or compute the cost, {OWN_COST}"
        )
    check_cost(info[cost_key] if cost is None else cost(obs, action, info), _name(env))
    if (
        cost is None
        and cost_key == "cost"
        and type(info["cost"]) is float
        and type(info.get("success")) is bool
        and env.observation_space == observations
        and _is_unit_box(env.action_space)
    ):
        return env
    return Adapted(env, cost_key, cost)


def make_env(env: str | gymnasium.Env) -> tuple[Any, str]:
    """Return the environment as the methods want it, and its name.

    Args:
        env: the name of a task, the id of any registered environment (`module:id` imports the
            module first), or an environment.
    """
    if not isinstance(env, str):
        name = _name(env)
        task = registry.find(name)
        return adapt(env), task.name if task else name
    task = registry.find(env)
    if task is None and (":" in env or env in gymnasium.registry):
        made, name = gymnasium.make(env), env.rpartition(":")[2]
        task = registry.find(name)  # the module may have registered it
        return adapt(made), task.name if task else name
    task = registry.get(env)
    return adapt(registry.make(task.name)), task.name


def is_ours(name: str) -> bool:
    """Return whether this is the name or id of a task of the table."""
    return registry.find(name) is not None


class Adapted(gymnasium.Wrapper, RecordConstructorArgs):
    """An environment whose observations, actions or cost `adapt` had to convert."""

    def __init__(self, env: gymnasium.Env, cost_key: str = "cost", cost: Cost | None = None):
        RecordConstructorArgs.__init__(self, cost_key=cost_key, cost=cost)
        gymnasium.Wrapper.__init__(self, env)
        actions: Any = env.action_space
        observations = _vector_space(env.observation_space)
        self._shape = actions.shape
        self._dtype = actions.dtype
        self._low = actions.low.astype(np.float64).ravel()
        self._high = actions.high.astype(np.float64).ravel()
        self._same_observation = env.observation_space == observations
        self._cost_key = cost_key
        self._cost = cost
        self.observation_space = observations
        self.action_space = Box(-1.0, 1.0, self._low.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the observation is a vector of floats."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._vector(obs), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Step with an action in [-1, 1]; `info` gets `cost` and `success`."""
        own = self.own_action(action)
        obs, reward, terminated, truncated, info = self.env.step(own)
        if self._cost is not None:
            value = self._cost(obs, own, info)
        elif self._cost_key in info:
            value = info[self._cost_key]
        else:
            raise ValueError(
                f"{_name(self.env)} left {self._cost_key!r} out of info in this step: if that "
                f"means no cost, say so with adapt(env, cost=lambda obs, action, info: "
                f"info.get({self._cost_key!r}, 0.0))"
            )
        info = {
            **info,
            "cost": check_cost(value, _name(self.env)),
            "success": _success(info),
        }
        return self._vector(obs), float(reward), bool(terminated), bool(truncated), info

    def own_action(self, action: Any) -> np.ndarray:
        """Return an action in [-1, 1] in the environment's own bounds, shape and type."""
        action = np.asarray(action, dtype=np.float64)
        if action.shape != self._low.shape or not np.isfinite(action).all():
            raise ValueError(
                f"action must be {self._low.size} finite numbers, got {action.tolist()}: "
                "pass one vector per step, and check the policy's output if it is not finite"
            )
        own = scale_action(action, self._low, self._high)
        return own.reshape(self._shape).astype(self._dtype)

    def _vector(self, obs: Any) -> np.ndarray:
        if self._same_observation:
            return obs
        return np.asarray(
            flatten(self.env.observation_space, obs), dtype=self.observation_space.dtype
        )


class FiveValues(gymnasium.Wrapper, RecordConstructorArgs):
    """Safety Gymnasium's six values as Gymnasium's five, the cost in `info["cost"]`.

    `info["success"]` is Safety Gymnasium's `goal_met`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step and move the cost into `info`."""
        return five_values(self.env.step(action), _name(self.env))


def five_values(six: Any, name: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Return what a step returned, with the cost moved into `info`."""
    obs, reward, cost, terminated, truncated, info = six
    info = {**info, "cost": check_cost(cost, name), "success": _success(info)}
    return obs, reward, terminated, truncated, info


class SixValues(gymnasium.Wrapper, RecordConstructorArgs):
    """Gymnasium's five values as Safety Gymnasium's six: the cost comes third.

    For code written for Safety Gymnasium:

        obs, reward, cost, terminated, truncated, info = SixValues(env).step(action)
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> Any:
        """Step and return the cost as the third value."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise ValueError(
                f"{_name(self.env)} has no 'cost' in info, which has {sorted(info) or 'no keys'}: "
                "adapt it first, SixValues(adapt(env, ...))"
            )
        return obs, reward, float(info["cost"]), terminated, truncated, info


def scale_action(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return an action in [-1, 1] scaled to the bounds; beyond them it is clipped."""
    share = (np.clip(action, -1.0, 1.0) + 1.0) / 2.0
    # in this form -1 and 1 give the bounds exactly, without rounding past them
    return (1.0 - share) * low + share * high


def check_cost(value: Any, name: str) -> float:
    """Return the cost as a float; it must be finite and not negative."""
    try:
        cost = float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the cost of {name} must be one number, got {value!r}: compute it, {OWN_COST}"
        ) from error
    if not math.isfinite(cost) or cost < 0:
        raise ValueError(
            f"the cost of {name} must be finite and >= 0, got {cost}: compute another, {OWN_COST}"
        )
    return cost


def _success(info: dict[str, Any]) -> bool:
    for key in SUCCESS_KEYS:
        if key in info:
            return bool(info[key])
    return False


def _check_actions(space: gymnasium.Space) -> None:
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise TypeError(
            f"actions must be continuous, a Box of floats, got {space}: the methods here learn no "
            "discrete actions; use a version of the task with continuous ones"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"actions must have finite bounds, got {space}: they are rescaled from [-1, 1]; bound "
            "them first, gymnasium.wrappers.TransformAction(env, lambda action: action, "
            f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape}))"
        )


def _vector_space(space: gymnasium.Space) -> Box:
    """Return the space of flattened observations, or `space` itself if it is a float vector's."""
    try:
        flat: Any = flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, Box):
        raise TypeError(
            f"observations must fit in a vector of fixed length, got {space}: make them so first, "
            "gymnasium.wrappers.TransformObservation(env, function, gymnasium.spaces.Box(...))"
        )
    if flat.dtype in (np.float32, np.float64):
        return space if isinstance(space, Box) and len(space.shape) == 1 else flat
    return Box(flat.low.astype(np.float32), flat.high.astype(np.float32), dtype=np.float32)


def _is_unit_box(space: Any) -> bool:
    return len(space.shape) == 1 and bool((space.low == -1).all() and (space.high == 1).all())


def _probe(env: gymnasium.Env) -> tuple[Any, np.ndarray]:
    """Reset and step once; return what step returned, and the action."""
    space: Any = env.action_space
    start: Any = env.reset()
    if not (isinstance(start, tuple) and len(start) == 2 and isinstance(start[1], dict)):
        raise TypeError(
            f"reset of {_name(env)} must return (observation, info) as in Gymnasium, "
            f"got {type(start).__name__}: if it follows old Gym, return (observation, {{}})"
        )
    action = ((space.low.astype(np.float64) + space.high) / 2).astype(space.dtype)
    result: Any = env.step(action)
    if not (isinstance(result, tuple) and len(result) in (5, 6) and isinstance(result[-1], dict)):
        count = len(result) if isinstance(result, tuple) else type(result).__name__
        raise TypeError(
            f"step of {_name(env)} must return five values (Gymnasium) or six with the cost third "
            f"(Safety Gymnasium), the last one a dict, got {count}: if it follows old Gym, split "
            "done into terminated and truncated"
        )
    return result, action


def _name(env: gymnasium.Env) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
