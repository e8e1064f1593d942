"""`train`: a run folder, and settings that arrive as they were given."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.commands import FLAGS, TASK
from probes import SMALL
from safecritic import agent_classes, cli
from safecritic.agents import methods
from safecritic.cli import commands, options
from safecritic.run.folder import EPISODE_COLUMNS, read_table
from safecritic.tasks.registry import method_defaults

pytestmark = pytest.mark.usefixtures("quick_runs")


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

    assert cli.main(["train", "--resume", str(run), "--trust-env"]) == 2
    assert "already has 600 steps: give a larger total with --steps" in capsys.readouterr().err


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the settings of every run that is asked for; none is run."""
    collected: list[Any] = []

    def maker(method: str) -> Any:
        def make(task: str, seed: int, paper_defaults: bool, **settings: Any) -> Any:
            name = options.task_name(task)
            config = methods.make_config(method, method_defaults(name), paper_defaults, **settings)
            collected.append(config)
            return SimpleNamespace(environment={"task": task}, config=config)

        return make

    monkeypatch.setattr(agent_classes, "agent_class", maker)
    monkeypatch.setattr(commands, "_learn", lambda *_: 0)
    return collected


def test_flags_reach_the_config_however_they_are_written(configs: list[Any]) -> None:
    assert cli.main(["train", "ddpg", TASK, *FLAGS]) == 0
    flags = ["--actor_lr=1e-4", "--hidden", "8", "--screen.tolerance", "0.2"]
    assert cli.main(["train", "usc", "CarGoal1", *flags, "--conservative.near-policy"]) == 0
    assert cli.main(["train", "csc", "CarGoal1", "--conservative.no-near-policy"]) == 0
    small, near, far = configs
    assert small == methods.make_config("ddpg", **SMALL)
    assert (near.actor_lr, near.hidden, near.screen.tolerance) == (1e-4, (8,), 0.2)
    assert (near.conservative.near_policy, far.conservative.near_policy) == (True, False)


def test_a_flag_wins_over_the_papers_defaults(configs: list[Any]) -> None:
    changed = ["--paper-defaults", "--gamma", "0.9", "--cost-limit", "3", "--no-screen"]
    assert cli.main(["train", "usc", TASK, *changed]) == 0
    assert cli.main(["train", "pid-lag", TASK, *changed[:-1]]) == 0
    paper, pid_lag = configs
    assert (paper.actor_lr, paper.gamma, paper.cost_limit) == (2e-3, 0.9, 3.0)
    assert (paper.screen, paper.refinement) == (False, True)
    assert (pid_lag.actor_lr, pid_lag.safety.steps, pid_lag.gamma) == (2e-3, 1, 0.9)


def test_the_task_sets_the_limit_wherever_it_stands(configs: list[Any]) -> None:
    for words in ("CarGoal2", "--seed 1 CarGoal2", "--seed 1 cargoal2 --cost-limit 7"):
        assert cli.main(["train", "ddpg", *words.split(), *FLAGS]) == 0
    assert [config.cost_limit for config in configs] == [5.0, 5.0, 7.0]


@pytest.mark.parametrize("method", methods.METHODS)
def test_without_flags_a_method_has_its_defaults(method: str, configs: list[Any]) -> None:
    assert cli.main(["train", method, "CarGoal2"]) == 0
    assert cli.main(["train", method, "CarGoal2", "--paper-defaults"]) == 0
    ours, paper = configs
    assert ours == methods.make_config(method, method_defaults("CarGoal2"))
    assert paper == methods.make_config(method, method_defaults("CarGoal2"), paper_defaults=True)


def test_switches_take_parts_away(configs: list[Any]) -> None:
    assert cli.main(["train", "usc", "CarGoal1", "--no-refinement", "--no-influence"]) == 0
    assert cli.main(["train", "usc-nr", "CarGoal1", "--no-conservative", "--no_screen"]) == 0
    first, second = configs
    assert first == methods.make_config(
        "usc", method_defaults("CarGoal1"), refinement=False, influence=False
    )
    assert (first.refinement, first.influence) == (None, None)
    assert (second.conservative, second.screen) == (None, None)
    assert second.influence is not None


# Environments of the user's own

HALL = "own_envs:Hall-v0"
DECLARED = ["--cost-key", "damage", "--proximity", "lidar"]


@pytest.mark.slow
def test_declarations_are_kept_for_resuming_and_evaluating(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "ddpg", HALL, *DECLARED, *FLAGS, "--steps", "200", "--out", "run"]
    assert cli.main(command) == 0
    assert "warning" not in capsys.readouterr().err  # DDPG keeps no limit
    environment = json.loads(Path("run/config.json").read_text())["environment"]
    assert environment["declared"] == {"cost_key": "damage", "proximity": [0, 1]}
    assert environment["spec"]["proximity"] == [0, 1]
    episodes = read_table(Path("run/episodes.csv"))
    assert sum(episodes["cost"]) > 0
    assert all(map(math.isnan, episodes["success"]))  # not reported, hence unknown

    assert cli.main(["train", "--resume", "run", "--steps", "300"]) == 2
    assert "a file may not choose what is imported" in capsys.readouterr().err
    assert cli.main(["train", "--resume", "run", "--steps", "300", "--trust-env"]) == 0
    assert json.loads(Path("run/config.json").read_text())["environment"] == environment
    assert cli.main(["evaluate", "run", "--episodes", "2", "--trust-env"]) == 0
    means = json.loads(Path("run/evaluation.json").read_text())["means"]
    assert means["cost"] >= 0
    assert means["success"] is None
    capsys.readouterr()
    assert cli.main(["show", "run", "--trust-env"]) == 2
    assert "Hall-v0 cannot be drawn" in capsys.readouterr().err


@pytest.mark.slow
def test_an_environment_without_cost_trains_ddpg(there: Path) -> None:
    command = ["train", "ddpg", HALL, "--no-cost", *FLAGS, "--steps", "100", "--out", "run"]
    assert cli.main(command) == 0
    assert sum(read_table(Path("run/episodes.csv"))["cost"]) == 0
    environment = json.loads(Path("run/config.json").read_text())["environment"]
    assert environment["declared"] == {"no_cost": True}
    assert environment["spec"]["cost_max"] is None


@pytest.mark.slow
def test_a_default_limit_is_a_line_of_warning(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def warned(*flags: str) -> list[str]:
        command = ["train", "rcpo", HALL, *DECLARED, *FLAGS, "--steps", "80", "--overwrite"]
        assert cli.main([*command, *flags]) == 0
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if line.startswith("warning: ")]

    (line,) = warned()
    assert line.startswith("warning: no cost limit is known for Hall-v0: 1 per episode is only")
    assert "`safecritic limits own_envs:Hall-v0 --cost-key damage`" in line
    assert warned("--cost-limit", "3") == []


@pytest.mark.slow
def test_a_warning_of_the_run_is_a_line_too(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*FLAGS, "--cost-key", "damage", "--cost-limit", "2", "--steps", "1200", "--out", "run"]
    assert cli.main(["train", "rcpo", "own_envs:Harmful-v0", *flags]) == 0
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if line.startswith("warning: ")]
    summary = json.loads(Path("run/summary.json").read_text())
    assert [line] == [f"warning: {text}" for text in summary["warnings"]]
    assert "the multiplier only rose" in line
