"""One loop over all six tasks: what every one of them must do."""

from __future__ import annotations

import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import safecritic
from safecritic.tasks import TASKS, FiveValues, SixValues, adapt, get, make

SHAPES = {
    "CarGoal1": (72, 2, 1000),
    "CarGoal2": (72, 2, 1000),
    "CarButton1": (88, 2, 1000),
    "CarButton2": (88, 2, 1000),
    "FetchReach": (9, 3, 500),
    "HalfCheetah": (17, 6, 500),
}

all_tasks = pytest.mark.parametrize("name", TASKS)


def test_the_table_is_the_papers():
    assert list(TASKS) == list(SHAPES)
    limits = {name: task.cost_limit for name, task in TASKS.items()}
    assert limits == {
        "CarGoal1": 1.0,
        "CarGoal2": 5.0,
        "CarButton1": 5.0,
        "CarButton2": 5.0,
        "FetchReach": 5.0,
        "HalfCheetah": 0.1,
    }
    assert get("safecritic/CarGoal1-v0") is get("cargoal1") is TASKS["CarGoal1"]


@all_tasks
def test_gymnasium_checks_it(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of unbounded observations, which these are
        check_env(make(name))
        check_env(gymnasium.make(f"safecritic/{name}-v0").unwrapped)


@all_tasks
def test_spaces_and_horizon(name):
    observations, actions, horizon = SHAPES[name]
    env = make(name)
    assert env.observation_space.shape == (observations,)
    assert env.action_space.shape == (actions,)
    assert env.unwrapped.horizon == horizon
    obs, info = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert isinstance(reward, float)
    assert (terminated, truncated) == (False, False)
    assert isinstance(info["cost"], float)
    assert info["success"] is False
    assert sum(v for k, v in info.items() if k.startswith("cost_")) == pytest.approx(info["cost"])
    parts = sum(v for k, v in info.items() if k.startswith("reward_"))
    assert parts == pytest.approx(reward)


@all_tasks
@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, context="spawn")])
def test_vector_environments_give_the_single_ones_numbers(name, kind):
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (5, 2, SHAPES[name][1])).astype(np.float32)
    env = kind([lambda: make(name), lambda: make(name)])
    try:
        obs, _ = env.reset(seed=[3, 4])
        rows = [obs] + [env.step(a)[0] for a in actions]
    finally:
        env.close()
    for i, seed in enumerate((3, 4)):
        single = make(name)
        first, _ = single.reset(seed=seed)
        np.testing.assert_array_equal(rows[0][i], first)
        for row, action in zip(rows[1:], actions, strict=True):
            np.testing.assert_array_equal(row[i], single.step(action[i])[0])


@all_tasks
def test_make_vec_works(name):
    env = gymnasium.make_vec(f"safecritic/{name}-v0", num_envs=2, vectorization_mode="sync")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (2, SHAPES[name][0])
    env.close()


@all_tasks
def test_six_values_and_back(name):
    plain, six = make(name), SixValues(make(name))
    back = FiveValues(six)
    plain.reset(seed=1)
    back.reset(seed=1)
    action = plain.action_space.high * 0.5
    obs, reward, terminated, truncated, info = plain.step(action)
    other, other_reward, *ends, other_info = back.step(action)
    np.testing.assert_array_equal(obs, other)
    assert (reward, [terminated, truncated], info["cost"]) == (
        other_reward,
        ends,
        other_info["cost"],
    )
    assert len(six.step(action)) == 6


@all_tasks
def test_adapt_takes_it_as_it_is(name):
    env = adapt(make(name))
    obs, _ = env.reset(seed=2)
    expected, _ = make(name).reset(seed=2)
    np.testing.assert_array_equal(obs, expected)


@all_tasks
def test_pictures(name):
    env = make(name, render_mode="rgb_array")
    env.reset(seed=0)
    for picture in (env.unwrapped.draw(caption="a caption"), env.render()):
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    env.close()


def test_importing_the_tasks_needs_no_jax():
    import subprocess
    import sys

    code = "import sys, safecritic; safecritic.make('CarGoal1'); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_the_packages():
    from importlib.metadata import version

    assert version("safecritic") == safecritic.__version__


@all_tasks
def test_a_step_costs_at_most_what_the_task_says(name):
    env = make(name)
    bound = getattr(env.unwrapped, "cost_max", np.inf)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    costs = []
    for _ in range(200):
        _, _, terminated, truncated, info = env.step(rng.uniform(-1, 1, env.action_space.shape))
        costs.append(info["cost"])
        if terminated or truncated:
            env.reset()
    assert min(costs) >= 0.0
    assert max(costs) <= bound
    assert TASKS[name].has_goal == getattr(env.unwrapped, "has_goal", True)
