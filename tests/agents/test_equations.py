"""The paper's equations on tiny numbers, against plain float64 loops written from the text."""

import importlib
import inspect
import pkgutil
import re
from functools import partial
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
import safecritic
from helpers.quick import jit
from safecritic import networks, noise
from safecritic.agents import cost_critic, ddpg, safety_critic, scaling
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import replace
from safecritic.critics import bellman, conservative, influence, screening
from safecritic.critics.conservative import Form
from safecritic.critics.multiplier import gradient_step
from safecritic.critics.screening import Screen
from safecritic.fast.activations import forward_actions


@pytest.fixture
def rng():
    return np.random.default_rng(0)


SPEC = EnvSpec(obs_dim=3, action_dim=2, cost_max=1.0)
B, M = 5, 3


SMALL = {
    "hidden": (6, 5),
    "batch_size": B,
    "alternatives": M,
    "observation_scaling": "none",
    "safety_critics": 1,
    "safety_output": "softplus",
    "output_sharpness": 5.0,
}
settings = partial(helpers.agents.settings, small=SMALL)
inputs = jit(scaling.inputs, static_argnums=2)
critic_inputs = jit(scaling.critic_inputs, static_argnums=2)


def double(tree):
    return jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64) if leaf.dtype == jnp.float32 else leaf, tree
    )


def plain_network(params, x):
    """One row through a single network, layer by layer and unit by unit."""
    for number, layer in enumerate(params):
        w, b = np.asarray(layer["w"], np.float64), np.asarray(layer["b"], np.float64)
        out = [b[j] + sum(x[i] * w[i, j] for i in range(len(x))) for j in range(len(b))]
        x = out if number == len(params) - 1 else [max(v, 0.0) for v in out]
    return np.array(x)


def plain_cost(params, obs, action, sharpness=5.0):
    z = plain_network(params, [*obs, *action])[0]
    return np.log1p(np.exp(sharpness * z)) / sharpness


def test_networks_equal_a_plain_loop(rng):
    members = double(networks.init_members(jax.random.key(0), (5, 6, 5, 1), 2, final=0.5))
    obs, action = rng.normal(size=(B, 3)), rng.normal(size=(B, 2))
    q = jit(networks.critics)(members, obs, action)
    actions = rng.normal(size=(B, M, 2))
    critic_many = jit(lambda *inputs: forward_actions(*inputs).raw)
    many = np.asarray([critic_many(params, obs, actions) for params in members])
    q = np.asarray(q)
    for e, i in np.ndindex(2, B):
        expected = plain_network(members[e], [*obs[i], *action[i]])[0]
        np.testing.assert_allclose(q[e, i], expected, rtol=1e-12)
        for j in range(M):
            expected = plain_network(members[e], [*obs[i], *actions[i, j]])[0]
            np.testing.assert_allclose(many[e, i, j], expected, rtol=1e-12)
    policy = networks.init(jax.random.key(1), (3, 6, 2))
    out = np.asarray(jit(networks.actor)(double(policy), obs))
    for i in range(B):
        np.testing.assert_allclose(out[i], np.tanh(plain_network(policy, obs[i])), rtol=1e-12)


def test_first_weights_are_uniform_within_their_bounds():
    params, other = jax.device_get(networks.init_members(jax.random.key(0), (50, 40, 30, 1), 2))
    shapes = [(50, 40), (40,), (40, 30), (30,), (30, 1), (1,)]
    for i, (layer, bound) in enumerate(zip(params, (50**-0.5, 40**-0.5, 3e-3), strict=True)):
        assert (layer["w"].shape, layer["b"].shape) == (shapes[2 * i], shapes[2 * i + 1])
        assert 0.8 * bound < np.abs(layer["w"]).max() <= bound
        assert np.abs(layer["b"]).max() <= bound
        assert abs(float(layer["w"].std()) / bound - 3**-0.5) < 0.1
        assert not np.array_equal(layer["w"], other[i]["w"])


