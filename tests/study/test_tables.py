"""A study's tables, from small runs written by hand."""

import csv
import json
import math
from pathlib import Path

import pytest

from safecritic.run.folder import EPISODE_COLUMNS, write_json
from safecritic.study import grid as study
from safecritic.study import table as tables


def write_run(out: Path, job: study.Job, costs: list[float], deployed: float) -> None:
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
    (run / "measures.json").write_text("{}")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1"], "seeds": [0, 1], "steps": 900}
    jobs = study.jobs_of(content | {"deployment_episodes": 1})
    study.open_folder(tmp_path, jobs, "by hand")
    write_run(tmp_path, jobs[0], [0.0] * 100 + [1.0] * 100, deployed=3.0)
    write_run(tmp_path, jobs[2], [2.0] * 200, deployed=5.0)
    write_run(tmp_path, jobs[1], [1.0], deployed=1.0)
    return tmp_path


def test_runs_table_by_hand(out: Path) -> None:
    rows = tables.runs_table(out)  # jobs[3] has not been run
    assert [(row["method"], row["seed"]) for row in rows] == [("ddpg", 0), ("sc", 0), ("ddpg", 1)]
    first = rows[0]
    assert (first["cost"], first["late_cost"], first["deployed_cost"]) == (0.5, 1.0, 3.0)
    assert (first["reward"], first["episodes"], first["critic_auc"]) == (1.0, 200, 0.75)
    assert math.isnan(first["deployed_success"])
    assert math.isnan(first["contacts"])


def test_summary_by_hand(out: Path) -> None:
    rows = tables.summary_table(tables.runs_table(out))
    found = {(row["method"], row["column"]): row for row in rows}
    cost = found["ddpg", "deployed_cost"]
    assert (cost["mean"], cost["standard_error"], cost["seeds"]) == (4.0, 1.0, 2)
    assert (cost["iqm"], cost["iqm_low"], cost["iqm_high"]) == (4.0, 3.0, 5.0)
    assert math.isnan(found["sc", "cost"]["standard_error"])  # one seed has no spread
    assert ("ddpg", "deployed_success") not in found


def test_csv_has_the_tables_cells(out: Path) -> None:
    rows = tables.runs_table(out)
    tables.write_csv(out / "runs.csv", rows)
    with (out / "runs.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    assert len(again) == 3
    for row, cells in zip(rows, again, strict=True):
        assert cells["deployed_success"] == ""
        assert float(cells["deployed_cost"]) == row["deployed_cost"]
    tables.write_csv(out / "none.csv", [])
