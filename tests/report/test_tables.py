"""The tables of a report: their cells, their marks, and LaTeX."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecritic.report import data, tables
from safecritic.study import grid
from safecritic.study.table import summarise
from studies import (
    Outcome,
    write_limits_study,
    write_measured_study,
    write_outcomes,
    write_run,
)


def test_the_mark_is_where_intervals_do_not_overlap() -> None:
    two = summarise(np.array([1.0, 3.0]))  # 2 ± 1
    assert tables.differs(two, data.PaperValue(4.0, 0.5))
    assert not tables.differs(two, data.PaperValue(3.4, 0.5))
    assert tables.differs(two, data.PaperValue(4.0, 5.0), episodes=100)
    assert not tables.differs(two, data.PaperValue(4.0, 5.0))
    one = summarise(np.array([2.0]))  # no interval
    assert not tables.differs(one, data.PaperValue(9.0, 0.1))


def test_success_is_shown_where_a_task_has_a_goal(tmp_path: Path) -> None:
    study = data.read(write_outcomes(tmp_path / "goal", {"sc": [(1, 1, 1)], "rcpo": [(1, 0.5, 1)]}))
    table = tables.deployment_table(study, tmp_path)
    place = table.header.index("success %")
    assert table.header[place + 1] == "success %, paper"
    assert [row[place] for row in table.rows] == ["50.0", "100.0"]
    none = data.read(write_outcomes(tmp_path / "none", {"sc": [(1, None, 1)]}))
    assert "success %" not in tables.deployment_table(none, tmp_path).header


def best_of(table: tables.Table, column: str) -> list[str]:
    """Return the methods in bold."""
    at = table.header.index(column)
    places = [row for (row, place), mark in table.marks.items() if mark == "best" and place == at]
    return [table.rows[row][table.header.index("method")] for row in sorted(places)]


def test_bold_is_the_best_within_the_limit_and_who_cannot_be_told_apart(tmp_path: Path) -> None:
    near = [(0.5, 1.0, reward) for reward in (5.9, 6.0, 6.1, 6.2)]
    outcomes = {
        "ddpg": [(3.0, 1.0, 9.0)] * 4,  # not within the limit
        "sc": [(0.4, 1.0, 2.0)] * 4,  # told apart from the best
        "csc": near,
        "usc": [(cost, success, reward + 0.05) for cost, success, reward in near],
    }
    study = data.read(write_outcomes(tmp_path, outcomes))
    table = tables.deployment_table(study, tmp_path)
    assert best_of(table, "reward") == ["CSC", "USC"]
    assert best_of(table, "cost") == ["SC"]
    line = dict(zip(table.header, table.rows[0], strict=True))
    assert [line[name] for name in tables.CONTEXT] == ["1", "0 of 4", "900"]


def test_a_method_with_too_few_seeds_is_never_bold_and_spoils_no_others(tmp_path: Path) -> None:
    outcomes = {"sc": [(0.5, 1.0, 2.0)] * 5, "usc": [(0.5, 1.0, 9.0)] * 5}
    study = data.read(write_outcomes(tmp_path, outcomes | {"csc": [(0.1, 1.0, 99.0)]}))
    assert best_of(tables.deployment_table(study, tmp_path), "reward") == ["USC"]


@pytest.mark.parametrize(
    "outcomes",
    [
        {"sc": [(0.5, 1.0, 2.0)] * 3, "usc": [(0.5, 1.0, 9.0)] * 3},  # too few seeds
        {"sc": [(5.0, 1.0, 2.0)] * 5, "usc": [(5.0, 1.0, 9.0)] * 5},  # none within the limit
        {"usc": [(0.5, 1.0, 9.0)] * 5},  # nothing to choose from
    ],
)
def test_nothing_is_bold(tmp_path: Path, outcomes: dict[str, list[Outcome]]) -> None:
    study = data.read(write_outcomes(tmp_path, outcomes))
    assert best_of(tables.deployment_table(study, tmp_path), "reward") == []


def test_every_table_has_the_limit_who_keeps_it_and_the_steps(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    made = {table.name: table for table in tables.all_tables(study, tmp_path)}
    assert len(made) == 13
    for name, table in made.items():
        if name not in ("verdicts", "settings", "versions", "claims", "claims-tests"):
            assert set(tables.CONTEXT) < set(table.header), name
            line = dict(zip(table.header, table.rows[0], strict=True))
            assert (line["limit"], line["steps"]) == ("1", "900")
    runs = [dict(zip(made["runs"].header, row, strict=True)) for row in made["runs"].rows]
    assert {line["within limit"] for line in runs} == {"yes"}


def test_the_verdicts_are_words_with_the_number_that_decides(tmp_path: Path) -> None:
    def runs(*costs: float) -> list[Outcome]:
        return [(cost, 1.0, 1.0) for cost in costs]

    outcomes = {"sc": runs(3, 4, 3, 4, 3), "csc": runs(0, 2, 0), "usc": runs(0.2, 0.1, 0.2, 0.1)}
    table = tables.verdicts_table(data.read(write_outcomes(tmp_path, outcomes)), tmp_path)
    words = {row[1]: row[table.header.index("verdict")] for row in table.rows}
    assert words == {"SC": "NOT KEPT", "CSC": "CANNOT BE TOLD", "USC": "KEPT"}
    reasons = [row[table.header.index("because")] for row in table.rows]
    assert reasons[-1] == "mean cost 0.15 of 4 seeds, 95% interval 0.0581 to 0.242, limit 1"
    assert sorted(table.marks.values()) == ["best", "open", "worse"]


@pytest.mark.parametrize(
    ("change", "warning", "marked"),
    [
        ({"steps": 900}, "", False),  # the page says at its top that they are shorter
        (
            {"steps": 200_000, "settings": {"cost_limit": 2.0}},
            "Not compared with the paper's numbers: CarGoal1 has the limit 2 in place of 1.",
            False,
        ),
        ({"steps": 200_000}, "", True),
    ],
)
def test_only_runs_like_the_papers_are_marked(
    tmp_path: Path, change: dict[str, Any], warning: str, marked: bool
) -> None:
    study = data.read(write_outcomes(tmp_path, {"usc": [(0.1, 1.0, 99.0)] * 5}, **change))
    table = tables.deployment_table(study, tmp_path)
    assert table.warning == warning
    places = {table.header[at] for (_, at), mark in table.marks.items() if mark == "differs"}
    assert places == ({"reward, paper"} if marked else set())


def test_a_study_of_another_environment_has_nothing_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = data.read(write_measured_study(tmp_path))
    monkeypatch.setattr("safecritic.study.runs.Run.task", property(lambda run: "Mine"))
    made = {table.name: table for table in tables.all_tables(study, tmp_path)}
    assert {"training", "deployment", "calibration"} < set(made)
    assert not {"theorem", "claims", "claims-tests"} & set(made)
    for table in made.values():
        assert "paper" not in f"{table.title} {table.caption} {' '.join(table.header)}"
        assert not table.title.startswith("Table ")


def test_settings_are_listed_and_differences_between_limits_seen(tmp_path: Path) -> None:
    study = data.read(write_limits_study(tmp_path))
    table = tables.settings_table(study, tmp_path)
    assert table.header == ["setting", "DDPG", "SC", "USC"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["steps"] == ["900", "900", "900"]
    assert rows["cost_limit"] == ["1.0 / 5.0", "1.0 / 2.0 / 0.5", "1.0 / 2.0 / 0.5"]
    assert rows["screen.tolerance"][0] == "–"  # DDPG has no screen


def test_the_table_of_limits(tmp_path: Path) -> None:
    table = tables.limits_table(data.read(write_limits_study(tmp_path)), tmp_path)
    lines = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(line["task"], line["limit"], line["method"]) for line in lines] == [
        ("CarGoal2", limit, method) for limit in ("0.5", "2") for method in ("DDPG", "SC", "USC")
    ]
    assert lines[1]["within limit"] == "1 of 2"
    assert lines[1]["cost"] == "1.00 ± 0.50"
    assert lines[1]["success %"] == "50.0 ± 0.0"
    assert lines[5]["reward"] == "2.00 ± 0.00"


def test_the_papers_numbers_stand_at_the_papers_limit_alone(tmp_path: Path) -> None:
    study = data.read(write_limits_study(tmp_path))
    assert study.paper_value("training", "usc", "CarGoal1", "reward") is not None
    assert study.paper_value("training", "usc", "CarGoal2-limit2", "reward") is None
    study.case_of["CarGoal2-limit2"] = study.case_of["CarGoal2-limit2"]._replace(limit=5.0)
    theirs = study.paper_value("training", "usc", "CarGoal2-limit2", "reward")
    assert theirs == (8.84, 0.62)


def test_long_tables_are_folded_but_not_the_one_that_is_searched(tmp_path: Path) -> None:
    content = {"methods": ["sc"], "tasks": ["CarGoal1"], "seeds": [0], "deployment_episodes": 1}
    jobs = grid.jobs_of(content | {"limits": list(range(tables.MOST_ROWS + 1)), "steps": 900})
    grid.open_folder(tmp_path, jobs, "long.toml")
    for job in jobs:
        write_run(tmp_path, job, [1.0], deployed=1.0)
    made = {table.name: table for table in tables.all_tables(data.read(tmp_path), tmp_path)}
    assert len(made["limits"].rows) == tables.MOST_ROWS + 1
    assert made["limits"].folded
    assert not made["runs"].folded
