"""`evaluate`: a table and a file with the same numbers as in Python."""

import json
from pathlib import Path

import pytest

from helpers.commands import FLAGS, TASK
from safecritic import DDPG, cli

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_evaluate_prints_and_writes_its_means(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "ddpg", TASK, *FLAGS, "--steps", "600", "--out", "run"]) == 0
    capsys.readouterr()
    run = Path("run")
    assert cli.main(["evaluate", "run", "--episodes", "3", "--trust-env"]) == 0
    text = capsys.readouterr().out
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert [row["episode"] for row in evaluation["episodes"]] == [0, 1, 2]
    assert f"{evaluation['means']['reward']:.2f}" in text
    assert not (run / "evaluation.png").exists()  # no safety critic
    again = DDPG.load(run, env=TASK).evaluate(episodes=3)
    assert again.means["reward"] == evaluation["means"]["reward"]
    assert cli.main(["evaluate", "run", "--no-screen", "--trust-env"]) == 2
    assert "ddpg has no screen here to switch off (--no-screen)" in capsys.readouterr().err
    assert not (run / "evaluation-no-screen.json").exists()
