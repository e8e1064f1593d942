"""What every loop does: its log interval, its checkpoints, and numbers that are not finite."""

from pathlib import Path

import pytest

from helpers.fakes import EVERY, Recorder, fake_training
from safecritic.run import checkpoint
from safecritic.run.callbacks import BaseCallback
from safecritic.run.episode import Intervals
from safecritic.run.failure import Failure, NotFiniteError, read_failure
from safecritic.run.folder import RunFolder


def test_metrics_are_means_over_the_interval_and_none_before_learning() -> None:
    log = Recorder()
    training = fake_training()
    training.run(200, log, every=EVERY)
    # 60 warm-up steps; the update of step 61 is number 1: 40 updates by step 100, then 50 each
    assert [m["b/loss"] for m in log.metrics] == [20.5, 65.5, 115.5]
    assert [m["a/one"] for m in log.metrics] == [1.0, 1.0, 1.0]
    assert ["critic/auc" in m for m in log.metrics] == [True, False, True]


def test_a_bad_loss_stops_the_run_and_names_it(tmp_path: Path) -> None:
    training = fake_training(bad_update=25)
    folder = RunFolder(tmp_path, training.compiled.metrics)
    with pytest.raises(NotFiniteError) as caught:
        training.run(200, BaseCallback(), folder, EVERY)
    # update 25 takes in the transition of step 60 + 24, and is noticed at the next log
    assert (caught.value.quantity, caught.value.step) == ("b/loss", 84)
    assert training.step == 100
    assert str(tmp_path / "failed") in str(caught.value)
    assert checkpoint.load(tmp_path / "failed")[1]["step"] == 100
    message = "b/loss was not finite at step 84: the run was stopped"
    failure = read_failure(tmp_path)
    assert failure == Failure("NotFiniteError", message, "b/loss", 84)
    assert failure.diverged
    assert not checkpoint.exists(tmp_path / "checkpoint")
    fake_training().run(120, BaseCallback(), folder, EVERY)
    assert read_failure(tmp_path) is None


def test_a_bad_loss_never_enters_a_checkpoint(tmp_path: Path) -> None:
    training = fake_training(bad_update=25)
    folder = RunFolder(tmp_path, training.compiled.metrics)
    with pytest.raises(NotFiniteError):
        training.run(120, BaseCallback(), folder, Intervals(500, 500, checkpoint_every=80))
    assert checkpoint.load(tmp_path / "checkpoint")[1]["step"] == 80


def test_intervals_are_checked() -> None:
    with pytest.raises(ValueError, match=r"log_every must be >= 1, got 0 \(--log-every\)"):
        Intervals(log_every=0)
    with pytest.raises(ValueError, match="critic_every must be a multiple of log_every 1000"):
        Intervals(critic_every=1500)
