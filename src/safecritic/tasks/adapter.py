"""Any Gymnasium environment with a cost, in the form that the methods of this package need.

    env = adapt("SafetyPointGoal1Gymnasium-v0")               # cost in info["cost"]
    env = adapt(safety_gymnasium.make("SafetyPointGoal1-v0")) # six values from step
    env = adapt("Pendulum-v1", cost=lambda obs, action, info: float(abs(obs[2]) > 4.0))

An adapted environment returns five values from `step`, observes a vector of floats, takes actions
in [-1, 1] and reports `info["cost"]`, a float >= 0, and, if it is known, `info["success"]`. One
that does so already is returned as it is. What cannot be read from it is declared, not guessed.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np
from gymnasium.spaces import Box, Discrete, flatten, flatten_space
from gymnasium.utils import RecordConstructorArgs

from safecritic.tasks import registry
from safecritic.tasks.checks import OWN_COST, check_cost, layers, missing_cost, name_of
from safecritic.tasks.observations import (
    TRANSFORM,
    Proximity,
    UnfitEnvError,
    refuse_images,
    resolve_proximity,
)
from safecritic.tasks.repeat import repeat_action

Cost = Callable[[Any, np.ndarray, dict[str, Any]], float]

SUCCESS_KEYS = ("success", "is_success", "goal_met")
# What a user may declare about an environment and a file can hold: keywords of `adapt`
DECLARATIONS = ("cost_key", "missing_cost", "no_cost", "success_key", "proximity")
COST_SOURCES = ("cost_key", "cost", "no_cost")


class NoCostError(ValueError):
    """An environment that reports no cost under the key given; `keys` are those of its `info`."""

    def __init__(self, name: str, cost_key: str, info: dict[str, Any]):
        self.keys = sorted(map(str, info))
        super().__init__(
            f"{name} reports no cost: expected a sixth value from step or info[{cost_key!r}], "
            f"info has {self.keys or 'no keys'}; name the right key, adapt(env, cost_key=...) "
            "(--cost-key); if a step without the key costs nothing, say so, adapt(env, "
            f'missing_cost="zero") (--missing-cost zero); or compute the cost, {OWN_COST}; if '
            "there is none, DDPG can learn without, adapt(env, no_cost=True) (--no-cost)"
        )


def adapt(
    env: gymnasium.Env | str,
    *,
    cost_key: str | None = None,
    missing_cost: str | None = None,
    cost: Cost | None = None,
    no_cost: bool = False,
    success_key: str | None = None,
    proximity: Proximity | None = None,
    verbose: bool = False,
) -> gymnasium.Env:
    """Return the environment with its cost in `info["cost"]`, ready for training.

    It is probed with one reset and one step, so that anything missing is an error now and not
    during training. Reset it before use.

    Args:
        env: an environment, or the id of a registered one.
        cost_key: the key of the cost in `info`; by default `cost`.
        missing_cost: "zero": a step whose `info` lacks the key costs nothing.
        cost: a function of (observation, action, info) after a step, all three in the
            environment's own form, for an environment that reports no cost or the wrong one.
        no_cost: the environment has no cost: it is 0 at every step. Only DDPG accepts this.
        success_key: the key of success in `info`; a step without it is no success. By default
            `success`, `is_success` or `goal_met`; an episode without any has unknown success.
        proximity: observations in [0, 1] that are 1 if something is near, such as lidars: places,
            a slice, or names of keys of a Dict space ("10-25,30", [3, 4], ["lidar"]). By default
            what the environment's own attribute `proximity` declares, if it has one.
        verbose: print what was understood, from up to 1,000 random steps; see `describe`.

    Examples:
        >>> env = adapt("Pendulum-v1", cost=lambda obs, action, info: float(abs(obs[2]) > 4.0))
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        >>> info["cost"]
        0.0
    """
    if missing_cost not in (None, "zero"):
        raise ValueError(f"missing_cost must be 'zero' or None, got {missing_cost!r}")
    given: dict[str, Any] = {"cost_key": cost_key, "cost": cost, "no_cost": no_cost or None}
    given |= {"missing_cost": missing_cost, "success_key": success_key, "proximity": proximity}
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
    if "missing_cost" in given and sources not in ([], ["cost_key"]):
        raise ValueError(f"missing_cost contradicts {sources[0]}: give one of the two")
    if isinstance(env, str):
        env = gymnasium.make(env)
    if not isinstance(env, gymnasium.Env):
        several = isinstance(env, gymnasium.vector.VectorEnv)
        hint = "the methods learn from one environment at a time; pass one of those inside"
        if not several:
            hint = "pass an environment or the id of a registered one"
            if any(kind.__name__ == "VecEnv" for kind in type(env).__mro__):
                hint = "pass one environment without Stable-Baselines3's VecEnv, as in vec.envs[0]"
        raise UnfitEnvError(f"env must be a gymnasium.Env, got {type(env).__name__}: {hint}")
    if isinstance(env, Adapted):
        return _adapted(env.env, _override(env.given, given)) if given else env
    _check_actions(env.action_space)
    observations = _vector_space(env.observation_space)
    if "proximity" not in given:
        proximity_of(env)  # raises if what it declares is not there

    try:
        result, action = _probe(env)
    except (ValueError, AssertionError, gymnasium.error.Error):
        # Gymnasium's own wrappers unpack five values
        converted = _five_beneath(env)
        if converted is None:
            raise
        env = converted
        result, action = _probe(env)
    if len(result) == 6:
        env = FiveValues(env)
        result = env.join(result)
    obs, _, _, _, info = result
    key, name = given.get("cost_key", "cost"), name_of(env)
    if "cost" in given:
        check_cost(given["cost"](obs, action, info), name)
    elif "no_cost" not in given:
        if key not in info and "missing_cost" not in given:
            raise NoCostError(name, key, info)
        check_cost(info.get(key, 0.0), name)
    space: Any = env.action_space
    fits = (
        not (given.keys() - {"cost_key"})
        and key == "cost"
        and (type(info.get("cost")), type(info.get("success"))) == (float, bool)
        and env.observation_space == observations
        and len(space.shape) == 1
        and (space.low == -1).all()
        and (space.high == 1).all()
    )
    return env if fits else Adapted(env, **given)


def _five_beneath(env: gymnasium.Env) -> gymnasium.Env | None:
    """Return what `gymnasium.make` wrapped round six values, as five values; else None."""
    wrappers = gymnasium.wrappers
    own = (wrappers.PassiveEnvChecker, wrappers.OrderEnforcing, wrappers.TimeLimit)
    *around, bare = layers(env)
    if not around or not all(isinstance(layer, own) for layer in around):
        return None
    if len(_probe(bare)[0]) != 6:
        return None
    made: gymnasium.Env = wrappers.OrderEnforcing(FiveValues(bare))
    limit = env.spec.max_episode_steps if env.spec else None
    return made if limit is None else wrappers.TimeLimit(made, limit)


def make_env(env: str | gymnasium.Env, action_repeat: int = 1, **declared: Any) -> tuple[Any, str]:
    """Return the environment as the methods want it, and its name.

    `env` is a task's name, a registered id (`module:id` imports the module) or an environment.
    """
    own: Any = env
    if not isinstance(env, str):
        name = name_of(env)
    elif registry.find(env) is None and (":" in env or env in gymnasium.registry):
        name, own = env.rpartition(":")[2], gymnasium.make(env)
    else:
        name = registry.get(env).name  # an error if there is none
        own = registry.make(name)
    task = registry.find(name)  # a module may have registered it
    adapted = repeat_action(adapt(own, **declared), action_repeat, made_here=isinstance(env, str))
    return adapted, task.name if task else name


def make_again(
    environment: dict[str, Any], env: str | gymnasium.Env | None = None, action_repeat: int = 1
) -> tuple[Any, str]:
    """Return an environment like the one of config.json that an agent was trained on, and its name.

    `env` takes the place of its id; what was declared applies, unless it is adapted already.
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


