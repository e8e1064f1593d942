"""The command line as a user meets it; stopping and resuming with real processes and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes import SMALL, KeptPoint, small_disk
from safecritic import DDPG, api, cli, methods
from safecritic.agents import settings
from safecritic.agents.interface import EnvSpec
from safecritic.cli import commands, options, printing
from safecritic.run import checkpoint, on_policy
from safecritic.run import compiled as device
from safecritic.run.folder import EPISODE_COLUMNS, FIGURE_COLUMNS, read_table

HERE = Path(__file__).parent.parent
TASK = "probes:KeptPoint-v0"
FLAGS = ["--hidden", "16", "16", "--batch-size", "16", "--buffer-size", "400"]
FLAGS += ["--learning-starts", "60", "--log-every", "100", "--figures-every", "500"]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "safecritic", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    for _ in range(1200):
        if happened() or process.poll() is not None:
            break
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- help


def test_help_imports_nothing_heavy() -> None:
    """Help is quick because of what it leaves out; a time would measure the machine."""
    script = (
        "import sys; from safecritic import cli; cli.main(['--help']);"
        "print([m for m in ('jax', 'mujoco', 'tyro', 'matplotlib', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    for command in ("train", "evaluate", "show", "tasks", "methods"):
        assert re.search(rf"^  {command} +[A-Z]", run.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", ["train", "train usc", "evaluate", "show", "tasks", "methods"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([*command.split(), "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: safecritic {command}" in text
    if command == "train usc":
        assert "--cost-limit FLOAT" in text
        assert "--refine-neighbours INT" in text
    if command == "evaluate":
        assert re.search(r"usage: safecritic evaluate .*RUN", text)


def test_tasks_and_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("CarGoal1", "CarButton2", "HalfCheetah", "FetchReach"))
    assert cli.main(["methods"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in methods.METHODS)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian usc CarGoal1", "unknown command 'trian': did you mean train"),
        ("train uscc CarGoal1", "unknown method 'uscc': did you mean usc"),
        ("train usc CarGaol1", "unknown task 'CarGaol1'"),
        ("train ddpg CartPole-v1", "actions must be continuous"),
        (f"train ddpg {TASK} --cost-limit -1", "cost_limit must be >= 0, got -1.0 (--cost-limit)"),
        (f"train ddpg {TASK} --batch-size 500 --buffer-size 400", "batch_size 500 exceeds"),
        (f"train ddpg {TASK} --steps 900", "no update would run: warm-up 1000 >= steps 900"),
        (f"train ddpg {TASK} --log-every 0", "log_every must be >= 1, got 0"),
        (f"train ddpg {TASK} --seed -1", "seed must be >= 0, got -1 (--seed)"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        ("evaluate nowhere", "nowhere is not a run folder"),
        ("show nowhere", "nowhere is not a run folder"),
    ],
)
def test_refusals_are_one_line(
    command: str, message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert list(there.iterdir()) == []


def test_an_unknown_flag_is_refused(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "ddpg", TASK, "--cost-limt", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: unknown flag --cost-limt: did you mean cost-limit")


# ---------------------------------------------------------------- train, evaluate


def test_train_then_evaluate(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "ddpg", TASK, *FLAGS, "--steps", "600", "--seed", "7"]
    assert cli.main(command) == 0
    text = capsys.readouterr().out
    run = Path("runs/ddpg-KeptPoint-v0-seed7")
    assert f"safecritic evaluate {run}" in text
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "episodes.csv", "updates.csv", "curves.png", "summary.json"} <= names
    episodes = read_table(run / "episodes.csv")
    assert tuple(episodes) == EPISODE_COLUMNS
    assert sum(episodes["length"]) == episodes["step"][-1] <= 600
    updates = read_table(run / "updates.csv")
    assert updates["step"] == [100, 200, 300, 400, 500, 600]
    summary = json.loads((run / "summary.json").read_text())
    last = episodes["cost"][-100:]
    assert summary["cost"] == pytest.approx(sum(last) / len(last))

    assert cli.main(command) == 2
    assert "already holds a run" in capsys.readouterr().err

    assert cli.main(["evaluate", str(run), "--episodes", "3"]) == 0
    text = capsys.readouterr().out
    found = json.loads((run / "evaluation.json").read_text())
    assert [row["episode"] for row in found["episodes"]] == [0, 1, 2]
    assert f"{found['means']['reward']:.2f}" in text
    assert not (run / "evaluation.png").exists()  # no safety critic
    again = DDPG.load(run).evaluate(episodes=3)
    assert again.means["reward"] == found["means"]["reward"]

    assert cli.main(["train", "--resume", str(run)]) == 2
    assert "already has 600 steps: give a larger total with --steps" in capsys.readouterr().err


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of every run that was asked for; none is run."""
    found: list[Any] = []

    def make(task: str, seed: int, paper_defaults: bool, **settings: Any) -> Any:
        name = options.task_name(task)
        found.append(methods.make_config("ddpg", name, paper_defaults, **settings))
        return SimpleNamespace(environment={"task": task})

    monkeypatch.setitem(api.CLASSES, "ddpg", make)
    monkeypatch.setattr(commands, "_learn", lambda *_: 0)
    return found


