"""The ring of transitions: order, n-step windows, costly rows, neighbours; against plain lists."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest

from helpers.quick import jit
from safecritic.core import replay

GAMMA = 0.9


def transition(t, cost=0.0, terminated=False, truncated=False, success=True):
    """Row t: every number in it is a function of t."""
    return replay.Transition(
        obs=np.array([t, -t], np.float32),
        action=np.array([t / 1000], np.float32),
        reward=np.float32(t),
        cost=np.float32(cost),
        next_obs=np.array([t + 1, -t - 1], np.float32),
        terminated=np.bool_(terminated),
        truncated=np.bool_(truncated),
        success=np.bool_(success),
    )


init = jit(replay.init, static_argnums=(0, 1, 2))
insert = jit(replay.insert)


def filled(capacity, transitions):
    ring = init(capacity, 2, 1)
    for each in transitions:
        ring = insert(ring, each)
    return ring


@dataclass(frozen=True)
class Settings:
    batch_size: int = 32
    gamma: float = GAMMA
    cost_steps: int = 1
    costly_share: float = 0.0
    neighbour_block: int = 0


sample = jit(replay.sample, static_argnames="config")


def test_oldest_rows_are_overwritten():
    ring = filled(4, [transition(t) for t in range(6)])
    assert int(ring.size) == 4
    assert int(ring.cursor) == 2
    np.testing.assert_array_equal(ring.reward, [4, 5, 2, 3])
    np.testing.assert_array_equal(ring.next_obs[:, 0], [5, 6, 3, 4])


def test_insert_does_not_copy_the_buffer():
    """With donated buffers no operation of the compiled step copies a whole column."""

    def step(ring, row, key):
        ring = replay.insert(ring, row)
        return ring, replay.sample(ring, key, Settings(costly_share=0.5, cost_steps=2)).obs * 2.0

    ring = init(54_321, 2, 1)
    compiled = jit(step, donate_argnums=0).lower(ring, transition(0), jax.random.key(0))
    copies = [
        line
        for line in compiled.compile().as_text().splitlines()
        if " copy(" in line and "54321" in line
    ]
    assert copies == []


def test_costly_rows_are_kept_in_step_with_the_ring():
    rng = np.random.default_rng(0)
    for chance in (0.3, 1.0):
        costs = (rng.random(60) < chance) * 0.2
        ring = init(7, 2, 1)
        for t, cost in enumerate(costs):
            ring = insert(ring, transition(t, cost))
            size, start, costly = jax.device_get((ring.costly_size, ring.costly_start, ring.costly))
            listed = [costly[(start + i) % 7] for i in range(size)]
            expected = [s % 7 for s in range(max(0, t - 6), t + 1) if costs[s] > 0]
            assert listed == expected


def test_share_of_costly_rows():
    ring = filled(64, [transition(t, cost=float(t in (3, 17, 40))) for t in range(50)])
    for share, number in ((0.0, 0), (0.25, 8), (1.0, 32)):
        batch = jax.device_get(sample(ring, jax.random.key(1), config=Settings(costly_share=share)))
        assert int((batch.cost > 0).sum()) >= number
        if number:
            assert set(batch.reward[:number]) == {3.0, 17.0, 40.0}
    cheap = filled(64, [transition(t) for t in range(50)])
    batch = sample(cheap, jax.random.key(1), config=Settings(costly_share=0.25))
    assert len(np.unique(batch.reward)) > 10


def test_sampling_is_uniform_over_stored_rows():
    ring = filled(64, [transition(t) for t in range(10)])
    batch = sample(ring, jax.random.key(0), config=Settings(batch_size=4000))
    counts = np.bincount(np.asarray(batch.reward, int), minlength=10)
    assert counts.size == 10
    assert (np.abs(counts - 400) < 100).all()


def plain_n_step(rows, t, n):
    """(sum of rewards, index of the last row, discount) of the window that starts at row t."""
    total, last = 0.0, t
    for i in range(n):
        if t + i >= len(rows):
            break
        last = t + i
        total += GAMMA**i * float(rows[last].reward)
        if bool(rows[last].terminated) or bool(rows[last].truncated):
            break
    discount = 0.0 if bool(rows[last].terminated) else GAMMA ** (last - t + 1)
    return total, last, discount


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("capacity", [16, 11])
def test_n_step_windows_stop_with_the_episode(n, capacity):
    rows = [transition(t, terminated=t in (4, 12), truncated=t == 7) for t in range(16)]
    ring = filled(capacity, rows)
    kept = range(16 - capacity, 16)
    index = np.array([t % capacity for t in kept], np.int32)
    n_step = jit(replay.n_step, static_argnums=(2, 3, 4))
    windows = jax.device_get(n_step(ring, index, n, GAMMA, "reward"))
    for i, t in enumerate(kept):
        total, last, discount = plain_n_step(rows, t, n)
        np.testing.assert_allclose(windows.total[i], total, rtol=1e-6)
        np.testing.assert_allclose(windows.next_obs[i, 0], last + 1)
        np.testing.assert_allclose(windows.discount[i], discount, rtol=1e-6)


def test_truncation_keeps_the_bootstrap_and_termination_removes_it():
    ring = filled(4, [transition(0, terminated=True), transition(1, truncated=True)])
    batch = sample(ring, jax.random.key(0), config=Settings())
    expected = np.where(np.asarray(batch.reward) == 0, 0.0, GAMMA)
    np.testing.assert_allclose(batch.discount, expected, rtol=1e-6)


def test_cost_may_look_further_ahead_than_reward():
    ring = filled(64, [transition(t, cost=1.0) for t in range(20)])
    batch = jax.device_get(sample(ring, jax.random.key(0), config=Settings(cost_steps=3)))
    inside = batch.index < 18
    np.testing.assert_allclose(batch.cost[inside], 1 + GAMMA + GAMMA**2, rtol=1e-6)
    np.testing.assert_allclose(batch.discount, GAMMA, rtol=1e-6)
    np.testing.assert_allclose(batch.cost_discount[inside], GAMMA**3, rtol=1e-6)
    np.testing.assert_allclose(batch.cost_next_obs[inside, 0], batch.obs[inside, 0] + 3)
    assert sample(ring, jax.random.key(0), config=Settings()).cost_next_obs is None


def test_costs_go_on_after_a_failure_and_end_with_success():
    rows = [transition(0, terminated=True), transition(1, terminated=True, success=False)]
    batch = jax.device_get(sample(filled(4, rows), jax.random.key(0), config=Settings()))
    np.testing.assert_array_equal(batch.discount, 0.0)
    failed = batch.reward == 1
    assert failed.any()
    assert not failed.all()
    np.testing.assert_allclose(batch.cost_discount, np.where(failed, GAMMA, 0.0), rtol=1e-6)


def test_the_block_of_neighbours_lies_within_the_stored_rows():
    ring = filled(64, [transition(t) for t in range(40)])
    config = Settings(neighbour_block=16)
    starts = [
        int(sample(ring, jax.random.key(i), config=config).neighbours.start) for i in range(40)
    ]
    assert 0 <= min(starts) < 8
    assert 16 < max(starts) <= 24
    few = sample(filled(64, [transition(0)]), jax.random.key(0), config=config)
    assert int(few.neighbours.start) == 0
    assert sample(ring, jax.random.key(0), config=Settings()).neighbours is None
