"""Safe reinforcement learning with safety critics.

`import safecritic` registers the tasks with Gymnasium.
"""

from safecritic.tasks import adapt, make, register

__version__ = "0.1.0"
__all__ = ["adapt", "make"]

register()
