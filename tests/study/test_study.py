"""Studies: what a file means, and that faults do not change its numbers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from safecritic import cli
from safecritic.run import checkpoint, processes
from safecritic.study import grid as study
from safecritic.study.grid import StudyError

HERE = Path(__file__).parent.parent
SMALL = """
methods = ["ddpg", "rcpo"]
tasks = ["probes:KeptPoint-v0"]
seeds = [0, 1]
steps = 900
deployment_episodes = 2
[settings]
hidden = [16, 16]
batch_size = 16
buffer_size = 400
learning_starts = 60
[method.rcpo]
multiplier_lr = 0.5
"""


def write(folder: Path, text: str = SMALL) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- the file


def test_a_file_is_a_grid_with_every_setting_resolved(tmp_path: Path) -> None:
    jobs = study.read(write(tmp_path))
    assert [job.name for job in jobs] == [
        "ddpg-KeptPoint-v0-seed0",
        "rcpo-KeptPoint-v0-seed0",
        "ddpg-KeptPoint-v0-seed1",
        "rcpo-KeptPoint-v0-seed1",
    ]
    ddpg, rcpo = jobs[:2]
    assert (ddpg.steps, ddpg.train_episodes, ddpg.deployment_episodes) == (900, None, 2)
    assert (rcpo.settings["multiplier_lr"], rcpo.settings["hidden"]) == (0.5, [16, 16])
    assert "multiplier_lr" not in ddpg.settings
    assert ddpg.settings["gamma"] == 0.95  # a default is written down too


def test_budgets_and_settings_of_a_task_and_a_method() -> None:
    content = {
        "methods": ["ddpg", "cpo"],
        "tasks": ["CarGoal1", "cargoal2"],
        "seeds": [3],
        "train_episodes": 50,
        "method": {"cpo": {"steps": 16_000}},
        "task": {"CarGoal2": {"cost_limit": 7.0, "steps": 5_000}},
    }
    found = {(job.method, job.task): job for job in study.jobs_of(content)}
    assert found["ddpg", "CarGoal1"].steps == 60_000  # what the method needs
    assert found["ddpg", "CarGoal2"].steps == 5_000
    assert found["cpo", "CarGoal2"].steps == 16_000  # the method's own word goes last
    limits = [found["ddpg", task].settings["cost_limit"] for task in ("CarGoal1", "CarGoal2")]
    assert limits == [1.0, 7.0]
    assert found["cpo", "CarGoal1"].train_episodes == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metods": []}, "unknown key 'metods': did you mean methods"),
        ({"methods": ["ucs"]}, "unknown method 'ucs'"),
        ({"tasks": ["CarGaol1"]}, "unknown task 'CarGaol1'"),
        ({"seeds": []}, "seeds must be a list of one or more int"),
        ({"seeds": [-1]}, "seeds must be a whole number >= 0"),
        ({"seeds": [1, 1]}, "listed twice"),
        ({"steps": 0.5}, "steps must be a whole number >= 1"),
        ({"settings": {"gama": 0.9}}, "no method here has a setting 'gama': did you mean gamma"),
        ({"settings": {"gamma": 2.0}}, "gamma must be in"),
        ({"method": {"usc": {}}}, r"\[method.usc\] is not among the methods"),
        ({"method": {"ddpg": {"tolerance": 1.0}}}, "unknown setting 'tolerance' of ddpg"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    content = {"methods": ["ddpg"], "tasks": ["CarGoal1"], "seeds": [0]} | change
    with pytest.raises(ValueError, match=message):
        study.jobs_of(content)


def test_shipped_studies() -> None:
    sizes = {name: len(study.read(path)) for name, path in study.shipped().items()}
    assert sizes == {"paper.toml": 8 * 6 * 5, "quick.toml": 16}
    assert study.find("quick") == study.find("quick.toml")
    with pytest.raises(StudyError, match=r"nor one of paper\.toml, quick\.toml"):
        study.find("nothing.toml")


def test_not_toml_and_not_a_study(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="is not valid TOML"):
        study.read(write(tmp_path, "methods = ["))
    with pytest.raises(StudyError, match=r"has no study\.json"):
        study.read_folder(tmp_path)


# ---------------------------------------------------------------- running it


def command(out: Path, file: Path, *more: str) -> dict[str, Any]:
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    words = ["study", str(file), "--out", str(out), *(more or ("--workers", "2"))]
    return {
        "args": [sys.executable, "-m", "safecritic", *words],
        "env": os.environ | {"PYTHONPATH": paths},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def finish(out: Path, file: Path) -> str:
    done = subprocess.run(**command(out, file), timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def workers_of(out: Path) -> list[int]:
    """Processes of the study's workers, by their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "safecritic.study.worker" in words and str(out) in words:
            found.append(int(path.parent.name))
    return found


