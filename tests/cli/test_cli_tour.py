"""All commands on one of the package's own tasks."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.commands import assert_same_run
from safecritic import cli

HALVES = (slice(0, 200), slice(200, 400))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_runs")
def test_a_tour_on_a_real_task(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--hidden", "16", "16", "--learning-starts", "100", "--buffer-size", "500"]
    assert cli.main(["train", "sc", "CarGoal1", "--steps", "1100", *flags]) == 0
    run = Path("runs/sc-CarGoal1-seed0")
    assert json.loads((run / "config.json").read_text())["config"]["cost_limit"] == 1.0
    assert cli.main(["train", "--resume", str(run), "--steps", "1300"]) == 0
    whole = ["train", "sc", "CarGoal1", "--steps", "1300", "--out", "whole", *flags]
    assert cli.main(whole) == 0
    capsys.readouterr()
    assert_same_run(run, Path("whole"))
    assert cli.main(["show", str(run), "--episodes", "1", "--every", "100"]) == 0
    assert (run / "episode-0.gif").read_bytes()[:4] == b"GIF8"
    pair = ["show", str(run), "--beside", "whole", "--map", "--format", "png", "--size", "200"]
    assert cli.main(pair) == 0
    with Image.open(run / "beside-map-0.png") as both:
        left, right = (np.asarray(both.convert("RGB"))[:, part] for part in HALVES)
    np.testing.assert_array_equal(left, right)  # the same policy in the same scene
    explored = ["explore", str(run), "whole", "--episodes", "1"]
    assert cli.main(explored) == 0
    assert "one file, to open in a browser or to send" in capsys.readouterr().out
    assert '"name":"SC, seed 0"' in (run / "explorer.html").read_text()
    assert cli.main(["train", "ddpg", "CarGoal2", "--steps", "200", "--out", "far", *flags]) == 0
    assert cli.main(["show", str(run), "--beside", "far"]) == 2
    assert "only runs of one task have the same scenes" in capsys.readouterr().err
    assert cli.main(["evaluate", str(run), "--episodes", "1"]) == 0
    text = capsys.readouterr().out
    assert "AUC of Q_C" in text
    assert (run / "evaluation.png").read_bytes()[:4] == b"\x89PNG"
    evaluation = json.loads((run / "evaluation.json").read_text())
    (row,) = evaluation["episodes"]
    assert row["contacts"] == pytest.approx(row["cost"] / 0.2)
    assert row["hazard_distance_min"] <= row["hazard_distance_mean"]
