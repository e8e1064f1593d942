"""Runs whose actions are held: decisions are learned from, environment steps are counted."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes import (
    EVERY,
    SPEC,
    FakeAgent,
    Recorder,
    assert_same_state,
    fake_training,
    small_training,
)
from probes import SMALL, KeptPoint, Point
from safecritic import CPO
from safecritic.agents import cpo, methods
from safecritic.core.interface import EnvSpec
from safecritic.run import on_policy
from safecritic.run.callbacks import BaseCallback
from safecritic.run.failure import NotFiniteError
from safecritic.run.folder import RunFolder, read_table
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.run.on_policy import OnPolicyTraining
from safecritic.run.workers import Streams, Workers
from safecritic.tasks.repeat import RepeatAction

K = 4
POINT = "probes:KeptPoint-v0"
ROLLOUT: dict[str, Any] = {
    "hidden": (16,),
    "batch_size": 32,
    "rollout_steps": 400,
    "rollout_envs": 4,
    "value_epochs": 2,
}


class Counted(KeptPoint):
    """A point that counts its steps, over all episodes, and records the actions."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[float] = []

    def step(self, action: Any) -> Any:
        self.actions.append(float(action[0]))
        return super().step(action)


# ---------------------------------------------------------------- off-policy


def test_the_run_counts_environment_steps(tmp_path: Path) -> None:
    env = Counted()
    training = fake_training(RepeatAction(env, K))
    folder = RunFolder(tmp_path, training.compiled.metrics)
    log = Recorder()
    training.run(700, log, folder, EVERY)
    folder.close()

    assert 700 <= training.step < 700 + K
    assert training.step == env.total == len(env.actions)
    lengths, steps = ([row[name] for row in log.rows] for name in ("length", "step"))
    assert np.cumsum(lengths).tolist() == steps
    assert any(length % K for length in lengths)  # the goal was reached while an action was held
    assert training.step - steps[-1] == training.stream.episode.length
    # every multiple of 50 after the warm-up was passed within a decision
    logged = read_table(tmp_path / "updates.csv")["step"]
    assert [step // 50 for step in logged] == list(range(2, 15))
    assert max(step % 50 for step in logged) < K
    # all but the last transition were ingested, one for each decision
    decisions = int(training.device.replay.size) + 1
    assert training.step / K < decisions < training.step / 3
    assert int(training.device.step) == training.step - training.stream.episode.steps[-1][4]
    # the warm-up: an episode of 50 steps, 13 decisions, and three decisions of the next
    held = [len(list(same)) for _, same in itertools.groupby(env.actions[:62])]
    assert held == [K] * 12 + [2] + [K] * 3
    assert set(env.actions[62:]) == {0.5}


def test_rewards_and_costs_of_a_decision_are_sums() -> None:
    env, bare = RepeatAction(KeptPoint(), K), KeptPoint()
    training = fake_training(env)
    training.run(400, BaseCallback())
    bare.reset(seed=0)
    for row in range(int(training.device.replay.size)):
        replay = training.device.replay
        reward = cost = 0.0
        for _ in range(K):
            obs, r, terminated, truncated, info = bare.step(np.asarray(replay.action[row]))
            reward, cost = reward + r, cost + info["cost"]
            if terminated or truncated:
                break
        assert float(replay.reward[row]) == pytest.approx(reward, abs=1e-6)
        assert float(replay.cost[row]) == cost
        np.testing.assert_array_equal(replay.next_obs[row], obs)
        assert bool(replay.terminated[row]) == terminated
        if terminated or truncated:
            bare.reset()
    assert float(replay.cost.max()) > 0.5  # more than a single step can cost


def test_a_resumed_run_is_the_uninterrupted_one() -> None:
    whole, first, second = (small_training("ddpg", RepeatAction(KeptPoint(), K)) for _ in range(3))
    whole.run(452, BaseCallback())
    first.run(233, BaseCallback())
    assert second.restore(*first.state()) == []
    second.run(452, BaseCallback())
    assert_same_state(whole, second)
    assert whole.episodes > 5


def test_a_metric_that_is_not_finite_names_the_environment_step() -> None:
    training = OffPolicyTraining(
        RepeatAction(KeptPoint(), K),
        FakeAgent(bad_update=5),
        methods.make_config("ddpg", None, **SMALL),
        SPEC,
        seed=0,
    )
    # the warm-up ends at step 62 with the transition that the first update ingests
    with pytest.raises(NotFiniteError, match=r"b/loss was not finite at step 78\b"):
        training.run(200, BaseCallback())


def test_a_dropped_episode_is_counted_in_environment_steps() -> None:
    first = fake_training(RepeatAction(Point(), K))
    first.run(30, BaseCallback())
    assert (first.step, first.stream.episode.length, len(first.stream.episode.steps)) == (32, 32, 8)
    (note,) = fake_training(RepeatAction(Point(), K)).restore(*first.state())
    assert "the open episode (32 steps) was dropped" in note


# ---------------------------------------------------------------- on-policy


def config(**changes: Any) -> Any:
    return methods.make_config("cpo", None, **(ROLLOUT | {"action_repeat": K} | changes))


def policy_of(chosen: Any) -> Any:
    import jax

    return on_policy.numpy_policy(cpo.init(jax.random.key(0), EnvSpec(2, 1), chosen))


def test_rollout_steps_are_environment_steps() -> None:
    training = OnPolicyTraining(None, cpo, config(rollout_workers=1), EnvSpec(2, 1), 0, POINT)
    rows = training.advance()
    rollout = training.locals["rollout"]
    assert rollout.obs.shape == (4, 25, 2)
    points: list[Any] = [stream.env.unwrapped for stream in training.pool.streams]
    # each was tried for one step when it was made
    assert training.step == sum(point.total - 1 for point in points) <= 400
    rows += training.advance()
    assert training.step == sum(point.total - 1 for point in points)
    # every step is in an ended episode or in an open one
    open_steps = sum(stream.episode.length for stream in training.pool.streams)
    assert sum(row["length"] for row in rows) + open_steps == training.step
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    assert max(steps) <= training.step
    training.close()


def test_rollouts_are_rounded_up_to_decisions() -> None:
    assert on_policy.decisions(config(action_repeat=1), 4) == 100
    assert on_policy.decisions(config(action_repeat=3), 4) == 34
    assert on_policy.decisions(config(), 1) == 100
    config(batch_size=100)
    with pytest.raises(ValueError, match=r"batch_size 101 exceeds rollout_steps 400 / action_rep"):
        config(batch_size=101)


def test_the_length_in_the_constraint_is_in_decisions() -> None:
    """As the advantages are; the row's is in environment steps."""
    chosen = config()
    training = OnPolicyTraining(None, cpo, chosen, EnvSpec(2, 1), 0, POINT)
    streams = Streams([RepeatAction(KeptPoint(), K) for _ in range(2)], 0, range(2))
    parts = streams.roll(policy_of(chosen), 40, 0.9)
    rows = [ended.row for part in parts for ended in part.episodes]
    numbers = [ended.decisions for part in parts for ended in part.episodes]
    assert len(rows) == len(numbers) > 2
    for row, number in zip(rows, numbers, strict=True):
        assert K * (number - 1) < row["length"] <= K * number
    cost, length = training._episode_means(parts)
    assert cost == pytest.approx(np.mean([row["cost"] for row in rows]))
    assert length == np.mean(numbers)
    assert training._episode_means(parts) == (cost, length)


@pytest.mark.slow
def test_workers_hold_actions_as_this_process_does() -> None:
    policy = policy_of(config())
    here = Streams([RepeatAction(KeptPoint(), K) for _ in range(2)], 5, range(2))
    there = Workers(POINT, 5, streams=2, processes=2, making={"action_repeat": K})
    try:
        for ours, theirs in zip(
            here.roll(policy, 30, 0.9), there.roll(policy, 30, 0.9), strict=True
        ):
            for a, b in zip(ours[:9], theirs[:9], strict=True):
                np.testing.assert_array_equal(a, b)
            assert (len(ours.episodes), ours.open) == (len(theirs.episodes), theirs.open)
            assert ours.steps.max() == K
    finally:
        there.close()


@pytest.mark.slow
def test_cpo_resumes_exactly(tmp_path: Path) -> None:
    def new() -> CPO:
        return CPO(POINT, seed=1, action_repeat=K, rollout_workers=1, **ROLLOUT)

    whole = new().learn(1_100, out=tmp_path / "whole")
    new().learn(600, out=tmp_path / "part")
    resumed = CPO.load(tmp_path / "part", trust_env=True)
    resumed.learn(1_100 - resumed.num_timesteps, out=tmp_path / "part")
    assert whole.num_timesteps == resumed.num_timesteps >= 1_100
    tables = [(tmp_path / part / "episodes.csv").read_text() for part in ("whole", "part")]
    assert tables[0] == tables[1]
    obs = np.array([0.1, 0.0], np.float32)
    np.testing.assert_array_equal(resumed.predict(obs)[0], whole.predict(obs)[0])