def wait_for_a_run(out: Path, process: subprocess.Popen) -> list[int]:
    """Until some run is on its way."""
    for _ in range(1200):
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        if list(out.glob("runs/*/episodes.csv")) and (found := workers_of(out)):
            return found
        time.sleep(0.05)
    raise AssertionError("no run was started")


def numbers(out: Path) -> dict[str, Any]:
    """All that a study found: the parameters, the episodes and the deployments."""
    found: dict[str, Any] = {}
    for run in sorted((out / "runs").iterdir()):
        arrays, about = checkpoint.load(run / "checkpoint")
        found[run.name] = (
            {name: x.tobytes() for name, x in arrays.items()},
            about["step"],
            (run / "episodes.csv").read_text(),
            json.loads((run / "evaluation.json").read_text())["episodes"],
            (run / "measures.json").read_text(),
        )
    return found


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_worker_stays_on_the_cores_its_study_was_given(monkeypatch):
    """As under taskset or in a container, whose cores need not be numbered from 0."""
    chosen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: chosen.append(cores))
    for number in range(3):
        processes.use_core(number)
    assert chosen == [{3}, {5}, {3}]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_kill_9_of_a_worker_and_of_the_driver_and_ctrl_c_change_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL.replace("steps = 900", "steps = 6_000"))
    whole, out = tmp_path / "whole", tmp_path / "out"
    finish(whole, file)
    expected = numbers(whole)
    assert len(expected) == 4

    process = subprocess.Popen(**command(out, file))
    os.kill(wait_for_a_run(out, process)[0], signal.SIGKILL)
    time.sleep(1.0)
    process.kill()
    process.communicate()
    for _ in range(200):  # no worker outlives its driver
        if not workers_of(out):
            break
        time.sleep(0.05)
    assert workers_of(out) == []

    process = subprocess.Popen(**command(out, file))
    wait_for_a_run(out, process)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 130, text
    assert "stopped; the runs are saved" in text
    assert workers_of(out) == []

    assert "4 of 4 runs are done" in finish(out, file)
    assert numbers(out) == expected
    assert "4 of 4 runs are done" in finish(out, file)  # and there is nothing left to do
    assert numbers(out) == expected


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_kill_9_of_a_ray_worker_changes_nothing(tmp_path: Path) -> None:
    """On a real local cluster: the worker Ray runs our task in is killed in the middle."""
    pytest.importorskip("ray", reason="needs safecritic[ray]")
    file = write(tmp_path, SMALL.replace("steps = 900", "steps = 6_000"))
    whole, out = tmp_path / "whole", tmp_path / "out"
    finish(whole, file)
    process = subprocess.Popen(**command(out, file, "--ray", "local"))
    ours = wait_for_a_run(out, process)[0]
    status = Path(f"/proc/{ours}/status").read_text()
    parent = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
    assert b"one_run" in Path(f"/proc/{parent}/cmdline").read_bytes()
    os.kill(parent, signal.SIGKILL)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    assert "4 of 4 runs are done" in text
    assert numbers(out) == numbers(whole)


@pytest.mark.slow
def test_a_failed_run_does_not_stop_the_rest_and_a_changed_setting_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path), tmp_path / "out"
    blocked = out / "runs" / "ddpg-KeptPoint-v0-seed0"
    blocked.mkdir(parents=True)
    (blocked / "checkpoint").mkdir()  # neither a run nor empty
    done = subprocess.run(**command(out, file), timeout=300, check=False)
    assert done.returncode == 1
    assert "3 of 4 runs are done" in done.stdout
    assert "failed: ddpg-KeptPoint-v0-seed0: " in done.stdout
    assert (blocked / "error.txt").is_file()

    write(tmp_path, SMALL.replace("multiplier_lr = 0.5", "multiplier_lr = 0.25"))
    assert cli.main(["study", str(file), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "multiplier_lr 0.5 (now 0.25)" in line


def test_episodes_are_a_budget(tmp_path: Path) -> None:
    from safecritic.study.worker import work

    (job, *_) = study.read(write(tmp_path, SMALL + "\n[method.ddpg]\ntrain_episodes = 3\n"))
    said: list[dict[str, Any]] = []
    study.open_folder(tmp_path, [job], "here")
    work(tmp_path, job, lambda **about: said.append(about))
    assert study.done(tmp_path, job)
    run = tmp_path / "runs" / job.name
    assert json.loads((run / "summary.json").read_text())["episodes"] == 3
    assert said[0]["step"] == 1
    before = (run / "episodes.csv").read_text()
    work(tmp_path, job)
    assert (run / "episodes.csv").read_text() == before
