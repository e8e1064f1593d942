"""The report of a study in any state."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from safecritic import cli
from safecritic.report.build import build
from safecritic.study import grid
from studies import read_cells, write_measured_study, write_outcomes


def test_an_unfinished_study(tmp_path: Path) -> None:
    out = write_measured_study(tmp_path)
    shutil.rmtree(out / "runs" / "usc-CarGoal1-seed1")
    (out / "runs" / "ddpg-CarGoal1-seed1" / "evaluation.json").unlink()
    text = build(out).read_text(encoding="utf-8")
    assert "This study is not finished: 2 runs are missing. Tables show finished runs" in text
    states = {row[0]: row[4] for row in read_cells(out / "report" / "tables" / "runs.csv")[1:]}
    assert states["usc-CarGoal1-seed1"] == "not begun"
    assert states["ddpg-CarGoal1-seed1"].startswith("at step ")
    assert states["ddpg-CarGoal1-seed0"] == "done"
    counts = {row[1]: row[2] for row in read_cells(out / "report" / "tables" / "training.csv")[1:]}
    assert counts == {"DDPG": "1", "SC": "2", "USC": "1"}


def test_a_study_that_has_not_begun(tmp_path: Path, capsys: Any) -> None:
    jobs = grid.jobs_of({"methods": ["sc", "usc"], "tasks": ["HalfCheetah"], "seeds": [0]})
    grid.open_folder(tmp_path / "new", jobs, "new.toml")
    assert cli.main(["report", str(tmp_path / "new"), "--out", str(tmp_path / "page")]) == 0
    assert "index.html" in capsys.readouterr().out
    _, *lines = read_cells(tmp_path / "page" / "tables" / "runs.csv")
    assert [line[4] for line in lines] == ["not begun", "not begun"]
    assert 'class="plot"' not in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


def test_no_study_there(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "is not a study's folder" in capsys.readouterr().err


def test_a_packed_study_has_the_same_tables(tmp_path: Path) -> None:
    study = write_measured_study(tmp_path / "study")
    assert cli.main(["pack", str(study), "--out", str(tmp_path / "study.parquet")]) == 0
    pages = [build(study), build(tmp_path / "study.parquet")]
    assert pages[1] == tmp_path / "study-report" / "index.html"
    names = [sorted(os.listdir(page.parent / "tables")) for page in pages]
    assert names[0] == names[1] != []
    for name in names[0]:
        cells = [(page.parent / "tables" / name).read_bytes() for page in pages]
        assert cells[0] == cells[1], name
    assert "<h1>study</h1>" in pages[1].read_text(encoding="utf-8")


def test_the_page_alone_links_to_no_file(tmp_path: Path, capsys: Any) -> None:
    study = write_outcomes(tmp_path / "study", {"sc": [(0.5, 1.0, 1.0)], "usc": [(0.5, 1.0, 1.0)]})
    page = tmp_path / "sent" / "page.html"
    assert cli.main(["report", str(study), "--page", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    assert os.listdir(page.parent) == ["page.html"]
    assert not (study / "report").exists()
    text = page.read_text(encoding="utf-8")
    assert "sc-CarGoal1-seed0" in text
    targets = re.findall(r'href="([^"]*)"', text[: text.index("<footer>")])
    assert targets
    assert all(target.startswith("#") or target == "data:," for target in targets), targets
    assert cli.main(["report", str(study), "--page", str(page), "--out", str(tmp_path)]) == 2
    assert "either a folder (--out) or a file" in capsys.readouterr().err


def test_the_verdict_comes_first_then_what_to_be_careful_about(tmp_path: Path) -> None:
    outcomes = {"sc": [(3.0, 1.0, 1.0)] * 3, "usc": [(0.5, 1.0, 1.0)] * 3}
    text = build(write_outcomes(tmp_path, outcomes)).read_text(encoding="utf-8")
    text = text[text.index("<main>") : text.index('<h2 id="training">')]
    verdict, warnings = text.split("</ul>")
    assert '<li class="ahead"><b>CarGoal1, limit 1, 900 steps:</b> USC is ahead' in verdict
    assert "warning" not in verdict
    assert "(SC and USC: 900 steps in place of 200,000)" in warnings
    assert "no two methods can be told apart, so nothing is bold there" in warnings
    assert re.search(r"Page made on \d{4}-\d\d-\d\d \d\d:\d\d UTC with safecritic \d", warnings)


@pytest.mark.parametrize("task", ["CarGoal1", "Mine"])
def test_only_a_study_of_the_papers_tasks_has_sections_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    study = write_measured_study(tmp_path / "study")
    monkeypatch.setattr("safecritic.study.runs.Run.task", property(lambda run: task))
    monkeypatch.setattr("safecritic.report.page.plotly_script", lambda: "")
    text = build(study).read_text(encoding="utf-8")
    text = text[text.index("<main>") : text.index("<script")]
    for words in ("Theorem 1", "paper", "Table 1"):
        assert (words in text) == (task == "CarGoal1"), words


def test_a_study_as_long_as_the_papers_has_no_warning(tmp_path: Path) -> None:
    outcomes = {"sc": [(3.0, 1.0, 1.0)] * 5, "usc": [(0.5, 1.0, 1.0)] * 5}
    study = write_outcomes(tmp_path, outcomes, steps=200_000)
    text = build(study).read_text(encoding="utf-8")
    assert '<p class="warning">' not in text
    assert '<li class="take">' in text
