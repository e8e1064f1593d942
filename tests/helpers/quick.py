"""Compilation with fewer passes, a fifth of the time: for what runs a few times.

Runs are compiled as users' are, except in modules that test what is around a run (`quick_runs`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import pytest

from safecritic.core import compilation
from safecritic.run import compiled

OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
jit = partial(jax.jit, compiler_options=OPTIONS)


@contextmanager
def quick_runs() -> Iterator[None]:
    """Compile the steps of runs with fewer passes; no compiled step gets in or out."""

    def quick(function: Any, *, donate: bool = False, **fixed: Any) -> Any:
        return jit(partial(function, **fixed), donate_argnums=(0,) if donate else ())

    with pytest.MonkeyPatch.context() as patch:
        for module in (compiled, compilation):
            patch.setattr(module, "jit", quick)
        _forget()
        yield
    _forget()


def _forget() -> None:
    compiled.compile_agent.cache_clear()
