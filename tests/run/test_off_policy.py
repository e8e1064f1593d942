"""Off-policy training: what it learns from, what stops it, and exact resuming."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.fakes import (
    CONFIG,
    EVERY,
    FakeAgent,
    Recorder,
    assert_same_state,
    fake_training,
    row_of_ones,
    small_training,
)
from helpers.tasks import PAPER
from probes import SMALL, KeptPoint, Point
from safecritic.core.interface import EnvSpec
from safecritic.run import checkpoint
from safecritic.run.callbacks import BaseCallback
from safecritic.run.failure import NotFiniteError
from safecritic.run.folder import RunFolder
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.tasks import make

# ---------------------------------------------------------------- what is learned from


class Recorded(KeptPoint):
    """A point that records the transitions it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = []

    def reset(self, **settings: Any) -> Any:
        self.at, info = super().reset(**settings)
        return self.at, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.rows.append((self.at, action, reward, info["cost"], obs, terminated, truncated))
        self.at = obs
        return obs, reward, terminated, truncated, info


def test_every_transition_is_learned_from_once_and_one_step_late() -> None:
    env = Recorded()
    training = fake_training(env)
    training.run(200, BaseCallback())
    replay = training.device.replay
    assert int(replay.size) == 199
    assert float(training.device.agent.updates) == 200 - SMALL["learning_starts"]
    assert float(training.device.agent.seen) == 199
    for at, name in enumerate(replay._fields[:7]):
        expected = np.array([row[at] for row in env.rows[:199]], np.float32)
        got = np.asarray(getattr(replay, name)[:199], np.float32)
        np.testing.assert_array_equal(got, expected.reshape(got.shape), err_msg=name)
    assert {tuple(row[5:]) for row in env.rows} == {(False, False), (True, False), (False, True)}


def test_warm_up_acts_at_random_then_the_agent_acts() -> None:
    env = Recorded()
    fake_training(env).run(100, BaseCallback())
    actions = np.array([row[1][0] for row in env.rows])
    expected = np.random.default_rng(0).uniform(-1, 1, 60).astype(np.float32)
    np.testing.assert_array_equal(actions[:60], expected)
    assert set(actions[60:].tolist()) == {0.5}


def test_the_multiplier_of_a_row_is_the_one_after_its_episode() -> None:
    log = Recorder()
    fake_training().run(300, log)
    costs = np.cumsum([row["cost"] for row in log.rows])
    np.testing.assert_allclose([row["multiplier"] for row in log.rows], 1 + costs)
    assert [row["episode"] for row in log.rows] == list(range(1, len(log.rows) + 1))
    assert costs[-1] > 0


# ---------------------------------------------------------------- what stops it


def test_a_bad_action_stops_the_run_before_the_environment_sees_it() -> None:
    env = Recorded()
    with pytest.raises(NotFiniteError, match="action was not finite at step 70"):
        # the action of step 70 is chosen on the parameters after 9 updates
        fake_training(env, bad_action=9).run(200, BaseCallback())
    assert len(env.rows) == 69


def test_a_bad_reward_stops_the_run() -> None:
    with pytest.raises(NotFiniteError, match="reward was not finite at step 33"):
        fake_training(Point(bad_step=33)).run(200, BaseCallback())


# ---------------------------------------------------------------- resuming


