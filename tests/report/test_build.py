"""The report of a study in any state."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from safecritic import cli
from safecritic.report.build import build
from safecritic.study import grid
from safecritic.study.pack import pack
from studies import read_cells


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
            assert (out / name).read_bytes() == (finished / name).read_bytes(), name
