"""What cannot be carried out is refused in one line, before anything is written."""

from pathlib import Path

import pytest

from helpers.commands import TASK
from safecritic import cli

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian usc CarGoal1", "unknown command 'trian': did you mean train"),
        ("train uscc CarGoal1", "unknown method 'uscc': did you mean usc"),
        ("train usc CarGaol1", "unknown task 'CarGaol1'"),
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
        (f"train ddpg {TASK} --closeness 2", "closeness 2 is out of range: the observation has 2"),
        (f"train ddpg {TASK} --closeness 0", "closeness 0 is bounded to [-inf, inf], expected"),
        (f"train rcpo {TASK} --no-cost", "rcpo learns to keep costs within a limit, and no_cost"),
        (f"train cpo {TASK} --no-cost", "cpo learns to keep costs within a limit, and no_cost"),
        ("train ddpg own_envs:Camera-v0 --no-cost", "observations must not be images"),
        ("tasks CarGaol1", "unknown task 'CarGaol1'"),
        ("tasks own_envs:Camera-v0", "observations must not be images"),
        ("tasks --cost-key harm", "--cost-key describes an environment: name it"),
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


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"train ddpg {TASK} --cost-limt 1", "--cost-limt: did you mean cost-limit"),
        (f"train usc {TASK} --stpes=1", "--stpes: did you mean steps"),
        (f"train usc {TASK} --no-scren", "--no-scren: did you mean no-screen"),
        ("evaluate nowhere --episode 1", "--episode: did you mean episodes"),
        ("train --resume nowhere --gamma 0.9", "--gamma: known: resume, steps, wandb"),
        ("tasks --all", "--all"),
    ],
)
def test_an_unknown_flag_is_refused_with_the_nearest_ones(
    command: str, message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: unknown flag {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "sc CarGoal1 --conservative-weight 1",
            "conservative_weight belongs to the conservative part, which sc does not have: "
            "use it with csc, usc-nr, usc",
        ),
        (
            "csc --reference=batch CarGoal1",
            "reference belongs to the influence part, which csc does not have: "
            "use it with usc-nr, usc",
        ),
        (
            "usc-nr CarGoal1 --no_refine_confident",
            "refine_confident belongs to the refinement part, which usc-nr does not have: "
            "use it with usc",
        ),
        ("sc CarGoal1 --refinement", "sc has no setting refinement: use it with usc"),
        ("sc CarGoal1 --no-refinement", "sc has no setting refinement: use it with usc"),
        ("ddpg CarGoal1 --kp 1", "ddpg has no setting kp: use it with pid-lag"),
        ("cpo CarGoal1 --tolerance 1", "cpo has no setting tolerance: use it with sc, csc, "),
        (
            "usc CarGoal1 --no-screen --tolerance 1",
            "tolerance is a setting of the screen part, which is switched off: "
            "leave out one of the two (--no-screen, --tolerance)",
        ),
        ("usc CarGoal1 --no-influence", "refinement needs the influence"),
        ("usc CarGoal1 --refine-top 100", "refine_top 100 exceeds batch_size 64"),
    ],
)
def test_settings_that_do_not_fit_the_method_are_refused_with_the_reason(
    arguments: str, message: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    assert list(there.iterdir()) == []


def test_help_comes_before_any_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "sc", "CarGoal1", "--conservative-weight", "1", "--help"])
    assert left.value.code == 0
    assert "usage: safecritic train sc" in capsys.readouterr().out
