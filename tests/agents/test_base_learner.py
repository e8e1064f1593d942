"""What every off-policy method can vary in its base learner: Q_R, the actor's pace, the noise."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import assert_same, costly_replay, row, settings, start
from helpers.quick import jit
from safecritic import methods, networks, replay
from safecritic.agents import ddpg, scaling

OFF_POLICY = [name for name, method in methods.METHODS.items() if not method.on_policy]


def updated(name, config, steps=1):
    """Return the states before and after each of some updates."""
    agent, store = methods.get(name).load_agent(), costly_replay()
    update = jit(agent.update, static_argnames="config")
    states = [agent.observe(start(name, config), row(store), config)]
    for number in range(steps):
        batch = replay.sample(store, jax.random.key(number), config)
        states.append(update(states[-1], batch, config=config)[0])
    return states


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


@pytest.mark.parametrize("which", ["none", "reward", "all"])
def test_layer_norm_is_in_the_critics_it_names(which):
    state = start("usc", settings("usc", layer_norm=which))
    assert ("g" in state.reward[0][0]) == (which != "none")
    assert ("g" in state.safety[0][0]) == (which == "all")
    assert "g" not in state.actor[0]


@pytest.mark.slow
def test_of_two_reward_critics_the_smaller_value_is_the_target():
    config = settings("ddpg", reward_critics=2, gamma=0.5, observation_scaling="none")
    state = start("ddpg", config)
    offset = jax.tree.map(jnp.copy, state.target_reward)
    offset[1][-1]["b"] = jnp.full(1, -4.0, jnp.float32)
    state = state._replace(target_reward=offset)
    batch = replay.sample(costly_replay(), jax.random.key(0), config)
    _, _, metrics = ddpg.reward_step(state, batch, config)
    next_action = networks.actor(state.target_actor, batch.next_obs)
    low = networks.critic(offset[1], batch.next_obs, next_action)
    targets = batch.reward + batch.discount * low
    q = networks.critics(state.reward, batch.obs, batch.action)
    expected = 0.5 * ((q - targets) ** 2).mean(axis=-1).sum()
    np.testing.assert_allclose(metrics["reward/loss"], expected, rtol=1e-4)


def test_smoothing_noise_stays_within_its_bound_and_the_box():
    action = jnp.zeros((5_000, 2)).at[:, 1].set(1.0)
    moved = np.asarray(ddpg.smoothed(action, jax.random.key(0), 0.2))
    assert 0.15 < moved[:, 0].std() < 0.21
    assert np.abs(moved[:, 0]).max() <= 0.5 + 1e-6
    assert moved[:, 1].max() == 1.0
    assert ddpg.smoothed(action, jax.random.key(0), 0.0) is action


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddpg", "pid-lag", "usc"])  # each kind of update
def test_the_actor_moves_in_every_third_update(name):
    states = updated(name, settings(name, actor_every=3), steps=4)
    for number in range(4):
        before, after = states[number], states[number + 1]
        if number % 3 == 0:
            assert not np.array_equal(before.actor[0]["w"], after.actor[0]["w"])
        else:
            assert_same((before.actor, before.actor_opt), (after.actor, after.actor_opt))
        assert not np.array_equal(before.reward[0][0]["w"], after.reward[0][0]["w"])


def test_the_noise_halves_in_its_half_life():
    config = settings("ddpg", noise_sigma=0.4, noise_half_life=100.0)
    state = start("ddpg", config)
    for step, expected in ((0, 0.4), (100, 0.2), (300, 0.05)):
        np.testing.assert_allclose(
            ddpg.spread(state._replace(step=jnp.int32(step)), config), expected, rtol=1e-6
        )
    assert ddpg.spread(state, settings("ddpg", noise_sigma=0.4)) == 0.4


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_slow_copy_is_deployed_and_the_actor_itself_explores(name):
    config = settings(name, noise_sigma=0.0)
    agent, state = methods.get(name).load_agent(), start(name, config)
    slow = jax.tree.map(lambda x: 0.9 * x + 0.1, state.actor)
    state = state._replace(target_actor=slow)
    obs, free = costly_replay().obs[:1], jnp.zeros(())

    def acted(config, explore):
        parts = {"screen": None} if hasattr(config, "screen") else {}
        config = dataclasses.replace(config, **parts)
        return np.asarray(agent.act(state, obs[0], free, config, explore)[0])

    last = dataclasses.replace(config, deployed_actor="last")
    inputs = scaling.inputs(state.scaler, obs, config)
    expected = {
        p: np.asarray(networks.actor(x, inputs))[0]
        for p, x in (("slow", slow), ("last", state.actor))
    }
    assert np.abs(expected["slow"] - expected["last"]).max() > 1e-3
    np.testing.assert_allclose(acted(config, explore=False), expected["slow"], rtol=1e-6)
    np.testing.assert_allclose(acted(last, explore=False), expected["last"], rtol=1e-6)
    np.testing.assert_allclose(acted(config, explore=True), expected["last"], rtol=1e-6)
    np.testing.assert_allclose(agent.policy(state, obs, config)[0], expected["slow"], rtol=1e-6)