def test_outputs_of_the_safety_critic():
    z, bound = np.array([-50.0, -1.0, 0.0, 0.3, 2.0, 1e6]), np.float64(4.0)
    soft = np.log1p(np.exp(5 * z[:5])) / 5

    @partial(jit, static_argnums=0)
    def output(form):
        return networks.cost_output(jnp.asarray(z), form, bound, 5.0)

    np.testing.assert_allclose(output("linear"), z)
    np.testing.assert_allclose(output("clipped"), np.maximum(z, 0))
    found = np.asarray(output("softplus"))
    np.testing.assert_allclose(found[:5], soft, rtol=1e-9)
    np.testing.assert_allclose(found[5], 1e6)
    found = np.asarray(output("bounded"))
    np.testing.assert_allclose(found[:5], 4 * (1 - np.exp(-soft / 4)), atol=1e-12)
    np.testing.assert_allclose(found[5], 4.0)


def test_sharpened_observations():
    """A declared closeness stands once more behind the rest, clipped and raised to a power."""
    spec = EnvSpec(obs_dim=4, action_dim=1, closeness=(3, 1))
    config = settings(
        "sc",
        sharpening=3.0,
        sharpening_for="all",
        sharpening_gain=0.25,
        observation_scaling="running",
    )
    obs = jnp.array([[5.0, 0.5, -3.0, 1.5], [1.0, -0.2, 0.0, 0.1]], jnp.float32)
    assert scaling.input_size(spec, config) == 6
    scaler = scaling.scaler_init(spec, config)._replace(
        mean=jnp.ones(6, jnp.float32), var=jnp.full(6, 4.0, jnp.float32)
    )
    wide = np.array([[5.0, 0.5, -3.0, 1.5, 1.0, 0.125], [1.0, -0.2, 0.0, 0.1, 0.001, 0.0]])
    np.testing.assert_allclose(scaling.widen(scaler, obs, config), wide, rtol=1e-6)
    x = scaling.inputs(scaler, obs, config)
    np.testing.assert_allclose(x, (wide - 1.0) / 2.0, rtol=1e-6, atol=1e-7)
    gains = np.array([0.25, 0.25, 0.25, 0.25, 1.0, 1.0])
    found = scaling.critic_inputs(scaler, obs, config)
    np.testing.assert_allclose(found, gains * (wide - 1.0) / 2.0, rtol=1e-6, atol=1e-7)
    found_critic = found
    # any other power than a whole one takes another way
    other = settings("sc", sharpening=2.5, sharpening_for="all")
    found = scaling.widen(scaler, obs, other)[:, 4:]
    np.testing.assert_allclose(found, [[1.0, 0.5**2.5], [0.1**2.5, 0.0]], rtol=1e-5)
    # the actor sees the inputs as they are, Q_C with the gain
    state = safety_critic.init(jax.random.key(0), spec, config)._replace(scaler=scaler)
    np.testing.assert_array_equal(cost_critic.actor_inputs(state, obs, config), x)
    ours = cost_critic.critic_inputs(state, obs, config)
    np.testing.assert_array_equal(ours, found_critic)


def test_sharpened_observations_of_the_critic_alone():
    """A closeness can be raised to a power in its place, for Q_C only."""
    spec = EnvSpec(obs_dim=3, action_dim=1, closeness=(1,))
    running = {"observation_scaling": "running", "sharpening_for": "critic"}
    config = settings("sc", sharpening=3.0, sharpening_gain=0.25, **running)
    scaler = scaling.scaler_init(spec, config)._replace(mean=np.ones(3), var=np.full(3, 4.0))
    obs = np.array([5.0, 0.5, -3.0], np.float32)
    found = critic_inputs(scaler, obs, config)
    np.testing.assert_allclose(found, [0.25 * 2.0, 3.0 * 0.125, 0.25 * -2.0])
    np.testing.assert_allclose(inputs(scaler, obs, config), [2.0, -0.25, -2.0])


