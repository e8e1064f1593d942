"""JAX with 64-bit numbers switched on; import it before any array is made.

The factorisation behind Eq. 1 needs float64. Everything else is float32 and says so, because with
this switch an array without a dtype is float64.
"""

import os

# LAPACK (loaded on first use) with one thread: the same bits on any number of cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax

jax.config.update("jax_enable_x64", True)
