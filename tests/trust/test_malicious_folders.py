"""A kit of malicious folders: whatever is done with them, their marker must never appear."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safecritic import cli
from safecritic.api import Agent
from safecritic.core import files
from safecritic.study import grid
from safecritic.study.worker import work
from studies import write_measured_study

COMMANDS = (
    ["evaluate", "RUN", "--episodes", "1"],
    ["show", "RUN", "--format", "png"],
    ["export", "RUN"],
    ["certify", "RUN"],
    ["train", "--resume", "RUN", "--steps", "220"],
    ["train", "--resume", "RUN", "--steps", "220", "--state", "previous"],
)


@pytest.fixture
def kit(tmp_path: Path, good_run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run beside a module that leaves a marker when it is imported, in the current folder."""
    marker = tmp_path / "MARKER"
    code = f"open({str(marker)!r}, 'w').close()\n"
    folder = tmp_path / "kit"
    shutil.copytree(good_run, folder / "run")
    (folder / "evil.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("evil", None)


def forge(run: Path, **environment: Any) -> None:
    """Change the environment of a run and of its checkpoints, with checksums that fit."""
    config = json.loads((run / "config.json").read_text())
    config["environment"] |= environment
    files.write_json(run / "config.json", config)
    for name in ("checkpoint.json", "previous.json"):
        path = run / "checkpoint" / name
        index = json.loads(path.read_text())
        index["settings"]["environment"] |= environment
        files.write_json(path, index)


@pytest.mark.parametrize("env_id", ["evil:Env-v0", "evil:CarGoal1", "evil:safecritic/CarGoal1-v0"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2] + words[-1:]))
def test_no_module_is_imported_because_a_folder_names_it(
    kit: Path, env_id: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    forge(kit / "run", id=env_id)
    assert cli.main([word.replace("RUN", "run") for word in command]) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "a file may not choose what is imported" in text
    assert "--trust-env" in text
    assert not (kit.parent / "MARKER").exists()
    assert "evil" not in sys.modules


def test_a_registered_environment_is_not_made_because_a_folder_names_it(kit: Path) -> None:
    made = []
    import gymnasium

    gymnasium.register("Registered-v0", lambda: made.append(1))
    forge(kit / "run", id="Registered-v0")
    agent = Agent.load("run")
    assert agent.env is None
    with pytest.raises(ValueError, match="evaluate needs the environment"):
        agent.evaluate(1)
    assert made == []


def test_trust_imports_it(kit: Path) -> None:
    """Or the tests above would prove nothing."""
    forge(kit / "run", id="evil:Env-v0")
    with pytest.raises(Exception, match="Env"):
        Agent.load("run", trust_env=True)
    assert (kit.parent / "MARKER").exists()


@pytest.mark.slow
def test_a_study_takes_its_environments_from_its_own_file(kit: Path) -> None:
    jobs = grid.jobs_of({"methods": ["ddpg"], "tasks": ["CarGoal1"], "seeds": [1], "steps": 220})
    out = kit / "study"
    shutil.copytree(kit / "run", out / "runs" / jobs[0].name)
    forge(out / "runs" / jobs[0].name, id="evil:Env-v0")
    with pytest.raises(grid.StudyError, match="was run with"):  # other settings than the file's
        grid.open_folder(out, jobs, "mine")
    with pytest.raises(files.FileError, match="holds a run with task evil:Env-v0"):
        work(out, jobs[0])
    assert not (kit.parent / "MARKER").exists()


TARGETS = (
    ".lock",
    "config.json",
    "episodes.csv",
    "updates.csv",
    "summary.json",
    "curves.png",
    "evaluation.json",
    "evaluation.png",
    "episode-0.png",
    "checkpoint/checkpoint.json",
    "checkpoint/previous.json",
)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_link_in_a_folder_reaches_nothing_outside(
    kit: Path, target: str, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kit / "run" / target
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    for command in COMMANDS:
        code = cli.main([word.replace("RUN", "run") for word in command])
        text = capsys.readouterr().err
        assert code in (0, 2), (command, text)
        assert "Traceback" not in text
        assert "not foreseen" not in text
    assert outside.read_text() == "precious"
    assert os.listdir(outside.parent) == ["precious.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["checkpoint", "failed"])
def test_a_linked_folder_is_not_written_to(kit: Path, folder: str, outside: Path) -> None:
    path = kit / "run" / folder
    shutil.rmtree(path, ignore_errors=True)
    path.symlink_to(outside.parent, target_is_directory=True)
    for command in COMMANDS:
        assert cli.main([word.replace("RUN", "run") for word in command]) in (0, 2)
    assert os.listdir(outside.parent) == ["precious.txt"]


@pytest.mark.parametrize(
    "target", ["report", "report/tables", "report/index.html", "report/tables/runs.csv"]
)
def test_a_report_is_not_written_through_a_link(tmp_path: Path, target: str, outside: Path) -> None:
    study = write_measured_study(tmp_path / "study")
    path = study / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside.parent if "." not in path.name else outside)
    assert cli.main(["report", str(study)]) == 2
    assert outside.read_text() == "precious"
    assert os.listdir(outside.parent) == ["precious.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(kit: Path, capsys: Any) -> None:
    (kit / "run").chmod(0o500)
    for command in COMMANDS:
        assert cli.main([word.replace("RUN", "run") for word in command]) == 2
        text = capsys.readouterr().err
        assert "Permission denied" in text
        assert text.count("\n") == 1
    (kit / "run").chmod(0o700)
