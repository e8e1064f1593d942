"""A decision for several steps: the action is held, reward and cost are summed.

The tasks of this package hold an action themselves (`action_repeat`); any other environment is
wrapped in `RepeatAction`. Both report the steps they took in `info["steps"]`.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from safecritic.tasks.checks import check_cost, name_of, reports_steps


def join_infos(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the `info` of some steps and of the one after them as that of all of them.

    Costs, rewards and their parts are summed, `success` holds if it held once, `hazard_distance` is
    the least; of everything else the last value counts.
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

    reports_steps = True

    def __init__(self, env: gymnasium.Env, times: int) -> None:
        if times < 1:
            raise ValueError(f"action_repeat must be >= 1, got {times} (--action-repeat)")
        RecordConstructorArgs.__init__(self, times=times)
        gymnasium.Wrapper.__init__(self, env)
        self.times = times
        self._counts, self._name = reports_steps(env), name_of(env)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, steps = 0.0, 0
        joined: dict[str, Any] = {}
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            check_cost(info.get("cost"), self._name)
            total += float(reward)
            steps += int(info.get("steps", 1)) if self._counts else 1
            joined = join_infos(joined, info)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, joined | {"steps": steps}


def repeat_action(env: gymnasium.Env, times: int, made_here: bool) -> gymnasium.Env:
    """Return an adapted environment that holds each action for `times` steps.

    A task of ours that was `made_here` holds actions itself; a user's own is wrapped instead.
    """
    task: Any = env.unwrapped
    if getattr(task, "holds_actions", False):
        if task.action_repeat == times:
            return env
        if task.action_repeat != 1:
            raise ValueError(
                f"this environment holds an action for {task.action_repeat} steps, the method for "
                f"{times}: make it without action_repeat, or pass the same to both "
                "(--action-repeat)"
            )
        if made_here and not isinstance(env, gymnasium.Wrapper):
            task.action_repeat = times
            return task
    return RepeatAction(env, times) if times > 1 else env


@contextmanager
def single_steps(env: gymnasium.Env) -> Iterator[tuple[gymnasium.Env, int]]:
    """Lend an environment that takes one step at a time, and say how long it held its actions."""
    times = 1
    task: Any = env
    while isinstance(task, RepeatAction):
        times *= task.times
        task = task.env
    if not getattr(task, "holds_actions", False):
        yield task, times
        return
    held, task.action_repeat = task.action_repeat, 1
    try:
        yield task, times * held
    finally:
        task.action_repeat = held
