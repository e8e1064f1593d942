"""What holds for every method of the table, and the reductions between them."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import SPEC, assert_same, costly_replay, settings, start, stepper
from helpers.quick import jit
from safecritic.agents import methods, paper, usc
from safecritic.agents.settings import USCSettings
from safecritic.core.settings import flatten, group_types, helps, replace

OFF_POLICY = [name for name, method in methods.METHODS.items() if not method.on_policy]
PRINTED = [name for name in OFF_POLICY if methods.get(name).printed]
MIXES = {"csc", "usc-nr"}  # of parts that usc has too
EVERY = [(name, False) for name in OFF_POLICY] + [(name, True) for name in PRINTED]
CASES = [
    pytest.param(name, printed, marks=pytest.mark.slow) if name in MIXES else (name, printed)
    for name, printed in EVERY
]
FAMILY = {"safety/loss", "safety/uncertainty_weight", "dual/multiplier"}


def run(name, config, steps=6, seed=0):
    step, _ = stepper(name, config)
    state, store = start(name, config, seed), costly_replay()
    for i in range(steps):
        state, metrics = step(state, store, jax.random.key(i))
    return state, metrics


@pytest.mark.parametrize(("name", "printed"), CASES)
def test_update_is_finite_repeatable_and_compiled_once(name, printed):
    config = settings(name, paper_defaults=printed)
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
    assert set(metrics) >= {"actor/loss", "reward/loss", "units/reward", "units/cost"}
    if getattr(state, "safety", None) is not None and name not in ("ddpg", "pid-lag"):
        learned = FAMILY - (
            set() if printed or name.startswith("usc") else {"safety/uncertainty_weight"}
        )
        assert set(metrics) >= learned
    for before, after in zip(
        jax.tree.leaves(start(name, config).target_actor),
        jax.tree.leaves(state.target_actor),
        strict=True,
    ):
        assert not np.array_equal(before, after)


ONE_PER_AGENT = [("ddpg", False), ("pid-lag", False), ("rcpo", False), ("usc", False)]
ONE_PER_AGENT += [("ddpg", True), ("usc", True)]


@pytest.mark.parametrize(("name", "printed"), ONE_PER_AGENT)
def test_acting(name, printed):
    config = settings(name, paper_defaults=printed)
    agent, state = methods.get(name).load_agent(config), start(name, config)
    obs, free = np.array([1.0, -2.0, 3.0, 0.5], np.float32), np.float32(0.0)
    act = jit(agent.act, static_argnames=("config", "explore"))
    policy = jit(agent.policy, static_argnames="config")
    still, parts, info = act(state, obs, free, config=config, explore=False)
    assert still.shape == (2,)
    assert still.dtype == jnp.float32
    np.testing.assert_array_equal(parts["noise"], state.noise)
    np.testing.assert_allclose([still], policy(state, obs[None], config=config), atol=1e-6)
    noisy, parts, _ = act(state, obs, free, config=config, explore=True)
    assert not np.array_equal(noisy, still)
    assert (np.abs(noisy) <= 1).all()
    same, _, _ = act(state, obs, free, config=config, explore=True)
    np.testing.assert_array_equal(noisy, same)
    later = state._replace(**parts)
    assert not np.array_equal(act(later, obs, free, config=config, explore=True)[0], noisy)

    if "q_cost" in info:
        found = agent.values(state, obs[None], np.asarray(still)[None], config)
        np.testing.assert_allclose(found["q_cost"], [info["q_cost"]], rtol=1e-4, atol=1e-6)
    else:
        assert name in ("ddpg", "rcpo")

    end_episode = jit(agent.end_episode, static_argnames="config")
    after, _ = end_episode(later, np.float32(1.5), np.float32(40), config=config)
    np.testing.assert_array_equal(after.noise, 0.0)


def test_the_tolerance_is_what_q_c_exceeds_in_a_twentieth_of_the_decisions():
    part, rng = USCSettings().screen, np.random.default_rng(0)

    @jit
    def follow(q):
        step = lambda tolerance, q: (usc.next_tolerance(tolerance, q, part),) * 2  # noqa: E731
        return jax.lax.scan(step, jnp.float32(part.tolerance), q)[1]

    q = rng.exponential(1.0, 40_000).astype(np.float32)
    late = np.asarray(follow(q))[20_000:]
    assert np.mean(q[20_000:] > late) == pytest.approx(usc.EXCEPTIONS, abs=0.005)
    assert late.mean() == pytest.approx(np.quantile(q, 1.0 - usc.EXCEPTIONS), rel=0.05)
    # where costs are rare, the tolerance that was set is the tolerance
    assert np.asarray(follow(0.05 * q)).max() < 1.2 * part.tolerance
    assert float(follow(0.05 * q)[-1]) == pytest.approx(part.tolerance, rel=0.01)


@pytest.mark.parametrize("printed", [False, True])
def test_influence_is_less_where_there_is_data(printed):
    config = settings("usc", paper_defaults=printed, damping=1e-2) if printed else settings("usc")
    state, _ = run("usc", config)
    rows = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    actions = np.zeros((6, 2), np.float32)
    values = jit((paper if printed else usc).values, static_argnames="config")
    u = np.asarray(values(state, rows, actions, config=config)["influence"])
    assert ((u > 0) & (u < 1)).all()
    if printed:  # the rows are their own reference: those that are there twice share it
        twice = np.concatenate([rows, rows])
        both = values(state, twice, np.zeros((12, 2), np.float32), config=config)["influence"]
        assert float(both.max()) < u.max()
    else:
        far = values(state, 100 * rows, actions, config=config)["influence"]
        assert float(u.mean()) < float(far.mean())
    plain = settings("sc", paper_defaults=printed)
    assert "influence" not in values(start("sc", plain), rows, actions, config=plain)


def test_a_clipped_critic_below_0_still_learns():
    """Q_C is 0 for whoever uses it, but the regression sees the slope."""
    config = settings("sc")
    state, store = start("sc", config), costly_replay()
    below = jax.tree.map(jnp.copy, state.safety)
    below[0][-1]["b"] = jnp.full(1, -5.0, jnp.float32)
    obs, action = store.obs[:8], store.action[:8]
    found = usc.values(state._replace(safety=below), obs, action, config)
    np.testing.assert_array_equal(found["q_cost"], 0.0)
    ones = jnp.ones(8, jnp.float32)
    slope = jit(jax.grad(usc.safety_loss, has_aux=True))
    gradient, _ = slope(below, obs, action, ones, ones, None, 0.0)
    np.testing.assert_allclose(gradient[0][-1]["b"], -6.0, atol=0.1)


def assert_same_networks(ours, theirs):
    def networks(state):
        return state.actor, state.reward, state.safety, state.target_safety

    assert_same(networks(ours), networks(theirs), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("printed", [False, True])
def test_csc_with_weight_0_is_sc(printed):
    weight = "conservative_weight" if printed else "conservative.weight"
    ours, _ = run("csc", settings("csc", paper_defaults=printed, **{weight: 0.0}), steps=3)
    theirs, _ = run("sc", settings("sc", paper_defaults=printed), steps=3)
    assert_same_networks(ours, theirs)


@pytest.mark.slow
def test_refinement_with_no_step_is_usc_nr():
    ours, _ = run("usc", settings("usc", **{"refinement.lr": 0.0}), steps=3)
    theirs, _ = run("usc-nr", settings("usc-nr"), steps=3)
    assert_same_networks(ours, theirs)


def test_the_family_differs_by_parts_alone():
    assert settings("usc", refinement=False) == settings("usc-nr")
    bare = {"influence": False, "refinement": False, "conservative.near_policy": True}
    assert settings("usc", **bare) == settings("csc")
    assert settings("csc", conservative=False) == settings("sc")
    printed = partial(methods.make_config, paper_defaults=True)
    bare = {"influence": False, "refinement": False}
    assert printed("usc", refinement=False) == printed("usc-nr")
    assert printed("usc", **bare, near_policy=True) == printed("csc")
    assert printed("usc", **bare, conservative=False) == printed("sc")
    agents = {methods.get(name).load_agent(printed(name)) for name in PRINTED}
    assert agents == {paper}
    assert PRINTED == ["ddpg", "sc", "csc", "usc-nr", "usc"]


def test_names_with_dots_lead_back_to_the_settings():
    for name in methods.METHODS:
        for paper_defaults in (False, True):
            config = methods.make_config(name, paper_defaults=paper_defaults)
            flat = json.loads(json.dumps(flatten(config)))
            assert methods.make_config(name, None, paper_defaults, **flat) == config
    flat = flatten(methods.make_config("sc", **{"screen.tolerance": 2.0}))
    assert (flat["screen"], flat["screen.tolerance"], flat["conservative"]) == (True, 2.0, False)
    assert "conservative.weight" not in flat


def test_settings_are_replaced_by_their_names():
    config = methods.make_config("usc", screen={"tolerance": 2.0})
    other = replace(config, gamma=0.9, **{"refinement.top": 4})
    assert (other.refinement.top, other.gamma, other.screen.tolerance) == (4, 0.9, 2.0)
    assert replace(config, screen=False) == dataclasses.replace(config, screen=None)
    assert replace(replace(config, screen=False), gamma=0.9).screen is None
    with pytest.raises(ValueError, match="tolerance"):
        replace(replace(config, screen=False), **{"screen.tolerance": 1.0})


@pytest.mark.parametrize("printed", [False, True])
def test_every_setting_has_its_help(printed):
    for method in methods.METHODS.values():
        settings_type = method.settings_type(printed)
        for kind in (settings_type, *group_types(settings_type).values()):
            texts = helps(kind)
            assert all(len(texts[field.name]) > 5 for field in dataclasses.fields(kind))
    assert len(methods.get("usc").setting_names()) <= 30


def test_table():
    names = ["ddpg", "pid-lag", "cpo", "rcpo", "sc", "csc", "usc-nr", "usc"]
    assert list(methods.METHODS) == names
    assert methods.get("USC").title == "USC"
    task = {"cost_limit": 5.0, "action_repeat": 4}
    printed = methods.make_config("usc", task, paper_defaults=True)
    assert (printed.actor_lr, printed.damping, printed.tolerance) == (2e-3, 1e-6, 0.3)
    assert (printed.conservative_weight, printed.kl_weight) == (1e-3, 1e-6)
    assert (printed.cost_limit, printed.action_repeat) == (5.0, 1)
    ours = methods.make_config("usc", task)
    assert (ours.cost_limit, ours.action_repeat) == (5.0, 4)
    assert methods.make_config("csc", task, cost_limit=3.0).cost_limit == 3.0
    assert hash(printed) == hash(methods.make_config("usc", task, paper_defaults=True))
    for method in methods.METHODS.values():
        assert set(method.defaults) <= set(method.setting_names())
        assert set(method.paper) <= set(method.setting_names(paper_defaults=True))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("usc", {"tolerence": 1}, "unknown setting 'tolerence' of usc"),
        ("ddpg", {"tolerance": 1}, "unknown setting 'tolerance' of ddpg"),
        ("sc", {"cost_limit": -1.0}, r"cost_limit must be >= 0, got -1.0 \(--cost-limit\)"),
        ("sc", {"gamma": 1.0}, r"gamma must be in \[0, 1\), got 1.0"),
        ("ddpg", {"batch_size": 9, "buffer_size": 8}, "no batch could be"),
        ("sc", {"hidden": ()}, "hidden must be one or more"),
        (
            "sc",
            {"conservative.weight": 1.0},
            "which sc does not have: use it with csc, usc-nr, usc",
        ),
        ("usc-nr", {"refinement": True}, "which usc-nr does not have"),
        ("usc", {"screen": False, "screen.tolerance": 1.0}, "which is switched off"),
        ("usc", {"influence": False}, "refinement needs the influence"),
        ("usc", {"screen": "no"}, "screen must be True, False"),
        ("usc", {"influence.damping": 0.0}, r"influence.damping must be > 0"),
        ("usc", {"safety.costly_share": 1.5}, "between 0 and 1"),
        ("usc", {"refinement.top": 65}, "refinement.top 65 exceeds batch_size 64"),
        ("usc", {"gamma": "high"}, "gamma must be a number, got 'high'"),
        ("usc", {"refinement.top": 2.5}, "refinement.top must be a whole number"),
        ("usc", {"screen.tolerance": float("nan")}, "screen.tolerance must be a number"),
        ("usc", {"paper_defaults": True, "influence": False}, "refinement needs the influence"),
        ("usc", {"paper_defaults": True, "damping": 0.0}, "damping must be > 0"),
        ("usc", {"paper_defaults": True, "safety.steps": 1}, "unknown setting 'safety.steps'"),
    ],
)
def test_bad_settings_are_refused(name, given, message):
    with pytest.raises(ValueError, match=message):
        methods.make_config(name, **given)


def test_an_unknown_method_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown method 'ucs': did you mean"):
        methods.get("ucs")


def test_the_agent_needs_no_largest_cost():
    config = settings("usc")
    assert usc.init(jax.random.key(0), SPEC._replace(cost_max=None), config).step == 0
