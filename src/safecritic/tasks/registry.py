"""The table of tasks: what they are and how they are made.

Everything that lists tasks reads `TASKS`; `register` adds a row from outside the package.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from safecritic.core.names import suggest

NAMESPACE = "safecritic"
VERSION = re.compile(r"-v\d+$")


@dataclass(frozen=True)
class Task:
    """One row of the table of tasks.

    Examples:
        >>> Task("Corridor", "walk to the end", "1 per step beside the path", cost_limit=5.0,
        ...      entry_point="corridor:Corridor").id
        'safecritic/Corridor-v0'
    """

    name: str  # with its version ("SafetyCarGoal1-v0") where the field knows it so
    summary: str
    cost: str
    cost_limit: float  # the paper's budget, undiscounted cost per episode
    entry_point: str | Callable[..., gymnasium.Env]  # "module:attribute" or the class itself
    settings: dict[str, Any] = field(default_factory=dict)
    has_goal: bool = True  # without a goal, success means nothing
    action_repeat: int = 1  # steps per decision of the methods; `make` leaves it at 1

    @property
    def id(self) -> str:
        return f"{NAMESPACE}/{self.name}{'' if VERSION.search(self.name) else '-v0'}"


def _car(name: str, summary: str, cost: str, cost_limit: float) -> Task:
    entry_point = "safecritic.tasks.navigation.world:Navigation"
    return Task(name, summary, cost, cost_limit, entry_point, {"task": name}, action_repeat=4)


_NAVIGATION = {  # what to do, and what costs, in Safety Gymnasium's tasks
    "Goal0": ("go to one goal after another", "none"),
    "Goal1": ("go to one goal after another past 8 hazards and 1 vase", "in a hazard"),
    "Goal2": ("go to one goal after another past 10 hazards and 10 vases",
              "in a hazard, touching a vase or while one moves"),
    "Button0": ("press one button after another of 4", "none"),
    "Button1": ("press one button after another of 4 past 4 hazards and 4 moving gremlins",
                "in a hazard, touching a gremlin or a wrong button"),
    "Button2": ("press one button after another of 4 past 8 hazards and 6 moving gremlins",
                "in a hazard, touching a gremlin or a wrong button"),
    "Push0": ("push a box to one goal after another", "none"),
    "Push1": ("push a box to one goal after another past 2 hazards and 1 pillar", "in a hazard"),
    "Push2": ("push a box to one goal after another past 4 hazards and 4 pillars",
              "in a hazard or touching a pillar"),
    "Circle0": ("circle round the middle", "none"),
    "Circle1": ("circle round the middle between 2 walls", "beyond a wall"),
    "Circle2": ("circle round the middle within 4 walls", "beyond a wall"),
    "Run0": ("run along a lane", "beyond the lane's sides"),
}  # fmt: skip


def _navigation(robot: str, form: str) -> Task:
    """Return a row of Safety Gymnasium's; 25 is the limit that its results are published with.

    Decisions every 4 steps for both robots: the Point's step is half as long, but it goes half
    again as fast and turns twice as fast, so that both get equally far between two decisions.
    """
    name, (summary, cost) = f"Safety{robot}{form}-v0", _NAVIGATION[form]
    return Task(
        name, summary, cost if cost == "none" else f"1 per step {cost}", 25.0,
        "safecritic.tasks.navigation.world:Navigation", {"task": name},
        has_goal=form[:4] not in ("Circ", "Run0"), action_repeat=4,
    )  # fmt: skip


_PER_CONTACT = "0.2 per {} the car is in or touches, each step"

_VELOCITY = [  # Safety Gymnasium's
    Task(f"Safety{robot}Velocity-v1", f"{verb} forward, but not too fast",
         f"1 per step above {limit:g} m/s", 25.0,
         "safecritic.tasks.velocity:Velocity", {"robot": robot, "speed_limit": limit},
         has_goal=False)
    for robot, verb, limit in (
        ("HalfCheetah", "run", 3.2096),
        ("Hopper", "hop", 0.7402),
        ("Walker2d", "walk", 2.3415),
        ("Swimmer", "swim", 0.2282),
        ("Ant", "run", 2.6222),
        ("Humanoid", "walk", 1.4149),
    )
]  # fmt: skip

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
             "safecritic.tasks.velocity:HalfCheetah", has_goal=False),
        *(_navigation(robot, form) for robot in ("Point", "Car") for form in _NAVIGATION),
        *_VELOCITY,
    )
}  # fmt: skip


def find(name: str) -> Task | None:
    """Return the task of this name or Gymnasium id, in any case; None if there is none.

    The version may be left out, but not be another one.
    """
    plain = name.removeprefix(f"{NAMESPACE}/").lower()
    for task in TASKS.values():
        full = task.id.removeprefix(f"{NAMESPACE}/").lower()
        if plain in (full, VERSION.sub("", full)):
            return task
    return None


def get(name: str) -> Task:
    """Return the task of this name or Gymnasium id; an unknown one is an error with the nearest.

    Examples:
        >>> get("CarGoal1").cost_limit
        1.0
    """
    task = find(name)
    if task is None:
        raise ValueError(
            f"unknown task {name!r}; {suggest(name.removeprefix(f'{NAMESPACE}/'), TASKS)}"
        )
    return task


def method_defaults(name: str | None) -> dict[str, Any]:
    """Return the settings of a method that a task brings along; an unknown one brings none."""
    task = TASKS.get(name or "")
    if task is None:
        return {}
    return {"cost_limit": task.cost_limit, "action_repeat": task.action_repeat}


def make(name: str, **settings: Any) -> gymnasium.Env:
    """Make a task without Gymnasium's checking wrappers (the task checks its own input).

    Examples:
        >>> env = make("CarGoal1", variant="original", render_mode="rgb_array")
        >>> obs, info = env.reset(seed=0)
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

    Examples:
        >>> register(Task("Corridor", "walk to the end", "1 per step beside the path", 5.0,
        ...               "corridor:Corridor"))
    """
    if not re.fullmatch(r"\w+(-v\d+)?", task.name):
        raise ValueError(
            "the name of a task must be letters, digits and underscores (and a version such as "
            f"-v1 behind them), got {task.name!r}"
        )
    if find(task.name) is not None or task.id in gymnasium.registry:
        raise ValueError(f"there is a task {task.name!r} already: give the new one another name")
    _tell_gymnasium(task, order_enforce=True)
    TASKS[task.name] = task


def _tell_gymnasium(task: Task, order_enforce: bool = False) -> None:
    """Register; the tasks of this package check their own order of calls."""
    gymnasium.register(
        task.id,
        task.entry_point,
        kwargs=dict(task.settings),
        order_enforce=order_enforce,
        vector_entry_point=f"safecritic.tasks.vector:{task.name}",
    )


def register_with_gymnasium() -> None:
    """Make every task of the table known to `gymnasium.make` and `gymnasium.make_vec`.

    Examples:
        >>> import safecritic.tasks  # does it
        >>> env = gymnasium.make("safecritic/CarGoal1-v0")
    """
    for task in TASKS.values():
        if task.id not in gymnasium.registry:
            _tell_gymnasium(task)