def test_paper_defaults_and_flags_reach_the_config(configs: list[Any]) -> None:
    assert cli.main(["train", "ddpg", TASK, *FLAGS]) == 0
    changed = ["--paper-defaults", "--gamma", "0.9", "--cost-limit", "3"]
    assert cli.main(["train", "ddpg", TASK, *FLAGS, *changed]) == 0
    ours, paper = configs
    assert ours == methods.make_config("ddpg", **SMALL)
    assert (paper.actor_lr, paper.observation_scaling) == (2e-3, "none")
    assert (paper.gamma, paper.cost_limit, paper.batch_size) == (0.9, 3.0, 16)


def test_the_task_sets_the_limit_wherever_it_stands(configs: list[Any]) -> None:
    for words in ("CarGoal2", "--seed 1 CarGoal2", "--seed 1 cargoal2 --cost-limit 7"):
        assert cli.main(["train", "ddpg", *words.split(), *FLAGS]) == 0
    assert [config.cost_limit for config in configs] == [5.0, 5.0, 7.0]


# ---------------------------------------------------------------- stop and go


def whole_run(steps: int, out: Path) -> DDPG:
    """The same training without any interruption, in this process."""
    from safecritic.run.loop import Intervals

    every = Intervals(log_every=100, figures_every=500)
    return DDPG(KeptPoint(), seed=0, **SMALL).learn(steps, out=out, every=every)


def assert_same(run: Path, whole: Path) -> None:
    assert (run / "episodes.csv").read_text() == (whole / "episodes.csv").read_text()
    (a, m), (b, n) = (checkpoint.load(path / "checkpoint") for path in (run, whole))
    assert m["step"] == n["step"]
    for name in a:
        if not name.startswith("env/"):  # counts of TimeLimit and the like differ in form
            assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.slow
