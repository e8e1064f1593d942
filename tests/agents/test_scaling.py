"""Units of reward and cost: against plain loops, and what they are for, equivariance."""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.quick import quick_runs
from probes import SMALL, KeptPoint
from safecritic.agent_classes import agent_class
from safecritic.agents import methods
from safecritic.core import scaling

GAMMA = 0.9


def plain_unit(episodes, gamma=GAMMA):
    """E[G^2] / E[|G|] of the discounted sums of episodes so far, in float64."""
    sums = []
    for episode in episodes:
        total = 0.0
        for x in episode:
            total = gamma * total + float(x)
            sums.append(total)
    return sum(g * g for g in sums) / sum(abs(g) for g in sums)


def measured(episodes, unit=None):
    """The unit after the steps of these episodes, one update each."""
    unit = scaling.units_init().reward if unit is None else unit
    signal = np.concatenate(episodes).astype(np.float32)
    ended = np.concatenate([np.arange(len(e)) == len(e) - 1 for e in episodes])

    def step(unit, here):
        return scaling.unit_update(unit, *here, GAMMA), None

    return jax.lax.scan(step, unit, (jnp.asarray(signal), jnp.asarray(ended)))[0]


def random_episodes(rng, number=30):
    return [rng.normal(0.3, 1.0, rng.integers(1, 40)) for _ in range(number)]


def test_unit_equals_a_plain_loop():
    rng = np.random.default_rng(0)
    episodes = random_episodes(rng)
    unit = measured(episodes)
    np.testing.assert_allclose(scaling.unit_size(unit), plain_unit(episodes), rtol=1e-4)
    assert float(unit.ahead) == 0.0  # the last episode has ended
    assert int(unit.count) == sum(map(len, episodes))
    rare = [np.where(rng.random(50) < 0.02, 1.0, 0.0) for _ in range(40)]
    np.testing.assert_allclose(scaling.unit_size(measured(rare)), plain_unit(rare), rtol=1e-4)


def test_a_signal_that_is_always_0_has_unit_1():
    assert float(scaling.unit_size(scaling.units_init().cost)) == 1.0
    assert float(scaling.unit_size(measured([np.zeros(100)] * 3))) == 1.0


@pytest.mark.parametrize("size", [2.0**-10, 1.0, 2.0**10])
def test_the_first_cost_after_a_long_time_gives_its_own_size(size):
    """The mean over all steps is tiny by then, the typical sum where there is one is not."""
    unit = measured([np.zeros(100)] * 100)
    unit = scaling.unit_update(unit, jnp.float32(size), jnp.asarray(False), GAMMA)
    np.testing.assert_allclose(scaling.unit_size(unit), size, rtol=1e-4)
    for _ in range(20):
        unit = scaling.unit_update(unit, jnp.float32(0.0), jnp.asarray(False), GAMMA)
    after = [[size] + [0.0] * 20]
    # steps that are forgotten: one of 10,000 with each step
    np.testing.assert_allclose(scaling.unit_size(unit), plain_unit(after), rtol=2e-3)


def test_a_unit_follows_what_costs_have_become():
    """An agent that once ran into everything counts rare costs by their own size in the end."""
    unit = measured([np.ones(1_000)])
    wild = float(scaling.unit_size(unit))
    assert wild > 5
    once = np.zeros(1_000)
    once[0] = 1.0
    unit = measured([once] * 100, unit)
    assert float(scaling.unit_size(unit)) < 0.2 * wild


def test_units_of_rollouts_are_those_of_their_steps():
    """As long as every rollout begins with an episode."""
    rng = np.random.default_rng(1)
    shape = (3, 60)
    reward, cost = rng.normal(size=shape), rng.random(shape)
    ended = rng.random(shape) < 0.1
    ended[:, -1] = True
    one = many = scaling.units_init()
    for half in (slice(0, 2), slice(2, 3)):
        parts = (jnp.asarray(x[half], jnp.float32) for x in (reward, cost))
        many = scaling.units_update_many(many, *parts, jnp.asarray(ended[half]), GAMMA)
    for signal, found in ((reward, many.reward), (cost, many.cost)):
        one = scaling.units_init().reward
        for row, ends in zip(signal, ended, strict=True):
            one = measured(np.split(row, np.flatnonzero(ends)[:-1] + 1), one)
        assert int(found.count) == int(one.count) == 180
        np.testing.assert_allclose(found.square, one.square, rtol=1e-5)
        np.testing.assert_allclose(found.size, one.size, rtol=1e-5)
        np.testing.assert_allclose(scaling.unit_size(found), scaling.unit_size(one), rtol=1e-5)


