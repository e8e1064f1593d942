"""A study's tables, from small runs written by hand."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from safecritic.study import table
from studies import write_limits_study, write_outcomes, write_study


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_study(tmp_path)


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
    assert study.values("ddpg", "CarGoal1", "seen/share").tolist() == [0.3, 0.5]
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
    table.write_tables(table.read(out))
    with (out / "runs.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    assert len(again) == 3
    for row, cells in zip(rows, again, strict=True):
        assert cells["deployed_success"] == ""
        assert float(cells["deployed_cost"]) == row["deployed_cost"]


@pytest.fixture
def swept(tmp_path: Path) -> table.StudyTable:
    return table.read(write_limits_study(tmp_path / "swept"))


def test_each_limit_is_a_case_by_size_and_has_the_runs_of_who_ignores_it(
    swept: table.StudyTable,
) -> None:
    assert swept.tasks == ["CarGoal1", "CarGoal2"]
    assert swept.cases == ["CarGoal1", "CarGoal2-limit0.5", "CarGoal2-limit2"]
    assert [swept.limit(case) for case in swept.cases] == [1.0, 0.5, 2.0]
    names = [run.job.name for run in swept.of("sc", "CarGoal2-limit0.5")]
    assert names == ["sc-CarGoal2-limit0.5-seed0", "sc-CarGoal2-limit0.5-seed1"]
    for case in swept.cases[1:]:
        names = [run.job.name for run in swept.of("ddpg", case)]
        assert names == ["ddpg-CarGoal2-seed0", "ddpg-CarGoal2-seed1"]


def test_runs_within_the_limit_are_counted(swept: table.StudyTable) -> None:
    low, high = swept.cases[1:]
    assert swept.within("sc", low) == (1, 2)  # 0.5 is at most 0.5, 1.5 is not
    assert swept.within("sc", high) == (2, 2)
    assert swept.within("ddpg", high) == (0, 2)
    assert swept.within("rcpo", high) == (0, 0)


def test_rounding_breaks_no_limit(tmp_path: Path) -> None:
    study = table.read(write_limits_study(tmp_path))
    study.of("usc", "CarGoal1")[0].row["deployed_cost"] = 0.1 + 0.2 + 0.7 + 1e-16
    study.of("usc", "CarGoal1")[1].row["deployed_cost"] = 1.001
    assert study.within("usc", "CarGoal1") == (1, 2)


def test_rows_and_summaries_have_the_limit_if_there_are_several(
    swept: table.StudyTable, out: Path
) -> None:
    row = next(row for row in swept.rows if row["run"] == "usc-CarGoal2-limit2-seed1")
    assert list(row)[:5] == ["run", "method", "task", "limit", "seed"]
    assert (row["limit"], row["deployed_reward"]) == (2.0, 2.0)
    assert math.isnan(swept.rows[0]["limit"])  # of a run that has no limit of its own
    sums = {
        (row["method"], row["limit"]): row["mean"]
        for row in swept.summary_rows()
        if row["column"] == "deployed_reward" and row["task"] == "CarGoal2"
    }
    assert sums["usc", 0.5] == 0.5
    assert sums["usc", 2.0] == 2.0
    assert sums["ddpg", 0.5] == sums["ddpg", 2.0] == 5.0
    assert list(swept.overview()) == ["CarGoal1", "CarGoal2, limit 0.5", "CarGoal2, limit 2"]
    plain = table.read(out)
    assert "limit" not in plain.rows[0]
    assert "limit" not in plain.summary_rows()[0]


def test_a_limit_is_kept_on_average_and_by_most_runs(tmp_path: Path) -> None:
    outcomes = {
        "ddpg": [(0.0, 1.0, 1.0), (1.4, 1.0, 1.0), (1.5, 1.0, 1.0)],  # on average, by one of three
        "sc": [(0.0, 1.0, 1.0), (0.0, 1.0, 1.0), (9.0, 1.0, 1.0)],  # by two of three, not so
        "usc": [(0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (1.1, 1.0, 1.0)],
    }
    study = table.read(write_outcomes(tmp_path, outcomes))
    assert [study.within(method, "CarGoal1")[0] for method in outcomes] == [1, 2, 2]
    assert [study.keeps(method, "CarGoal1") for method in outcomes] == [False, False, True]
    assert not study.keeps("rcpo", "CarGoal1")  # which was not run
