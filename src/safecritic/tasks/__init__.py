"""The six benchmark tasks, and the adapter for any other environment that reports a cost."""

from safecritic.tasks.adapter import FiveValues, SixValues, adapt
from safecritic.tasks.registry import TASKS, Task, get, make, register

__all__ = ["TASKS", "FiveValues", "SixValues", "Task", "adapt", "get", "make", "register"]
