"""The table of tasks: what they are and how they are made.

Everything that lists tasks reads `TASKS`; `register` adds a row from outside the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from safecritic.names import suggest

NAMESPACE = "safecritic"


@dataclass(frozen=True)
class Task:
    """One row of the table of tasks."""

    name: str
    summary: str
    cost: str
    cost_limit: float  # the paper's budget, undiscounted cost per episode
    entry_point: str | Callable[..., gymnasium.Env]  # "module:attribute" or the class itself
    settings: dict[str, Any] = field(default_factory=dict)
    has_goal: bool = True  # without a goal, success means nothing
    action_repeat: int = 1  # steps per decision of the methods; `make` leaves it at 1

    @property
    def id(self) -> str:
        return f"{NAMESPACE}/{self.name}-v0"


def _car(name: str, summary: str, cost: str, cost_limit: float) -> Task:
    entry_point = "safecritic.tasks.car.env:CarTask"
    return Task(name, summary, cost, cost_limit, entry_point, {"task": name}, action_repeat=4)


_PER_CONTACT = "0.2 per {} the car is in or touches, each step"

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _car("CarGoal1", "drive to the goal past 8 hazards and 1 vase",
             _PER_CONTACT.format("hazard or vase"), 1.0),
        _car("CarGoal2", "drive to the goal past 10 hazards and 10 vases",
             _PER_CONTACT.format("hazard or vase"), 5.0),
        _car("CarButton1", "press the right one of 4 buttons past 4 hazards and 4 moving gremlins",
             _PER_CONTACT.format("hazard, gremlin or wrong button"), 5.0),
        _car("CarButton2", "press the right one of 4 buttons past 8 hazards and 6 moving gremlins",
             _PER_CONTACT.format("hazard, gremlin or wrong button"), 5.0),
        Task("FetchReach", "move the hand of a 7-joint arm to a point in space",
             "1 per step with the hand above 0.01 m per step, and 1000 |change of velocity|^2", 5.0,
             "safecritic.tasks.fetch:FetchReach"),
        Task("HalfCheetah", "run forward, but not too fast",
             "1 per step above 3.2096 m/s", 0.1,
             "safecritic.tasks.cheetah:HalfCheetah", has_goal=False),
    )
}  # fmt: skip


def find(name: str) -> Task | None:
    """Return the task of this name or Gymnasium id, in any case; None if there is none."""
    plain = _without_namespace(name).lower()
    return next((task for known, task in TASKS.items() if known.lower() == plain), None)


def _without_namespace(name: str) -> str:
    return name.removeprefix(f"{NAMESPACE}/").removesuffix("-v0")


def get(name: str) -> Task:
    """Return the task of this name or Gymnasium id; an unknown one is an error with the nearest."""
    task = find(name)
    if task is None:
        raise ValueError(f"unknown task {name!r}; {suggest(_without_namespace(name), TASKS)}")
    return task


def make(name: str, **settings: Any) -> gymnasium.Env:
    """Make a task without Gymnasium's checking wrappers (the task checks its own input).

    >>> env = make("CarGoal1", variant="original", render_mode="rgb_array")
    """
    task = get(name)
    constructor: Any = task.entry_point
    if isinstance(constructor, str):
        constructor = gymnasium.envs.registration.load_env_creator(constructor)
    env = constructor(**(task.settings | settings))
    env.spec = gymnasium.spec(task.id)
    return env


def register(task: Task) -> None:
    """Add a task of your own: `make`, `gymnasium.make` and the command line then know it.

    >>> register(Task("Corridor", "walk to the end", "1 per step beside the path", 5.0,
    ...               "corridor:Corridor"))
    """
    if not re.fullmatch(r"\w+", task.name):
        raise ValueError(
            f"the name of a task must be letters, digits and underscores, got {task.name!r}"
        )
    if find(task.name) is not None or task.id in gymnasium.registry:
        raise ValueError(f"there is a task {task.name!r} already: give the new one another name")
    _tell_gymnasium(task, order_enforce=True)
    TASKS[task.name] = task


def register_with_gymnasium() -> None:
    """Make every task of the table known to `gymnasium.make` and `gymnasium.make_vec`."""
    for task in TASKS.values():
        if task.id not in gymnasium.registry:
            # the tasks of this package check their own order of calls
            _tell_gymnasium(task, order_enforce=False)


def _tell_gymnasium(task: Task, order_enforce: bool) -> None:
    gymnasium.register(
        task.id, task.entry_point, kwargs=dict(task.settings), order_enforce=order_enforce
    )
