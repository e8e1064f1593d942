"""What holds for every method of the table, and the reductions between them."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import agents as helpers
from helpers.agents import assert_same, costly_replay, start, stepper
from helpers.quick import jit
from safecritic import methods
from safecritic.agents import cost_critic, safety_critic
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import flatten, helps, part_types, replace, setting_fields
from safecritic.fast.activations import forward_members

settings = partial(helpers.settings, task="CarGoal1")
values = jit(safety_critic.values, static_argnames="config")
loss_gradient = jit(jax.grad(safety_critic.safety_loss, has_aux=True), static_argnames="config")


def run(name, config, steps=6, seed=0):
    step, _ = stepper(name, config)
    state, store = start(name, config, seed), costly_replay()
    for i in range(steps):
        state, metrics = step(state, store, jax.random.key(i))
    return state, metrics


OFF_POLICY = [name for name, method in methods.METHODS.items() if not method.on_policy]
MIXES = {"csc", "usc-nr"}  # of parts that usc has too
QUICK_FIRST = [
    pytest.param(name, marks=pytest.mark.slow) if name in MIXES else name for name in OFF_POLICY
]
ALWAYS = {"actor/loss", "reward/loss", "reward/q_mean", "units/reward", "units/cost"}
SAFETY = {"safety/loss", "safety/q_mean", "safety/target_mean", "dual/multiplier"}
SPREAD = {"influence/mean", "influence/low", "influence/high"}


@pytest.mark.parametrize("name", QUICK_FIRST)
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
    if methods.get(name).load_agent() is safety_critic:
        assert set(metrics) >= SAFETY
        assert (set(metrics) >= SPREAD) == (config.influence is not None)

    for before, after in zip(
        jax.tree.leaves(start(name, config).target_actor),
        jax.tree.leaves(state.target_actor),
        strict=True,
    ):
        assert not np.array_equal(before, after)


ONE_PER_AGENT = {methods.get(name).load_agent(): name for name in OFF_POLICY}.values()


@pytest.mark.parametrize("name", ONE_PER_AGENT)
def test_acting(name):
    agent, config = methods.get(name).load_agent(), settings(name)
    state = start(name, config)
    obs = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    act = jit(agent.act, static_argnames=("config", "explore"))
    policy = jit(agent.policy, static_argnames="config")
    still, parts, info = act(state, obs, np.float32(0.0), config=config, explore=False)
    assert still.shape == (2,)
    assert still.dtype == jnp.float32
    np.testing.assert_array_equal(parts["noise"], state.noise)
    np.testing.assert_allclose([still], policy(state, obs[None], config=config), atol=1e-6)
    noisy, parts, _ = act(state, obs, np.float32(0.0), config=config, explore=True)
    assert not np.array_equal(noisy, still)
    assert (np.abs(noisy) <= 1).all()
    same, _, _ = act(state, obs, np.float32(0.0), config=config, explore=True)
    np.testing.assert_array_equal(noisy, same)
    state = state._replace(**parts)
    assert not np.array_equal(
        act(state, obs, np.float32(0.0), config=config, explore=True)[0], noisy
    )

    if "q_cost" in info:
        assert (set(info) == {"q_cost"}) != (agent is safety_critic)
        of_action = jit(agent.values, static_argnames="config")
        found = of_action(state, obs[None], np.asarray(still)[None], config=config)
        np.testing.assert_allclose(found["q_cost"], info["q_cost"], rtol=1e-5)
    else:
        assert info == {}

    end_episode = jit(agent.end_episode, static_argnames="config")
    cost, decisions = np.float32(1.5), np.float32(40)
    after, metrics = end_episode(state, cost, decisions, config=config)
    np.testing.assert_array_equal(after.noise, 0.0)
    if hasattr(config, "multiplier_lr"):
        aim = config.multiplier_aim * config.cost_limit
        excess = (1.5 - aim) / aim
        moved = config.multiplier_lr * 40 * excess + config.multiplier_gain * excess
        expected = config.multiplier_init * np.exp(moved)
        np.testing.assert_allclose(metrics["dual/multiplier"], expected, rtol=1e-5)
        printed = replace(config, multiplier_rule="printed", multiplier_lr=0.1)
        _, metrics = agent.end_episode(state, jnp.float32(1.5), jnp.float32(40), printed)
        expected = config.multiplier_init + 0.1 * (1.5 - config.cost_limit)
        np.testing.assert_allclose(metrics["dual/multiplier"], expected, rtol=1e-6)


def test_screen_changes_a_risky_action_also_without_exploration():
    screen = {"tolerance": 0.0, "tolerance_in": "cost", "screen_choice": "cost"}
    screen |= {"screen_candidates": 64, "screen_from": "uniform"}
    config = settings("sc", units="task", **screen)
    state = start("sc", config)
    obs = np.ones(4, np.float32)
    act = jit(safety_critic.act, static_argnames=("config", "explore"))
    action, _, info = act(state, obs, np.float32(0.0), config=config, explore=False)
    proposed = jit(safety_critic.policy, static_argnames="config")(state, obs[None], config=config)
    q = values(state, obs[None], proposed, config=config)["q_cost"][0]
    assert float(info["screened"]) == float(info["changed"]) == 1.0
    assert float(info["q_cost"]) < float(q)
    found = values(state, obs[None], np.asarray(action)[None], config=config)["q_cost"]
    np.testing.assert_allclose(found, info["q_cost"], rtol=1e-4)
    unknown = settings("sc", units="measured", **screen)  # no cost yet, so no unit to screen in
    assert (
        float(act(state, obs, np.float32(0.0), config=unknown, explore=False)[2]["screened"]) == 0.0
    )
    off = dataclasses.replace(config, screen=None)
    kept, _, info = act(state, obs, np.float32(0.0), config=off, explore=False)
    np.testing.assert_allclose([kept], proposed, atol=1e-6)
    assert float(info["screened"]) == 0.0


def test_influence_follows_the_setting():
    """`batch` lies in [0, 1] and is that of the rows given; `replay` needs its curvature."""
    rows = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    actions = np.zeros((6, 2), np.float32)
    printed = settings("usc-nr", reference="batch", damping=1e-2)
    state = start("usc-nr", printed)
    assert state.curvature is None
    u = np.asarray(values(state, rows, actions, config=printed)["influence"])
    assert ((u > 0) & (u < 1)).all()
    config = settings("usc")
    state, metrics = run("usc", config)
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
    next_obs = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    cost, discount = np.ones(5, np.float32), np.full(5, 0.9, np.float32)
    target = jit(cost_critic.cost_target, static_argnames="config")
    found = np.asarray(target(state, cost, discount, next_obs, state.cost_bound, config=config))
    single = settings("sc", safety_critics=1)
    for e in range(2):
        one = state.target_safety[e : e + 1]
        alone = state._replace(target_safety=one)
        value = target(alone, cost, discount, next_obs, state.cost_bound, config=single)
        assert (found >= np.asarray(value) - 1e-6).all()
    assert found.shape == (5,)


def test_a_clipped_critic_below_0_still_learns():
    """Q_C is 0 for whoever uses it, but the regression sees the slope."""
    config = settings("usc-nr", safety_output="clipped", safety_critics=1)
    state, store = start("usc-nr", config), costly_replay()
    below = jax.tree.map(jnp.copy, state.safety)
    below[0][-1]["b"] = np.full(1, -5.0, np.float32)
    obs, action = (np.asarray(column)[:8] for column in (store.obs, store.action))
    found = values(state._replace(safety=below), obs, action, config=config)
    np.testing.assert_array_equal(found["q_cost"], 0.0)
    inputs = (below, obs, action, np.ones(8, np.float32), None, None, state.cost_bound)
    gradient, _ = loss_gradient(*inputs, config=config)
    np.testing.assert_allclose(gradient[0][-1]["b"], -6.0, atol=0.1)


def assert_same_networks(ours, theirs):
    def networks(state):
        return state.actor, state.reward, state.safety, state.target_safety

    assert_same(networks(ours), networks(theirs), rtol=1e-5, atol=1e-7)


def test_weight_0_leaves_the_bellman_loss():
    """The gradient of CSC's loss with weight 0 is SC's."""
    csc, sc = settings("csc", conservative_weight=0.0), settings("sc")
    state, store = start("sc", sc), costly_replay()
    obs, action, targets = (np.asarray(x)[:8] for x in (store.obs, store.action, store.cost))

    @jit
    def drawn(action):
        keys = jax.random.key(1), jax.random.key(2)
        return safety_critic.sample_alternatives(*keys, action, jnp.ones(8, jnp.float32), csc)

    rows, bound = (state.safety, obs, action, targets), state.cost_bound
    passes = jit(forward_members)(state.safety, obs, action)
    ours, _ = loss_gradient(*rows, drawn(action), passes, bound, config=csc)
    theirs, _ = loss_gradient(*rows, None, None, bound, config=sc)
    assert_same(ours, theirs, rtol=1e-5, atol=1e-8)


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


def test_the_family_differs_by_parts_alone():
    same_agent = {methods.get(name).load_agent() for name in ("sc", "csc", "usc-nr", "usc")}
    assert same_agent == {safety_critic}
    assert settings("usc", refinement=False) == settings("usc-nr")
    bare = {"influence": False, "refinement": False, "alternatives_from": "policy"}
    assert settings("usc", **bare) == settings("csc")
    assert settings("csc", conservative=False) == settings("sc")


def test_flat_names_lead_back_to_the_settings():
    for name in methods.METHODS:
        for paper_defaults in (False, True):
            config = methods.make_config(name, paper_defaults=paper_defaults)
            flat = json.loads(json.dumps(flatten(config)))
            assert methods.make_config(name, **flat) == config
    flat = flatten(methods.make_config("sc", tolerance=2.0))
    assert (flat["screen"], flat["tolerance"], flat["conservative"]) == (True, 2.0, False)
    assert "conservative_weight" not in flat


def test_settings_are_replaced_by_their_flat_names():
    config = methods.make_config("usc", refine_confident=False, tolerance=2.0)
    other = replace(config, refine_top=4, gamma=0.9)
    assert (other.refinement.refine_top, other.gamma) == (4, 0.9)
    assert (other.refinement.refine_confident, other.screen.tolerance) == (False, 2.0)
    assert replace(config, screen=False) == dataclasses.replace(config, screen=None)
    assert replace(replace(config, screen=False), gamma=0.9).screen is None
    with pytest.raises(ValueError, match="tolerance"):
        replace(replace(config, screen=False), tolerance=1.0)


def test_every_setting_has_its_help_and_no_two_parts_share_one():
    for method in methods.METHODS.values():
        kind = method.settings_type()
        names = [field.name for field, _ in setting_fields(kind, method.parts)]
        assert len(set(names)) == len(names)
        known = helps(kind)
        for part in part_types(kind).values():
            known |= helps(part)
        assert all(len(known[name]) > 5 for name in names)


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
    conservative = paper.conservative
    assert (conservative.conservative_form, conservative.conservative_weight) == ("printed", 1e-3)
    assert (paper.influence.reference, paper.refinement.refine_target) == ("batch", "cost")
    assert (paper.actor_lr, paper.influence.damping, paper.screen.tolerance) == (2e-3, 1e-6, 0.3)
    assert conservative.conservative_share == 1.0
    assert (paper.cost_limit, methods.make_config("sc", "CarGoal1").cost_limit) == (5.0, 1.0)
    assert methods.make_config("csc", cost_limit=3.0).cost_limit == 3.0
    assert hash(paper) == hash(methods.make_config("usc", "CarGoal2", paper_defaults=True))
    for method in methods.METHODS.values():
        assert set(method.defaults) | set(method.paper) <= set(method.setting_names())


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
            "conservative_form must be one of band, hinge, mirrored, flipped, printed, got 'hing'",
        ),
        (
            partial(methods.make_config, "sc", conservative_weight=1.0),
            "conservative part, which sc does not have: use it with csc, usc-nr, usc",
        ),
        (partial(methods.make_config, "usc-nr", refinement=True), "which usc-nr does not have"),
        (
            partial(methods.make_config, "usc", screen=False, tolerance=1.0),
            "tolerance is a setting of the screen part, which is switched off",
        ),
        (partial(methods.make_config, "usc", influence=False), "refinement needs the influence"),
        (partial(methods.make_config, "usc", screen="no"), "screen must be True or False"),
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
