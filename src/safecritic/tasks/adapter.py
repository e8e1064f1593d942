"""Any Gymnasium environment with a cost, in the form that the methods of this package need.

    env = adapt("SafetyPointGoal1Gymnasium-v0")               # cost in info["cost"]
    env = adapt(safety_gymnasium.make("SafetyPointGoal1-v0")) # six values from step
    env = adapt("Pendulum-v1", cost=lambda obs, action, info: float(abs(obs[2]) > 4.0))

    obs, info = env.reset(seed=0)                             # a float vector
    obs, reward, terminated, truncated, info = env.step(np.zeros(env.action_space.shape))
    info["cost"]                                              # float >= 0
    info["success"]                                           # bool; absent if not reported

An adapted environment returns five values from `step`, observes a vector of floats and takes
actions in [-1, 1]. One that does so already, as this package's tasks do, is returned as it is.
What cannot be read from an environment is declared, not guessed: which key is the cost, that there
is none, which key is success, and which observations are a closeness (a lidar).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, flatten, flatten_space
from gymnasium.utils import RecordConstructorArgs

from safecritic.tasks import registry
from safecritic.tasks.observations import Closeness, refuse_images, resolve_closeness
from safecritic.tasks.repeat import repeat_action

Cost = Callable[[Any, np.ndarray, dict[str, Any]], float]

SUCCESS_KEYS = ("success", "is_success", "goal_met")
OWN_COST = "adapt(env, cost=lambda obs, action, info: ...)"  # advice in errors
# What a user may declare about an environment and a file can hold: keywords of `adapt`
DECLARATIONS = ("cost_key", "no_cost", "success_key", "closeness")
COST_SOURCES = ("cost_key", "cost", "no_cost")


class NoCostError(ValueError):
    """An environment that reports no cost under the key given; `keys` are those of its `info`."""

    def __init__(self, name: str, cost_key: str, info: dict[str, Any]):
        self.keys = sorted(map(str, info))
        super().__init__(
            f"{name} reports no cost: expected a sixth value from step or info[{cost_key!r}], "
            f"info has {self.keys or 'no keys'}; name the right key, adapt(env, cost_key=...) "
            f"(--cost-key), or compute the cost, {OWN_COST}; if there is none, DDPG can learn "
            "without, adapt(env, no_cost=True) (--no-cost)"
        )


def adapt(
    env: gymnasium.Env | str,
    *,
    cost_key: str | None = None,
    cost: Cost | None = None,
    no_cost: bool = False,
    success_key: str | None = None,
    closeness: Closeness | None = None,
    verbose: bool = False,
) -> gymnasium.Env:
    """Return the environment with its cost in `info["cost"]`, ready for training.

    It is probed with one reset and one step in the middle of the action box, so that anything
    missing is an error now and not during training. Reset it before use.

    Args:
        env: an environment, or the id of a registered one.
        cost_key: the key of the cost in `info`; by default `cost`.
        cost: a function of (observation, action, info) after a step, all three in the
            environment's own form, for an environment that reports no cost or the wrong one.
        no_cost: the environment has no cost: it is 0 at every step. Only DDPG accepts this.
        success_key: the key of success in `info`; a step without it is no success. By default
            `success`, `is_success` or `goal_met`; an episode without any has unknown success.
        closeness: observations in [0, 1] that are 1 if something is near, such as lidars: places,
            a slice, or names of keys of a Dict space ("10-25,30", [3, 4], ["lidar"]). The networks
            see them raised to a power as well. By default what the environment's own attribute
            `closeness` declares, if it has one.
        verbose: print what was understood, from up to 1,000 random steps; see `describe`.

    Raises:
        TypeError: not an environment, actions that are not continuous, an observation that is an
            image or cannot become a vector, or a step that is neither Gymnasium's nor Safety
            Gymnasium's.
        ValueError: unbounded actions, no cost, a cost that is negative or not finite, a closeness
            that does not exist or is not within [0, 1], or declarations that contradict another.
    """
    given = {
        "cost_key": cost_key,
        "cost": cost,
        "no_cost": no_cost or None,
        "success_key": success_key,
        "closeness": closeness,
    }
    adapted = _adapted(env, {name: x for name, x in given.items() if x is not None})
    if verbose:
        from safecritic.tasks.description import describe  # imports this module

        print(describe(adapted))
    return adapted


def _adapted(env: gymnasium.Env | str, given: dict[str, Any]) -> gymnasium.Env:
    """Return the environment adapted with these declarations."""
    sources = [name for name in COST_SOURCES if name in given]
    if len(sources) > 1:
        raise ValueError(f"{sources[0]} contradicts {sources[1]}: give one of the two")
    if isinstance(env, str):
        env = gymnasium.make(env)
    if not isinstance(env, gymnasium.Env):
        hint = (
            ": the methods learn from one environment at a time; pass one of those inside"
            if isinstance(env, gymnasium.vector.VectorEnv)
            else ": pass an environment or the id of a registered one"
        )
        raise TypeError(f"env must be a gymnasium.Env, got {type(env).__name__}{hint}")
    if isinstance(env, Adapted):
        if not given:
            return env
        earlier = {k: x for k, x in env.given.items() if not (sources and k in COST_SOURCES)}
        return _adapted(env.env, earlier | given)
    _check_actions(env.action_space)
    observations = _vector_space(env.observation_space)
    if "closeness" not in given:
        closeness_of(env)  # raises if what it declares is not there

    result, action = _probe(env)
    if len(result) == 6:
        env = FiveValues(env)
        result = five_values(result, _name(env))
    obs, _, _, _, info = result
    cost, key = given.get("cost"), given.get("cost_key", "cost")
    if cost is not None:
        check_cost(cost(obs, action, info), _name(env))
    elif "no_cost" not in given:
        if key not in info:
            raise NoCostError(_name(env), key, info)
        check_cost(info[key], _name(env))
    if (
        not (given.keys() - {"cost_key"})
        and key == "cost"
        and type(info["cost"]) is float
        and type(info.get("success")) is bool
        and env.observation_space == observations
        and _is_unit_box(env.action_space)
    ):
        return env
    return Adapted(env, **given)


def make_env(env: str | gymnasium.Env, action_repeat: int = 1, **declared: Any) -> tuple[Any, str]:
    """Return the environment as the methods want it, and its name.

    Args:
        env: the name of a task, the id of any registered environment (`module:id` imports the
            module first), or an environment.
        action_repeat: steps for which an action is held.
        declared: keywords of `adapt`.
    """
    adapted, name = _make_adapted(env, declared)
    return repeat_action(adapted, action_repeat, made_here=isinstance(env, str)), name


def _make_adapted(env: str | gymnasium.Env, declared: dict[str, Any]) -> tuple[gymnasium.Env, str]:
    if not isinstance(env, str):
        name = _name(env)
        task = registry.find(name)
        return adapt(env, **declared), task.name if task else name
    task = registry.find(env)
    if task is None and (":" in env or env in gymnasium.registry):
        made, name = gymnasium.make(env), env.rpartition(":")[2]
        task = registry.find(name)  # the module may have registered it
        return adapt(made, **declared), task.name if task else name
    task = registry.get(env)
    return adapt(registry.make(task.name), **declared), task.name


def make_again(
    environment: dict[str, Any], env: str | gymnasium.Env | None = None, action_repeat: int = 1
) -> tuple[Any, str]:
    """Return an environment like the one an agent was trained on, and its name.

    Args:
        environment: what config.json has under that name: `id`, and `declared`.
        env: in place of that id. One that is adapted already is taken as it is; to any other,
            what was declared for the training applies.
        action_repeat: steps for which an action is held.
    """
    if isinstance(env, Adapted):
        return make_env(env, action_repeat)
    declared = dict(environment["declared"])
    if declared.pop("cost", None) is not None:
        raise ValueError(
            f"{environment['task']} was adapted with a cost function, which no file holds: pass "
            "the environment with it, env=adapt(env, cost=...)"
        )
    return make_env(environment["id"] if env is None else env, action_repeat, **declared)


def layers(env: gymnasium.Env) -> Iterator[Any]:
    """Yield the environment and what it wraps, from the outside in."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def declared_of(env: gymnasium.Env) -> dict[str, Any]:
    """Return what `adapt` was told about an environment, as JSON; a cost function by its name."""
    declared: dict[str, Any] = {}
    for layer in layers(env):
        if isinstance(layer, Adapted):
            taken = any(name in declared for name in COST_SOURCES)
            inner = {k: x for k, x in layer.given.items() if not (taken and k in COST_SOURCES)}
            if "closeness" in inner:
                inner["closeness"] = list(layer.closeness)
            if "cost" in inner:
                inner["cost"] = getattr(inner["cost"], "__name__", "function")
            declared = inner | declared
    return declared


