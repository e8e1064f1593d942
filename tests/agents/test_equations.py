"""The rest of the paper's equations on tiny numbers, against plain float64 loops, and their page.

Eq. 1 and 2 are in `core/test_influence.py`, Eq. 3 in `core/test_conservative.py`, Eq. 8 to 10 in
`core/test_refinement.py`, Eq. 7 as printed and whole updates in `agents/test_paper.py`.
"""

import importlib
import inspect
import pkgutil
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
import safecritic
from helpers.quick import jit
from safecritic.agents import cost_critic, ddpg, paper, usc
from safecritic.core import bellman, networks, scaling
from safecritic.core.interface import EnvSpec


@pytest.fixture
def rng():
    return np.random.default_rng(0)


SPEC = EnvSpec(obs_dim=3, action_dim=2, cost_max=1.0)
B, M = 5, 3
SMALL = {"hidden": (6, 5), "batch_size": B}
settings = partial(helpers.agents.settings, small=SMALL)


def plain_network(params, x):
    """One row through a single network, layer by layer and unit by unit."""
    for number, layer in enumerate(params):
        w, b = np.asarray(layer["w"], np.float64), np.asarray(layer["b"], np.float64)
        out = np.array([b[j] + sum(x[i] * w[i, j] for i in range(len(x))) for j in range(len(b))])
        if "g" in layer:
            out = (out - out.mean()) / np.sqrt(out.var() + 1e-5)
            out = np.asarray(layer["g"]) * out + np.asarray(layer["o"])
        x = out if number == len(params) - 1 else np.maximum(out, 0.0)
    return x


@pytest.mark.parametrize("normalise", [False, True])
def test_networks_equal_a_plain_loop(normalise, rng):
    key = jax.random.key(0)
    members = networks.init_members(key, (5, 6, 5, 1), 2, final=0.5, normalise=normalise)
    assert [("g" in layer) for layer in members[0]] == [normalise, normalise, False]
    obs, action = rng.normal(size=(B, 3)), rng.normal(size=(B, 2))
    actions = rng.normal(size=(B, M, 2))
    q = jit(networks.critics)(members, obs, action)
    many = [jit(networks.critic_of_many)(params, obs, actions) for params in members]
    for e, i in np.ndindex(2, B):
        expected = plain_network(members[e], [*obs[i], *action[i]])[0]
        np.testing.assert_allclose(q[e, i], expected, rtol=1e-4, atol=1e-5)
        for j in range(M):
            expected = plain_network(members[e], [*obs[i], *actions[i, j]])[0]
            np.testing.assert_allclose(many[e][i, j], expected, rtol=1e-4, atol=1e-5)
    policy = networks.init(jax.random.key(1), (3, 6, 2))
    out = jit(networks.actor)(policy, obs)
    for i in range(B):
        np.testing.assert_allclose(out[i], np.tanh(plain_network(policy, obs[i])), rtol=1e-4)


def test_first_weights_are_uniform_within_their_bounds():
    params, other = jax.device_get(networks.init_members(jax.random.key(0), (50, 40, 30, 1), 2))
    shapes = [(50, 40), (40,), (40, 30), (30,), (30, 1), (1,)]
    for i, (layer, bound) in enumerate(zip(params, (50**-0.5, 40**-0.5, 3e-3), strict=True)):
        assert (layer["w"].shape, layer["b"].shape) == (shapes[2 * i], shapes[2 * i + 1])
        assert 0.8 * bound < np.abs(layer["w"]).max() <= bound
        assert np.abs(layer["b"]).max() <= bound
        assert abs(float(layer["w"].std()) / bound - 3**-0.5) < 0.1
        assert not np.array_equal(layer["w"], other[i]["w"])


