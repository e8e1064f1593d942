"""The plain update: against recorded ones, and as the oracle of the update of `agents/usc.py`.

`updates.npz` holds two updates in a row by each reading, as an earlier plain file without any of
the present code made them (as used) and the agent of that time with its printed settings.
"""

from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import assert_same, filled_replay, numbers, row, sample
from helpers.quick import jit
from safecritic.agents import paper, usc
from safecritic.agents.methods import make_config
from safecritic.core import conservative, influence, scaling
from safecritic.core.influence import Curvature
from safecritic.core.interface import EnvSpec
from safecritic.core.replay import Batch, Neighbourhood, Replay
from safecritic.core.settings import replace
from safecritic.runtime import decide

SPEC = EnvSpec(obs_dim=5, action_dim=2, cost_max=1.0, proximity=(1, 3))
COMMON = {"hidden": (12, 10), "batch_size": 16, "kl_weight": 0.1}
PLAIN = COMMON | {"conservative_weight": 0.5, "safety_lr": 1e-2}
PRINTED = make_config("usc", paper_defaults=True, **PLAIN)
USED = {"as_used": True, "actor_lr": 3e-4, "damping": 1e-3, "cost_steps": 5, "costly_share": 0.25}
USED = make_config("usc", paper_defaults=True, **PLAIN, **USED)
NETWORKS = ("actor", "reward", "safety")
RECORDED = (
    *NETWORKS,
    *(f"target_{name}" for name in NETWORKS),
    *(f"{name}_opt" for name in NETWORKS),
)

init = jit(paper.init, static_argnums=(1, 2))
update = jit(paper.update, static_argnames="config")


@cache
def recorded():
    with np.load(Path(__file__).parent / "updates.npz") as file:
        return dict(file)


def filled(tree, vector):
    """Return a tree of arrays with the numbers of a vector, leaf by leaf."""
    leaves, shape = jax.tree.flatten(tree)
    ends = np.cumsum([x.size for x in leaves])
    assert ends[-1] == len(vector)
    parts = np.split(vector, ends[:-1])
    return jax.tree.unflatten(
        shape,
        [part.reshape(x.shape).astype(x.dtype) for part, x in zip(parts, leaves, strict=True)],
    )


def compared(state, config):
    """Return what was recorded of a state."""
    parts = tuple(getattr(state, name) for name in RECORDED)
    return (parts, state.curvature) if config.as_used else (parts,)


def recorded_batch(prefix):
    names = {key.removeprefix(f"{prefix}/"): x for key, x in recorded().items() if prefix in key}
    store = Replay(*(recorded()[f"store/{name}"] for name in Replay._fields))
    names["neighbours"] = Neighbourhood(store, names.pop("start"))
    return Batch(**{"cost_next_obs": None} | names)


def raised(xp, obs, near):
    """Return what a network saw of proximity inputs when the updates were recorded."""
    return xp.concat([obs, xp.clip(xp.take(obs, near, axis=-1), 0.0, 1.0) ** 8], axis=-1)


@pytest.mark.parametrize(("reading", "config"), [("used", USED), ("printed", PRINTED)])
def test_updates_equal_the_recorded_ones(reading, config, monkeypatch):
    monkeypatch.setattr(decide, "widen", raised)
    monkeypatch.setattr(decide, "RAMPS", 1)
    # functions of their own, traced with these inputs
    init = jax.jit(lambda key: paper.init(key, SPEC, config))
    update = jax.jit(lambda state, batch: paper.update(state, batch, config))
    state = init(jax.random.key(0))
    before = filled(compared(state, config), recorded()[f"{reading}/before"])
    state = state._replace(**dict(zip(RECORDED, before[0], strict=True)))
    state = state._replace(key=jax.random.wrap_key_data(recorded()[f"{reading}/key0"]))
    state = state._replace(multiplier=jnp.float32(0.7))
    if config.as_used:
        scaler = state.scaler
        scales = (scaler.mean, scaler.var, scaler.count, state.units)
        *parts, units = filled(scales, recorded()["used/scales"])
        scaler = scaling.Scaler(*parts, proximity=scaler.proximity)
        state = state._replace(curvature=before[1], scaler=scaler, units=units)
    for number in range(2):
        moved = state
        state, _ = update(state, recorded_batch(f"{reading}/batch{number}"))
        expected = filled(compared(state, config), recorded()[f"{reading}/after{number}"])
        assert_same(compared(state, config), expected, rtol=3e-4, atol=2e-5)
        for name in NETWORKS:  # far more than the tolerance
            old, new = (numbers(getattr(x, name)) for x in (moved, state))
            assert max(np.abs(a - b).max() for a, b in zip(old, new, strict=True)) > 2e-4


# The oracle of the update of `agents/usc.py`


GROUPS = {"conservative.weight": 0.5, "safety.lr": 1e-2, "refinement.lr": 1e-2}
USC = make_config("usc", **COMMON, **GROUPS)


def made_up_replay():
    """Return rows whose observations lie in and around the range of a lidar."""
    columns = {
        name: lambda rng, n: 1.2 * rng.random((n, SPEC.obs_dim)) for name in ("obs", "next_obs")
    }
    return filled_replay(SPEC, 50, **columns)


def seasoned(store, seed):
    """Return a state of either agent with scales and units and a target actor that lags.

    Q_C is above 0, or it would be clipped everywhere.
    """

    def observe(state, number):
        return usc.observe(state, row(store, number), USC), None

    state = jit(usc.init, static_argnums=(1, 2))(jax.random.key(seed), SPEC, USC)
    state, _ = jit(partial(jax.lax.scan, observe))(state, jnp.arange(20))
    ((*first, last),) = state.safety
    state = state._replace(
        safety=((*first, {"w": 30 * last["w"], "b": jnp.ones(1, jnp.float32)}),),
        target_actor=jax.tree.map(lambda x: 0.9 * x, state.actor),
        multiplier=jnp.float32(0.7),
    )
    (curvature,) = state.curvature
    same = {name: getattr(state, name) for name in paper.State._fields if name != "curvature"}
    return state, paper.State(curvature=(curvature.moment, curvature.weight), **same)


