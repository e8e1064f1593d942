"""Stopping and resuming with real processes and signals."""

import re
import signal
import time
from pathlib import Path

import pytest

from helpers.commands import FLAGS, PATIENCE, TASK, assert_same_run, start, wait_for, whole_run
from probes import small_disk
from safecritic import cli
from safecritic.run import checkpoint


@pytest.mark.slow
def test_ctrl_c_then_kill_9_and_the_run_is_still_the_uninterrupted_one(there: Path) -> None:
    planned = ["--steps", "1000000", "--checkpoint-every", "250"]
    process = start("train", "ddpg", TASK, *FLAGS, *planned, cwd=there)
    run = there / "runs" / "ddpg-KeptPoint-v0-seed0"
    index = run / "checkpoint" / "checkpoint.json"
    wait_for(process, index.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    reached = checkpoint.load(run / "checkpoint")[1]["step"]
    assert f"stopped at step {reached:,} and saved" in out
    command = out.splitlines()[-1].strip()
    assert command == "safecritic train --resume runs/ddpg-KeptPoint-v0-seed0 --trust-env"

    before = index.read_text()
    process = start(*command.split()[1:], cwd=there)
    wait_for(process, lambda: index.read_text() != before)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    kept = checkpoint.load(run / "checkpoint")[1]["step"]
    assert kept > reached
    assert kept % 250 == 0

    process = start(*command.split()[1:], "--steps", str(kept + 275), cwd=there)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    whole_run(kept + 275, there / "whole")
    assert_same_run(run, there / "whole")


@pytest.mark.slow
def test_cpo_with_workers_resumes_after_ctrl_c(there: Path) -> None:
    small = ["--hidden", "16", "--batch-size", "40", "--rollout-steps", "400"]
    small += ["--rollout-envs", "4", "--checkpoint-every", "800"]
    long = ["--steps", "10000000", "--rollout-workers", "2", "--out", "run"]
    index = there / "run" / "checkpoint" / "checkpoint.json"
    process = start("train", "cpo", TASK, *small, *long, cwd=there)
    wait_for(process, index.exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err

    kept = checkpoint.load(there / "run" / "checkpoint")[1]["step"]
    again = ["train", "--resume", "run", "--steps", str(kept + 1200), "--trust-env"]
    assert cli.main(again) == 0
    alone = ["--steps", str(kept + 1200), "--rollout-workers", "1", "--out", "whole"]
    assert cli.main(["train", "cpo", TASK, *small, *alone]) == 0
    assert_same_run(there / "run", there / "whole")


@pytest.mark.usefixtures("no_curves")
def test_a_damaged_checkpoint_is_refused_in_one_line(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(100, Path("run"))
    (arrays,) = Path("run/checkpoint").glob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1])
    for command in (["train", "--resume", "run", "--steps", "200"], ["evaluate", "run"]):
        assert cli.main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is truncated: expected" in line


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_keeps_the_checkpoint(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = there / "disk"
    disk.mkdir()
    with small_disk(disk, "400k"):
        planned = ["--steps", "1000000", "--checkpoint-every", "250", "--out", "disk/run"]
        assert cli.main(["train", "ddpg", TASK, *FLAGS, *planned]) == 1
        err = capsys.readouterr().err
        assert re.search(r"error: could not write .*No space left on device", err)
        assert "is intact" in err
        assert "Traceback" not in err
        step = checkpoint.load(disk / "run" / "checkpoint")[1]["step"]
        assert step >= 250