def test_metrics_are_in_the_units_of_the_task_but_for_losses():
    sizes = scaling.Sizes(jnp.float32(10.0), jnp.float32(4.0))
    names = ("reward/q_mean", "actor/q_reward", "safety/q_mean", "safety/q_std")
    names += ("safety/target_mean", "actor/q_cost", "refine/target_mean")
    names += ("refine/target_gap", "safety/loss")
    found = scaling.in_task_units(dict.fromkeys(names, jnp.float32(1.0)), sizes)
    assert [float(found[name]) for name in names] == [10, 10, 4, 4, 4, 4, 4, 4, 1]
    assert (float(found["units/reward"]), float(found["units/cost"])) == (10, 4)


# Equivariance: rewards and costs of another size are the same task


class Scaled(gymnasium.Wrapper):
    """An environment whose rewards and costs are multiplied; keeps the actions it was given."""

    def __init__(self, env, reward, cost):
        super().__init__(env)
        self.factors = reward, cost
        self.actions = []
        self.ends = 0
        self.costly = 0
        self.cost_max = env.get_wrapper_attr("cost_max") * cost

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.actions.append(np.array(action))
        self.ends += terminated or truncated
        self.costly += info["cost"] > 0
        info = info | {"cost": info["cost"] * self.factors[1]}
        return obs, reward * self.factors[0], terminated, truncated, info


LARGE, LITTLE = 2.0**10, 2.0**-10
FACTORS = [(1.0, LARGE), (1.0, LITTLE), (LARGE, 1.0), (LITTLE, LARGE)]
CPO_SMALL = {"hidden": (16,), "rollout_steps": 400, "rollout_envs": 1, "value_epochs": 2}
CPO_SMALL |= {"batch_size": 40}
LIMIT = 0.5


def actions(name, env, steps, reward, cost, **changes):
    """Every action of a run in which rewards, costs and the limit are scaled."""
    changes = {"cost_limit": LIMIT * cost} | changes
    if "screen" in methods.get(name).parts:
        changes["screen.tolerance"] = 1.0  # actions are screened, and some still cost
    scaled = Scaled(env, reward, cost)
    agent = agent_class(name)(scaled, seed=3, **changes)
    agent.learn(steps)
    return np.array(scaled.actions), scaled, agent


def assert_same_actions(run, factors):
    plain, env, agent = run(reward=1.0, cost=1.0)
    assert env.ends >= 4
    assert env.costly >= 20
    if getattr(agent.config, "screen", None) is not None:
        assert any(row["screened"] > 0 for row in agent.recent_episodes)
    for reward, cost in factors:
        found, _, other = run(reward=reward, cost=cost)
        np.testing.assert_array_equal(found, plain)
        ours, theirs = (x.training.device.agent for x in (agent, other))
        if getattr(ours, "multiplier", None) is not None:
            assert float(ours.multiplier) == float(theirs.multiplier)
        before, after = (scaling.unit_sizes(x.units) for x in (ours, theirs))
        assert (after.reward, after.cost) == (before.reward * reward, before.cost * cost)


QUICK = {"ddpg", "cpo", "usc"}  # the others are mixes of their parts


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in methods.METHODS],
)
def test_scaled_rewards_and_costs_give_the_same_actions(name):
    """To the bit, with learning and several ends of episodes."""
    changes = CPO_SMALL if methods.get(name).on_policy else SMALL
    steps = 1_600 if methods.get(name).on_policy else 400
    with quick_runs():  # each limit is a compilation; the car below is compiled as users' are
        assert_same_actions(partial(actions, name, KeptPoint(), steps, **changes), FACTORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddpg", "usc"])
def test_scaled_rewards_and_costs_give_the_same_actions_on_a_car(name):
    env = gymnasium.make("safecritic/CarGoal1-v0", horizon=300)
    run = partial(actions, name, env, 2_000, learning_starts=500)
    assert_same_actions(run, [(LARGE, LITTLE)])
