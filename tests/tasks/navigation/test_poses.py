"""Many poses at once: the same observations and costs as one by one."""

import numpy as np
import pytest

import safecritic
from safecritic.tasks.navigation import poses
from safecritic.tasks.navigation.rules import PAPER


def scene(task: str) -> tuple:
    env = safecritic.make(task)
    env.reset(seed=3)
    rng, extent = np.random.default_rng(0), env.arena.extent
    places = rng.uniform(-extent, extent, (60, 2))
    return env, np.column_stack([places, rng.choice([0.3, -1.2, 2.9], 60)])


def observe_at(env, pose: np.ndarray) -> np.ndarray:
    """Reset with the robot at this pose; return the environment's own observation."""
    state = {"qpos": env.state["qpos"]}
    place = env.robot.pose(*pose)
    state["qpos"][: len(place)] = place
    obs, _ = env.reset(seed=3, options={"layout": env.layout, "state": state})
    return obs


@pytest.mark.parametrize(
    "task", [*PAPER, "SafetyPointGoal2-v0", "SafetyCarPush2-v0", "SafetyPointCircle2-v0"]
)
def test_observations_are_those_of_a_reset_at_each_pose(task: str) -> None:
    env, places = scene(task)
    observations, paid = poses.observations(env, places), poses.costs(env, places)
    assert 0 < np.count_nonzero(paid) < len(paid)
    for pose, obs, cost in zip(places, observations, paid, strict=True):
        own = observe_at(env, pose)
        np.testing.assert_allclose(obs[env.robot.sensed :], own[env.robot.sensed :], atol=1e-12)
        np.testing.assert_allclose(obs[3 : env.robot.sensed], own[3 : env.robot.sensed], atol=1e-6)
        touched = env._touched()
        at_box = env.arena.push_box and env._distances[env._boxes][0] < 0.6
        # a push is felt by the accelerometer
        if not at_box and (touched is None or not touched.any()):
            np.testing.assert_allclose(obs[:3], own[:3], atol=1e-3)
        assert cost == pytest.approx(env._cost(touched, {}))


def test_the_simulation_is_as_before() -> None:
    env, places = scene("CarGoal2")
    poses.costs(env, places)
    poses.observations(env, places)
    obs = [env.step(np.array([0.3, -0.2]))[0] for _ in range(5)]
    env.reset(seed=3)
    expected = [env.step(np.array([0.3, -0.2]))[0] for _ in range(5)]
    np.testing.assert_array_equal(obs, expected)


def test_parked_gremlins_are_refused() -> None:
    env, places = scene("CarButton1")
    while not env._gremlins.parked.any():
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match="reset first"):
        poses.costs(env, places)