@pytest.mark.parametrize("closeness", [(1,), ()])
def test_sharpening_1_leaves_the_observation_alone(closeness):
    """So does a space that declares no closeness: no more inputs, and no gain."""
    spec = EnvSpec(obs_dim=3, action_dim=1, closeness=closeness)
    config = settings("sc", sharpening=1.0 if closeness else 8.0, sharpening_gain=0.25)
    assert config.observation_scaling == "none"
    scaler = scaling.scaler_init(spec, config)
    obs = np.array([5.0, 0.5, -3.0], np.float32)
    assert scaling.input_size(spec, config) == 3
    for found in (scaling.widen(scaler, obs, config), inputs(scaler, obs, config)):
        np.testing.assert_array_equal(found, obs)
    np.testing.assert_array_equal(critic_inputs(scaler, obs, config), obs)


def test_bellman_target_uses_the_discount_it_is_given():
    target = jit(bellman.target)
    found = target(np.array([1.0, 2.0]), np.array([0.9, 0.0]), np.array([10.0, 10.0]))
    np.testing.assert_allclose(found, [10.0, 2.0])
    one = np.ones(1)
    slope = jit(jax.grad(lambda q: bellman.target(one, one, q).sum()))(one)
    np.testing.assert_array_equal(slope, 0.0)


def test_eq_2_caution(rng):
    u, q = rng.random(B), rng.normal(size=B)
    found = np.asarray(jit(influence.caution)(u, q))
    for i in range(B):
        expected = np.log(1 + u[i]) * (2 if q[i] > sum(q) / B else 1)
        np.testing.assert_allclose(found[i], expected, rtol=1e-12)
    slope = jit(jax.grad(lambda u, q: influence.caution(u, q).sum(), argnums=(0, 1)))
    for part in slope(u, q):
        np.testing.assert_array_equal(part, 0.0)


def plain_margin(z_data, z_alt, form):
    """The margin of each sample, from z (B,) and the alternatives' z (B, m)."""
    found = []
    for z, others in zip(z_data, z_alt, strict=True):
        up, down = sum(np.exp(others)), sum(np.exp(-others))
        hinge = max(0.0, np.log(down / len(others)) + z)
        found.append(
            {
                "printed": np.log(up) - z,
                "flipped": z - np.log(up),
                "mirrored": np.log(down) + z,
                "hinge": hinge,
                "band": hinge + max(0.0, np.log(up / len(others)) - max(z_data)),
            }[form]
        )
    return np.array(found)


@pytest.mark.parametrize("form", get_args(Form))
def test_eq_3_margins(form, rng):
    z_data = rng.normal(size=B)
    z_alt = rng.normal(size=(B, M)) + np.array([0, 3, -3, 0, 1])[:, None]
    margin = jit(conservative.margin, static_argnums=2)
    found = margin(z_data, z_alt, form, z_data.max())
    np.testing.assert_allclose(found, plain_margin(z_data, z_alt, form), rtol=1e-12)


