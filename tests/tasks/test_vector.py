"""Vectors of environments stepped by threads give what Gymnasium's own give."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import safecritic
from helpers.rollouts import actions_for
from probes import KeptPoint
from safecritic.tasks import TASKS, make
from safecritic.tasks.vector import ThreadVectorEnv

NAMES = ["CarGoal2", "FetchReach", "SafetyHopperVelocity-v1", "SafetyHumanoidVelocity-v1"]


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Assert that two nested results are equal, in their types too."""
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for key, value in ours.items():
            assert_same(value, theirs[key], f"{where}/{key}")
    elif isinstance(ours, tuple) or (isinstance(ours, np.ndarray) and ours.dtype == object):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{where}/{i}")
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", NAMES)
def test_threads_give_what_one_thread_gives(name: str, mode: AutoresetMode) -> None:
    """Across ends of episodes, of some environments and of all."""
    ours = safecritic.make_vec(name, 5, threads=3, autoreset_mode=mode, horizon=9)
    theirs = SyncVectorEnv([partial(make, name, horizon=9)] * 5, autoreset_mode=mode)
    assert ours.threads == 3
    assert ours.metadata == theirs.metadata
    results: Any = [envs.reset(seed=3) for envs in (ours, theirs)]
    assert_same(*results)
    actions = np.stack([actions_for(theirs.envs[0], 30, seed) for seed in range(5)], axis=1)
    ends = 0
    for batch in actions.astype(np.float32):
        results = [envs.step(batch) for envs in (ours, theirs)]
        assert_same(*results)
        ended = results[0][2] | results[0][3]
        ends += ended.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            resets: Any = [
                envs.reset(options={"reset_mask": ended.copy()}) for envs in (ours, theirs)
            ]
            assert_same(*resets)
    assert ends >= 10
    ours.close()
    theirs.close()


def test_gymnasium_makes_them() -> None:
    for name in TASKS:
        assert str(gymnasium.spec(TASKS[name].id).vector_entry_point).endswith(f":{name}")
    envs: Any = gymnasium.make_vec(
        "safecritic/SafetyHopperVelocity-v1", 3, autoreset_mode="SameStep", horizon=5
    )
    assert type(envs) is ThreadVectorEnv
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset(seed=0)
    *_, infos = [envs.step(np.zeros((3, 3)))[4] for _ in range(5)]
    assert len(infos["final_obs"]) == 3
    np.testing.assert_array_equal(infos["final_info"]["cost"], np.zeros(3))
    assert {env.horizon for env in envs.call("get_wrapper_attr", "unwrapped")} == {5}
    envs.close()
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        gymnasium.envs.registration.load_env_creator("safecritic.tasks.vector:Nothing")


def test_an_error_in_a_thread_is_raised_and_leaves_nothing_behind() -> None:
    envs: Any = ThreadVectorEnv([KeptPoint] * 4, threads=2)
    envs.reset(seed=0)
    original = envs.envs[3].unwrapped.step
    envs.envs[3].unwrapped.step = lambda action: 1 / 0
    with pytest.raises(ZeroDivisionError):
        envs.step(np.zeros((4, 1), np.float32))
    envs.envs[3].unwrapped.step = original
    fresh = SyncVectorEnv([KeptPoint] * 4)
    assert_same(envs.reset(seed=1), fresh.reset(seed=1))
    batch = np.full((4, 1), 0.5, np.float32)
    assert_same(envs.step(batch), fresh.step(batch))
    with pytest.raises(ValueError, match="threads must be >= 1, got 0"):
        ThreadVectorEnv([KeptPoint], threads=0)
    envs.close()
