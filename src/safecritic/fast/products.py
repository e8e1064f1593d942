"""Matrix products whose gradients are written out in the order of factors that is fastest on CPU.

`dense` stands for `x @ w`, `dense_joint` for `concatenate([obs, action]) @ w`; see docs/speed.md.
"""

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401


def _join(obs: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([obs, action], axis=-1)


@jax.custom_vjp
def dense(x: jax.Array, w: jax.Array) -> jax.Array:
    """Return x w. Reverse mode only: CPO's Fisher products, in forward mode, use `jnp.matmul`."""
    return x @ w


def _dense_forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x, w)


def _dense_backward(seen: tuple[jax.Array, jax.Array], d: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = seen
    return times_transposed(d, w), x.T @ d


dense.defvjp(_dense_forward, _dense_backward)


def times_transposed(d: jax.Array, w: jax.Array) -> jax.Array:
    """Return d w^T as (w d^T)^T.

    The weights are then read along their rows; the barriers keep XLA from turning it back.
    """
    return jax.lax.optimization_barrier(w @ jax.lax.optimization_barrier(d.T)).T


@jax.custom_vjp
def dense_joint(obs: jax.Array, action: jax.Array, w: jax.Array) -> jax.Array:
    """Return [obs, action] w; its gradient by the action alone is a product as small as it."""
    return _join(obs, action) @ w


def _joint_forward(
    obs: jax.Array, action: jax.Array, w: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    return _join(obs, action) @ w, (obs, action, w)


def _joint_backward(
    seen: tuple[jax.Array, jax.Array, jax.Array], d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    obs, action, w = seen
    n_obs = obs.shape[-1]
    # Whichever of the three nobody asks for is not computed.
    return times_transposed(d, w[:n_obs]), d @ w[n_obs:].T, _join(obs, action).T @ d


dense_joint.defvjp(_joint_forward, _joint_backward)
