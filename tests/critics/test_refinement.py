"""Eq. 8-10: neighbours, interpolated targets, the refinement loss and its plain step."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
from helpers.quick import jit
from safecritic import networks, replay
from safecritic.agents import cost_critic, safety_critic
from safecritic.agents.interface import EnvSpec
from safecritic.critics import refinement
from safecritic.fast.neighbours import find_neighbours

SPEC = EnvSpec(obs_dim=3, action_dim=2, cost_max=1.0)


SMALL = {
    "hidden": (8, 8),
    "batch_size": 12,
    "refine_top": 4,
    "refine_neighbours": 3,
    "refine_block": 20,
    "refine_reach": 2,
    "observation_scaling": "none",
    "safety_critics": 1,
    "sharpening": 1.0,
}
settings = partial(helpers.agents.settings, "usc", SMALL)
COST_SIZE = 1.6  # unit in which the agent counts the stored costs


def ring(rows=60, capacity=64):
    """Return rows that all cost something."""
    return helpers.agents.filled_replay(
        SPEC, rows, capacity, terminated=lambda rng, n: rng.random(n) < 0.2
    )


@partial(jit, static_argnames="config")
def sampled_neighbours(store, key, config):
    """Return a batch and the neighbours of its first refine_top samples."""
    batch = replay.sample(store, key, config)
    rows = batch.index[: config.refinement.refine_top]
    return batch, search(batch.neighbours, rows, store, config)


interpolate = jit(refinement.interpolate)


def search(neighbourhood, rows, store, config):
    points = networks.join(store.obs, store.action)[rows]
    return find_neighbours(neighbourhood, rows, points, lambda obs: obs, config.refinement)


@pytest.mark.parametrize(("confident", "reach"), [(True, 2), (False, 0)])
def test_neighbours_equal_a_plain_search(confident, reach):
    store, config = ring(), settings(refine_confident=confident, refine_reach=reach)
    joint = np.concatenate([store.obs, store.action], axis=1).astype(np.float64)
    for seed in range(4):
        batch, found = jax.device_get(sampled_neighbours(store, jax.random.key(seed), config))
        uncertain = [int(i) for i in batch.index[: config.refinement.refine_top]]
        start = int(batch.neighbours.start)
        block = {i for i in range(start, start + config.refinement.refine_block) if i < 60}
        for n, own in enumerate(uncertain):
            near = {i for i in range(own - reach, own + reach + 1) if 0 <= i < 60}
            allowed = (block | near) - {own} - (set(uncertain) if confident else set())
            order = sorted(allowed, key=lambda i: np.linalg.norm(joint[i] - joint[own]))[:3]
            assert list(found.rows[n]) == order
            expected = [np.linalg.norm(joint[i] - joint[own]) for i in order]
            np.testing.assert_allclose(found.distance[n], expected, rtol=1e-5)
    assert found.valid.all()


def test_missing_neighbours_are_marked():
    batch, found = sampled_neighbours(
        ring(rows=2), jax.random.key(0), settings(refine_confident=False)
    )
    np.testing.assert_array_equal(found.valid.sum(axis=1), 1)
    assert (np.asarray(found.rows[:, 0]) != np.asarray(batch.index[:4])).all()


def test_interpolated_cost():
    """Eq. 8 by a plain loop; invalid neighbours have no weight."""
    rng = np.random.default_rng(0)
    cost, distance = rng.random((4, 3)), rng.random((4, 3)) + 0.1
    valid = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    found = interpolate(cost, distance, valid)
    for n in range(4):
        close = [1 / distance[n, k] for k in range(3) if valid[n, k]]
        expected = 0.0
        for k in range(3):
            if valid[n, k]:
                expected += 1 / distance[n, k] / sum(close) * cost[n, k]
        np.testing.assert_allclose(found[n], expected, rtol=1e-12)


def test_a_row_at_no_distance_takes_all_the_weight():
    found = interpolate(np.array([[0.7, 0.1]]), np.array([[0.0, 1.0]]), np.array([[True, True]]))
    np.testing.assert_allclose(found, 0.7, rtol=1e-5)


def test_refinement_loss():
    """Eq. 9 by a plain loop, and its gradient by differences."""
    rng = np.random.default_rng(0)
    q, q_old, target = rng.normal(size=(3, 1, 5))
    valid, beta, epsilon = np.array([1.0, 1, 0, 1, 1]), 3.0, 0.02

    def plain(q):
        total = 0.0
        for n in range(5):
            kl = (q[0, n] - q_old[0, n]) ** 2 / 2
            each = (q[0, n] - target[0, n]) ** 2 / 2 + beta * max(0.0, kl - epsilon) ** 2
            total += each * valid[n] / 4
        return total

    loss = partial(
        refinement.loss,
        q_old=q_old,
        target=target[0],
        valid=valid,
        beta=beta,
        epsilon=epsilon,
    )
    (value, metrics), gradient = jit(jax.value_and_grad(loss, has_aux=True))(q)
    np.testing.assert_allclose(value, plain(q), rtol=1e-12)
    for n in range(5):
        step = np.zeros_like(q)
        step[0, n] = 1e-6
        slope = (plain(q + step) - plain(q - step)) / 2e-6
        np.testing.assert_allclose(np.asarray(gradient)[0, n], slope, atol=1e-7)
    kl = (q - q_old)[0] ** 2 / 2
    np.testing.assert_allclose(metrics["refine/kl"], (kl * valid).sum() / 4, rtol=1e-12)
    gap = ((target - q)[0] * valid).sum() / 4
    np.testing.assert_allclose(metrics["refine/target_gap"], gap, rtol=1e-12)


def test_small_changes_are_free_and_large_ones_are_not():
    target, valid, q_old = np.zeros(1), np.ones(1), np.zeros((1, 1))
    loss = jit(refinement.loss)
    for moved, extra in ((0.1, 0.0), (1.0, 2.0 * (0.5 - 0.02) ** 2)):
        value, _ = loss(np.array([[moved]]), q_old, target, valid, 2.0, 0.02)
        np.testing.assert_allclose(value, moved**2 / 2 + extra, rtol=1e-6)


@pytest.fixture(scope="module")
def agent():
    return jit(safety_critic.init, static_argnums=(1, 2))(jax.random.key(1), SPEC, settings())


@pytest.mark.parametrize("target", ["n-step", "bellman", "cost"])
def test_refinement_is_a_plain_step_towards_the_neighbours(agent, target):
    """Eq. 10 and all targets: the step equals lr times a gradient taken by hand."""
    config = settings(refine_target=target, refine_own=0.25, refine_lr=0.5, refine_clip=0.0)
    store = ring()
    batch, _ = sampled_neighbours(store, jax.random.key(2), settings())
    rank = np.random.default_rng(3).random(12)
    obs = np.asarray(batch.obs)
    refine = jit(safety_critic.refine, static_argnames="config")
    safety, metrics = refine(
        agent,
        agent.safety,
        batch._replace(cost=batch.cost / COST_SIZE),  # as an update has it
        obs,
        rank,
        jnp.float32(COST_SIZE),
        config=config,
    )

    top = np.argsort(-rank)[:4]
    x = np.concatenate([obs, batch.action], axis=1)[top]
    found = jit(search, static_argnames="config")(
        batch.neighbours, np.asarray(batch.index)[top], store, config=config
    )
    found, store = jax.device_get((found, store))
    assert config.safety_n_step > 1

    @jit
    def q_ahead(obs):
        action = networks.actor(agent.target_actor, obs)
        return cost_critic.q_cost(agent.target_safety, obs, action, agent.cost_bound, config)

    def value(row, kind):
        total, discount = 0.0, 1.0
        for step in range(config.safety_n_step if kind == "n-step" else 1):
            total += discount * store.cost[row + step] / COST_SIZE
            discount *= config.gamma
            last = row + step
            if store.terminated[last] or store.truncated[last] or last + 1 == store.size:
                break
        if kind != "cost" and not (store.terminated[last] and store.success[last]):
            (q,) = q_ahead(store.next_obs[last][None])
            total += discount * float(q)
        return total

    known = np.vectorize(lambda row: value(row, target), [np.float32])(found.rows)
    others = np.asarray(interpolate(known, found.distance, found.valid))
    own = np.array([value(row, "n-step") for row in np.asarray(batch.index)[top]])
    wanted = (0.25 * own + 0.75 * others).astype(np.float32)
    np.testing.assert_allclose(metrics["refine/target_mean"], wanted.mean(), rtol=1e-5)

    def loss(params):
        z = networks.forward(params[0], x)[:, 0]
        q = cost_critic.member_q(z, agent.cost_bound, config)
        return jnp.mean((q - wanted) ** 2) / 2

    gradient = jit(jax.grad(loss))(agent.safety)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, *jax.device_get((agent.safety, gradient)))
    for ours, theirs in zip(jax.tree.leaves(safety), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)


def test_a_long_gradient_is_cut():
    params = {"w": np.zeros(2), "b": np.zeros(1)}
    gradient = {"w": np.array([3.0, 0.0]), "b": np.array([4.0])}
    step = jit(refinement.step, static_argnums=(2, 3))
    free, cut_free = step(params, gradient, 0.1, 0.0)
    np.testing.assert_allclose(free["w"], [-0.3, 0.0], rtol=1e-6)
    cut, cut_long = step(params, gradient, 0.1, 1.0)
    np.testing.assert_allclose(cut["w"], [-0.06, 0.0], rtol=1e-6)
    np.testing.assert_allclose(cut["b"], [-0.08], rtol=1e-6)
    short, cut_short = step(params, gradient, 0.1, 10.0)
    np.testing.assert_allclose(short["b"], free["b"], rtol=1e-6)
    assert (float(cut_free), float(cut_long), float(cut_short)) == (0, 1, 0)
