"""Ways to simulate less: they give what the whole model gives."""

import mujoco
import numpy as np
import pytest

from safecritic.tasks.navigation.alone import Alone
from safecritic.tasks.navigation.glide import INERTIA, LEVER, MASS, point_glide
from safecritic.tasks.navigation.model import SUBSTEPS, build_model
from safecritic.tasks.navigation.robots import POINT
from safecritic.tasks.navigation.world import Navigation


def test_the_points_numbers_are_those_of_its_model():
    model = build_model(POINT)
    mass, offset = model.body_mass[1], model.body_ipos[1, 0]
    turning = model.body_inertia[1].max() + mass * offset**2
    np.testing.assert_allclose([MASS, LEVER, INERTIA], [mass, mass * offset, turning], rtol=1e-9)


def test_the_point_glides_as_the_engine_moves_it():
    model, glide, rng = build_model(POINT), point_glide(), np.random.default_rng(0)
    data = mujoco.MjData(model)
    for _ in range(200):
        state = [*rng.uniform(-3, 3, 3), *rng.uniform(-1.5, 1.5, 2), rng.uniform(-6, 6)]
        action = rng.choice([rng.uniform(-1, 1), rng.uniform(-0.1, 0.1), 1.0, -3.0, 0.0], 2)
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state[:3], state[3:], action
        mujoco.mj_step(model, data, SUBSTEPS)
        mujoco.mj_forward(model, data)
        after, sensors = glide(tuple(state), *action.tolist())
        np.testing.assert_allclose(after, [*data.qpos, *data.qvel], atol=1e-8)
        np.testing.assert_allclose(sensors, data.sensordata, atol=1e-6)


@pytest.mark.parametrize("name", ["SafetyCarGoal2-v0", "SafetyCarPush1-v0", "SafetyPointPush1-v0"])
def test_a_robot_that_touches_nothing_needs_no_world(name):
    """The same drive with everything simulated; the Point only for a step, as it is chaotic."""
    light, whole = Navigation(name), Navigation(name)
    whole._may_glide = False
    light.reset(seed=4)
    rng, gliding = np.random.default_rng(1), 0
    for step in range(150):
        action = rng.uniform(-1, 1, 2)
        if step == 0 or light._glide is not None:
            whole.reset(options={"layout": light.layout, "state": light.state})
        got, expected = light.step(action), whole.step(action)
        gliding += light._moved
        np.testing.assert_allclose(got[0], expected[0], atol=1e-4 if light._alone else 1e-6)
        assert got[1] == pytest.approx(expected[1], abs=1e-6)
        assert got[4]["cost"] == expected[4]["cost"]
    assert gliding > 50


def test_the_robot_alone_starts_from_any_state():
    env = Navigation("SafetyCarGoal1-v0")
    env.reset(seed=0)
    for action in np.random.default_rng(2).uniform(-1, 1, (20, 2)):
        env.step(action)
    alone = Alone(env.robot, env.model)
    qpos, qvel = env.state["qpos"][:13], env.state["qvel"][:11]
    alone.step(qpos, qvel, np.ones(2))
    fresh, speed = env.state["qpos"][:13], env.state["qvel"][:11]
    Alone(env.robot, env.model).step(fresh, speed, np.ones(2))
    np.testing.assert_array_equal(fresh, qpos)
    env.step([1.0, 1.0])
    np.testing.assert_array_equal(env.state["qpos"][:13], qpos)
