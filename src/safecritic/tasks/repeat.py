"""A decision for several steps: the action is held, reward and cost are summed.

The tasks of this package hold an action themselves (`action_repeat`) and compute the observation at
decisions only. Any other environment is wrapped in `RepeatAction`. Both report the steps they took
in `info["steps"]`, fewer than asked for where an episode ended in between.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from safecritic.tasks.checks import check_held_cost, reports_steps


def join_infos(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the `info` of some steps and of the one after them as that of all of them.

    Cost, reward and their parts (`cost_hazards`) are summed, `success` holds if it held once, and
    `hazard_distance` is the least; of everything else the last value counts.
    """
    joined = before | now
    for name, value in before.items():
        # `float` first: the other test is slow
        if _is_summed(name) and name in now and isinstance(value, (float, Real)):
            joined[name] = value + now[name]
    if "success" in before:
        joined["success"] = bool(before["success"] or joined["success"])
    if "hazard_distance" in before:
        joined["hazard_distance"] = min(before["hazard_distance"], joined["hazard_distance"])
    return joined


@functools.cache
def _is_summed(name: str) -> bool:
    return name == "cost" or name.startswith(("cost_", "reward_"))


class RepeatAction(gymnasium.Wrapper, RecordConstructorArgs):
    """An adapted environment whose every action is held for several steps."""

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        if times < 1:
            raise ValueError(f"action_repeat must be >= 1, got {times} (--action-repeat)")
        RecordConstructorArgs.__init__(self, times=times)
        gymnasium.Wrapper.__init__(self, env)
        self.times = times
        self._counts = reports_steps(env)
        self._name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step with the same action until all steps are taken or the episode ends."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        check_held_cost(self._name, info)
        reward, steps = float(reward), self._steps(info)
        for _ in range(self.times - 1):
            if terminated or truncated:
                break
            obs, more, terminated, truncated, now = self.env.step(action)
            check_held_cost(self._name, now)
            reward += float(more)
            steps += self._steps(now)
            info = join_infos(info, now)
        return obs, reward, terminated, truncated, info | {"steps": steps}

    def _steps(self, info: dict[str, Any]) -> int:
        return int(info.get("steps", 1)) if self._counts else 1


def repeat_action(env: gymnasium.Env, times: int, made_here: bool) -> gymnasium.Env:
    """Return an adapted environment that holds each action for `times` steps.

    Args:
        env: the environment.
        times: steps per decision.
        made_here: whether the caller made it, so that a task of ours may be told to hold actions
            itself. A user's own is wrapped instead and stays as it is.
    """
    from safecritic.tasks.common import MujocoTask  # needs MuJoCo, which others do without

    task: Any = env.unwrapped
    if isinstance(task, MujocoTask):
        if task.action_repeat == times:
            return env
        if task.action_repeat != 1:
            raise ValueError(
                f"this environment holds an action for {task.action_repeat} steps, the method for "
                f"{times}: make it without action_repeat, or pass the same to both "
                "(--action-repeat)"
            )
        if made_here and env is env.unwrapped:
            task.action_repeat = times
            return task
    return RepeatAction(env, times) if times > 1 else env


def holds_actions(task: Any) -> bool:
    """Return whether this is a task of ours that holds an action for several steps itself."""
    common = sys.modules.get("safecritic.tasks.common")  # without it there is no such task
    return common is not None and isinstance(task, common.MujocoTask) and task.action_repeat != 1


@contextmanager
def single_steps(env: gymnasium.Env) -> Iterator[tuple[gymnasium.Env, int]]:
    """Lend an environment that takes one step at a time, and say how long it held its actions.

    A wrapper of the user's around a task that holds actions itself stays: it counts decisions.
    """
    times = 1
    while isinstance(env, RepeatAction):
        times *= env.times
        env = env.env
    own = getattr(env, "action_repeat", 1) if env is env.unwrapped else 1
    if own == 1:
        yield env, times
        return
    task: Any = env
    task.action_repeat = 1
    try:
        yield env, times * own
    finally:
        task.action_repeat = own
