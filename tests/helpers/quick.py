"""Compilation with fewer passes, a fifth of the time: for what runs a few times.

Runs are compiled as users' are, except in modules that test what is around a run (`quick_runs`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import pytest

from safecritic.fast import compilation
from safecritic.run import compiled, off_policy, on_policy
from safecritic.run.compiled import compile_agent, compile_stacked

_OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def _known() -> dict[str, Any] | None:
    """Return the options, or None if this XLA does not know them."""
    try:
        jax.jit(lambda x: x + 1, compiler_options=_OPTIONS)(0)
    except Exception:  # its type differs between versions of JAX
        return None
    return dict(_OPTIONS)


OPTIONS = _known()
jit = partial(jax.jit, compiler_options=OPTIONS)


@contextmanager
def quick_runs() -> Iterator[None]:
    """Compile the steps of runs with fewer passes; no compiled step gets in or out."""
    options = (compilation.compiler_options() or {}) | (OPTIONS or {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "compiler_options", lambda: options)
        _forget()
        yield
    _forget()


@contextmanager
def quick_first_states() -> Iterator[None]:
    """Compile the first states of agents with fewer passes, and nothing else: for those filled."""

    def first_state(init: Any, seed: int, fresh: bool) -> Any:
        return whole(jit(init.__wrapped__), seed, fresh)

    whole = compiled.first_state
    with pytest.MonkeyPatch.context() as patch:
        for loop in (off_policy, on_policy):
            patch.setattr(loop, "first_state", first_state)
        yield


def _forget() -> None:
    compile_agent.cache_clear()
    compile_stacked.cache_clear()
