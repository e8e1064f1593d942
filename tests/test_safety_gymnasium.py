"""Code written for Safety Gymnasium runs on its calls here."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import safecritic
from helpers.rollouts import actions_for
from safecritic import safety_gymnasium
from safecritic.safety_gymnasium.vector import SafetyAsyncVectorEnv
from safecritic.safety_gymnasium.wrappers import (
    SafeAutoResetWrapper,
    SafeNormalizeCost,
    SafeNormalizeObservation,
    SafeNormalizeReward,
    SafeRescaleAction,
    SafeTimeLimit,
    SafetyGymnasium2Gymnasium,
    SafeUnsqueeze,
    with_gymnasium_wrappers,
)
from safecritic.tasks import TASKS

HOPPER = "SafetyHopperVelocity-v1"
ORIGINALS = [name for name in TASKS if name.startswith("Safety")]


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_old_loop_of_six_values(name: str) -> None:
    env, plain = safety_gymnasium.make(name, max_episode_steps=12), safecritic.make(name)
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs, plain.reset(seed=3)[0])
    ended, costs = False, 0.0
    for action in actions_for(env, 20):
        obs, reward, cost, terminated, truncated, _ = env.step(action)
        theirs = plain.step(action)
        np.testing.assert_array_equal(obs, theirs[0])
        assert (reward, cost, terminated) == (theirs[1], theirs[4]["cost"], theirs[2])
        costs += cost
        if ended := terminated or truncated:
            break
    assert ended
    assert costs >= 0.0
    env.close()


@pytest.mark.parametrize("name", ORIGINALS)
def test_ids_that_say_gymnasium_give_five_values(name: str) -> None:
    twin = name.replace("-v", "Gymnasium-v")
    env: Any
    for env in (safety_gymnasium.make(twin), gymnasium.make(twin)):
        env.reset(seed=0)
        result = env.step(np.zeros(env.action_space.shape, np.float32))
        assert len(result) == 5
        assert result[4]["cost"] >= 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an unbounded observation
        check_env(gymnasium.make(twin).unwrapped, skip_render_check=True)


def test_unknown_ids_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean SafetyHopperVelocity-v1"):
        safety_gymnasium.make("SafetyHoperVelocity-v1")


@pytest.mark.parametrize("asynchronous", [True, False])
def test_vectors_give_the_single_ones(asynchronous: bool) -> None:
    envs: Any = safety_gymnasium.vector.make(HOPPER, 3, asynchronous, max_episode_steps=9)
    single = [safety_gymnasium.make(HOPPER, 9, autoreset=True) for _ in range(3)]
    obs, _ = envs.reset(seed=5)
    np.testing.assert_array_equal(obs, [e.reset(seed=5 + i)[0] for i, e in enumerate(single)])
    assert envs.single_action_space == single[0].action_space
    ends = 0
    batches = np.stack([actions_for(single[0], 25, seed) for seed in range(3)], axis=1)
    for batch in batches.astype(np.float32):
        *values, infos = envs.step(batch)
        steps = [env.step(action) for env, action in zip(single, batch, strict=True)]
        for ours, theirs in zip(values, list(zip(*steps, strict=True))[:5], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for at, info in enumerate(step[5] for step in steps):
            if "final_observation" in info:
                np.testing.assert_array_equal(
                    infos["final_observation"][at], info["final_observation"]
                )
                last = infos["final_info"][at]
                assert last["cost"] == info["final_info"]["cost"]
                assert last.keys() == info["final_info"].keys()
                ends += 1
            elif "final_info" in infos:
                assert infos["final_info"][at] is None
    assert ends >= 6
    envs.close()


def test_several_environments_as_safepo_makes_them() -> None:
    def one() -> Any:
        return SafeRescaleAction(safety_gymnasium.make(HOPPER, 9), -2.0, 2.0)

    envs = SafeNormalizeObservation(SafetyAsyncVectorEnv([one] * 4))
    obs, _ = envs.reset(seed=0)
    assert obs.shape == (4, 11)
    last = None
    for _ in range(40):
        obs, _, cost, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert cost.shape == (4,)
        if (terminated | truncated).any():
            last = infos["final_observation"][np.argmax(terminated | truncated)]
    assert last is not None
    assert np.abs(last).max() < 20
    assert envs.obs_rms.count > 160
    np.testing.assert_allclose(envs.obs_rms.mean[0], 1.25, atol=0.05)  # height of the torso
    assert len(SafetyGymnasium2Gymnasium(envs).step(envs.action_space.sample())) == 5
    envs.close()


def test_a_single_environment_as_safepo_makes_it() -> None:
    env: Any = safety_gymnasium.make(HOPPER)
    for wrapper in (SafeAutoResetWrapper, SafeNormalizeObservation, SafeUnsqueeze):
        env = wrapper(env)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (1, 11)
    for _ in range(60):
        obs, reward, cost, terminated, _, info = env.step(env.action_space.sample())
        assert (obs.shape, reward.shape, cost.shape) == ((1, 11), (1,), (1,))
        if terminated[0]:
            break
    assert info["final_observation"].shape == (1, 11)
    assert env.unwrapped.data.time == 0.0


def test_actions_are_rescaled() -> None:
    env, plain = (safety_gymnasium.make("SafetyHumanoidVelocity-v1") for _ in range(2))
    env = SafeRescaleAction(env, -1.0, 1.0)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (17,), np.float32)
    obs = [e.reset(seed=0) for e in (env, plain)]
    ours, theirs = env.step(np.full(17, 0.5, np.float32)), plain.step(np.full(17, 0.2))
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-2)
    assert not np.array_equal(obs[0][0], ours[0])


def test_time_limits_and_normal_rewards_and_costs() -> None:
    env: Any = SafeTimeLimit(safety_gymnasium.make("SafetySwimmerVelocity-v1"), 200)
    plain = safety_gymnasium.make("SafetySwimmerVelocity-v1")
    env = SafeNormalizeCost(SafeNormalizeReward(env, gamma=0.9), gamma=0.9)
    rows = []
    for e in (env, plain):
        e.reset(seed=0)
        rows.append([e.step(action)[1:5] for action in actions_for(e, 200)])
    (normal, bare), gamma = np.array(rows, dtype=float), 0.9
    assert normal[:, 3].tolist() == [0.0] * 199 + [1.0]
    for column in (0, 1):
        sums, total = [], 0.0
        for value in bare[:, column]:
            total = total * gamma + value
            sums.append(total)
        # the running variance of Gymnasium starts at 1 with a weight of 1e-4
        assert normal[-1, column] == pytest.approx(bare[-1, column] / np.std(sums), rel=1e-2)


def test_gymnasiums_wrappers_fit_between() -> None:
    env = with_gymnasium_wrappers(
        safety_gymnasium.make(HOPPER), gymnasium.wrappers.RecordEpisodeStatistics
    )
    env.reset(seed=0)
    terminated = False
    while not terminated:
        _, _, cost, terminated, _, info = env.step(env.action_space.sample())
    assert info["episode"]["l"] > 5
    assert cost == info["cost"]
