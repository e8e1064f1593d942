"""Run an exported policy: NumPy alone, no JAX, no simulator, nothing else of this package.

    from safecritic.runtime import load

    policy = load("policy.safecritic")
    action = policy(observation)

The folder of this module can be copied to a robot as it is.
"""

from .file import PolicyFileError, read
from .monitor import Monitor, Threshold
from .network import Decision
from .policy import FaultWarning, Policy, load

__all__ = [
    "Decision",
    "FaultWarning",
    "Monitor",
    "Policy",
    "PolicyFileError",
    "Threshold",
    "load",
    "read",
]