def test_ctrl_c_then_kill_9_and_the_run_is_still_the_uninterrupted_one(there: Path) -> None:
    planned = ["--steps", "1000000", "--checkpoint-every", "250"]
    process = start("train", "ddpg", TASK, *FLAGS, *planned, cwd=there)
    run = there / "runs" / "ddpg-KeptPoint-v0-seed0"
    index = run / "checkpoint" / "checkpoint.json"
    wait_for(process, index.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    reached = checkpoint.load(run / "checkpoint")[1]["step"]
    assert f"stopped at step {reached:,} and saved" in out
    command = out.splitlines()[-1].strip()
    assert command == "safecritic train --resume runs/ddpg-KeptPoint-v0-seed0"

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
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    whole_run(kept + 275, there / "whole")
    assert_same(run, there / "whole")


@pytest.mark.slow
def test_cpo_with_workers_goes_on_after_ctrl_c_and_kill_9(there: Path) -> None:
    small = ["--hidden", "16", "--batch-size", "40", "--rollout-steps", "400"]
    small += ["--rollout-envs", "4", "--checkpoint-every", "800"]
    long = ["--steps", "10000000", "--rollout-workers", "2", "--out", "run"]
    index = there / "run" / "checkpoint" / "checkpoint.json"
    process = start("train", "cpo", TASK, *small, *long, cwd=there)
    wait_for(process, index.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err

    before = index.read_text()
    process = start(*out.splitlines()[-1].split()[1:], cwd=there)
    wait_for(process, lambda: index.read_text() != before)
    process.kill()
    process.communicate()
    kept = checkpoint.load(there / "run" / "checkpoint")[1]["step"]
    process = start("train", "--resume", "run", "--steps", str(kept + 1200), cwd=there)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err

    alone = ["--steps", str(kept + 1200), "--rollout-workers", "1", "--out", "whole"]
    process = start("train", "cpo", TASK, *small, *alone, cwd=there)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert_same(there / "run", there / "whole")


def test_a_damaged_checkpoint_is_refused_in_one_line(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(100, Path("run"))
    (arrays,) = Path("run/checkpoint").glob("*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-1])
    content = json.loads(Path("run/config.json").read_text())
    content["environment"]["id"] = TASK
    Path("run/config.json").write_text(json.dumps(content))
    for command in (["train", "--resume", "run", "--steps", "200"], ["evaluate", "run"]):
        assert cli.main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is truncated: expected" in line


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_keeps_the_checkpoint(there: Path) -> None:
    disk = there / "disk"
    disk.mkdir()
    with small_disk(disk, "400k"):
        planned = ["--steps", "1000000", "--checkpoint-every", "250", "--out", "disk/run"]
        process = start("train", "ddpg", TASK, *FLAGS, *planned, cwd=there)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 1, out + err
        assert re.search(r"error: could not write .*No space left on device", err)
        assert "is intact" in err
        assert "Traceback" not in err
        step = checkpoint.load(disk / "run" / "checkpoint")[1]["step"]
        assert step >= 250


# ---------------------------------------------------------------- our tasks, docs


@pytest.mark.slow
def test_a_tour_on_a_real_task(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--hidden", "16", "16", "--learning-starts", "100", "--buffer-size", "500"]
    assert cli.main(["train", "sc", "CarGoal1", "--steps", "1100", *flags]) == 0
    run = Path("runs/sc-CarGoal1-seed0")
    assert json.loads((run / "config.json").read_text())["config"]["cost_limit"] == 1.0
    resumed = start("train", "--resume", str(run), "--steps", "1300", cwd=there)
    assert resumed.wait(timeout=120) == 0
    whole = ["train", "sc", "CarGoal1", "--steps", "1300", "--out", "whole", *flags]
    assert cli.main(whole) == 0
    capsys.readouterr()
    assert_same(run, Path("whole"))
    assert cli.main(["show", str(run), "--episodes", "1", "--every", "100"]) == 0
    assert (run / "episode-0.gif").read_bytes()[:4] == b"GIF8"
    assert cli.main(["evaluate", str(run), "--episodes", "1"]) == 0
    text = capsys.readouterr().out
    assert "AUC of Q_C" in text
    assert (run / "evaluation.png").read_bytes()[:4] == b"\x89PNG"
    found = json.loads((run / "evaluation.json").read_text())
    (row,) = found["episodes"]
    assert row["contacts"] == pytest.approx(row["cost"] / 0.2)
    assert row["hazard_distance_min"] <= row["hazard_distance_mean"]


def test_every_logged_number_is_explained() -> None:
    text = (HERE.parent / "docs" / "metrics.md").read_text()
    explained = set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))
    names = {f"episode/{name}" for name in EPISODE_COLUMNS} | set(FIGURE_COLUMNS)
    names |= {"step", "time/steps_per_second"}
    for method in methods.METHODS.values():
        config = methods.make_config(method.name)
        compiled = (on_policy if method.on_policy else device).compile_agent
        names |= set(compiled(method.load_agent(), config, EnvSpec(4, 2)).metrics)
    assert names - explained == set()
    assert explained - names == set()


def test_every_setting_is_explained() -> None:
    """The comment behind a setting is what --help says of it."""
    for method in methods.METHODS.values():
        kind = method.settings_type()
        groups = [kind, *settings.part_types(kind).values()]
        helps = {name: text for group in groups for name, text in settings.helps(group).items()}
        for field, _ in settings.setting_fields(kind, method.parts):
            assert helps.get(field.name), f"{method.name}: {field.name}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert printing.duration(seconds) == text
