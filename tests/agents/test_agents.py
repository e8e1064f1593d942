"""What holds for every method of the table, and the reductions between them."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safecritic import methods, replay
from safecritic.agents import cost_critic, safety_critic
from safecritic.networks import EnvSpec

SPEC = EnvSpec(obs_dim=4, action_dim=2, cost_max=1.0)
SMALL = {"hidden": (8,), "batch_size": 8, "learning_starts": 8}
SMALL_SAFETY = {
    "safety_critics": 1,
    "alternatives": 3,
    "screen_candidates": 4,
    "curvature_refresh": 2,
}
SMALL_REFINE = {"refine_top": 3, "refine_neighbours": 2, "refine_block": 8, "refine_reach": 2}


def settings(name, paper_defaults=False, **changes):
    chosen = dict(SMALL)
    if methods.get(name).agent is safety_critic:
        chosen |= SMALL_SAFETY | SMALL_REFINE
    return methods.make_config(name, "CarGoal1", paper_defaults, **(chosen | changes))


def start(name, config, seed=0):
    return methods.get(name).agent.init(jax.random.key(seed), SPEC, config)


def ring(rows=40):
    rng = np.random.default_rng(0)
    store = replay.init(64, SPEC.obs_dim, SPEC.action_dim)

    def put(name, value):
        column = getattr(store, name)
        return column.at[:rows].set(jnp.asarray(value, column.dtype))

    return store._replace(
        obs=put("obs", 5 * rng.normal(size=(rows, 4))),
        action=put("action", rng.uniform(-1, 1, size=(rows, 2))),
        reward=put("reward", rng.normal(size=rows)),
        cost=put("cost", 0.2 * (rng.random(rows) < 0.3)),
        next_obs=put("next_obs", 5 * rng.normal(size=(rows, 4))),
        terminated=put("terminated", rng.random(rows) < 0.1),
        size=jnp.int32(rows),
        cursor=jnp.int32(rows),
    )


@cache
def stepper(name, config):
    """A compiled step: observe, sample, update; and the list it adds to when it is traced."""
    agent, traces = methods.get(name).agent, []

    @jax.jit
    def step(state, store, key):
        traces.append(1)
        state = agent.observe(state, store.obs[0])
        return agent.update(state, replay.sample(store, key, config), config)

    return step, traces


def run(name, config, steps=6, seed=0):
    step, _ = stepper(name, config)
    state, store = start(name, config, seed), ring()
    for i in range(steps):
        state, metrics = step(state, store, jax.random.key(i))
    return state, metrics


def numbers(state):
    """Every array of the state as plain numbers, keys included."""
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(state)
    ]


def assert_same(first, second):
    for a, b in zip(numbers(first), numbers(second), strict=True):
        np.testing.assert_array_equal(a, b)


OFF_POLICY = [name for name, method in methods.METHODS.items() if not method.on_policy]
ALWAYS = {"actor/loss", "reward/loss", "reward/q_mean"}
SAFETY = {"safety/loss", "safety/q_mean", "safety/target_mean", "dual/multiplier"}
SPREAD = {"influence/mean", "influence/low", "influence/high"}


@pytest.mark.parametrize("name", OFF_POLICY)
def test_update_is_finite_repeatable_and_compiled_once(name):
    config = settings(name)
    state, metrics = run(name, config)
    again, _ = run(name, config)
    other, _ = run(name, config, seed=1)
    _, traces = stepper(name, config)
    assert len(traces) == 1
    assert int(state.step) == 6
    assert_same(state, again)
    assert not np.array_equal(state.actor[0]["w"], other.actor[0]["w"])
    assert all(np.isfinite(value) for value in metrics.values())
    assert {str(value.dtype) for value in metrics.values()} == {"float32"}
    wide = [x for x in jax.tree.leaves(state) if x.dtype in (jnp.float64, jnp.int64)]
    assert wide == []
    assert set(metrics) >= ALWAYS
    if methods.get(name).agent is safety_critic:
        assert set(metrics) >= SAFETY
        assert (set(metrics) >= SPREAD) == config.uses_influence

    for before, after in zip(
        jax.tree.leaves(start(name, config).target_actor),
        jax.tree.leaves(state.target_actor),
        strict=True,
    ):
        assert not np.array_equal(before, after)


ONE_PER_AGENT = {methods.get(name).agent: name for name in OFF_POLICY}.values()


@pytest.mark.parametrize("name", ONE_PER_AGENT)
def test_acting(name):
    agent, config = methods.get(name).agent, settings(name)
    state = start(name, config)
    obs = jnp.array([1.0, -2.0, 3.0, 0.5], jnp.float32)
    act = jax.jit(agent.act, static_argnames=("config", "explore"))
    values = jax.jit(agent.values, static_argnames="config")
    still, parts, info = act(state, obs, config=config, explore=False)
    assert still.shape == (2,)
    assert still.dtype == jnp.float32
    np.testing.assert_array_equal(parts["noise"], state.noise)
    np.testing.assert_allclose(still, agent.policy(state, obs[None], config)[0], atol=1e-6)
    noisy, parts, _ = act(state, obs, config=config, explore=True)
    assert not np.array_equal(noisy, still)
    assert (np.abs(noisy) <= 1).all()
    same, _, _ = act(state, obs, config=config, explore=True)
    np.testing.assert_array_equal(noisy, same)
    state = state._replace(**parts)
    assert not np.array_equal(act(state, obs, config=config, explore=True)[0], noisy)

    if "q_cost" in info:
        assert (set(info) == {"q_cost"}) != (agent is safety_critic)
        found = values(state, obs[None], still[None], config=config)
        np.testing.assert_allclose(found["q_cost"], info["q_cost"], rtol=1e-5)
    else:
        assert info == {}

    state, metrics = agent.end_episode(state, jnp.float32(3.0), config)
    np.testing.assert_array_equal(state.noise, 0.0)
    if hasattr(config, "multiplier_lr"):
        expected = config.multiplier_init + config.multiplier_lr * (3.0 - config.cost_limit)
        np.testing.assert_allclose(metrics["dual/multiplier"], expected, rtol=1e-6)


def test_screen_changes_a_risky_action_also_without_exploration():
    config = settings("sc", tolerance=0.0, screen_candidates=64, screen_from="uniform")
    state = start("sc", config)
    obs = jnp.ones(4, jnp.float32)
    act = jax.jit(safety_critic.act, static_argnames=("config", "explore"))
    values = jax.jit(safety_critic.values, static_argnames="config")
    action, _, info = act(state, obs, config=config, explore=False)
    proposed = safety_critic.policy(state, obs[None], config)
    q = values(state, obs[None], proposed, config=config)["q_cost"][0]
    assert float(info["screened"]) == float(info["changed"]) == 1.0
    assert float(info["q_cost"]) < float(q)
    found = values(state, obs[None], action[None], config=config)["q_cost"]
    np.testing.assert_allclose(found, info["q_cost"], rtol=1e-4)
    off = dataclasses.replace(config, screen=False)
    kept, _, info = act(state, obs, config=off, explore=False)
    np.testing.assert_allclose(kept, proposed[0], atol=1e-6)
    assert float(info["screened"]) == 0.0


def test_influence_follows_the_setting():
    """`batch` lies in [0, 1] and is that of the rows given; `replay` needs its curvature."""
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(6, 4)), jnp.float32)
    actions = jnp.zeros((6, 2), jnp.float32)
    values = jax.jit(safety_critic.values, static_argnames="config")
    printed = settings("usc-nr", reference="batch", damping=1e-2)
    state = start("usc-nr", printed)
    assert state.curvature is None
    u = values(state, rows, actions, config=printed)["influence"]
    assert ((u > 0) & (u < 1)).all()
    config = settings("usc-nr")
    state, metrics = run("usc-nr", config)
    assert [int(member.age) for member in state.curvature] == [6] * config.safety_critics
    u = values(state, rows, actions, config=config)["influence"]
    far = values(state, 100 * rows, actions, config=config)["influence"]
    assert float(u.mean()) < float(far.mean())
    assert metrics["influence/low"] <= metrics["influence/mean"] <= metrics["influence/high"]
    plain = settings("sc")
    assert "influence" not in values(start("sc", plain), rows, actions, config=plain)


def test_larger_of_two_critics_is_the_target():
    config = settings("sc", safety_critics=2)
    state = start("sc", config)
    next_obs = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)), jnp.float32)
    cost, discount = jnp.ones(5, jnp.float32), jnp.full(5, 0.9, jnp.float32)
    target = jax.jit(cost_critic.cost_target, static_argnames="config")
    found = target(state, cost, discount, next_obs, config=config)
    single = settings("sc", safety_critics=1)
    for e in range(2):
        one = state.target_safety[e : e + 1]
        value = target(state._replace(target_safety=one), cost, discount, next_obs, config=single)
        assert (found >= value - 1e-6).all()
    assert found.shape == (5,)


def test_a_clipped_critic_below_0_still_learns():
    """Q_C is 0 for whoever uses it, but the regression sees the slope."""
    config = settings("usc-nr", safety_output="clipped", safety_critics=1)
    state, store = start("usc-nr", config), ring()
    below = jax.tree.map(jnp.copy, state.safety)
    below[0][-1]["b"] = jnp.full(1, -5.0, jnp.float32)
    obs, action = store.obs[:8], store.action[:8]
    values = jax.jit(safety_critic.values, static_argnames="config")
    found = values(state._replace(safety=below), obs, action, config=config)
    np.testing.assert_array_equal(found["q_cost"], 0.0)
    slope = jax.jit(jax.grad(safety_critic.safety_loss, has_aux=True), static_argnames="config")
    ones = jnp.ones(8, jnp.float32)
    gradient, _ = slope(below, obs, action, ones, None, state.cost_bound, config=config)
    np.testing.assert_allclose(gradient[0][-1]["b"], -6.0, atol=0.1)


def assert_same_networks(ours, theirs):
    def networks(state):
        return state.actor, state.reward, state.safety, state.target_safety

    for a, b in zip(
        jax.tree.leaves(networks(ours)), jax.tree.leaves(networks(theirs)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_weight_0_leaves_the_bellman_loss():
    """The gradient of CSC's loss with weight 0 is SC's."""
    csc, sc = settings("csc", conservative_weight=0.0), settings("sc")
    state, store = start("sc", sc), ring()
    obs, action, targets = store.obs[:8], store.action[:8], store.cost[:8]
    tried = safety_critic.try_actions(
        jax.random.key(1), jax.random.key(2), action, jnp.ones(8, jnp.float32), csc
    )
    slope = jax.jit(jax.grad(safety_critic.safety_loss, has_aux=True), static_argnames="config")
    bound = state.cost_bound
    ours, _ = slope(state.safety, obs, action, targets, tried, bound, config=csc)
    theirs, _ = slope(state.safety, obs, action, targets, None, bound, config=sc)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_csc_with_weight_0_is_sc():
    ours, _ = run("csc", settings("csc", conservative_weight=0.0), steps=3)
    theirs, _ = run("sc", settings("sc"), steps=3)
    assert_same_networks(ours, theirs)


@pytest.mark.slow
def test_refinement_with_no_step_is_usc_nr():
    ours, _ = run("usc", settings("usc", refine_lr=0.0), steps=3)
    theirs, _ = run("usc-nr", settings("usc-nr"), steps=3)
    assert_same_networks(ours, theirs)


def test_the_family_differs_by_settings_alone():
    same_agent = {methods.get(name).agent for name in ("sc", "csc", "usc-nr", "usc")}
    assert same_agent == {safety_critic}
    assert settings("usc", refinement=False) == settings("usc-nr")
    conservative = {"objective": "conservative", "alternatives_from": "policy"}
    assert settings("usc-nr", **conservative) == settings("csc")


@pytest.mark.slow
@pytest.mark.parametrize("name", OFF_POLICY)
def test_paper_defaults_run(name):
    config = settings(name, paper_defaults=True)
    assert config.actor_lr == 2e-3
    _, metrics = run(name, config, steps=20)
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"safety_critics": 2, "safety_value": "mean", "reference": "batch"},
        {"safety_critics": 2, "conservative_gradient": "exact", "safety_output": "bounded"},
        {"safety_n_step": 3, "n_step": 1, "costly_share": 0.5, "refine_target": "cost"},
        {"observation_scaling": "none", "safety_output": "linear", "screen": False},
    ],
)
def test_settings_combine(changes):
    config = settings("usc", **changes)
    state, metrics = run("usc", config, steps=20)
    assert all(np.isfinite(value) for value in metrics.values())
    again, _ = run("usc", config, steps=20)
    assert_same(state, again)


def test_table():
    names = ["ddpg", "pid-lag", "cpo", "rcpo", "sc", "csc", "usc-nr", "usc"]
    assert list(methods.METHODS) == names
    assert methods.get("USC").title == "USC"
    paper = methods.make_config("usc", "CarGoal2", paper_defaults=True)
    assert (paper.conservative_form, paper.reference, paper.refine_target) == (
        "printed",
        "batch",
        "cost",
    )
    assert (paper.actor_lr, paper.damping, paper.conservative_weight) == (2e-3, 1e-6, 1e-3)
    assert paper.conservative_share == 1.0
    assert (paper.cost_limit, methods.make_config("sc", "CarGoal1").cost_limit) == (5.0, 1.0)
    assert methods.make_config("csc", cost_limit=3.0).cost_limit == 3.0
    assert hash(paper) == hash(methods.make_config("usc", "CarGoal2", paper_defaults=True))
    for method in methods.METHODS.values():
        known = {f.name for f in dataclasses.fields(method.config)}
        assert set(method.defaults) | set(method.paper) <= known


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(methods.get, "ucs"), "unknown method 'ucs': did you mean"),
        (partial(methods.make_config, "usc", tolerence=1), "did you mean tolerance"),
        (partial(methods.make_config, "ddpg", tolerance=1), "unknown setting 'tolerance' of ddpg"),
        (
            partial(methods.make_config, "sc", cost_limit=-1.0),
            r"cost_limit must be >= 0, got -1.0 \(--cost-limit\)",
        ),
        (partial(methods.make_config, "sc", gamma=1.0), r"gamma must be in \[0, 1\), got 1.0"),
        (partial(methods.make_config, "ddpg", batch_size=9, buffer_size=8), "no batch could be"),
        (partial(methods.make_config, "sc", hidden=()), "hidden must be one or more"),
        (
            partial(methods.make_config, "usc", conservative_share=0.0),
            r"conservative_share must be in \(0, 1\], got 0.0 \(--conservative-share\)",
        ),
        (
            partial(methods.make_config, "usc", conservative_form="hing"),
            "conservative_form must be one of band, hinge, mirrored, printed, flipped, got 'hing'",
        ),
        (partial(methods.make_config, "usc", damping=0.0), "damping must be > 0"),
        (partial(methods.make_config, "usc", costly_share=1.5), "between 0 and 1"),
        (partial(methods.make_config, "usc", refine_top=65), "refine_top 65 exceeds batch_size 64"),
        (partial(methods.make_config, "usc", gamma="high"), "gamma must be a number, got 'high'"),
        (partial(methods.make_config, "usc", refine_top=2.5), "refine_top must be a whole number"),
        (partial(methods.make_config, "usc", tolerance=float("nan")), "tolerance must be a number"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bounded_critic_needs_the_largest_cost():
    config = settings("sc", safety_output="bounded")
    with pytest.raises(ValueError, match="'bounded' needs the largest cost of one step"):
        safety_critic.init(jax.random.key(0), EnvSpec(4, 2), config)
