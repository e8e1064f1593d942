"""`jit` for functions that a test calls a few times: fewer passes, a fifth of the time to compile.

What a run compiles is left alone, so that runs are tested as users run them.
"""

from functools import partial
from typing import Any

import jax

_OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def _known() -> dict[str, Any] | None:
    """Return the options, or None if this XLA does not know them."""
    try:
        jax.jit(lambda x: x + 1, compiler_options=_OPTIONS)(0)
    except Exception:  # its type differs between versions of JAX
        return None
    return dict(_OPTIONS)


jit = partial(jax.jit, compiler_options=_known())
