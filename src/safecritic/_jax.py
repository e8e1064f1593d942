"""JAX with 64-bit numbers switched on; imported before any array is made.

The factorisation behind Eq. 1 needs float64. Everything else is float32 and says so, because with
this switch an array without a dtype is float64.
"""

import jax

jax.config.update("jax_enable_x64", True)
