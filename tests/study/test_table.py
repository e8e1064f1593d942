"""A study's tables, from small runs written by hand."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from safecritic.run.folder import EPISODE_COLUMNS, write_json
from safecritic.study import grid, table


def write_run(out: Path, job: grid.Job, costs: list[float], deployed: float) -> None:
    run = out / "runs" / job.name
    run.mkdir(parents=True)
    with (run / "episodes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EPISODE_COLUMNS, restval="")
        writer.writeheader()
        for number, cost in enumerate(costs, 1):
            writer.writerow({"episode": number, "cost": cost, "reward": 2 * cost, "length": 5})
    write_json(run / "summary.json", {"steps": job.steps, "episodes": len(costs)})
    means = {"cost": deployed, "reward": 1.0, "success": None}
    content = {"means": means, "safety_critic": {"auc": 0.75}, "episodes": [{}]}
    (run / "evaluation.json").write_text(json.dumps(content))
    write_json(run / "measures.json", {"calibration": {"excess": deployed / 10}})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1"], "seeds": [0, 1], "steps": 900}
    jobs = grid.jobs_of(content | {"deployment_episodes": 1})
    grid.open_folder(tmp_path, jobs, "by hand")
    write_run(tmp_path, jobs[0], [0.0] * 100 + [1.0] * 100, deployed=3.0)
    write_run(tmp_path, jobs[2], [2.0] * 200, deployed=5.0)
    write_run(tmp_path, jobs[1], [1.0], deployed=1.0)
    return tmp_path


def test_rows_of_runs_by_hand(out: Path) -> None:
    rows = table.read(out).rows  # jobs[3] has not been run
    assert [(row["method"], row["seed"]) for row in rows] == [("ddpg", 0), ("sc", 0), ("ddpg", 1)]
    first = rows[0]
    assert (first["cost"], first["late_cost"], first["deployed_cost"]) == (0.5, 1.0, 3.0)
    assert (first["reward"], first["episodes"], first["critic_auc"]) == (1.0, 200, 0.75)
    assert math.isnan(first["deployed_success"])
    assert math.isnan(first["contacts"])


def test_summary_by_hand(out: Path) -> None:
    rows = {(row["method"], row["column"]): row for row in table.read(out).summary_rows()}
    cost = rows["ddpg", "deployed_cost"]
    assert (cost["mean"], cost["standard_error"], cost["seeds"]) == (4.0, 1.0, 2)
    assert (cost["iqm"], cost["iqm_low"], cost["iqm_high"]) == (4.0, 3.0, 5.0)
    assert math.isnan(rows["sc", "cost"]["standard_error"])  # one seed has no spread
    assert ("ddpg", "deployed_success") not in rows


def test_groups_hold_the_finished_runs_or_all(out: Path) -> None:
    study = table.read(out)
    assert (study.methods, study.tasks) == (["ddpg", "sc"], ["CarGoal1"])
    assert [run.job.seed for run in study.of("sc", "CarGoal1")] == [0]
    assert [run.state for run in study.of("sc", "CarGoal1", done=False)] == ["done", "not begun"]
    assert len(study.on("CarGoal1")) == 4
    assert study.of("usc", "CarGoal1") == []


def test_a_path_leads_into_the_measures(out: Path) -> None:
    study = table.read(out)
    assert study.values("ddpg", "CarGoal1", "calibration/excess").tolist() == [0.3, 0.5]
    assert study.values("ddpg", "CarGoal1", "theorem/left").tolist() == []


def test_overview_has_the_cells_that_are_printed(out: Path) -> None:
    header = list(table.OVERVIEW)
    ddpg, sc = table.read(out).overview()["CarGoal1"]
    assert ddpg[:2] == ["ddpg", "2"]
    assert dict(zip(header, ddpg[2:], strict=True))["deployed cost"] == "4.00±1.00"
    assert dict(zip(header, sc[2:], strict=True))["deployed cost"] == "1.00"
    assert ddpg[2 + header.index("success")] == "-"


def test_cells_of_a_summary() -> None:
    assert table.summarise(np.array([2.0])).mean_text() == "2.00"
    assert table.summarise(np.array([2.0, np.nan])).iqm_text() == table.NONE
    assert table.summarise(np.array([2.0, 2.0])).iqm_text() == "2.00 [2.00, 2.00]"
    assert table.summarise(np.array([-0.001, 0.0])).mean_text() == "0.00 ± 0.00"
    assert table.summarise(np.array([0.25, 0.75])).mean_text(0, 100.0) == "50 ± 25"


def test_csv_has_the_tables_cells(out: Path) -> None:
    rows = table.read(out).rows
    table.write_csv(out / "runs.csv", rows)
    with (out / "runs.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    assert len(again) == 3
    for row, cells in zip(rows, again, strict=True):
        assert cells["deployed_success"] == ""
        assert float(cells["deployed_cost"]) == row["deployed_cost"]
    table.write_csv(out / "none.csv", [])