@pytest.fixture
def exact(monkeypatch):
    """Let usc look at every batch and state, as the plain update does."""
    monkeypatch.setattr(usc, "STRIDE", 1)
    monkeypatch.setattr(influence, "EVERY", 1)
    monkeypatch.setattr(influence, "REFRESH", 1)
    monkeypatch.setattr(paper, "ALTERNATIVES", conservative.ALTERNATIVES)


@pytest.mark.usefixtures("exact")
def test_usc_takes_the_plain_update():
    store = made_up_replay()
    usc_update = jit(partial(usc.update, config=USC))
    plain_update = jit(partial(paper.update, config=USED))  # not the one compiled above
    for seed in range(2):
        ours, plain = seasoned(store, seed)
        sizes = scaling.unit_sizes(ours.units)
        assert abs(sizes.cost - 1.0) > 0.5
        assert abs(sizes.reward - 1.0) > 0.1
        for i in range(3):
            batch = sample(store, jax.random.key(100 * seed + i), config=USC)
            ours, _ = usc_update(ours, batch)
            plain, _ = plain_update(plain, batch)
        (curvature,) = ours.curvature
        assert isinstance(curvature, Curvature)
        ours = ours._replace(curvature=(curvature.moment, curvature.weight))
        for name in paper.State._fields:
            tolerance = {"rtol": 1e-3, "atol": 2e-5}
            assert_same(getattr(ours, name), getattr(plain, name), **tolerance)


SWITCHED_OFF = {
    "conservative_weight": 0.0,
    "kl_weight": 0.0,
    "influence": False,
    "refinement": False,
}


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_the_comparison_would_see_a_missing_term(name):
    store = made_up_replay()
    _, state = seasoned(store, 0)
    batch = sample(store, jax.random.key(0), config=USC)
    less = replace(USED, **{"refinement": False} | {name: SWITCHED_OFF[name]})
    more = USED if name == "refinement" else replace(USED, refinement=False)
    found = [numbers(update(state, batch, config=x)[0][:3]) for x in (more, less)]
    assert max(np.abs(a - b).max() for a, b in zip(*found, strict=True)) > 1e-4


# Acting and Eq. 7


def test_an_action_above_the_tolerance_gives_way_to_the_cheapest_candidate():
    act = jit(paper.act, static_argnames=("config", "explore"))
    config = make_config("sc", paper_defaults=True, hidden=(12, 10), tolerance=0.0)
    state = init(jax.random.key(0), SPEC, config)
    (*first, last) = state.safety[0]
    costly = ((*first, {"w": 100 * last["w"], "b": jnp.ones(1, jnp.float32)}),)
    state = state._replace(safety=costly)
    obs, free = jnp.ones(5), jnp.float32(0.0)
    action, carry, info = act(state, obs, free, config=config, explore=False)
    proposed = paper.policy(state, obs[None], config)
    np.testing.assert_allclose(info["proposed"], proposed[0], rtol=1e-5)
    q = [paper.q_cost(state.safety, obs[None], a[None], config) for a in (proposed[0], action)]
    np.testing.assert_allclose([info["q_proposed"], info["q_cost"]], np.ravel(q), rtol=1e-4)
    assert info["screened"]
    assert info["changed"]
    assert float(info["q_cost"]) < float(info["q_proposed"])
    assert 0 < np.abs(action - info["proposed"]).max() < 5 * paper.STD
    assert (np.abs(action) <= 1).all()
    again = act(state._replace(**carry), obs, free, config=config, explore=False)[0]
    assert not np.array_equal(again, action)  # other candidates
    for other in (replace(config, tolerance=1e3), replace(config, screen=False)):
        kept, _, info = act(state, obs, free, config=other, explore=False)
        np.testing.assert_allclose(kept, proposed[0], rtol=1e-5)
        assert not info["screened"]


def test_eq_7_by_hand():
    config = make_config("sc", paper_defaults=True, cost_limit=1.5, multiplier_lr=0.1)
    state = init(jax.random.key(0), SPEC, config)
    assert float(state.multiplier) == 1.0
    for cost, expected in ((4.0, 1.25), (0.0, 1.1), (1.5, 1.1), (-100.0, 0.0)):
        state, metrics = paper.end_episode(state, jnp.float32(cost), jnp.float32(9), config)
        np.testing.assert_allclose(metrics["dual/multiplier"], expected, rtol=1e-6)
    assert float(state.multiplier) == 0.0


def test_without_a_safety_critic_it_is_ddpg():
    """The actor climbs Q_R alone, nothing is screened, and costs move no multiplier."""
    config = make_config("ddpg", paper_defaults=True, hidden=(12, 10), batch_size=16)
    store, state = made_up_replay(), init(jax.random.key(0), SPEC, config)
    batch = sample(store, jax.random.key(0), config=config)
    after, metrics = update(state, batch, config=config)
    assert_same((after.safety, after.safety_opt), (state.safety, state.safety_opt))
    costly = batch._replace(cost=batch.cost + 1.0)
    assert_same(after, update(state, costly, config=config)[0])
    assert set(metrics) >= {"actor/loss", "reward/loss"}
    _, _, info = paper.act(state, batch.obs[0], jnp.float32(0.0), config, explore=True)
    assert info == {}
    after, _ = paper.end_episode(state, jnp.float32(99.0), jnp.float32(9), config)
    assert float(after.multiplier) == 0.0
