"""PID-Lag and RCPO: what they reduce to, and RCPO's re-labelling."""

import jax
import numpy as np
import pytest

from helpers.agents import assert_same, costly_replay, row, sample, settings, start, stepper
from helpers.quick import jit
from safecritic.agents import ddpg, methods, rcpo
from safecritic.core import scaling
from safecritic.core import settings as settings_
from safecritic.core.multiplier import LEAST


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
            at_end = settings_.replace(config, **multiplier)
            state, _ = end_episode(state, np.float32(costs[i]), np.float32(10), config=at_end)
    return state


def assert_same_policy(ours, theirs):
    def networks(state):
        return state.actor, state.reward, state.target_actor, state.target_reward

    assert_same(networks(ours), networks(theirs), rtol=1e-5, atol=1e-7)


GAINS = {"multiplier.kp": 0.0, "multiplier.ki": 0.0, "multiplier.kd": 0.0}


@pytest.mark.slow
def test_pid_lag_with_multiplier_0_is_ddpg():
    plain = trained("ddpg", settings("ddpg"))
    off = {"multiplier.start": 0.0, "safety.costly_share": 0.0}
    config = settings("pid-lag", **off, **GAINS)
    ours = trained("pid-lag", config)
    assert float(ours.multiplier) == 0.0
    assert_same_policy(ours, plain)
    other = trained("pid-lag", config, **{"multiplier.ki": 1.0})
    assert float(other.multiplier) > 0
    assert not np.allclose(other.actor[0]["w"], plain.actor[0]["w"], rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_rcpo_relabels_old_transitions():
    """The same stored rows are worth r - lam c, each in its unit, with the multiplier of now."""
    config = settings("rcpo")
    state, store = start("rcpo", config), costly_replay()
    observe = jit(rcpo.observe, static_argnames="config")
    for number in range(40):
        state = observe(state, row(store, number), config=config)
    sizes = jax.device_get(scaling.unit_sizes(state.units))
    assert float(sizes.cost) != float(sizes.reward) != 1.0
    batch = jax.device_get(sample(store, jax.random.key(0), config=config))
    assert (batch.cost > 0).any()
    ddpgs, ours = (jit(agent.update, static_argnames="config") for agent in (ddpg, rcpo))
    for lam in (0.0, 2.5):
        found, metrics = ours(state._replace(multiplier=np.float32(lam)), batch, config=config)
        price = np.float32(lam) * sizes.reward / sizes.cost
        labelled = batch._replace(reward=batch.reward - price * batch.cost)
        expected, _ = ddpgs(state, labelled, config=config)
        assert_same_policy(found, expected)
        assert float(metrics["dual/multiplier"]) == np.float32(lam)
    np.testing.assert_array_equal(store.reward, costly_replay().reward)


def test_the_multiplier_stays_within_its_bounds():
    given = {"start": 1.0, "lr": 1.0, "largest": 3.0, "noise_free_every": 0}
    config = settings("rcpo", **{f"multiplier.{name}": x for name, x in given.items()})
    many = np.float32(1_000)
    for cost, bound in ((100.0, 3.0), (0.0, LEAST)):
        state = start("rcpo", config)
        for episode_cost in (100.0, *[cost] * 40):  # before a cost was seen nothing moves
            state, _ = rcpo.end_episode(state, np.float32(episode_cost), many, config)
        np.testing.assert_allclose(state.multiplier, bound, rtol=1e-6)


def test_the_multiplier_is_the_slowest():
    """RCPO's condition on its three step sizes, by default."""
    config = methods.make_config("rcpo")
    assert config.critic_lr > config.actor_lr > config.multiplier.lr
