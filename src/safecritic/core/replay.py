"""Replay buffer on the device: a ring of transitions, as one frozen pytree."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from safecritic.core.settings import OffPolicySettings


class Transition(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    cost: jax.Array
    next_obs: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    success: jax.Array  # an end without it is a failure, after which costs are taken to go on


class Replay(NamedTuple):
    obs: jax.Array  # (capacity, O)
    action: jax.Array  # (capacity, A)
    reward: jax.Array  # (capacity,)
    cost: jax.Array  # (capacity,)
    next_obs: jax.Array  # (capacity, O)
    terminated: jax.Array  # (capacity,) bool
    truncated: jax.Array  # (capacity,) bool
    success: jax.Array  # (capacity,) bool
    costly: jax.Array  # (capacity,) rows with cost > 0: a queue, oldest at costly_start
    costly_start: jax.Array
    costly_size: jax.Array
    cursor: jax.Array  # the row to be written next
    size: jax.Array


class Neighbourhood(NamedTuple):
    """Where to look for neighbours of the batch: around each sample and in one block for all."""

    store: Replay
    start: jax.Array  # first row of the block


class Batch(NamedTuple):
    obs: jax.Array  # (B, O)
    action: jax.Array  # (B, A)
    reward: jax.Array  # (B,)
    cost: jax.Array  # (B,) sum over cost_steps steps
    next_obs: jax.Array  # (B, O)
    discount: jax.Array  # (B,) gamma (1 - terminated)
    cost_next_obs: jax.Array | None  # for the cost, None if its steps are one
    cost_discount: jax.Array  # (B,) gamma^n (1 - terminated in success)
    index: jax.Array  # type: ignore[assignment]  # (B,) row in the replay
    neighbours: Neighbourhood | None


def init(capacity: int, obs_dim: int, action_dim: int) -> Replay:
    numbers = {"reward": (), "cost": (), "action": (action_dim,)}
    numbers |= {"obs": (obs_dim,), "next_obs": (obs_dim,)}
    ends = ("terminated", "truncated", "success")
    counts = ("costly_start", "costly_size", "cursor", "size")
    return Replay(
        **{name: jnp.zeros((capacity, *shape), jnp.float32) for name, shape in numbers.items()},
        **{name: jnp.zeros(capacity, bool) for name in ends},
        **{name: jnp.zeros((), jnp.int32) for name in counts},
        costly=jnp.zeros(capacity, jnp.int32),
    )


def insert(replay: Replay, transition: Transition) -> Replay:
    """Write one transition over the oldest row.

    The loop runs once. It keeps XLA from fusing the write into later reads of the same step, which
    would copy the whole buffer; inside a loop the write is done in place.
    """
    once = (replay.size >= 0).astype(jnp.int32)
    return jax.lax.fori_loop(0, once, lambda _, ring: _write(ring, transition), replay)


def _write(replay: Replay, transition: Transition) -> Replay:
    capacity = replay.cost.shape[0]
    row = replay.cursor

    def write(store: jax.Array, value: jax.Array) -> jax.Array:
        value = jnp.asarray(value, store.dtype)[None]
        return jax.lax.dynamic_update_slice_in_dim(store, value, row, axis=0)

    # Rows leave in the order they came, so a costly row that is overwritten heads the queue.
    leaving = jax.lax.cond(
        (replay.size == capacity) & (replay.costly_size > 0),
        lambda: (_take(replay.costly, replay.costly_start) == row).astype(jnp.int32),
        lambda: jnp.zeros((), jnp.int32),
    )
    start = (replay.costly_start + leaving) % capacity
    waiting = replay.costly_size - leaving
    arriving = (jnp.asarray(transition.cost) > 0).astype(jnp.int32)
    end = (start + waiting) % capacity
    # The slot behind the queue is free, so it may be written whether or not this row is costly.
    costly = jax.lax.dynamic_update_slice_in_dim(replay.costly, row[None], end, axis=0)

    rows = {
        name: write(getattr(replay, name), value)
        for name, value in zip(Transition._fields, transition, strict=True)
    }
    return Replay(
        **rows,
        costly=costly,
        costly_start=start,
        costly_size=waiting + arriving,
        cursor=(row + 1) % capacity,
        size=jnp.minimum(replay.size + 1, capacity),
    )


def _take(store: jax.Array, index: jax.Array) -> jax.Array:
    return store.at[index].get(mode="promise_in_bounds")


def draw(replay: Replay, key: jax.Array, batch_size: int, costly_share: float) -> jax.Array:
    """Draw rows (B,): uniform, the first `costly_share` of them where cost > 0, if any."""
    key_rows, key_costly = jax.random.split(key)
    rows = jax.random.randint(key_rows, (batch_size,), 0, replay.size)
    number = round(costly_share * batch_size)
    if number == 0:
        return rows
    capacity = replay.cost.shape[0]
    place = jax.random.randint(key_costly, (number,), 0, jnp.maximum(replay.costly_size, 1))
    costly = _take(replay.costly, (replay.costly_start + place) % capacity)
    chosen = jnp.where(replay.costly_size > 0, costly, rows[:number])
    return jnp.concatenate([chosen, rows[number:]])


class _Window(NamedTuple):
    total: jax.Array
    next_obs: jax.Array
    discount: jax.Array


def n_step(
    replay: Replay, rows: jax.Array, n: int, gamma: float, signal: Literal["reward", "cost"]
) -> _Window:
    """Return the discounted sum of a signal over up to n steps, the state after and its discount.

    A window ends with its episode (terminated or truncated) and at the newest row; only
    `terminated` takes the bootstrap away. Costs lose it in success alone: a robot that has fallen
    is not out of danger, and a critic that takes it to be teaches the policy to fall.
    """
    values: jax.Array = getattr(replay, signal)
    capacity = replay.cost.shape[0]
    newer = (replay.cursor - 1 - rows) % capacity  # rows written after this one
    total = _take(values, rows)
    last = rows
    running = jnp.ones(rows.shape, jnp.bool_)
    discount = jnp.full(rows.shape, gamma, jnp.float32)
    for step in range(1, n):
        ended = _take(replay.terminated, last) | _take(replay.truncated, last)
        running = running & ~ended & (newer >= step)
        here = (rows + step) % capacity
        total = total + jnp.where(running, discount * _take(values, here), 0.0)
        last = jnp.where(running, here, last)
        discount = jnp.where(running, discount * gamma, discount)
    final = _take(replay.terminated, last)
    if signal == "cost":
        final = final & _take(replay.success, last)
    alive = 1.0 - final.astype(jnp.float32)
    return _Window(total, _take(replay.next_obs, last), discount * alive)


def sample(replay: Replay, key: jax.Array, config: OffPolicySettings) -> Batch:
    """Draw a batch; it says where neighbours are if the config's `neighbour_block` is above 0."""
    key_rows, key_block = jax.random.split(key)
    rows = draw(replay, key_rows, config.batch_size, config.costly_share)
    neighbours = None
    if config.neighbour_block > 0:
        last = jnp.maximum(replay.size - config.neighbour_block, 0)
        neighbours = Neighbourhood(replay, jax.random.randint(key_block, (), 0, last + 1))
    reward = n_step(replay, rows, 1, config.gamma, "reward")
    cost = n_step(replay, rows, config.cost_steps, config.gamma, "cost")
    return Batch(
        obs=_take(replay.obs, rows),
        action=_take(replay.action, rows),
        reward=reward.total,
        cost=cost.total,
        next_obs=reward.next_obs,
        discount=reward.discount,
        cost_next_obs=None if config.cost_steps == 1 else cost.next_obs,
        cost_discount=cost.discount,
        index=rows,
        neighbours=neighbours,
    )
