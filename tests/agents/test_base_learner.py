"""What every off-policy method shares: normalised layers of Q_R, the noise, the slow actor."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import costly_replay, settings, start
from safecritic.agents import ddpg, methods
from safecritic.core import networks, scaling

OFF_POLICY = [name for name, method in methods.METHODS.items() if not method.on_policy]


def test_a_normalised_layer_has_mean_0_and_variance_1_before_gain_and_offset():
    params = networks.init_members(jax.random.key(0), (3, 64, 1), 1, normalise=True)[0]
    assert [set(layer) for layer in params] == [{"w", "b", "g", "o"}, {"w", "b"}]
    sums = np.random.default_rng(0).normal(2.0, 5.0, (7, 64)).astype(np.float32)
    layer = {"b": sums[0], "g": np.float32(3.0), "o": np.float32(0.5)}
    shifted = (np.asarray(networks.shift(sums, layer)) - 0.5) / 3.0
    np.testing.assert_allclose(shifted.mean(axis=-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(shifted.var(axis=-1), 1.0, rtol=1e-3)
    # the bias keeps the size of the inputs: twice the sums is another point
    assert np.abs(networks.shift(2 * sums, layer) - networks.shift(sums, layer)).max() > 0.1


@pytest.mark.parametrize("name", OFF_POLICY)
def test_hidden_layers_of_the_reward_critic_alone_are_normalised(name):
    state = start(name, settings(name))
    assert ["g" in layer for layer in state.reward[0]] == [True, False]
    others = [state.actor, *(state.safety or ())]
    assert not any("g" in layer for params in others for layer in params)


def test_the_noise_halves_in_its_half_life_down_to_a_share_that_stays():
    config = settings("ddpg", noise_sigma=0.4)
    state = start("ddpg", config)
    for step, expected in ((0, 0.4), (20_000, 0.2), (60_000, 0.05), (10**6, 0.02)):
        state = state._replace(step=jnp.int32(step))
        np.testing.assert_allclose(ddpg.noise_size(state, config), expected, rtol=1e-6)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_slow_copy_is_deployed_and_the_actor_itself_explores(name):
    config = settings(name, noise_sigma=0.0)
    agent, state = methods.get(name).load_agent(), start(name, config)
    slow = jax.tree.map(lambda x: 0.9 * x + 0.1, state.actor)
    state = state._replace(target_actor=slow)
    obs = costly_replay().obs[:1]

    def acted(explore):
        without = dataclasses.replace(config, screen=None) if hasattr(config, "screen") else config
        return np.asarray(agent.act(state, obs[0], jnp.zeros(()), without, explore)[0])

    inputs = scaling.inputs(state.scaler, obs)
    averaged, learning = (networks.actor(x, inputs)[0] for x in (slow, state.actor))
    assert np.abs(averaged - learning).max() > 1e-3
    np.testing.assert_allclose(acted(explore=False), averaged, rtol=1e-6)
    np.testing.assert_allclose(acted(explore=True), learning, rtol=1e-6)
    np.testing.assert_allclose(agent.policy(state, obs, config)[0], averaged, rtol=1e-6)
