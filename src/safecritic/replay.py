"""Replay buffer on the device: a ring of transitions, as one frozen pytree.

`sample` draws uniformly, or a fixed share from the transitions with cost, sums rewards and costs
over n steps, and says where the refinement finds neighbours (Eq. 8).
"""

from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from safecritic.fast import draws
from safecritic.fast.draws import below


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
    """Where to look for neighbours of the batch: around each sample and in one block for all.

    The rows are read when it is known whose neighbours are wanted.
    """

    store: Replay
    start: jax.Array  # first row of the block


class Batch(NamedTuple):
    obs: jax.Array  # (B, O)
    action: jax.Array  # (B, A)
    reward: jax.Array  # (B,) sum over n steps
    cost: jax.Array  # (B,) sum over safety_n_step steps
    next_obs: jax.Array  # (B, O) the state n steps on
    discount: jax.Array  # (B,) gamma^n (1 - terminated)
    cost_next_obs: jax.Array | None  # for the cost, None if its n is the reward's
    cost_discount: jax.Array  # (B,) gamma^n (1 - terminated in success)
    index: jax.Array  # type: ignore[assignment]  # (B,) row in the replay
    neighbours: Neighbourhood | None


class Sampling(Protocol):
    """The settings `sample` reads; every agent's config has them."""

    @property
    def batch_size(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def n_step(self) -> int: ...
    @property
    def safety_n_step(self) -> int: ...
    @property
    def costly_share(self) -> float: ...
    @property
    def neighbour_block(self) -> int: ...


def init(capacity: int, obs_dim: int, action_dim: int) -> Replay:
    def zeros(*shape: int, dtype: type = jnp.float32) -> jax.Array:
        return jnp.zeros(shape, dtype)

    return Replay(
        obs=zeros(capacity, obs_dim),
        action=zeros(capacity, action_dim),
        reward=zeros(capacity),
        cost=zeros(capacity),
        next_obs=zeros(capacity, obs_dim),
        terminated=zeros(capacity, dtype=jnp.bool_),
        truncated=zeros(capacity, dtype=jnp.bool_),
        success=zeros(capacity, dtype=jnp.bool_),
        costly=zeros(capacity, dtype=jnp.int32),
        costly_start=zeros(dtype=jnp.int32),
        costly_size=zeros(dtype=jnp.int32),
        cursor=zeros(dtype=jnp.int32),
        size=zeros(dtype=jnp.int32),
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


def draw(replay: Replay, bits: jax.Array, batch_size: int, costly_share: float) -> jax.Array:
    """Draw rows (B,): uniform, the first `costly_share` of them where cost > 0, if any.

    `bits` are random, one for each row and one more for each costly row.
    """
    rows = below(bits[:batch_size], replay.size)
    number = round(costly_share * batch_size)
    if number == 0:
        return rows
    capacity = replay.cost.shape[0]
    place = below(bits[batch_size : batch_size + number], jnp.maximum(replay.costly_size, 1))
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


def neighbourhood(replay: Replay, bits: jax.Array, number: int) -> Neighbourhood:
    """Return where neighbours are looked for, with a random block of up to `number` rows."""
    last = jnp.maximum(replay.size - number, 0)
    return Neighbourhood(replay, draws.once(below(bits, last + 1), replay.size >= 0))


class Candidates(NamedTuple):
    """Rows of the replay that may be neighbours; the index is -1 where there is no such row."""

    obs: jax.Array
    action: jax.Array
    index: jax.Array  # type: ignore[assignment]


def window(neighbourhood: Neighbourhood, rows: jax.Array, reach: int) -> Candidates:
    """Return the `reach` rows on either side of each row (n,): (n, 2 reach).

    In tasks whose layout changes with the episode the nearest rows are mostly those written just
    before and after.
    """
    offsets = [*range(-reach, 0), *range(1, reach + 1)]
    index = rows[:, None] + jnp.array(offsets, jnp.int32)
    stored = (index >= 0) & (index < neighbourhood.store.size)
    safe = jnp.where(stored, index, 0)
    return Candidates(
        obs=_take(neighbourhood.store.obs, safe),
        action=_take(neighbourhood.store.action, safe),
        index=jnp.where(stored, index, -1),
    )


def block(neighbourhood: Neighbourhood, number: int) -> Candidates:
    """Return `number` consecutive rows, which add other episodes."""
    store = neighbourhood.store
    number = min(number, len(store.cost))
    index = neighbourhood.start + jnp.arange(number, dtype=jnp.int32)
    return Candidates(
        obs=jax.lax.dynamic_slice_in_dim(store.obs, neighbourhood.start, number),
        action=jax.lax.dynamic_slice_in_dim(store.action, neighbourhood.start, number),
        index=jnp.where(index < store.size, index, -1),
    )


def transitions(replay: Replay, rows: jax.Array) -> Transition:
    """Return the transitions in the rows (any shape)."""
    return Transition(*(_take(getattr(replay, name), rows) for name in Transition._fields))


def sample(replay: Replay, key: jax.Array, config: Sampling) -> Batch:
    """Draw a batch; it says where neighbours are if the config's `neighbour_block` is above 0."""
    bits = draws.bits(key, (2 * config.batch_size + 1,))
    rows = draw(replay, bits, config.batch_size, config.costly_share)
    batch = batch_of(replay, rows, config)
    if config.neighbour_block == 0:
        return batch
    return batch._replace(neighbours=neighbourhood(replay, bits[-1], config.neighbour_block))


def batch_of(replay: Replay, rows: jax.Array, config: Sampling) -> Batch:
    """Return the batch of some rows (B,), without neighbours."""
    gamma = config.gamma
    reward = n_step(replay, rows, config.n_step, gamma, "reward")
    same = config.safety_n_step == config.n_step
    cost = n_step(replay, rows, config.safety_n_step, gamma, "cost")
    return Batch(
        obs=_take(replay.obs, rows),
        action=_take(replay.action, rows),
        reward=reward.total,
        cost=cost.total,
        next_obs=reward.next_obs,
        discount=reward.discount,
        cost_next_obs=None if same else cost.next_obs,
        cost_discount=cost.discount,
        index=rows,
        neighbours=None,
    )
