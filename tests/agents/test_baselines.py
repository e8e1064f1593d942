"""PID-Lag and RCPO: what they reduce to, and RCPO's re-labelling."""

import dataclasses

import jax
import numpy as np
import pytest

from helpers.agents import assert_same, costly_replay, row, sample, settings, start, stepper
from helpers.quick import jit
from safecritic import methods
from safecritic.agents import ddpg, rcpo, scaling


def trained(name, config, steps=4, costs=(5.0, 0.0, 7.0), **multiplier):
    """Return the state after a few updates, with episode ends between them.

    Settings of the `multiplier` hold at the ends of episodes alone, where they are used.
    """
    step, _ = stepper(name, config)
    end_episode = jit(methods.get(name).load_agent().end_episode, static_argnames="config")
    state, store = start(name, config), costly_replay()
    for i in range(steps):
        state, _ = step(state, store, jax.random.key(i))
        if i < len(costs):
            at_end = dataclasses.replace(config, **multiplier)
            state, _ = end_episode(state, np.float32(costs[i]), np.float32(10), config=at_end)
    return state


def assert_same_policy(ours, theirs):
    def networks(state):
        return state.actor, state.reward, state.target_actor, state.target_reward

    assert_same(networks(ours), networks(theirs), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("pid-lag", {"kp": 0.0, "ki": 0.0, "kd": 0.0, "costly_share": 0.0}),
        ("rcpo", {"multiplier_rule": "printed", "multiplier_lr": 0.0}),
    ],
)
def test_multiplier_0_is_ddpg(name, off):
    plain = trained("ddpg", settings("ddpg"))
    config = settings(name, multiplier_init=0.0, **off)
    ours = trained(name, config)
    assert float(ours.multiplier) == 0.0
    assert_same_policy(ours, plain)
    on = {"multiplier_lr": 1.0} if name == "rcpo" else {"ki": 1.0}
    other = trained(name, config, **on)
    assert float(other.multiplier) > 0
    assert not np.allclose(other.actor[0]["w"], plain.actor[0]["w"], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_rcpo_relabels_old_transitions():
    """The same stored rows are worth r - lam c, each in its unit, with the multiplier of now."""
    config = settings("rcpo", units="measured", multiplier_init=0.0)
    state, store = start("rcpo", config), costly_replay()
    observe = jit(rcpo.observe, static_argnames="config")
    for number in range(40):
        state = observe(state, row(store, number), config=config)
    sizes = jax.device_get(scaling.unit_sizes(state.units, config))
    assert float(sizes.cost) != float(sizes.reward) != 1.0
    batch = jax.device_get(sample(store, jax.random.key(0), config=config))
    assert (batch.cost > 0).any()
    update = jit(ddpg.update, static_argnames="config")
    ours = jit(rcpo.update, static_argnames="config")
    for lam in (0.0, 2.5):
        found, metrics = ours(state._replace(multiplier=np.float32(lam)), batch, config=config)
        price = np.float32(lam) * sizes.reward / sizes.cost
        labelled = batch._replace(reward=batch.reward - price * batch.cost)
        expected, _ = update(state, labelled, config=config)
        assert_same_policy(found, expected)
        assert float(metrics["dual/multiplier"]) == lam
    np.testing.assert_array_equal(store.reward, costly_replay().reward)


def test_rcpo_multiplier_is_projected():
    step = {"multiplier_init": 1.0, "multiplier_lr": 1.0, "multiplier_max": 3.0}
    config = settings("rcpo", multiplier_rule="printed", **step)
    state, ten = start("rcpo", config), np.float32(10)
    up, _ = rcpo.end_episode(state, np.float32(100.0), ten, config)
    down, _ = rcpo.end_episode(state, np.float32(0.0), ten, config)
    assert float(up.multiplier) == 3.0
    assert float(down.multiplier) == 0.0


def test_the_multiplier_is_the_slowest():
    """RCPO's condition on its three step sizes, by default."""
    config = methods.make_config("rcpo", "CarGoal1")
    assert config.critic_lr > config.actor_lr
    # an episode of CarGoal1 is tens of updates or more, in which actor and critic move each time
    assert config.multiplier_lr / 80 < config.actor_lr
