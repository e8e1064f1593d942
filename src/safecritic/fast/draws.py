"""Random numbers of the update: those of `jax.random`, to the bit, in straight-line code.

On CPU `jax.random` runs the rounds of its generator as a loop, and XLA goes through a loop step
by step: in an update that takes a millisecond or two, each draw is felt. Written out, all rounds
are one pass over the numbers.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from safecritic import _jax  # noqa: F401

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def words(key: jax.Array) -> jax.Array:
    """Return the two words of a key, of JAX's older or newer kind."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random 32 bits, as `jax.random.bits`: 20 rounds of Threefry-2x32 (Salmon, 2011)."""
    key = words(key)
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x0 = jnp.full(shape, keys[0])  # the counter's upper half is 0
    x1 = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape) + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance))
            x1 = x0 ^ x1
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0 ^ x1


def once(numbers: jax.Array, true: jax.Array) -> jax.Array:
    """Return whole numbers as they are, but drawn once and not again wherever one of them is read.

    XLA copies what leads to a value into the code of everything that reads it: the row at which
    a block of the replay starts would be drawn anew for every number of the block. It does so past
    its own barriers, but not past a loop. This one runs once and adds 0, if `true` is a comparison
    that always holds and that XLA cannot see through.
    """
    times = true.astype(jnp.int32)
    return jax.lax.fori_loop(0, times, lambda i, x: x + i.astype(x.dtype), numbers)


def below(bits: jax.Array, limit: jax.Array | int) -> jax.Array:
    """Return whole numbers in [0, limit) from random 32 bits: the upper half of a product."""
    wide = bits.astype(jnp.uint64) * jnp.asarray(limit).astype(jnp.uint64)
    return (wide >> 32).astype(jnp.int32)


def uniform(
    key: jax.Array, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0
) -> jax.Array:
    """Return uniform numbers in [low, high), as `jax.random.uniform`."""
    # 23 bits as the digits of a number in [1, 2)
    digits = (bits(key, shape) >> np.uint32(9)) | np.uint32(0x3F800000)
    digits = once(digits, (words(key)[0] | np.uint32(1)) > 0)
    unit = jax.lax.bitcast_convert_type(digits, jnp.float32) - np.float32(1.0)
    least, width = np.float32(low), np.float32(high) - np.float32(low)
    return jnp.maximum(least, unit * width + least)


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return standard normal numbers, as `jax.random.normal`."""
    least = float(np.nextafter(np.float32(-1.0), np.float32(0.0)))
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform(key, shape, least, 1.0))
