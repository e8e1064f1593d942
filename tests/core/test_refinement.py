"""Eq. 8-10: neighbours, interpolated targets, the refinement loss and its plain step."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
from helpers.quick import jit
from safecritic.agents import cost_critic, paper, usc
from safecritic.core import networks, refinement
from safecritic.core.interface import EnvSpec
from safecritic.core.refinement import find_neighbours

SPEC = EnvSpec(obs_dim=3, action_dim=2, cost_max=1.0)
SMALL = {
    "hidden": (8, 8),
    "batch_size": 12,
    "refinement.top": 4,
    "refinement.neighbours": 3,
}
settings = partial(helpers.agents.settings, "usc", SMALL)
COST_SIZE = 1.6  # unit in which the agent counts the stored costs


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr(refinement, "BLOCK", 20)
    monkeypatch.setattr(refinement, "REACH", 2)


def ring(rows=60, capacity=64):
    """Return rows that all cost something."""
    return helpers.agents.filled_replay(
        SPEC, rows, capacity, terminated=lambda rng, n: rng.random(n) < 0.2
    )


@jit
def search(store, start, rows):
    points = networks.join(store.obs, store.action)[rows]
    return find_neighbours(store, start, rows, points, lambda obs: obs, 3)


interpolate = jit(refinement.interpolate)


def test_neighbours_equal_a_plain_search():
    """Of the block and the rows around, without the uncertain ones, each counted once."""
    store = ring()
    joint = np.concatenate([store.obs, store.action], axis=1).astype(np.float64)
    rng = np.random.default_rng(0)
    for start in (0, 13, 40):
        uncertain = rng.integers(0, 60, 4).astype(np.int32)
        found = jax.device_get(search(store, np.int32(start), uncertain))
        for n, here in enumerate(uncertain.tolist()):
            allowed = set(range(start, start + 20)) | set(range(here - 2, here + 3))
            allowed = {i for i in allowed if 0 <= i < 60} - set(uncertain.tolist())
            order = sorted(allowed, key=lambda i: np.linalg.norm(joint[i] - joint[here]))[:3]
            assert list(found.rows[n]) == order
            expected = [np.linalg.norm(joint[i] - joint[here]) for i in order]
            np.testing.assert_allclose(found.distance[n], expected, rtol=1e-4)
        assert found.valid.all()


def test_missing_neighbours_are_marked():
    rows = np.array([0, 0], np.int32)
    found = search(ring(rows=2), np.int32(0), rows)
    np.testing.assert_array_equal(found.valid.sum(axis=1), 1)
    np.testing.assert_array_equal(found.rows[:, 0], 1)


@pytest.mark.parametrize("function", [interpolate, jit(paper.interpolate)])
def test_interpolated_cost(function):
    """Eq. 8 by a plain loop; invalid neighbours have no weight."""
    rng = np.random.default_rng(0)
    cost, distance = rng.random((4, 3)), rng.random((4, 3)) + 0.1
    valid = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    found = function(cost, distance, valid)
    for n in range(4):
        close = [1 / distance[n, k] for k in range(3) if valid[n, k]]
        expected = 0.0
        for k in range(3):
            if valid[n, k]:
                expected += 1 / distance[n, k] / sum(close) * cost[n, k]
        np.testing.assert_allclose(found[n], expected, rtol=1e-5)


def test_a_row_at_no_distance_takes_all_the_weight():
    found = interpolate(np.array([[0.7, 0.1]]), np.array([[0.0, 1.0]]), np.array([[True, True]]))
    np.testing.assert_allclose(found, 0.7, rtol=1e-5)


def test_refinement_loss():
    """Eq. 9 by a plain loop, of both agents, and its gradient by hand."""
    rng = np.random.default_rng(0)
    q, q_old, target = rng.normal(size=(3, 5))
    q_old[0] = q[0] + 0.05  # a distance that is free
    valid, beta, epsilon = np.array([1.0, 1, 0, 1, 1]), refinement.BETA, refinement.EPSILON
    kl, total, slopes = (q - q_old) ** 2 / 2, 0.0, []
    for n in range(5):
        far = max(0.0, kl[n] - epsilon)
        total += ((q[n] - target[n]) ** 2 / 2 + beta * far**2) * valid[n] / 4
        slopes.append((q[n] - target[n] + 2 * beta * far * (q[n] - q_old[n])) * valid[n] / 4)
    assert 0 < sum(kl > epsilon) < 5

    loss = partial(refinement.loss, q_old=q_old[None], target=target, valid=valid)
    (value, metrics), gradient = jit(jax.value_and_grad(loss, has_aux=True))(q[None])
    np.testing.assert_allclose(value, total, rtol=1e-5)
    np.testing.assert_allclose(gradient[0], slopes, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["refine/kl"], (kl * valid).sum() / 4, rtol=1e-5)
    gap = ((target - q) * valid).sum() / 4
    np.testing.assert_allclose(metrics["refine/target_gap"], gap, rtol=1e-5)
    plain = jit(jax.value_and_grad(paper.refinement_loss))(q, target, q_old, valid)
    np.testing.assert_allclose(plain[0], total, rtol=1e-5)
    np.testing.assert_allclose(plain[1], slopes, rtol=1e-4, atol=1e-6)


def test_refinement_is_a_plain_step_towards_the_neighbours():
    """The step equals lr times a gradient taken by hand, towards targets of a plain loop."""
    config = settings(**{"refinement.lr": 0.05})
    store, u = ring(), np.random.default_rng(3).random(12).astype(np.float32)
    agent = jit(usc.init, static_argnums=(1, 2))(jax.random.key(1), SPEC, config)
    batch = helpers.agents.sample(store, jax.random.key(2), config=config)
    obs = cost_critic.critic_inputs(agent, batch.obs)
    own = np.random.default_rng(4).random(12).astype(np.float32)
    refine = jit(usc.refine, static_argnames="config")
    size = jnp.float32(COST_SIZE)
    safety, metrics = refine(agent, agent.safety, batch, obs, own, u, size, config=config)

    top = np.argsort(-u)[:4]
    found = search(store, batch.neighbours.start, np.asarray(batch.index)[top])
    found, rows = jax.device_get((found, store))
    assert config.safety.steps > 1

    @jit
    def q_ahead(raw):
        action = networks.actor(agent.target_actor, cost_critic.actor_inputs(agent, raw))
        return cost_critic.q_cost(
            agent.target_safety, cost_critic.critic_inputs(agent, raw), action
        )

    def value(row):
        total, discount = 0.0, 1.0
        for step in range(config.safety.steps):
            last = row + step
            total += discount * rows.cost[last] / COST_SIZE
            discount *= config.gamma
            if rows.terminated[last] or rows.truncated[last] or last + 1 == rows.size:
                break
        if not (rows.terminated[last] and rows.success[last]):
            total += discount * float(q_ahead(rows.next_obs[last][None])[0])
        return total

    known = np.vectorize(value, [np.float32])(found.rows)
    others = np.asarray(interpolate(known, found.distance, found.valid))
    wanted = refinement.OWN * own[top] + (1 - refinement.OWN) * others
    np.testing.assert_allclose(metrics["refine/target_mean"], wanted.mean(), rtol=1e-4)
    x = np.concatenate([obs, batch.action], axis=1)[top]

    def loss(params):
        return jnp.mean((networks.forward(params[0], x)[:, 0] - wanted) ** 2) / 2

    gradient = jit(jax.grad(loss))(agent.safety)
    length = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
    factor = 0.05 * min(1.0, refinement.LONGEST / length)
    expected = jax.tree.map(lambda p, g: p - factor * g, agent.safety, gradient)
    helpers.agents.assert_same(safety, expected, rtol=1e-3, atol=1e-6)
    assert len(agent.safety) == 1


def test_a_long_gradient_is_cut():
    params = {"w": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)}
    gradient = {"w": np.array([3.0, 0.0]), "b": np.array([4.0])}
    step = jit(refinement.step, static_argnums=2)
    cut, was_cut = step(params, gradient, 0.1)
    np.testing.assert_allclose(cut["w"], [-0.06, 0.0], rtol=1e-5)
    np.testing.assert_allclose(cut["b"], [-0.08], rtol=1e-5)
    short = jax.tree.map(lambda x: 0.1 * x, gradient)
    free, was_free = step(params, short, 0.1)
    np.testing.assert_allclose(free["b"], [-0.04], rtol=1e-5)
    assert (float(was_cut), float(was_free)) == (1, 0)