def closeness_of(env: gymnasium.Env) -> tuple[int, ...]:
    """Return the places that the environment, or `adapt`, declares as a closeness.

    A wrapper between that changes the observation drops the declaration.
    """
    for layer in layers(env):
        if layer.observation_space != env.observation_space:
            return ()
        given = getattr(layer, "closeness", None)
        if given is not None:
            return resolve_closeness(given, layer.observation_space)
    return ()


def is_ours(name: str) -> bool:
    """Return whether this is the name or id of a task of the table."""
    return registry.find(name) is not None


class Adapted(gymnasium.Wrapper, RecordConstructorArgs):
    """An environment whose observations, actions or cost `adapt` had to convert.

    `given` are the declarations of `adapt` (its keywords) that were given.
    """

    def __init__(self, env: gymnasium.Env, **given: Any):
        RecordConstructorArgs.__init__(self, **given)
        gymnasium.Wrapper.__init__(self, env)
        self.given = given
        actions: Any = env.action_space
        observations = _vector_space(env.observation_space)
        self._shape = actions.shape
        self._dtype = actions.dtype
        self._low = actions.low.astype(np.float64).ravel()
        self._high = actions.high.astype(np.float64).ravel()
        self._same_observation = env.observation_space == observations
        self._cost_key: str = given.get("cost_key", "cost")
        self._cost: Cost | None = given.get("cost")
        if "no_cost" in given:
            self._cost = _nothing
        closeness = given.get("closeness")
        self.closeness = (
            closeness_of(env)
            if closeness is None
            else resolve_closeness(closeness, env.observation_space)
        )
        self.observation_space = observations
        self.action_space = Box(-1.0, 1.0, self._low.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the observation is a vector of floats."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._vector(obs), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Step with an action in [-1, 1]; `info` gets `cost` and, where known, `success`."""
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
        cost = check_cost(value, _name(self.env))
        info = {**info, "cost": cost, **_success(info, self.given.get("success_key"))}
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

    `info["success"]` is Safety Gymnasium's `goal_met`, which a task with a goal reports only when
    it is met.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        goal = hasattr(type(getattr(env.unwrapped, "task", None)), "goal_achieved")
        self.success_key = "goal_met" if goal else None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step and move the cost into `info`."""
        return five_values(self.env.step(action), _name(self.env), self.success_key)


def five_values(
    six: Any, name: str, success_key: str | None = None
) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Return what a step returned, with the cost moved into `info`."""
    obs, reward, cost, terminated, truncated, info = six
    info = {**info, "cost": check_cost(cost, name), **_success(info, success_key)}
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


def _nothing(obs: Any, action: Any, info: Any) -> float:
    """Return the cost of an environment without one."""
    return 0.0


def _success(info: dict[str, Any], declared: str | None) -> dict[str, bool]:
    """Return what `info` says of success; nothing if it says nothing."""
    if declared is not None:
        return {"success": bool(info.get(declared, False))}
    key = next((key for key in SUCCESS_KEYS if key in info), None)
    return {} if key is None else {"success": bool(info[key])}


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
    refuse_images(space)
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