@pytest.mark.parametrize("form", ["band", "printed"])
def test_eq_3_loss_and_gradient(form, rng):
    """The whole of Eq. 3 for a small critic; its gradient by differences, mu and sigma held."""
    config = settings(
        "usc-nr",
        conservative_form=form,
        push_data=True,
        conservative_gradient="exact",
        sigma_epsilon=0.05,
    )
    params = double(networks.init_members(jax.random.key(2), (5, 4, 1), 1, final=1.0))
    obs, action = rng.normal(size=(B, 3)), rng.uniform(-1, 1, size=(B, 2))
    actions = rng.uniform(-1, 1, size=(B, M, 2))
    targets, weight = rng.random(B), rng.random(B)
    q0 = [plain_cost(params[0], obs[i], action[i]) for i in range(B)]
    mu, sigma = np.mean(q0), np.std(q0) + 0.05
    top = max((q - mu) / sigma for q in q0)

    def plain(params):
        total = 0.0
        for i in range(B):
            q = plain_cost(params[0], obs[i], action[i])
            z = (q - mu) / sigma
            others = [(plain_cost(params[0], obs[i], actions[i, j]) - mu) / sigma for j in range(M)]
            if form == "printed":
                margin = np.log(sum(np.exp(others))) - z
            else:
                margin = max(0.0, np.log(np.mean(np.exp(-np.array(others)))) + z)
                margin += max(0.0, np.log(np.mean(np.exp(others))) - top)
            total += 0.5 * (q - targets[i]) ** 2
            total += config.conservative.conservative_weight * 0.5 * weight[i] * margin
        return total / B

    loss = partial(
        safety_critic.safety_loss,
        critic_obs=obs,
        action=action,
        targets=targets,
        alternatives=safety_critic.Alternatives(np.arange(B), weight, actions, np.zeros((1, B))),
        passes=None,
        bound=np.float64(np.inf),
        config=config,
    )
    (value, metrics), gradient = jit(jax.value_and_grad(loss, has_aux=True))(params)
    params = jax.tree.map(np.asarray, params)
    np.testing.assert_allclose(value, plain(params), rtol=1e-10)
    np.testing.assert_allclose(
        metrics["safety/bellman_loss"] + metrics["safety/conservative_loss"], value, rtol=1e-12
    )
    leaves, shape = jax.tree.flatten(params)
    here = plain(params)
    for number, leaf in enumerate(leaves):
        for place in list(np.ndindex(leaf.shape))[::3]:
            moved = []
            for step in (1e-6, -1e-6):
                changed = [leaf.copy() for leaf in leaves]
                changed[number][place] += step
                moved.append(plain(jax.tree.unflatten(shape, changed)))
            slope = (moved[0] - moved[1]) / 2e-6
            found = jax.tree.leaves(gradient)[number][place]
            # at a kink (relu, hinge) the gradient lies between the slopes of the two sides
            sides = sorted([(moved[0] - here) / 1e-6, (here - moved[1]) / 1e-6])
            if sides[1] - sides[0] > 1e-5:
                assert sides[0] - 1e-6 <= found <= sides[1] + 1e-6
                continue
            np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-8)


def agent(config, seed=0):
    return safety_critic.init(jax.random.key(seed), SPEC, config)


def test_eq_5_actor_loss(rng):
    config = settings("usc-nr", kl_weight=0.3, kl_sigma=0.4, layer_norm="none")
    state = agent(config)
    old = networks.init(jax.random.key(9), (3, 6, 5, 2))
    obs, lam = rng.normal(size=(B, 3)), 1.7
    total = 0.0
    for row in obs:
        action = np.tanh(plain_network(state.actor, row))
        before = np.tanh(plain_network(old, row))
        kl = sum((action - before) ** 2) / (2 * 0.4**2)
        total -= plain_network(state.reward[0], [*row, *action])[0]
        total += lam * plain_cost(state.safety[0], row, action) + 0.3 * kl
    parts = double((state.actor, old, state.reward, state.safety))
    arguments = (obs, obs, np.float64(lam), np.float64(np.inf))
    loss = jit(safety_critic.actor_loss, static_argnames="config")
    value, metrics = loss(*parts, *arguments, config=config)
    np.testing.assert_allclose(value, total / B, rtol=1e-10)
    np.testing.assert_allclose(
        -metrics["actor/q_reward"] + lam * metrics["actor/q_cost"] + 0.3 * metrics["actor/kl"],
        value,
    )
    rescaled = replace(config, rescale_actor_loss=True)
    value, _ = loss(*parts, *arguments, config=rescaled)
    np.testing.assert_allclose(value, total / B / (1 + lam), rtol=1e-10)


