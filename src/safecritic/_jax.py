"""JAX with 64-bit numbers switched on; imported before any array is made.

The factorisation behind Eq. 1 needs float64. Everything else is float32 and says so, because with
this switch an array without a dtype is float64.
"""

import functools
import os

# LAPACK (loaded on first use) with one thread: the same bits on any number of cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax

jax.config.update("jax_enable_x64", True)


# Small products by XLA's own code and not by its library of them: faster when the weights stand on
# the right and are read along their rows, as `networks.dense` arranges it.
_CPU_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}


@functools.cache
def compiler_options() -> dict[str, str] | None:
    """For `jax.jit` of what runs at every step; None where this XLA does not know them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x + 1, compiler_options=_CPU_OPTIONS)(0)
    except Exception:  # of a kind that differs between versions
        return None
    return dict(_CPU_OPTIONS)
