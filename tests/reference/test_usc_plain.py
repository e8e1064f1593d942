"""The product's update with the exact settings equals the plain one."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import assert_same, filled_replay, numbers, row, sample, settings
from helpers.quick import jit
from reference import usc_plain
from safecritic.agents import safety_critic, scaling
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import flatten

SPEC = EnvSpec(obs_dim=5, action_dim=2, cost_max=1.0, closeness=(1, 3))
EXACT = {
    "conservative_gradient": "exact",
    "conservative_share": 1.0,
    "curvature_every": 1,
    "curvature_refresh": 1,
    "units": "measured",
    "sharpening_for": "all",
}
SMALL = {
    "hidden": (24, 16),
    "batch_size": 16,
    "refine_top": 4,
    "refine_neighbours": 3,
    "refine_block": 12,
    "refine_reach": 2,
    "conservative_weight": 0.5,  # large enough to see
    "refine_lr": 1e-2,
    "refine_beta": 10.0,
    "multiplier_init": 0.7,
    "kl_weight": 0.1,
}


def made_up_replay():
    """Return rows whose observations lie in and around the range of a lidar."""
    columns = {
        name: lambda rng, n: 1.2 * rng.random((n, SPEC.obs_dim)) for name in ("obs", "next_obs")
    }
    return filled_replay(SPEC, 50, **columns)


CONFIG = settings("usc", SMALL, **EXACT)
TERMS = ["conservative_weight", "refine_lr", "refine_beta", "multiplier_init", "kl_weight"]
update = jit(safety_critic.update, static_argnames="config")


@jit
def season(store, key):
    """Return a state with scales and units, a target actor that lags and a Q_C above 0."""

    def observe(state, number):
        return safety_critic.observe(state, row(store, number), CONFIG), None

    state = safety_critic.init(key, SPEC, CONFIG)
    state, _ = jax.lax.scan(observe, state, jnp.arange(20))
    ((*first, last),) = state.safety
    safety = ((*first, {"w": 30 * last["w"], "b": jnp.ones(1, jnp.float32)}),)
    lagging = jax.tree.map(lambda x: 0.9 * x, state.actor)
    return state._replace(safety=safety, target_actor=lagging)


def seasoned(store, seed):
    """Return a state that has seen enough for its units to matter."""
    state = season(store, jax.random.key(seed))
    sizes = scaling.unit_sizes(state.units, CONFIG)
    assert abs(sizes.cost - 1.0) > 0.5
    assert abs(sizes.reward - 1.0) > 0.1
    return state


@jit
def plain_update(state, batch, terms):
    """Return the state after the plain update; `terms` are settings that may differ from CONFIG.

    They are numbers for the compiled function, so that it is compiled once for all of them.
    """

    def replaced(part):
        fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        parts = {name: replaced(x) for name, x in fields.items() if dataclasses.is_dataclass(x)}
        chosen = {name: terms[name] for name in fields.keys() & terms.keys()}
        return SimpleNamespace(**(fields | parts | chosen))

    after = usc_plain.update(state, batch, replaced(CONFIG))
    return jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)


def terms(config):
    """Return the settings in TERMS."""
    return {name: flatten(config)[name] for name in TERMS}


@pytest.mark.parametrize("seed", [0, 1])
def test_update_equals_the_plain_one(seed):
    store = made_up_replay()
    ours = plain = seasoned(store, seed)
    for i in range(2):
        batch = sample(store, jax.random.key(100 * seed + i), config=CONFIG)
        ours, _ = update(ours, batch, config=CONFIG)
        plain = plain_update(plain, batch, terms(CONFIG))
    # the whitener is a way to compute, not a result
    ours, plain = (state._replace(curvature=state.curvature[0].moment) for state in (ours, plain))
    assert_same(ours, plain, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", TERMS)
def test_the_comparison_would_see_a_missing_term(name):
    store = made_up_replay()
    batch = sample(store, jax.random.key(0), config=CONFIG)
    networks = []
    for changes in ({}, {name: 0.0}):
        config = settings("usc", SMALL | changes, **EXACT)
        state = seasoned(store, 0)
        state = state._replace(multiplier=np.float32(config.multiplier_init))
        state = plain_update(state, batch, terms(config))
        networks.append(numbers((state.actor, state.safety)))
    gap = max(float(np.abs(a - b).max()) for a, b in zip(*networks, strict=True))
    assert gap > 2e-5
