"""The tasks by name: what they are, how they are made, and how Gymnasium finds them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

import gymnasium

NAMESPACE = "safecritic"


@dataclass(frozen=True)
class Task:
    """One row of the table of tasks."""

    name: str
    summary: str
    cost: str
    cost_limit: float  # the paper's budget, undiscounted cost per episode
    entry_point: str
    settings: dict[str, Any] = field(default_factory=dict)
    has_goal: bool = True  # HalfCheetah has none, so success means nothing there

    @property
    def id(self) -> str:
        return f"{NAMESPACE}/{self.name}-v0"


def _car(name: str, summary: str, cost: str, cost_limit: float) -> Task:
    return Task(name, summary, cost, cost_limit, "safecritic.tasks.car.env:CarTask", {"task": name})


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


def get(name: str) -> Task:
    """The task of this name or Gymnasium id; an unknown one is an error that names the nearest."""
    plain = name.removeprefix(f"{NAMESPACE}/").removesuffix("-v0")
    for known in TASKS:
        if plain.lower() == known.lower():
            return TASKS[known]
    near = difflib.get_close_matches(plain.lower(), [k.lower() for k in TASKS], n=2, cutoff=0.5)
    names = [k for k in TASKS if k.lower() in near] or list(TASKS)
    question = "did you mean" if near else "the tasks are"
    raise ValueError(f"unknown task {name!r}; {question} {', '.join(names)}?")


def make(name: str, **settings: Any) -> gymnasium.Env:
    """A task by its name, bare of Gymnasium's checking wrappers (the task checks its own input).

    >>> env = make("CarGoal1", variant="original", render_mode="rgb_array")
    """
    task = get(name)
    spec = gymnasium.spec(task.id)
    constructor: Any = gymnasium.envs.registration.load_env_creator(task.entry_point)
    env = constructor(**(task.settings | settings))
    env.spec = spec
    return env


def register() -> None:
    """Make the tasks known to `gymnasium.make` and `gymnasium.make_vec`."""
    for task in TASKS.values():
        if task.id not in gymnasium.registry:
            # the tasks count their own steps and check their own order of calls
            gymnasium.register(
                id=task.id,
                entry_point=task.entry_point,
                kwargs=dict(task.settings),
                order_enforce=False,
            )
