"""FetchReach: its own reward and cost, and gymnasium-robotics' numbers.

What it shares with the other tasks is in test_common.py and test_tasks.py.
"""

import gymnasium
import numpy as np
import pytest

from helpers.rollouts import actions_for
from safecritic.tasks.fetch import FetchReach


@pytest.fixture(scope="module")
def package():
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FetchReachDense-v4", max_episode_steps=10_000)


def towards(goal, obs, gain=4.0):
    return np.clip((goal - obs[:3]) * gain, -1, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_original_is_the_packages_task(package, dtype):
    """To the bit, also where the package rounds the displacement to float32."""
    ours = FetchReach(variant="original")
    for seed in (7, None):
        obs, _ = ours.reset(seed=seed)
        theirs, _ = package.reset(seed=seed)
        np.testing.assert_array_equal(obs[:3], theirs["observation"][:3])
        np.testing.assert_array_equal(obs[3:6], theirs["observation"][5:8])
        np.testing.assert_array_equal(obs[6:], theirs["desired_goal"])
        for action in (1.2 * actions_for(ours, 50)).astype(dtype):  # some are clipped
            obs, reward, _, _, info = ours.step(action)
            theirs, their_reward, _, _, their_info = package.step(np.append(action, dtype(0.3)))
            expected = np.concatenate([theirs["observation"][[0, 1, 2, 5, 6, 7]], obs[6:]])
            np.testing.assert_array_equal(obs, expected)
            assert reward == their_reward
            assert info["success"] == bool(their_info["is_success"])


def test_original_lasts_50_steps_and_does_not_end_at_the_goal():
    env = FetchReach(variant="original")
    obs, _ = env.reset(seed=0)
    goal, arrived = env.layout["goal"], 0
    for step in range(50):
        obs, reward, terminated, truncated, info = env.step(towards(goal, obs))
        assert terminated is False
        assert truncated is (step == 49)
        assert reward == -info["goal_distance"] == info["reward_distance"]
        assert info["reward_goal"] == 0.0
        arrived += info["success"]
    assert arrived > 20


def test_benchmark_ends_at_the_goal_with_a_bonus():
    env = FetchReach()
    obs, info = env.reset(seed=0)
    goal = env.layout["goal"]
    np.testing.assert_array_equal(obs[6:], goal)
    terminated = False
    while not terminated:
        assert info["goal_distance"] >= 0.05
        obs, reward, terminated, truncated, info = env.step(towards(goal, obs))
        distance = np.sqrt(np.sum((obs[:3] - goal) ** 2))
        assert info["goal_distance"] == pytest.approx(distance, abs=1e-15)
        assert reward == info["reward_distance"] + info["reward_goal"]
        assert reward == pytest.approx(-distance + 5.0 * terminated, abs=1e-12)
        assert info["success"] is terminated
        assert truncated is False
    assert info["goal_distance"] < 0.05


def test_benchmark_lasts_500_steps():
    env = FetchReach()
    env.reset(options={"layout": {"goal": [0.0, 0.0, 3.0]}})
    ends = [env.step(np.zeros(3))[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]


@pytest.mark.parametrize("variant", ["benchmark", "original"])
def test_cost_is_speeding_plus_jerk(variant):
    env = FetchReach(variant=variant)
    obs, _ = env.reset(seed=0, options={"layout": {"goal": [1.0, 0.0, 1.0]}})
    before, speeding = obs[3:6], []
    # a slow start, full speed, then rest
    for gain in [0.1] * 5 + [1.0] * 5 + [0.0] * 10:
        obs, _, _, _, info = env.step([gain, 0.0, 0.0])
        velocity = obs[3:6]
        fast = float(np.linalg.norm(velocity) > 0.01)
        jerk = 1000.0 * sum((velocity[i] - before[i]) ** 2 for i in range(3))
        assert info["cost_velocity"] == fast
        assert info["cost_jerk"] == pytest.approx(jerk, rel=1e-12)
        assert info["cost"] == info["cost_velocity"] + info["cost_jerk"]
        speeding.append(fast)
        before = velocity
    assert sum(speeding[:5]) == 0
    assert sum(speeding[6:10]) == 4
    assert sum(speeding[-5:]) == 0


def test_first_jerk_is_against_the_velocity_at_reset():
    env = FetchReach()
    env.reset(seed=0)
    moving = env.state["qvel"]
    moving[6] = 0.5
    obs, _ = env.reset(options={"state": {"qvel": moving}})
    assert np.linalg.norm(obs[3:6]) > 0.005
    after, _, _, _, info = env.step(np.zeros(3))
    change = after[3:6] - obs[3:6]
    assert info["cost_jerk"] == pytest.approx(1000 * np.sum(change**2), rel=1e-12)


def test_actions_beyond_the_bounds_are_clipped():
    a, b = FetchReach(), FetchReach()
    a.reset(seed=0)
    b.reset(seed=0)
    np.testing.assert_array_equal(a.step([5.0, -9.0, 0.0])[0], b.step([1.0, -1.0, 0.0])[0])


def test_layout_and_state_come_back():
    env = FetchReach()
    goal = np.array([1.3, 0.7, 0.5])
    obs, info = env.reset(seed=0, options={"layout": {"goal": goal}})
    np.testing.assert_array_equal(obs[6:], goal)
    np.testing.assert_array_equal(env.layout["goal"], goal)
    assert info["goal_distance"] == pytest.approx(np.linalg.norm(obs[:3] - goal), abs=1e-15)
    for action in actions_for(env, 5):
        obs = env.step(action)[0]
    state = env.state
    other = FetchReach()
    again, _ = other.reset(options={"state": state})
    np.testing.assert_allclose(again, obs, rtol=0, atol=1e-15)
    for key, value in other.state.items():
        np.testing.assert_array_equal(value, state[key])
    # the solver starts elsewhere, so the futures agree to its tolerance only
    for action in actions_for(env, 5, seed=1):
        np.testing.assert_allclose(other.step(action)[0], env.step(action)[0], rtol=0, atol=1e-6)
    # a goal in the state comes before the layout's
    env.reset(options={"layout": {"goal": goal}, "state": {"goal": goal + 0.1}})
    np.testing.assert_array_equal(env.layout["goal"], goal + 0.1)
    with pytest.raises(ValueError, match=r"goal.* must have shape \(3,\), got shape \(2,\)"):
        env.reset(options={"layout": {"goal": [1.0, 2.0]}})


def test_targets_fill_the_cube_around_the_start():
    env = FetchReach()
    obs, _ = env.reset(seed=0)
    hand = obs[:3]
    # the third digit after the millimetre depends on MuJoCo's version
    np.testing.assert_allclose(hand, [1.3418, 0.7491, 0.5347], rtol=0, atol=1e-4)
    offsets = np.array([env.reset()[0][6:] - hand for _ in range(300)])
    assert np.abs(offsets).max() < 0.1501
    assert (offsets.max(axis=0) > 0.13).all()
    assert (offsets.min(axis=0) < -0.13).all()
