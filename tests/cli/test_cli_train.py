"""`train`: a run folder, and settings that arrive as they were given."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.commands import FLAGS, TASK
from probes import SMALL
from safecritic import agent_classes, cli, methods
from safecritic.cli import commands, options
from safecritic.run.folder import EPISODE_COLUMNS, read_table


def test_train_writes_a_run_folder(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
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

    assert cli.main(["train", "--resume", str(run)]) == 2
    assert "already has 600 steps: give a larger total with --steps" in capsys.readouterr().err


@pytest.mark.slow
def test_parts_that_are_off_are_off_in_the_config(there: Path) -> None:
    off = ["--no-screen", "--no-refinement", "--conservative-form", "hinge"]
    assert cli.main(["train", "usc", TASK, *FLAGS, *off, "--steps", "100", "--out", "run"]) == 0
    config = json.loads(Path("run/config.json").read_text())["config"]
    assert (config["screen"], config["refinement"]) == (False, False)
    assert (config["influence"], config["conservative_form"]) == (True, "hinge")
    assert not {"tolerance", "refine_top"} & config.keys()


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the settings of every run that is asked for; none is run."""
    collected: list[Any] = []

    def maker(method: str) -> Any:
        def make(task: str, seed: int, paper_defaults: bool, **settings: Any) -> Any:
            name = options.task_name(task)
            collected.append(methods.make_config(method, name, paper_defaults, **settings))
            return SimpleNamespace(environment={"task": task})

        return make

    monkeypatch.setattr(agent_classes, "agent_class", maker)
    monkeypatch.setattr(commands, "_learn", lambda *_: 0)
    return collected


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


def test_a_flag_wins_over_any_default_however_it_is_written(configs: list[Any]) -> None:
    flags = ["--actor_lr=1e-4", "--no-push-data", "--hidden", "8", "--screen-from", "uniform"]
    assert cli.main(["train", "usc", "CarGoal1", "--paper-defaults", *flags]) == 0
    (config,) = configs
    assert (config.actor_lr, config.hidden) == (1e-4, (8,))
    assert config.conservative.push_data is False
    assert (config.screen.screen_from, config.screen.tolerance) == ("uniform", 0.3)


@pytest.mark.parametrize("method", methods.METHODS)
def test_without_flags_a_method_has_its_defaults(method: str, configs: list[Any]) -> None:
    assert cli.main(["train", method, "CarGoal2"]) == 0
    assert cli.main(["train", method, "CarGoal2", "--paper-defaults"]) == 0
    ours, paper = configs
    assert ours == methods.make_config(method, "CarGoal2")
    assert paper == methods.make_config(method, "CarGoal2", paper_defaults=True)


def test_switches_take_parts_away(configs: list[Any]) -> None:
    off = ["--no-refinement", "--no-influence"]
    assert cli.main(["train", "usc", "CarGoal1", *off, "--screen"]) == 0
    off = ["--no-conservative", "--no-screen"]
    assert cli.main(["train", "usc-nr", "CarGoal1", *off]) == 0
    first, second = configs
    assert first == methods.make_config("usc", "CarGoal1", refinement=False, influence=False)
    assert (first.refinement, first.influence) == (None, None)
    assert (second.conservative, second.screen) == (None, None)
    assert second.influence is not None
