"""Safety Gymnasium's velocity tasks against recordings of the original.

What they share with the other tasks is in test_common.py and test_tasks.py.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from helpers.golden import golden_files, load_golden
from safecritic.deploy.names import names_of
from safecritic.tasks import TASKS, make
from safecritic.tasks.velocity import ROBOTS, SPEED_BOUND

LEGGED = ("Hopper", "Walker2d", "Swimmer", "Ant", "Humanoid")
PLANE = {"x_position", "y_position", "distance_from_origin", "x_velocity", "y_velocity",
         "forward_reward"}  # fmt: skip
# of a step of the original
INFO = {
    "Hopper": {"x_position", "x_velocity"},
    "Walker2d": {"x_position", "x_velocity"},
    "Swimmer": PLANE | {"reward_fwd", "reward_ctrl"},
    "Ant": PLANE | {"reward_forward", "reward_ctrl", "reward_survive"},
    "Humanoid": PLANE | {"reward_linvel", "reward_quadctrl", "reward_alive"},
    "HalfCheetah": {"x_position", "x_velocity", "reward_run", "reward_ctrl"},
}


def task(robot: str, **settings: Any) -> Any:
    return make(f"Safety{robot}Velocity-v1", **settings)


@cache
def recordings(robot: str) -> list[dict[str, np.ndarray]]:
    return [load_golden(path) for path in golden_files(f"{robot.lower()}_*.npz")]


def observed(robot: str, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Return what is observed of positions and velocities."""
    bound = SPEED_BOUND if robot in ("Hopper", "Walker2d") else np.inf
    return np.concatenate([qpos[ROBOTS[robot].hidden :], np.clip(qvel, -bound, bound)])


def before(golden: dict[str, np.ndarray], t: int) -> tuple[bool, dict[str, np.ndarray]]:
    """Return whether an episode begins with step t, and the state before it."""
    start = np.flatnonzero(golden.get("start_index", np.zeros(1)) == t)
    if "start_qpos" in golden and start.size:
        state = {name: golden[f"start_{name}"][start[0]] for name in ("qpos", "qvel")}
        return True, state
    state = {name: golden[name][t] for name in ("qpos", "qvel")}
    if "y_position" in golden:
        state["place"] = np.array([golden[f"{axis}_position"][t - 1] for axis in "xy"])
    return False, state


# largest error of an observation one step after a recorded state: the solvers of HalfCheetah and
# Humanoid stop before they have converged
ONE_STEP = {"HalfCheetah": 1e-5, "Humanoid": 1e-4}


@pytest.mark.parametrize("robot", ROBOTS)
def test_one_step_from_every_recorded_state(robot):
    env = task(robot)
    errors, costs, ends, rest_seen = [], 0, 0, 0
    for golden in recordings(robot):
        assert env.speed_limit == golden["threshold"]
        for t, action in enumerate(golden["action"]):
            env.reset(options={"state": before(golden, t)[1]})
            obs, reward, terminated, truncated, info = env.step(action)
            expected = observed(robot, golden["qpos"][t + 1], golden["qvel"][t + 1])
            errors.append(np.abs(obs[: len(expected)] - expected).max())
            assert reward == pytest.approx(golden["reward"][t], abs=1e-6)
            assert info["x_velocity"] == pytest.approx(golden["x_velocity"][t], abs=1e-6)
            assert info["cost"] == golden["cost"][t]
            assert (terminated, truncated) == (golden["terminated"][t], False)
            assert info.keys() >= INFO[robot]
            assert sum(x for name, x in info.items() if name.startswith("reward_")) == (
                pytest.approx(reward, abs=1e-12)
            )
            costs, ends = costs + info["cost"], ends + terminated
            if t + 1 in golden.get("rest_index", ()):
                rest = golden["rest"][list(golden["rest_index"]).index(t + 1)]
                error = np.abs(obs[len(expected) :] - rest)
                assert error[:-84].max() < 1e-4
                assert error[-84:].max() < 0.1  # contact forces, which reach 1000
                rest_seen += 1
    assert max(errors) < ONE_STEP.get(robot, 1e-6)
    assert np.median(errors) < 1e-12
    assert costs > 20
    assert (ends > 0) == (robot not in ("HalfCheetah", "Swimmer"))
    assert (rest_seen > 0) == (robot == "Humanoid")


@pytest.mark.parametrize("robot", ROBOTS)
def test_seeded_episodes_follow_the_recording(robot):
    """Every start comes from the random stream; later, small differences grow."""
    env = task(robot)
    golden = next(g for g in recordings(robot) if "start_index" in g or robot == "HalfCheetah")
    seed: int | None = int(golden["seed"])
    compared = age = 0
    for t, action in enumerate(golden["action"]):
        start, state = before(golden, t)
        if start or t == 0:
            obs, _ = env.reset(seed=seed)
            seed, age = None, 0
            expected = observed(robot, state["qpos"], state["qvel"])
            np.testing.assert_allclose(obs[: len(expected)], expected, rtol=0, atol=1e-15)
        obs, reward, terminated, _, info = env.step(action)
        age += 1
        if age <= 25:
            expected = observed(robot, golden["qpos"][t + 1], golden["qvel"][t + 1])
            error = np.abs(obs[: len(expected)] - expected).max()
            assert error < (1e-4 if robot == "Humanoid" else 1e-6)
            assert reward == pytest.approx(golden["reward"][t], abs=1e-5)
            assert (info["cost"], terminated) == (golden["cost"][t], golden["terminated"][t])
            compared += 1
    assert compared >= 25


# ------------------------------------------------------------------------ what no recording shows


def test_actions_beyond_the_bounds_move_as_much_and_cost_more():
    env = task("Hopper")
    steps = []
    for size in (1.0, 5.0):
        env.reset(seed=0)
        steps.append(env.step(np.full(3, size)))
    np.testing.assert_array_equal(steps[0][0], steps[1][0])
    assert [step[4]["reward_ctrl"] for step in steps] == pytest.approx([-0.003, -0.075])


@pytest.mark.parametrize("robot", ["Ant", "Humanoid"])
def test_a_state_comes_back_with_the_place_the_next_speed_is_measured_from(robot):
    env, again = task(robot), task(robot)
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.action_space.high)
    again.reset(options={"state": env.state})
    ours, theirs = (e.step(np.zeros(env.action_space.shape))[4] for e in (env, again))
    assert theirs["x_velocity"] == pytest.approx(ours["x_velocity"], abs=1e-5)


@pytest.mark.parametrize("robot", ROBOTS)
def test_episodes_last_a_thousand_steps(robot):
    env = task(robot)
    assert env.horizon == 1000
    assert TASKS[f"Safety{robot}Velocity-v1"].cost_limit == 25.0
    env = task(robot, horizon=3)
    env.reset(seed=0)
    ends = [env.step(np.zeros(env.action_space.shape))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_number_has_a_name(robot):
    env = task(robot)
    observation, action = names_of(env, env)
    assert (
        len(set(observation["names"]))
        == len(observation["units"])
        == env.observation_space.shape[0]
    )
    assert len(set(action["names"])) == len(action["units"]) == env.action_space.shape[0]
    forward = observation["names"].index("torso velocity x")
    env.reset(options={"state": {"qvel": np.eye(env.model.nv)[0]}})
    assert env.step(np.zeros(env.action_space.shape))[0][forward] == pytest.approx(1.0, abs=0.3)