def table(path: Path) -> dict[str, list[str]]:
    """The cells of updates.csv as written, without the clock's."""
    header, *lines = [line.split(",") for line in path.read_text().splitlines()]
    columns = dict(zip(header, zip(*lines, strict=True), strict=True))
    columns.pop("time/steps_per_second")
    return {name: list(cells) for name, cells in columns.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stop"), [("ddpg", 37), ("ddpg", 233), ("usc", 233)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, name: str, stop: int) -> None:
    whole = small_training(name)
    folder = RunFolder(tmp_path / "whole", whole.compiled.metrics)
    whole.run(450, BaseCallback(), folder, EVERY)

    first = small_training(name)
    folder = RunFolder(tmp_path / "parts", first.compiled.metrics)
    first.run(stop, BaseCallback(), folder, EVERY)
    first.run(stop + 61, BaseCallback(), None, EVERY)  # lost: it was not saved
    folder.write_episode(dict.fromkeys(first.window[-1], 1.0) if first.window else row_of_ones())
    folder.close()

    second = small_training(name)
    arrays, numbers = checkpoint.load(tmp_path / "parts" / "checkpoint")
    assert second.restore(arrays, numbers) == []
    folder = RunFolder(tmp_path / "parts", second.compiled.metrics)
    folder.cut_back(numbers["tables"])
    second.run(450, BaseCallback(), folder, EVERY)

    assert_same_state(whole, second)
    episodes = [(tmp_path / part / "episodes.csv").read_text() for part in ("whole", "parts")]
    assert episodes[0] == episodes[1]
    assert len(episodes[0].splitlines()) > 9
    updates = [table(tmp_path / part / "updates.csv") for part in ("whole", "parts")]
    assert updates[0] == updates[1]
    assert updates[0]["step"] == ["100", "150", "200", "250", "300", "350", "400", "450"]


@pytest.mark.slow
@pytest.mark.parametrize("task", [*PAPER, "SafetyPointPush2-v0", "SafetyPointButton1-v0"])
def test_every_task_of_ours_resumes_exactly(task: str) -> None:
    def new() -> OffPolicyTraining:
        env = make(task)
        (obs_dim,), (action_dim,) = env.observation_space.shape, env.action_space.shape
        return OffPolicyTraining(env, FakeAgent(), CONFIG, EnvSpec(obs_dim, action_dim), seed=0)

    whole, first, second = new(), new(), new()
    whole.run(1090, BaseCallback())
    first.run(77, BaseCallback())
    assert second.restore(*first.state()) == []
    second.run(1090, BaseCallback())
    assert_same_state(whole, second)
    assert whole.episodes > 0


def test_same_seed_same_run_and_another_seed_another() -> None:
    runs = []
    for seed in (5, 5, 6):
        training = small_training("ddpg", seed=seed)
        training.run(150, BaseCallback())
        runs.append(training)
    assert_same_state(runs[0], runs[1])
    weights = [np.asarray(run.device.agent.actor[0]["w"]) for run in runs]
    assert np.abs(weights[0] - weights[2]).max() > 1e-3


DIGEST = """
import hashlib, os, sys
if sys.argv[1] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from probes import KeptPoint
from safecritic import USC
arrays, _ = USC(KeptPoint(), seed=0, learning_starts=60).learn(170).training.state()
print(hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen")
def test_the_number_of_cores_changes_nothing() -> None:
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    digests = [
        subprocess.run(
            [sys.executable, "-c", DIGEST, cores],
            env={k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
            | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for cores in ("one", "all")
    ]
    assert digests[0] == digests[1]


def test_saving_and_evaluating_do_not_disturb_the_run() -> None:
    plain, watched = small_training("ddpg"), small_training("ddpg")
    plain.run(200, BaseCallback())
    for step in range(10, 201, 10):
        watched.run(step, BaseCallback())
        watched.state()
        with watched.borrowed_env() as notes:
            watched.env.reset(seed=99)
            watched.env.step(np.ones(1))
        assert notes == []
    assert_same_state(plain, watched)


def test_a_borrowed_environment_is_put_back_after_an_error() -> None:
    plain, watched = small_training("ddpg"), small_training("ddpg")
    plain.run(75, BaseCallback())
    watched.run(75, BaseCallback())

    def borrow_and_fail() -> None:
        with watched.borrowed_env():
            watched.env.reset(seed=99)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        borrow_and_fail()
    assert_same_state(plain, watched)


def test_an_environment_without_checkpoints_restarts_its_episode_and_says_so() -> None:
    first = fake_training(Point())
    first.run(75, BaseCallback())
    arrays, numbers = first.state()
    assert len(arrays["stream0/steps"]) == 25
    second = fake_training(Point())
    (note,) = second.restore(arrays, numbers)
    assert "the open episode (25 steps) was dropped" in note
    assert second.pending is not None
    assert second.pending[-3:].tolist() == [0.0, 1.0, 0.0]  # truncated: no window runs across it
    second.run(130, BaseCallback())
    assert bool(second.device.replay.truncated[74])
    assert second.window[-1]["step"] <= 125


def test_only_filled_rows_of_the_replay_are_saved() -> None:
    training = fake_training()
    training.run(31, BaseCallback())
    arrays, _ = training.state()
    assert arrays["device/replay/obs"].shape == (30, 2)
    training.run(600, BaseCallback())
    assert training.state()[0]["device/replay/obs"].shape == (400, 2)
