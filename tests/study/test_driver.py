"""Faults do not change a study's numbers."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers.commands import PATIENCE
from safecritic import cli
from safecritic.run.failure import EnvNotFiniteError, NotFiniteError, write_failure
from safecritic.run.folder import read_config
from safecritic.study import grid
from safecritic.study.driver import Driver
from studies import FILE, command, finish, numbers, wait_for_a_run, workers_of, write_file


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_kill_9_of_a_worker_and_of_the_driver_and_ctrl_c_change_nothing(
    whole: tuple[Path, Path], tmp_path: Path
) -> None:
    file, out = whole[0], tmp_path / "out"
    expected = numbers(whole[1])
    assert len(expected) == 4

    process = subprocess.Popen(**command(out, file))
    os.kill(wait_for_a_run(out, process)[0], signal.SIGKILL)
    time.sleep(1.0)
    process.kill()
    process.communicate()
    until = time.monotonic() + PATIENCE
    while workers_of(out) and time.monotonic() < until:  # no worker outlives its driver
        time.sleep(0.05)
    assert workers_of(out) == []

    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C, and what a job scheduler sends
        process = subprocess.Popen(**command(out, file))
        wait_for_a_run(out, process)
        time.sleep(1.0)
        process.send_signal(number)
        text, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, text
        assert "stopped; the runs are saved" in text
        assert workers_of(out) == []

    assert "4 of 4 runs are done" in finish(out, file)
    assert numbers(out) == expected
    assert "4 of 4 runs are done" in finish(out, file)  # and there is nothing left to do
    assert numbers(out) == expected


@pytest.mark.slow
def test_a_cell_that_is_run_alone_is_the_study_s_to_the_bit(
    whole: tuple[Path, Path], tmp_path: Path
) -> None:
    file, out = whole[0], tmp_path / "out"
    call = command(out, file)
    call["args"] += ["--only", "*/rcpo/1"]
    done = subprocess.run(**call, timeout=PATIENCE, check=False)
    assert "1 of 1 runs are done" in done.stdout, done.stdout
    (run,) = (out / "runs").iterdir()
    assert numbers(out)[run.name] == numbers(whole[1])[run.name]


@pytest.mark.slow
def test_a_failed_run_does_not_stop_the_rest_and_a_changed_setting_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write_file(tmp_path), tmp_path / "out"
    blocked = out / "runs" / "ddpg-KeptPoint-v0-seed0"
    blocked.mkdir(parents=True)
    (blocked / "checkpoint").mkdir()  # neither a run nor empty
    done = subprocess.run(**command(out, file), timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "3 of 4 runs are done" in done.stdout
    assert "failed: ddpg-KeptPoint-v0-seed0: " in done.stdout
    assert (blocked / "error.txt").is_file()

    write_file(tmp_path, FILE.replace("multiplier.lr = 0.5", "multiplier.lr = 0.25"))
    assert cli.main(["study", str(file), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "multiplier.lr 0.5 (now 0.25)" in line


@pytest.mark.slow
def test_a_study_with_limits_is_run_resumed_and_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILE.replace("cost_limit = 1.0\n", "").replace("seeds = [0, 1]", "seeds = [0]")
    file, out = write_file(tmp_path, "limits = [0.5, 2]\n" + text), tmp_path / "out"
    printed = finish(out, file)
    names = ["ddpg-KeptPoint-v0", "rcpo-KeptPoint-v0-limit0.5", "rcpo-KeptPoint-v0-limit2"]
    assert sorted(path.name for path in (out / "runs").iterdir()) == [f"{x}-seed0" for x in names]
    assert "probes:KeptPoint-v0, limit 0.5, mean" in printed
    assert "3 of 3 runs are done" in printed
    expected = numbers(out)
    last = out / "runs" / "rcpo-KeptPoint-v0-limit2-seed0"
    limits = [read_config(out / "runs" / name)["config"]["cost_limit"] for name in expected]
    assert limits[1:] == [0.5, 2.0]
    (last / "evaluation.json").unlink()
    assert "3 of 3 runs are done" in finish(out, file)
    assert numbers(out) == expected
    assert cli.main(["evaluate", str(last), "--trust-env", "--episodes", "1"]) == 0
    assert "rcpo on KeptPoint-v0" in capsys.readouterr().out
    assert cli.main(["report", str(out)]) == 0
    assert 'id="figure-limits-keptpoint-v0-0"' in (out / "report" / "index.html").read_text()


def test_the_time_left_is_that_of_runs_alike(tmp_path: Path) -> None:
    tasks = ["CarGoal1", "FetchReach"]
    jobs = grid.jobs_of(
        {"methods": ["ddpg", "sc"], "tasks": tasks, "seeds": [0, 1], "steps": 1_000}
    )
    driver = Driver(tmp_path, jobs, 2)
    assert driver.left() is None

    def end(at: int, seconds: float) -> None:
        one = driver.all[at]
        assert one.job.seed == 0
        one.state, one.seconds, one.about = "done", seconds, {"step": 1_000}

    end(0, 10.0)  # DDPG on CarGoal1
    assert driver.left() == pytest.approx(7 * 10.0 / 2)
    end(2, 100.0)  # and on FetchReach: one more of each, and SC like their mean
    assert driver.left() == pytest.approx((10.0 + 100.0 + 4 * 55.0) / 2)
    end(1, 20.0)  # SC on CarGoal1, so also on FetchReach
    assert driver.left() == pytest.approx((10.0 + 100.0 + 3 * 20.0) / 2)


def test_a_run_that_diverged_is_not_trained_again(tmp_path: Path) -> None:
    jobs, out = grid.read(write_file(tmp_path)), tmp_path / "out"
    first, second = (out / "runs" / job.name for job in jobs[:2])
    write_failure(first, NotFiniteError("reward", 7))
    write_failure(second, EnvNotFiniteError("reward", 7, "reward is nan"))
    driver = Driver(out, jobs, 1)
    assert [one.state for one in driver.all] == ["failed", *["waiting"] * (len(jobs) - 1)]
    assert "reward was not finite at step 7; to train it again, remove" in driver.all[0].error
    assert len(driver.waiting) == len(jobs) - 1
