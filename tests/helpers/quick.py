"""Compilation with fewer passes, a fifth of the time: for what runs a few times.

Runs are compiled as users' are, except in modules that test what is around a run (`quick_runs`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import jax
import pytest

from safecritic.fast import compilation
from safecritic.run.compiled import compile_agent, compile_stacked

OPTIONS = compilation.once_options()
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


def _forget() -> None:
    compile_agent.cache_clear()
    compile_stacked.cache_clear()