def test_multiplier_0_is_ddpg(rng):
    config = settings("usc-nr", kl_weight=0.0)
    state = agent(config)
    obs = rng.normal(size=(B, 3)).astype(np.float32)
    networks_of = (state.actor, state.target_actor, state.reward, state.safety)
    slope = jit(jax.grad(safety_critic.actor_loss, has_aux=True), static_argnames="config")
    ours, _ = slope(*networks_of, obs, obs, np.float32(0.0), state.cost_bound, config=config)
    theirs, _ = jit(jax.grad(ddpg.actor_loss, has_aux=True))(state.actor, state.reward, obs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def plain_adam(p, g, m, v, t, lr):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    return p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def test_eq_4_and_6_are_adam_steps(rng):
    """Three steps of each on a fixed loss against the textbook's Adam."""
    config = settings("sc", safety_lr=1e-2, actor_lr=5e-3)
    state = agent(config)
    obs = rng.normal(size=(B, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, size=(B, 2)).astype(np.float32)
    targets = rng.random(B).astype(np.float32)

    @jit
    def step(state):
        """Gradients and results of both steps from one state."""
        networks_of = (state.actor, state.target_actor, state.reward, state.safety)
        slope = jax.grad(safety_critic.actor_loss, has_aux=True)
        actor_slope, _ = slope(*networks_of, obs, obs, state.multiplier, state.cost_bound, config)
        rest = (obs, action, targets, None, None)
        slope = jax.grad(safety_critic.safety_loss, has_aux=True)
        safety_slope, _ = slope(state.safety, *rest, state.cost_bound, config)
        safety, safety_opt, _, _ = safety_critic.safety_step(state, *rest, config)
        actor, actor_opt, _ = safety_critic.actor_step(
            state, state.reward, state.safety, obs, obs, config
        )
        moved = {"safety": safety, "safety_opt": safety_opt}
        moved |= {"actor": actor, "actor_opt": actor_opt}
        return {"safety": safety_slope, "actor": actor_slope}, state._replace(**moved)

    moments = dict.fromkeys(("safety", "actor"), (0.0, 0.0))
    for t in (1, 2, 3):
        slopes, after = step(state)
        for name, lr in (("safety", 1e-2), ("actor", 5e-3)):
            # the first weights, of the first member
            before, gradient, found = (
                np.asarray(jax.tree.leaves(tree)[1], np.float64)
                for tree in (getattr(state, name), slopes[name], getattr(after, name))
            )
            assert before.ndim == 2
            expected, *moments[name] = plain_adam(before, gradient, *moments[name], t, lr)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        state = after


def test_eq_7_multiplier():
    for lam, cost, limit, lr in [(1.0, 3.0, 1.0, 0.1), (0.05, 0.0, 1.0, 0.1), (0.0, 1.0, 1.0, 1)]:
        found = gradient_step(jnp.float32(lam), jnp.float32(cost), limit, lr)
        np.testing.assert_allclose(found, max(0.0, lam - lr * (limit - cost)), rtol=1e-6)


def test_algorithm_1_choice():
    proposed, others = np.array([0.9]), np.array([[0.1], [0.5], [-0.3]])
    choose = jit(screening.choose)
    chosen = choose(proposed, np.array(0.6), others, np.array([0.7, 0.2, 0.4]))
    np.testing.assert_allclose(chosen.action, [0.5])
    np.testing.assert_allclose([chosen.q_cost, chosen.screened, chosen.changed], [0.2, 1, 1])
    kept = choose(proposed, np.array(0.1), others, np.array([0.7, 0.2, 0.4]))
    np.testing.assert_allclose(kept.action, [0.9])
    np.testing.assert_allclose([kept.q_cost, kept.screened, kept.changed], [0.1, 1, 0])


@pytest.mark.parametrize("source", ["ou", "uniform"])
def test_algorithm_1_screen(source):
    """Kept at or below the tolerance; above it the cheapest of the candidates, all in the box."""

    def cost(actions):
        return jnp.abs(actions[:, 0] + 0.5)

    @jit
    def look(key, action):
        part = Screen(screen_choice="cost", screen_candidates=200, screen_from=source)
        return screening.screen(key, action, cost, cost, part, 0.3)

    safe = look(jax.random.key(0), np.array([-0.6, 0.0], np.float32))
    np.testing.assert_allclose(safe.action, [-0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose([safe.q_cost, safe.screened, safe.changed], [0.1, 0, 0], atol=1e-6)

    action = np.array([0.1, 1.0], np.float32)
    key = jax.random.key(1)
    risky = look(key, action)
    candidates = jit(screening.candidates, static_argnums=(2, 3, 4))
    others = np.asarray(candidates(key, action, 200, source, 0.2))
    assert (np.abs(others) <= 1).all()
    np.testing.assert_allclose(risky.q_cost, np.abs(others[:, 0] + 0.5).min(), rtol=1e-6)
    assert float(risky.screened) == float(risky.changed) == 1.0
    spread = float(others[:, 0].std())
    assert abs(spread - (0.2 if source == "ou" else 3**-0.5)) < 0.05


def test_exploration_noise():
    key = jax.random.key(0)
    start = jnp.array([1.0, -2.0], jnp.float32)
    step = noise.ornstein_uhlenbeck(start, key, 0.2, 0.15)
    expected = 0.85 * start + 0.2 * jax.random.normal(key, (2,), jnp.float32)
    np.testing.assert_allclose(step, expected, rtol=1e-6)
    still = noise.ornstein_uhlenbeck(start, key, 0.0, 0.15)
    np.testing.assert_allclose(still, 0.85 * start, rtol=1e-6)


def test_targets_follow_with_rate_tau():
    old, new = networks.init(jax.random.key(0), (2, 1)), networks.init(jax.random.key(1), (2, 1))
    moved = networks.update_target(old, new, 0.25)
    expected = 0.75 * np.asarray(old[0]["w"]) + 0.25 * np.asarray(new[0]["w"])
    np.testing.assert_allclose(moved[0]["w"], expected, rtol=1e-5)


def test_observation_scale_is_the_running_mean_and_spread(rng):
    data = rng.normal(size=(200, 3)) * np.array([1.0, 30.0, 0.0]) + np.array([5.0, -2.0, 7.0])
    config = settings("sc", observation_scaling="running")
    data = data.astype(np.float32)

    @jit
    def scan(data):
        step = lambda scaler, obs: (scaling.scaler_update(scaler, obs, config), None)  # noqa: E731
        return jax.lax.scan(step, scaling.scaler_init(SPEC, config), data)[0]

    scaler = scan(data)
    np.testing.assert_allclose(scaler.mean, data.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(scaler.var, data.var(axis=0), rtol=1e-3, atol=1e-6)
    found = np.asarray(inputs(scaler, data, config))
    np.testing.assert_allclose(found[:, :2].std(axis=0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(found[:, 2], 0.0, atol=1e-3)
    far = inputs(scaler, np.array([1e9, -1e9, 7.0], np.float32), config)
    np.testing.assert_allclose(far, [10.0, -10.0, 0.0], atol=1e-3)
    none = settings("sc", observation_scaling="none")
    raw = inputs(scaler, np.array([1e9, 2.0, 3.0], np.float32), none)
    np.testing.assert_array_equal(raw, np.array([1e9, 2.0, 3.0], np.float32))


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
        if not info.name.startswith(("safecritic.critics", "safecritic.agents", "safecritic.fast")):
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
    assert {f"Eq. {n}" for n in range(1, 11)} | {"Algorithm 1"} <= {row[0] for row in rows}
    assert listed == numbered_functions()
    for _, _, file, test, _ in rows:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{file} has no {test}"
