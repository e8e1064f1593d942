"""The tables of a report: their cells, their marks, and LaTeX."""

import re
from pathlib import Path

import numpy as np
import pytest

from safecritic.report import data, tables
from safecritic.run.folder import read_table
from safecritic.study.table import summarise
from studies import read_cells, write_limits_study


@pytest.mark.slow
def test_the_training_table_is_the_mean_of_all_episodes_of_the_runs(finished: Path) -> None:
    header, *lines = read_cells(finished / "report" / "tables" / "training.csv")
    line = dict(zip(header, next(x for x in lines if x[1] == "SC"), strict=True))
    costs = []
    for seed in (0, 1):
        table = read_table(finished / "runs" / f"sc-CarGoal1-seed{seed}" / "episodes.csv")
        costs.append(np.mean(table["cost"]))
    spread = abs(costs[0] - costs[1]) / 2  # the standard error of two
    assert line["cost"] == f"{np.mean(costs):.2f} ± {spread:.2f}"
    assert line["reward, paper"] == "6.60 ± 0.45"
    assert line["n"] == "2"


def test_the_mark_is_where_intervals_do_not_overlap() -> None:
    two = summarise(np.array([1.0, 3.0]))  # 2 ± 1
    assert tables.differs(two, data.PaperValue(4.0, 0.5)) == tables.DIFFERS
    assert tables.differs(two, data.PaperValue(3.4, 0.5)) == ""
    assert tables.differs(two, data.PaperValue(4.0, 5.0), episodes=100) == tables.DIFFERS
    assert tables.differs(two, data.PaperValue(4.0, 5.0)) == ""
    one = summarise(np.array([2.0]))  # no interval
    assert tables.differs(one, data.PaperValue(9.0, 0.1)) == ""


@pytest.mark.slow
def test_best_and_worse_cells(finished: Path) -> None:
    study = data.read(finished)
    table = tables.training_table(study, finished)
    costs = [study.values(method, "CarGoal1", "cost").mean() for method in study.methods]
    best = [place for place, mark in table.marks.items() if mark == "best"]
    assert (int(np.argmin(costs)), table.header.index("cost")) in best
    assert len(best) == 2
    success = tables.success_table(study, finished)
    for number, row in enumerate(success.rows):
        failed = float(row[3].split()[0]) < 100
        assert (success.marks.get((number, 3)) == "worse") == failed


@pytest.mark.slow
def test_latex_has_as_many_cells_in_every_line_and_no_bare_signs(finished: Path) -> None:
    files = sorted((finished / "report" / "tables").glob("*.tex"))
    assert len(files) >= 9
    for path in files:
        text = path.read_text()
        lines = [x for x in text.splitlines() if x.endswith(r"\\")]
        assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1, path.name
        assert not re.search(r"(?<!\\)[%#_]", text.replace(r"\begin{", "").split("caption")[1])
        assert all(sign not in text for sign in "±≠≥–")


def test_the_table_of_limits(tmp_path: Path) -> None:
    table = tables.limits_table(data.read(write_limits_study(tmp_path)), tmp_path)
    lines = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(line["task"], line["limit"], line["method"]) for line in lines] == [
        ("CarGoal2", limit, method) for limit in ("0.5", "2") for method in ("DDPG", "SC", "USC")
    ]
    assert lines[1]["within"] == "1 of 2"
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
