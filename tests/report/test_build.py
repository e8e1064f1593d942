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
from safecritic.study.pack import pack
from studies import read_cells, write_outcomes


@pytest.mark.slow
def test_an_unfinished_study(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "half"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "report")
    shutil.rmtree(out / "runs" / "usc-CarGoal1-seed1")
    (out / "runs" / "ddpg-CarGoal1-seed1" / "evaluation.json").unlink()
    (out / "runs" / "sc-CarGoal1-seed1" / "summary.json").unlink()
    (out / "runs" / "sc-CarGoal1-seed1" / "error.txt").write_text("RuntimeError: no\n")
    text = build(out).read_text(encoding="utf-8")
    assert "This study is not finished: 3 runs are missing, 1 of them failed" in text
    assert "Failed: 1 of 2 runs of SC on CarGoal1 (seed 1: RuntimeError: no)." in text
    states = {row[0]: row[4] for row in read_cells(out / "report" / "tables" / "runs.csv")[1:]}
    assert states["usc-CarGoal1-seed1"] == "not begun"
    assert states["sc-CarGoal1-seed1"] == "failed"
    assert states["ddpg-CarGoal1-seed1"].startswith("at step ")
    assert states["ddpg-CarGoal1-seed0"] == "done"
    counts = {row[1]: row[2] for row in read_cells(out / "report" / "tables" / "training.csv")[1:]}
    assert counts == {"DDPG": "1", "SC": "1", "USC": "1"}


def test_a_study_that_has_not_begun(tmp_path: Path, capsys: Any) -> None:
    jobs = grid.jobs_of({"methods": ["sc", "usc"], "tasks": ["HalfCheetah"], "seeds": [0]})
    grid.open_folder(tmp_path / "new", jobs, "new.toml")
    assert cli.main(["report", str(tmp_path / "new"), "--out", str(tmp_path / "page")]) == 0
    assert "index.html" in capsys.readouterr().out
    _, *lines = read_cells(tmp_path / "page" / "tables" / "runs.csv")
    assert [line[4] for line in lines] == ["not begun", "not begun"]
    assert os.listdir(tmp_path / "page" / "figures") == []


def test_no_study_there(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "is not a study's folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_packed_study_has_the_same_page(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / finished.name  # which is the title
    pack(finished, out)
    assert not list(out.rglob("checkpoint"))
    build(out)
    files = sorted(path.relative_to(finished) for path in (finished / "report").rglob("*.*"))
    assert files == sorted(path.relative_to(out) for path in (out / "report").rglob("*.*"))
    for name in files:
        if name.suffix in (".csv", ".tex", ".html"):
            assert undated(out / name) == undated(finished / name), name


def undated(path: Path) -> str:
    """Return a file's text without the minute in which it was made, and the data of figures.

    Those of a packed study are rounded (`tests/study/test_pack.py`).
    """
    text = re.sub(r"Page made on [-\d]+ [:\d]+ UTC", "", path.read_text(encoding="utf-8"))
    return re.sub(r'(<script type="application/json" id="figures">).*?(</script>)', r"\1\2", text)


def test_the_page_alone_links_to_no_file(tmp_path: Path, capsys: Any) -> None:
    study = write_outcomes(tmp_path / "study", {"sc": [(0.5, 1.0, 1.0)], "usc": [(0.5, 1.0, 1.0)]})
    page = tmp_path / "sent" / "page.html"
    assert cli.main(["report", str(study), "--page", str(page)]) == 0
    assert f"{page}: open it in a browser, or send it" in capsys.readouterr().out
    assert os.listdir(page.parent) == ["page.html"]
    assert not (study / "report").exists()
    text = page.read_text(encoding="utf-8")
    assert '<ul class="verdict">' in text
    assert "sc-CarGoal1-seed0" in text
    targets = re.findall(r'href="([^"]*)"', text[: text.index("<footer>")])
    assert targets
    assert all(target.startswith("#") or target == "data:," for target in targets), targets
    assert cli.main(["report", str(study), "--page", str(page), "--out", str(tmp_path)]) == 2
    assert "either a folder (--out) or a file" in capsys.readouterr().err


@pytest.mark.slow
def test_the_verdict_the_warnings_and_the_date_are_on_the_page(tmp_path: Path) -> None:
    outcomes = {"sc": [(3.0, 1.0, 1.0)] * 3, "usc": [(0.5, 1.0, 1.0)] * 3}
    text = build(write_outcomes(tmp_path, outcomes)).read_text(encoding="utf-8")
    start = text.index('<ul class="verdict">')
    assert '<li class="ahead"><b>CarGoal1, limit 1, 900 steps:</b> USC is ahead' in text[start:]
    assert text.index('<h2 id="training">') > start
    assert "This study is shorter than the paper" in text[:start]
    assert "(SC and USC: 900 steps in place of 200,000, as in paper.toml)" in text[:start]
    assert "no two methods can be told apart, so nothing is bold there" in text[:start]
    assert re.search(r"Page made on \d{4}-\d\d-\d\d \d\d:\d\d UTC with safecritic \d", text[:start])


@pytest.mark.slow
def test_a_study_as_long_as_the_papers_has_no_warning(tmp_path: Path) -> None:
    outcomes = {"sc": [(3.0, 1.0, 1.0)] * 5, "usc": [(0.5, 1.0, 1.0)] * 5}
    study = write_outcomes(tmp_path, outcomes, steps=200_000)
    text = build(study).read_text(encoding="utf-8")
    assert '<p class="warning">' not in text
    assert '<li class="take">' in text