def test_proximity_inputs():
    """Ramps of the declared ones stand behind the rest, each over one range of distances."""
    spec = EnvSpec(obs_dim=4, action_dim=1, proximity=(3, 1))
    obs = np.array([[5.0, 0.55, -3.0, 1.5], [1.0, -0.2, 0.0, 0.7]], np.float32)
    assert scaling.input_size(spec) == 12
    scaler = scaling.scaler_init(spec)._replace(
        mean=jnp.ones(12, jnp.float32), var=jnp.full(12, 4.0, jnp.float32)
    )
    ramps = np.array([[1.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [1.0] + 7 * [0.0]])
    wide = np.concatenate([obs, ramps], axis=1)
    np.testing.assert_allclose(scaling.widen(scaler, obs), wide, rtol=1e-5, atol=1e-6)
    found = scaling.inputs(scaler, obs)
    np.testing.assert_allclose(found, (wide - 1.0) / 2.0, rtol=1e-5, atol=1e-6)
    gains = np.array(4 * [0.3] + 8 * [1.0])
    found = scaling.critic_inputs(scaler, obs)
    np.testing.assert_allclose(found, gains * (wide - 1.0) / 2.0, rtol=1e-5, atol=1e-6)
    # the actor sees the inputs as they are, Q_C with the gain; as printed both see the observation
    config = settings("usc", paper_defaults=True)
    state = jit(paper.init, static_argnums=(1, 2))(jax.random.key(0), spec, config)
    np.testing.assert_array_equal(
        cost_critic.actor_inputs(state._replace(scaler=scaler), obs), scaling.inputs(scaler, obs)
    )
    for seen in paper.inputs(state, obs, config):
        np.testing.assert_array_equal(seen, obs)


def test_without_proximity_inputs_the_observation_is_scaled_and_no_more(rng):
    scaler = scaling.scaler_init(SPEC)
    obs = np.array([5.0, 0.5, -3.0], np.float32)
    assert scaling.input_size(SPEC) == 3
    for found in (scaling.widen(scaler, obs), scaling.inputs(scaler, obs)):
        np.testing.assert_array_equal(found, obs)
    np.testing.assert_array_equal(scaling.critic_inputs(scaler, obs), obs)
    data = rng.normal(size=(200, 3)) * np.array([1.0, 30.0, 0.0]) + np.array([5.0, -2.0, 7.0])
    data = data.astype(np.float32)

    @jit
    def scan(data):
        step = lambda scaler, obs: (scaling.scaler_update(scaler, obs), None)  # noqa: E731
        return jax.lax.scan(step, scaler, data)[0]

    for after in (scan(data), scaling.scaler_update_many(scaler, data)):
        np.testing.assert_allclose(after.mean, data.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(after.var, data.var(axis=0), rtol=1e-3, atol=1e-6)
        found = np.asarray(scaling.inputs(after, data))
        np.testing.assert_allclose(found[:, :2].std(axis=0), 1.0, rtol=1e-3)
        np.testing.assert_allclose(found[:, 2], 0.0, atol=1e-3)
        far = scaling.inputs(after, np.array([1e9, -1e9, 7.0], np.float32))
        np.testing.assert_allclose(far, [10.0, -10.0, 0.0], atol=1e-3)


def test_bellman_target_uses_the_discount_it_is_given():
    target = jit(bellman.target)
    found = target(np.array([1.0, 2.0]), np.array([0.9, 0.0]), np.array([10.0, 10.0]))
    np.testing.assert_allclose(found, [10.0, 2.0])
    one = np.ones(1)
    slope = jit(jax.grad(lambda q: bellman.target(one, one, q).sum()))(one)
    np.testing.assert_array_equal(slope, 0.0)
    np.testing.assert_allclose(bellman.loss(jnp.array([1.0, 3.0]), jnp.zeros(2)), 2.5)


def test_eq_5_actor_loss(rng):
    state = jit(usc.init, static_argnums=(1, 2))(jax.random.key(0), SPEC, settings("usc-nr"))
    ((*first, last),) = state.safety
    safety = ((*first, {"w": last["w"], "b": last["b"] + 0.01}),)  # above 0 for most
    old = networks.init(jax.random.key(9), (3, 6, 5, 2))
    obs, lam = rng.normal(size=(B, 3)).astype(np.float32), 1.7
    total, by_hand = 0.0, {"q_reward": [], "q_cost": [], "moved": []}
    for row in obs:
        action = np.tanh(plain_network(state.actor, row))
        moved = action - np.tanh(plain_network(old, row))
        by_hand["q_reward"].append(plain_network(state.reward[0], [*row, *action])[0])
        by_hand["q_cost"].append(max(plain_network(safety[0], [*row, *action])[0], 0.0))
        by_hand["moved"].append(moved)
        total -= by_hand["q_reward"][-1] - lam * by_hand["q_cost"][-1]
        total += 0.3 * sum(moved**2) / (2 * 0.2**2)
    assert sum(q > 0 for q in by_hand["q_cost"]) >= 3
    parts = (state.actor, old, state.reward, safety, obs, obs, jnp.float32(lam), 0.3)
    value, metrics = jit(usc.actor_loss, static_argnums=7)(*parts)
    np.testing.assert_allclose(value, total / B, rtol=1e-4)
    shares = -metrics["actor/q_reward"] + lam * metrics["actor/q_cost"] + 0.3 * metrics["actor/kl"]
    np.testing.assert_allclose(shares, value, rtol=1e-5)
    plain = paper.actor_loss(
        **jax.tree.map(jnp.asarray, {k: np.array(x) for k, x in by_hand.items()}),
        lam=lam,
        delta=0.3,
    )
    np.testing.assert_allclose(plain, total / B, rtol=1e-4)


def test_multiplier_0_is_ddpg(rng):
    state = jit(usc.init, static_argnums=(1, 2))(jax.random.key(0), SPEC, settings("usc-nr"))
    obs = rng.normal(size=(B, 3)).astype(np.float32)
    networks_of = (state.actor, state.target_actor, state.reward, state.safety)
    slope = jit(jax.grad(usc.actor_loss, has_aux=True), static_argnums=7)
    ours, _ = slope(*networks_of, obs, obs, jnp.float32(0.0), 0.0)
    theirs, _ = jit(jax.grad(ddpg.actor_loss, has_aux=True))(state.actor, state.reward, obs)
    helpers.agents.assert_same(ours, theirs, rtol=1e-5, atol=1e-8)


def plain_adam(p, g, m, v, t, lr):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    return p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def test_eq_4_and_6_are_adam_steps():
    """Three steps on a loss whose gradient is known, against the textbook's Adam."""
    config = settings("sc", paper_defaults=True)
    state = jit(paper.init, static_argnums=(1, 2))(jax.random.key(0), SPEC, config)
    p, m, v = np.asarray(state.actor[0]["w"], np.float64), 0.0, 0.0

    @jit
    def step(state):
        return paper.adam(state, "actor", lambda x: 0.5 * jnp.sum(x[0]["w"] ** 2), 5e-3)

    for t in (1, 2, 3):
        state, value = step(state)
        np.testing.assert_allclose(value, 0.5 * (p**2).sum(), rtol=1e-4)
        p, m, v = plain_adam(p, p, m, v, t, 5e-3)
        np.testing.assert_allclose(state.actor[0]["w"], p, rtol=1e-3, atol=1e-6)
    tree, opt = networks.adam_step(state.actor, state.actor, state.actor_opt, 5e-3)
    after, _ = step(state)
    np.testing.assert_allclose(tree[0]["w"], after.actor[0]["w"], rtol=1e-5)
    assert int(opt[0].count) == 4


def test_exploration_noise():
    key = jax.random.key(0)
    start = jnp.array([1.0, -2.0], jnp.float32)
    step = networks.ornstein_uhlenbeck(start, key, 0.2, 0.15)
    expected = 0.85 * start + 0.2 * jax.random.normal(key, (2,), jnp.float32)
    np.testing.assert_allclose(step, expected, rtol=1e-6)
    still = networks.ornstein_uhlenbeck(start, key, 0.0, 0.15)
    np.testing.assert_allclose(still, 0.85 * start, rtol=1e-6)


def test_targets_follow_with_rate_tau():
    old, new = networks.init(jax.random.key(0), (2, 1)), networks.init(jax.random.key(1), (2, 1))
    moved = networks.update_target(old, new, 0.25)
    expected = 0.75 * np.asarray(old[0]["w"]) + 0.25 * np.asarray(new[0]["w"])
    np.testing.assert_allclose(moved[0]["w"], expected, rtol=1e-5)


# docs/equations.md

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(
    r"^\| (Eq\. \d+|Algorithm 1) \| `([\w.]+)` \| `([\w./]+)::(\w+)` \| (.+) \|$", re.M
)


def table():
    return ROW.findall((ROOT / "docs" / "equations.md").read_text(encoding="utf-8"))


def first_line(function):
    return (inspect.getdoc(function) or "").split("\n")[0]


def numbered_functions():
    """(number, dotted name) of every function of the package that opens with an equation."""
    found = set()
    for info in pkgutil.walk_packages(safecritic.__path__, "safecritic."):
        if not info.name.startswith(("safecritic.core", "safecritic.agents")):
            continue
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == info.name:
                opening = re.match(r"(Eq\. \d+|Algorithm 1)", first_line(function))
                if opening:
                    found.add((opening[0], f"{info.name.removeprefix('safecritic.')}.{name}"))
    return found


def test_equations_page_is_complete():
    rows = table()
    listed = {(number, name) for number, name, *_ in rows}
    mentioned = set(re.findall(r"Eq\. \d+", " ".join(" ".join(row) for row in rows)))
    assert {f"Eq. {n}" for n in range(1, 11)} <= mentioned
    assert listed == numbered_functions()
    for _, _, file, test, _ in rows:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{file} has no {test}"
