"""The product's update with the exact settings equals the plain one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import assert_same, filled_replay, numbers, row, settings, start
from reference import usc_plain
from safecritic import replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.interface import EnvSpec

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


def seasoned(config, store, seed):
    """Return a state with scales and units, a target actor that lags and a Q_C above 0."""
    state = start("usc", config, seed, SPEC)
    for number in range(20):
        state = safety_critic.observe(state, row(store, number), config)
    sizes = scaling.unit_sizes(state.units, config)
    assert abs(sizes.cost - 1.0) > 0.5
    assert abs(sizes.reward - 1.0) > 0.1
    safety = jax.tree.map(jnp.copy, state.safety)
    safety[0][-1]["w"], safety[0][-1]["b"] = 30 * safety[0][-1]["w"], jnp.ones(1, jnp.float32)
    lagging = jax.tree.map(lambda x: 0.9 * x, state.actor)
    return state._replace(safety=safety, target_actor=lagging)


@pytest.mark.parametrize("seed", [0, 1])
def test_update_equals_the_plain_one(seed):
    config, store = settings("usc", SMALL, **EXACT), made_up_replay()
    step = jax.jit(safety_critic.update, static_argnames="config")
    ours = plain = seasoned(config, store, seed)
    for i in range(2):
        batch = replay.sample(store, jax.random.key(100 * seed + i), config)
        ours, _ = step(ours, batch, config=config)
        plain = usc_plain.update(plain, batch, config)
    # the whitener is a way to compute, not a result
    ours, plain = (state._replace(curvature=state.curvature[0].moment) for state in (ours, plain))
    assert_same(ours, plain, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    "name", ["conservative_weight", "refine_lr", "refine_beta", "multiplier_init", "kl_weight"]
)
def test_the_comparison_would_see_a_missing_term(name):
    store = made_up_replay()
    networks = []
    for changes in ({}, {name: 0.0}):
        config = settings("usc", SMALL | changes, **EXACT)
        batch = replay.sample(store, jax.random.key(0), config)
        state = usc_plain.update(seasoned(config, store, 0), batch, config)
        networks.append(numbers((state.actor, state.safety)))
    gap = max(float(np.abs(a - b).max()) for a, b in zip(*networks, strict=True))
    assert gap > 2e-5
