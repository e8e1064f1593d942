"""What cannot be carried out is refused in one line, before anything is written."""

from pathlib import Path

import pytest

from helpers.commands import TASK
from safecritic import cli
from safecritic.cli import commands
from safecritic.cli.errors import FAILED, USAGE

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian usc CarGoal1", "unknown command 'trian': did you mean train"),
        ("train uscc CarGoal1", "unknown method 'uscc': did you mean usc"),
        ("train usc CarGaol1", "unknown task 'CarGaol1'"),
        # before the warm-up
        ("train usc Hopper --steps 10", "unknown task 'Hopper'; did you mean SafetyHopperVelocity"),
        ("train --seed 1 usc CarGoal1", "name the method first: safecritic train METHOD TASK"),
        ("train ddpg CartPole-v1", "actions must be continuous"),
        (f"train ddpg {TASK} --cost-limit -1", "cost_limit must be >= 0, got -1.0 (--cost-limit)"),
        (f"train ddpg {TASK} --batch-size 500 --buffer-size 400", "batch_size 500 exceeds"),
        (f"train ddpg {TASK} --steps 900", "no update would run: warm-up 1000 >= steps 900"),
        (f"train ddpg {TASK} --log-every 0", "log_every must be >= 1, got 0"),
        (f"train ddpg {TASK} --seed -1", "seed must be >= 0, got -1 (--seed)"),
        ("train ddpg Pendulum-v1", "Pendulum-v1 reports no cost: expected a sixth value"),
        (f"train ddpg {TASK} --cost-key harm", "KeptPoint-v0 reports no cost: expected a sixth"),
        (f"train ddpg {TASK} --cost-key cost --no-cost", "cost_key contradicts no_cost"),
        (f"train ddpg {TASK} --proximity 2", "proximity 2 is out of range: the observation has 2"),
        (f"train ddpg {TASK} --proximity 0", "proximity 0 is bounded to [-inf, inf], expected"),
        (f"train rcpo {TASK} --no-cost", "rcpo learns to keep costs within a limit, and no_cost"),
        (f"train cpo {TASK} --no-cost", "cpo learns to keep costs within a limit, and no_cost"),
        ("train ddpg own_envs:Camera-v0 --no-cost", "observations must not be images"),
        ("tasks CarGaol1", "unknown task 'CarGaol1'"),
        ("tasks own_envs:Camera-v0", "observations must not be images"),
        ("tasks --cost-key harm", "--cost-key describes an environment: name it"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        ("evaluate nowhere", "nowhere is not a run folder"),
        ("show nowhere", "nowhere is not a run folder"),
        # flags: the nearest known ones, and what other libraries call them
        (f"train ddpg {TASK} --cost-limt 1", "unknown flag --cost-limt: did you mean cost-limit?"),
        (f"train usc {TASK} --stpes=1", "unknown flag --stpes: did you mean steps"),
        (f"train usc {TASK} --no-scren", "unknown flag --no-scren: did you mean no-screen"),
        ("evaluate nowhere --episode 1", "unknown flag --episode: did you mean episodes"),
        ("train --resume x --gamma 0.9", "unknown flag --gamma: known: help, resume, steps, wandb"),
        (
            "train usc CarGoal1 --learning-rate 1e-3",
            "unknown flag --learning-rate: did you mean critic-lr or actor-lr or safety.lr?",
        ),
        (
            "train usc CarGoal1 --tolerance 1",
            "unknown flag --tolerance: did you mean screen.tolerance?",
        ),
        # settings that do not fit the method, with the reason
        (
            "train sc CarGoal1 --conservative.weight 1",
            "conservative.weight belongs to the conservative part, which sc does not have: "
            "use it with csc, usc-nr, usc",
        ),
        ("train sc CarGoal1 --no-refinement", "sc has no setting refinement: use it with usc"),
        (
            "train ddpg CarGoal1 --multiplier.kp 1",
            "ddpg has no setting multiplier.kp: use it with pid-lag",
        ),
        (
            "train usc CarGoal1 --no-screen --screen.tolerance 1",
            "screen.tolerance is a setting of the screen part, which is switched off: "
            "leave out one of the two (--no-screen, --screen.tolerance)",
        ),
        ("train usc CarGoal1 --no-influence", "refinement needs the influence"),
        ("train usc CarGoal1 --refinement.top 100", "refinement.top 100 exceeds batch_size 64"),
    ],
)
def test_refusals_are_one_line(
    command: str, message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert list(there.iterdir()) == []


def test_help_comes_before_any_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "sc", "CarGoal1", "--conservative.weight", "1", "--help"])
    assert left.value.code == 0
    assert "usage: safecritic train sc" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("a setting\nof no use"), USAGE, "a setting of no use"),
        (ImportError("pip install x"), USAGE, "pip install x"),
        (
            PermissionError(13, "Permission denied", "runs"),
            USAGE,
            "runs: Permission denied; check the permissions and the disk",
        ),
        (TypeError("nobody foresaw this"), FAILED, "TypeError: nobody foresaw this (not foreseen"),
    ],
)
def test_the_type_of_an_error_decides_its_exit_code(
    error: Exception,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(commands, "methods", fail)
    assert cli.main(["methods"]) == code
    assert capsys.readouterr().err.startswith(f"error: {line}")
    monkeypatch.setenv("SAFECRITIC_TRACEBACK", "1")
    with pytest.raises(type(error)):
        cli.main(["methods"])
