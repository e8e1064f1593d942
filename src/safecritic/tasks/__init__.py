"""The six benchmark tasks, tasks of your own, and the adapter for any environment with a cost."""

from safecritic.tasks.adapter import FiveValues, SixValues, adapt
from safecritic.tasks.description import Description, describe
from safecritic.tasks.registry import TASKS, Task, get, make, register, register_with_gymnasium
from safecritic.tasks.vector import make_vec

__all__ = [
    "TASKS",
    "Description",
    "FiveValues",
    "SixValues",
    "Task",
    "adapt",
    "describe",
    "get",
    "make",
    "make_vec",
    "register",
    "register_with_gymnasium",
]

register_with_gymnasium()
