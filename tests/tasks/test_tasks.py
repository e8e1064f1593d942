"""One loop over all tasks of the package: what every one of them must do."""

import subprocess
import sys
import warnings
from functools import partial
from importlib.metadata import version

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import safecritic
from helpers.rollouts import actions_for, rollout
from helpers.tasks import PAPER, all_tasks, all_variants
from safecritic.tasks import TASKS, FiveValues, SixValues, adapt, make

SHAPES = {
    "CarGoal1": (72, 2, 1000),
    "CarGoal2": (72, 2, 1000),
    "CarButton1": (88, 2, 1000),
    "CarButton2": (88, 2, 1000),
    "FetchReach": (9, 3, 500),
    "HalfCheetah": (17, 6, 500),
    "SafetyHalfCheetahVelocity-v1": (17, 6, 1000),
    "SafetyHopperVelocity-v1": (11, 3, 1000),
    "SafetyWalker2dVelocity-v1": (17, 6, 1000),
    "SafetySwimmerVelocity-v1": (8, 2, 1000),
    "SafetyAntVelocity-v1": (27, 8, 1000),
    "SafetyHumanoidVelocity-v1": (376, 17, 1000),
}
for form, seen, horizon in (
    *((f"Goal{level}", 16 if level == 0 else 48, 1000) for level in (0, 1, 2)),
    *((f"Button{level}", 32 if level == 0 else 64, 1000) for level in (0, 1, 2)),
    *((f"Push{level}", 32 if level == 0 else 64, 1000) for level in (0, 1, 2)),
    *((f"Circle{level}", 16, 500) for level in (0, 1, 2)),
    ("Run0", 0, 500),
):
    SHAPES[f"SafetyPoint{form}-v0"] = (12 + seen, 2, horizon)
    SHAPES[f"SafetyCar{form}-v0"] = (24 + seen, 2, horizon)


@all_variants
def test_gymnasiums_checker_complains_of_nothing(name, variant):
    """Rendering, which it would check for seconds, is in `test_pictures`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(make(name, variant=variant), skip_render_check=True)
    # the observation is unbounded on purpose
    expected = ("minimum value is -infinity", "maximum value is infinity")
    texts = [str(warning.message) for warning in caught]
    assert [text for text in texts if not any(known in text for known in expected)] == []


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
    paid = [v for k, v in info.items() if k.startswith("cost_") and k != "cost_sum"]
    assert (sum(paid) if name in PAPER else max(paid, default=0.0)) == pytest.approx(info["cost"])
    parts = sum(v for k, v in info.items() if k.startswith("reward_"))
    assert parts == pytest.approx(reward)


def vector_cases():
    """Every task in this process and, in the slow round, in processes of its own."""
    for name in TASKS:
        yield pytest.param(name, SyncVectorEnv, id=f"{name}-sync")
        spawned = partial(AsyncVectorEnv, context="spawn")
        yield pytest.param(name, spawned, id=f"{name}-async", marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "vector"), list(vector_cases()))
def test_vector_environments_give_the_single_ones(name, vector):
    """Also across the ends of episodes, where the next step is a reset."""
    single = [make(name, horizon=8) for _ in range(2)]
    actions = np.stack([actions_for(single[0], 12, seed) for seed in (0, 1)], axis=1)
    envs = vector([partial(make, name, horizon=8)] * 2)
    try:
        obs, _ = envs.reset(seed=[10, 11])
        expected = [env.reset(seed=seed)[0] for env, seed in zip(single, (10, 11), strict=True)]
        np.testing.assert_array_equal(obs, expected)
        ended = [False, False]
        for batch in actions.astype(np.float32):
            obs, reward, terminated, truncated, info = envs.step(batch)
            for i, env in enumerate(single):
                if ended[i]:
                    np.testing.assert_array_equal(obs[i], env.reset()[0])
                    ended[i] = False
                    continue
                one = env.step(batch[i])
                np.testing.assert_array_equal(obs[i], one[0])
                assert (reward[i], terminated[i], truncated[i]) == one[1:4]
                assert info["cost"][i] == one[4]["cost"]
                ended[i] = one[2] or one[3]
    finally:
        envs.close()


@all_tasks
def test_make_vec_works(name):
    env = gymnasium.make_vec(TASKS[name].id, num_envs=2, vectorization_mode="sync")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (2, SHAPES[name][0])
    env.close()


@all_tasks
def test_six_values_and_back(name):
    plain, six, back = make(name), SixValues(make(name)), FiveValues(SixValues(make(name)))
    for env in (plain, six, back):
        env.reset(seed=1)
    for action in actions_for(plain, 5):
        obs, reward, terminated, truncated, info = plain.step(action)
        theirs = six.step(action)
        assert len(theirs) == 6
        np.testing.assert_array_equal(theirs[0], obs)
        assert theirs[1:5] == (reward, info["cost"], terminated, truncated)
        again = back.step(action)
        np.testing.assert_array_equal(again[0], obs)
        assert again[1:] == (reward, terminated, truncated, info)


@all_tasks
def test_adapt_takes_it_as_it_is(name):
    env = make(name)
    if name == "SafetyHumanoidVelocity-v1":
        assert adapt(env).action_space.high[0] == 1.0
        return
    assert adapt(env) is env
    obs, _ = env.reset(seed=2)
    np.testing.assert_array_equal(obs, make(name).reset(seed=2)[0])


@all_tasks
def test_pictures(name):
    env = gymnasium.make(TASKS[name].id, render_mode="rgb_array")
    env.reset(seed=0)
    for picture in (env.unwrapped.draw(caption="a caption"), env.render()):
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        colours = picture.astype(np.int64) @ (1 << 16, 1 << 8, 1)
        assert len(np.unique(colours)) > 20
    env.close()


@all_tasks
def test_a_step_costs_at_most_what_the_task_says(name):
    env = make(name)
    env.reset(seed=0)
    costs = rollout(env, actions_for(env, 200))[:, -3]
    assert costs.min() >= 0.0
    assert costs.max() <= getattr(env, "cost_max", np.inf)
    assert TASKS[name].has_goal == getattr(env, "has_goal", True)


def run(code: str) -> None:
    """Run code in a Python of its own, where nothing is imported yet."""
    subprocess.run([sys.executable, "-c", code], check=True)


HEAVY = "assert not {'jax', 'gymnasium', 'mujoco', 'numpy'} & set(sys.modules)"


def test_importing_safecritic_has_no_side_effect():
    run(
        "import sys; before = list(sys.meta_path); import safecritic; "
        f"assert sys.meta_path == before; {HEAVY}"
    )
    run("import safecritic, jax.numpy; safecritic.USC; assert jax.numpy.ones(1).dtype == 'float32'")


def test_importing_the_tasks_needs_no_jax():
    run("import sys, safecritic; safecritic.make('CarGoal1'); assert 'jax' not in sys.modules")


@pytest.mark.parametrize(
    "code",
    [
        "gymnasium.make('safecritic.tasks:safecritic/CarGoal1-v0')",
        "import safecritic.tasks; gymnasium.make('safecritic/CarGoal1-v0')",
        "import safecritic; gymnasium.register_envs(safecritic.tasks); "
        "gymnasium.make('safecritic/CarGoal1-v0')",
    ],
)
def test_gymnasium_makes_the_tasks(code):
    run(f"import gymnasium; {code}")


def test_version_is_the_packages():
    assert version("safecritic") == safecritic.__version__
