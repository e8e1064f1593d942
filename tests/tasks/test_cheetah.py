"""The paper's HalfCheetah: its model, reward and cost.

The recordings are replayed in test_velocity.py.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from helpers.rollouts import actions_for
from safecritic.tasks.velocity import HalfCheetah


def test_original_is_gymnasiums_half_cheetah_to_the_bit():
    ours = HalfCheetah(variant="original")
    theirs = gymnasium.make("HalfCheetah-v5")
    for seed in (3, None):
        a, b = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        np.testing.assert_array_equal(a, b)
        for action in actions_for(ours, 200):
            a, reward, _, _, info = ours.step(action)
            b, their_reward, _, _, their_info = theirs.step(action)
            np.testing.assert_array_equal(a, b)
            assert reward == pytest.approx(their_reward, abs=1e-14)
            assert info["x_velocity"] == their_info["x_velocity"]


# ------------------------------------------------------------------------ reward and cost


@pytest.mark.parametrize(
    ("variant", "speed", "cost"),
    [
        ("benchmark", 4.0, 1.0),
        ("benchmark", -4.0, 1.0),
        ("benchmark", 0.0, 0.0),
        ("original", 4.0, 1.0),
        ("original", -4.0, 0.0),
    ],
)
def test_speed_costs(variant, speed, cost):
    env = HalfCheetah(variant=variant)
    qpos, qvel = np.zeros(9), np.zeros(9)
    # in the air, so that the floor does not slow it down
    qpos[1], qvel[0] = 1.0, speed
    env.reset(options={"state": {"qpos": qpos, "qvel": qvel}})
    *_, info = env.step(np.zeros(6))
    assert info["x_velocity"] == pytest.approx(speed, abs=0.2)
    assert info["cost"] == info["cost_velocity"] == cost


def test_benchmark_reward_is_the_distance_travelled():
    env = HalfCheetah()
    _, info = env.reset(seed=0)
    x, total = info["x_position"], 0.0
    for action in actions_for(env, 100):
        _, reward, _, _, info = env.step(action)
        assert reward == info["reward_forward"] + info["reward_ctrl"]
        assert reward == pytest.approx(info["x_velocity"] * 0.05, abs=1e-15)
        assert info["reward_ctrl"] == 0.0
        assert info["success"] is False
        total += reward
    assert total == pytest.approx(info["x_position"] - x, abs=1e-12)


def test_original_reward_takes_the_control_cost_off():
    env = HalfCheetah(variant="original")
    env.reset(seed=0)
    action = np.array([1.0, -0.5, 0.0, 0.25, 0.0, 1.0])
    _, reward, _, _, info = env.step(action)
    assert info["reward_ctrl"] == pytest.approx(-0.1 * (1 + 0.25 + 0.0625 + 1))
    assert reward == info["x_velocity"] + info["reward_ctrl"]


@pytest.mark.parametrize(("variant", "steps"), [("benchmark", 500), ("original", 1000)])
def test_cheetah_episode_length(variant, steps):
    env = HalfCheetah(variant=variant)
    env.reset(seed=0)
    ends = [env.step(np.zeros(6))[2:4] for _ in range(steps)]
    assert ends[:-1] == [(False, False)] * (steps - 1)
    assert ends[-1] == (False, True)
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        env.step(np.zeros(6))


def test_cheetah_state_comes_back():
    env = HalfCheetah()
    assert env.layout == {}
    qpos, qvel = np.linspace(0, 0.4, 9), np.linspace(-1, 1, 9)
    obs, _ = env.reset(options={"state": {"qpos": qpos, "qvel": qvel, "time": 2.5}})
    np.testing.assert_array_equal(env.state["qpos"], qpos)
    np.testing.assert_array_equal(env.state["qvel"], qvel)
    assert env.state["time"] == 2.5
    np.testing.assert_array_equal(obs, np.concatenate([qpos[1:], qvel]))
    env.step(np.zeros(6))
    assert env.state["time"] == pytest.approx(2.55)