def declared_of(env: gymnasium.Env) -> dict[str, Any]:
    """Return what `adapt` was told about an environment, as JSON; a cost function by its name."""
    declared: dict[str, Any] = {}
    for layer in layers(env):
        if isinstance(layer, Adapted):
            inner = dict(layer.given)
            if "proximity" in inner:
                inner["proximity"] = list(layer.proximity)
            if "cost" in inner:
                inner["cost"] = getattr(inner["cost"], "__name__", "function")
            declared = _override(inner, declared)
    return declared


def _override(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return both declarations as one; a later source of the cost replaces any earlier one."""
    if not later.keys().isdisjoint(COST_SOURCES):
        earlier = {key: x for key, x in earlier.items() if key not in COST_SOURCES}
    return earlier | later


def proximity_of(env: gymnasium.Env) -> tuple[int, ...]:
    """Return the places that the environment, or `adapt`, declares as a proximity input."""
    for layer in layers(env):
        if layer.observation_space != env.observation_space:
            return ()  # a wrapper that changes the observation drops the declaration
        given = getattr(layer, "proximity", None)
        if given is not None:
            return resolve_proximity(given, layer.observation_space)
    return ()


def is_ours(name: str) -> bool:
    """Return whether this is the name or id of a task of the table."""
    return registry.find(name) is not None


class Adapted(gymnasium.Wrapper, RecordConstructorArgs):
    """An environment that `adapt` had to convert; `given` are its declarations."""

    def __init__(self, env: gymnasium.Env, **given: Any):
        RecordConstructorArgs.__init__(self, **given)
        gymnasium.Wrapper.__init__(self, env)
        self.given = given
        actions: Any = env.action_space
        observations = _vector_space(env.observation_space)
        self._shape, self._dtype = actions.shape, actions.dtype
        self._low, self._high = (
            np.ravel(x).astype(np.float64) for x in (actions.low, actions.high)
        )
        self._same_observation = env.observation_space == observations
        self._cost_key: str = given.get("cost_key", "cost")
        self._cost: Cost | None = (lambda *_: 0.0) if "no_cost" in given else given.get("cost")
        self.proximity = proximity_of(env)
        if "proximity" in given:
            self.proximity = resolve_proximity(given["proximity"], env.observation_space)
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
        elif self._cost_key in info or "missing_cost" in self.given:
            value = info.get(self._cost_key, 0.0)
        else:
            raise ValueError(missing_cost(name_of(self.env), self._cost_key))
        info = _completed(info, value, self.given.get("success_key"), name_of(self.env))
        return self._vector(obs), float(reward), bool(terminated), bool(truncated), info

    def own_action(self, action: Any) -> np.ndarray:
        """Return an action in [-1, 1] in the environment's own bounds, shape and type."""
        action = np.asarray(action, dtype=np.float64)
        if action.shape != self._low.shape or not np.isfinite(action).all():
            raise ValueError(
                f"action must be {self._low.size} finite numbers, got {action.tolist()}: "
                "pass one vector per step, and check the policy's output if it is not finite"
            )
        share = (np.clip(action, -1.0, 1.0) + 1.0) / 2.0
        # in this form -1 and 1 give the bounds exactly, without rounding past them
        own = (1.0 - share) * self._low + share * self._high
        return own.reshape(self._shape).astype(self._dtype)

    def _vector(self, obs: Any) -> np.ndarray:
        if self._same_observation:
            return obs
        return np.asarray(flatten(self.env.observation_space, obs), self.observation_space.dtype)


class FiveValues(gymnasium.Wrapper, RecordConstructorArgs):
    """Safety Gymnasium's six values as five: cost and success (`goal_met`) in `info`.

    Examples:
        >>> env = FiveValues(SixValues(safecritic.make("CarGoal1")))
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        goal = hasattr(type(getattr(env.unwrapped, "task", None)), "goal_achieved")
        self.success_key = "goal_met" if goal else None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.join(self.env.step(action))

    def join(self, six: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return six values as five, with the cost in `info`."""
        obs, reward, cost, terminated, truncated, info = six
        info = _completed(info, cost, self.success_key, name_of(self.env))
        return obs, reward, terminated, truncated, info


class SixValues(gymnasium.Wrapper, RecordConstructorArgs):
    """Gymnasium's five values as Safety Gymnasium's six: the cost comes third.

    Examples:
        >>> env = SixValues(safecritic.make("CarGoal1"))
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise ValueError(
                f"{name_of(self.env)} has no 'cost' in info, which has "
                f"{sorted(info) or 'no keys'}: adapt it first, SixValues(adapt(env, ...))"
            )
        return obs, reward, float(info["cost"]), terminated, truncated, info


def _completed(
    info: dict[str, Any], cost: Any, success_key: str | None, name: str
) -> dict[str, Any]:
    """Return `info` with the cost, checked, and with what it says of success, if anything."""
    info = {**info, "cost": check_cost(cost, name)}
    key = success_key or next((key for key in SUCCESS_KEYS if key in info), None)
    return info if key is None else {**info, "success": bool(info.get(key, False))}


def _check_actions(space: gymnasium.Space) -> None:
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnfitEnvError(
            f"actions must be continuous, a Box of floats, got {space}: the methods here learn no "
            "discrete actions; use a version of the task with continuous ones, or give "
            f"{_continuous_form(space)} and choose by it in a gymnasium.ActionWrapper"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"actions must have finite bounds, got {space}: they are rescaled from [-1, 1]; bound "
            "them first, gymnasium.wrappers.TransformAction(env, lambda action: action, "
            f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape}))"
        )


def _continuous_form(space: gymnasium.Space) -> str:
    """Return a space of continuous actions from which a wrapper can choose a discrete one."""
    choices = [space.n] if isinstance(space, Discrete) else getattr(space, "nvec", [])
    size = int(np.sum(choices)) if len(choices) else "N"
    how = "the largest number wins" if isinstance(space, Discrete) else "the largest of each wins"
    return f"a preference for each choice, Box(-1, 1, ({size},)), of which {how},"


def _vector_space(space: gymnasium.Space) -> Box:
    """Return the space of flattened observations, or `space` itself if it is a float vector's."""
    refuse_images(space)
    try:
        flat: Any = flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, Box):
        raise UnfitEnvError(
            f"observations must fit in a vector of fixed length, got {space}: make them so first, "
            f"{TRANSFORM}"
        )
    if not flat.shape[0]:
        raise UnfitEnvError(f"observations must have one number or more, got {space}")
    if flat.dtype in (np.float32, np.float64):
        return space if isinstance(space, Box) and len(space.shape) == 1 else flat
    return Box(flat.low.astype(np.float32), flat.high.astype(np.float32), dtype=np.float32)


def _probe(env: gymnasium.Env) -> tuple[Any, np.ndarray]:
    """Reset and step once; return what step returned, and the action."""
    space: Any = env.action_space
    start: Any = env.reset()
    if not (isinstance(start, tuple) and len(start) == 2 and isinstance(start[1], dict)):
        raise UnfitEnvError(
            f"reset of {name_of(env)} must return (observation, info) as in Gymnasium, "
            f"got {type(start).__name__}: if it follows old Gym, return (observation, {{}})"
        )
    action = ((space.low.astype(np.float64) + space.high) / 2).astype(space.dtype)
    result: Any = env.step(action)
    if not (isinstance(result, tuple) and len(result) in (5, 6) and isinstance(result[-1], dict)):
        count = len(result) if isinstance(result, tuple) else type(result).__name__
        raise UnfitEnvError(
            f"step of {name_of(env)} must return five values (Gymnasium) or six with the cost "
            f"third (Safety Gymnasium), the last one a dict, got {count}: if it follows old Gym, "
            "split done into terminated and truncated"
        )
    return result, action
