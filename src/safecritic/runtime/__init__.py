"""Run an exported policy: NumPy alone, no JAX, no simulator, nothing else of this package.

    from safecritic.runtime import load

    policy = load("policy.safecritic")
    action = policy(observation)

The folder of this module can be copied to a robot as it is.
"""

import os

# Products of a few rows gain nothing from a second thread, and wait for it where cores are busy: a
# decision then takes tens of milliseconds. NumPy reads this once, when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .file import PolicyFileError, read
from .memory import Memory
from .monitor import Monitor, Threshold
from .network import Decision
from .policy import FaultWarning, Policy, load

__all__ = ["Decision", "FaultWarning", "Memory", "Monitor", "Policy", "PolicyFileError",
           "Threshold", "load", "read"]  # fmt: skip
