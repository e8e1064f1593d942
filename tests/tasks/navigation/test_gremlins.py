"""Gremlins: their course, and parking that changes nothing."""

import math

import numpy as np
import pytest

from safecritic.tasks.navigation.gremlins import course_of
from safecritic.tasks.navigation.robots import ROBOTS
from safecritic.tasks.navigation.world import Navigation


def test_course_settles_into_the_recorded_circle():
    course = course_of(ROBOTS["Car"])
    recorded = {
        1: (0.0020, 0.1163, 0.0331),
        5: (0.0411, 0.3144, 0.0903),
        25: (0.2755, 0.2141, 0.0996),
    }
    for step, place in recorded.items():
        np.testing.assert_allclose(course.offset[10 * step], place, atol=2e-3)
    for time in (0.4, 2.0, 4.0, 4.004, 17.3, 39.96):
        place, _ = course.at(time)
        assert course.offset_at(time) == pytest.approx(tuple(place[:2]), abs=1e-12)
    place, _ = course.at(12.0)
    assert math.hypot(*place[:2]) == pytest.approx(0.34884, abs=1e-5)
    lag = (12.0 - math.atan2(place[0], place[1])) % (2 * math.pi)
    assert lag == pytest.approx(0.08982, abs=1e-4)
    assert course.at(0.0121) is None


@pytest.mark.parametrize("name", ["CarButton1", "CarButton2"])
def test_parked_gremlins_change_nothing(name):
    """The same drive with and without parking, through gremlins: same car, same gremlins."""
    parked, full = Navigation(name), Navigation(name, park_gremlins=False)
    worst, asleep = 0.0, 0
    for seed in range(4):
        parked.reset(seed=seed)
        full.reset(seed=seed)
        rng = np.random.default_rng(seed)
        action = np.zeros(2)
        for step in range(120):
            if step % 10 == 0:
                action = rng.uniform(-0.2, 1, 2)
            obs, _, over, _, info = parked.step(action)
            expected, _, _, _, expected_info = full.step(action)
            asleep += int(parked._gremlins.parked.sum())
            # an encounter with a light box amplifies any last bit, so look until the first
            if expected_info["cost_gremlins"] or over:
                break
            worst = max(worst, np.abs(obs[3:] - expected[3:]).max())
            assert info == pytest.approx(expected_info, abs=1e-5)
    assert asleep > 200
    assert worst < 1e-4


def test_a_woken_gremlin_is_where_it_would_have_been():
    env = Navigation("CarButton1")
    env.reset(seed=5)
    for _ in range(40):
        env.step([0.0, 0.0])
    assert env._gremlins.parked.all()
    before = env.state
    env._gremlins._wake(np.arange(4))
    np.testing.assert_allclose(env.data.qpos[13:], before["qpos"][13:], atol=1e-12)
    env._gremlins.may_park = False
    env.step([0.0, 0.0])
    offset, velocity = env._gremlins.course.at(env.data.time)
    boxes = env.data.qpos[13:].reshape(4, 7)
    np.testing.assert_allclose(
        boxes[:, :3] - env._gremlins.centres, np.tile(offset, (4, 1)), atol=1e-9
    )
    np.testing.assert_allclose(
        env.data.qvel[11:].reshape(4, 6)[:, :3], np.tile(velocity, (4, 1)), atol=1e-7
    )
