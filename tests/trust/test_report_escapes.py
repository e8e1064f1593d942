"""A report of hostile names: nothing in the page runs, no cell is a formula, files are plain."""

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from report.test_page import BROWSER, browse
from safecritic import cli
from safecritic.report import data, figures, page, sections, tables
from safecritic.report.data import Study
from safecritic.study import grid
from safecritic.study.table import plain_cell
from studies import read_cells, write_measured_study

HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "<a href='javascript:alert(1)'>x</a>",
    "=cmd|' /C calc'!A0",
    "../../up",
    "a/b",
    r"$\frac{1}$ & % \input{x}",
    "<!--",
)


class Tags(HTMLParser):
    """Every tag of a page, and the scripts between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.scripts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, text: str) -> None:
        if self.inside:
            self.scripts[-1] += text


@pytest.fixture
def hostile(tmp_path: Path) -> Study:
    """A study read from its folder, whose task then gets every hostile name in turn."""
    return data.read(write_measured_study(tmp_path / "study"))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_a_tag_a_script_or_a_formula(
    hostile: Study, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "plotly_script", lambda: "var Plotly;")
    monkeypatch.setattr("safecritic.study.runs.Run.task", property(lambda run: name))
    hostile.source = name
    all_tables = tables.all_tables(hostile, tmp_path)
    all_figures = figures.all_figures(hostile)
    page.write(hostile, all_tables, all_figures, tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text()
    parser = Tags()
    parser.feed(text)
    kinds = {tag for tag, _ in parser.tags}
    assert not kinds & {"img", "iframe", "object", "embed", "form", "base"}
    assert [tag for tag, _ in parser.tags].count("script") == 3
    for _, attributes in parser.tags:
        assert not [key for key in attributes if key.startswith("on")]
        link = attributes.get("href") or ""
        assert not link.lower().startswith(("javascript:", "http", "//"))
    for table in all_tables:
        assert re.fullmatch(r"[\w.-]+", table.name)
        table.write_csv(tmp_path / f"{table.name}.csv")
        for row in read_cells(tmp_path / f"{table.name}.csv"):
            assert not [cell for cell in row if cell[:1] in ("=", "@", "+")]
    assert all(re.fullmatch(r"[\w.-]+", figure.name) for figure in all_figures)


def test_the_policy_names_the_scripts_of_the_page(hostile: Study, tmp_path: Path) -> None:
    page.write(hostile, [], [], tmp_path / "index.html")
    parser = Tags()
    parser.feed((tmp_path / "index.html").read_text(encoding="utf-8"))
    (policy,) = (a["content"] for tag, a in parser.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    for script in parser.scripts[1:]:
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_slugs_stay_apart() -> None:
    names = ["curves-CarGoal1", "a/b", "a-b", "a\\b", "../a", "", ".", "é", "x" * 300]
    slugs = [sections.slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert slugs[0] == names[0]
    assert all(re.fullmatch(r"[\w-][\w.-]{0,100}", slug, re.ASCII) for slug in slugs)


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("\tx", "'\tx"),
        ("-3.93 ± 1.20", "-3.93 ± 1.20"),
        ("-0.5 [-1.0, 2.0]", "-0.5 [-1.0, 2.0]"),
        ("-34% [-90%, +4%]", "-34% [-90%, +4%]"),
        ("+9%", "+9%"),
        ("+9%+cmd", "'+9%+cmd"),
        ("–", "–"),
        ("CarGoal1", "CarGoal1"),
        (-1.5, -1.5),
    ],
)
def test_cells(cell: Any, written: Any) -> None:
    assert plain_cell(cell) == written


def test_changes_of_any_size_are_numbers() -> None:
    for cell in ("-3% [-1669 times, +95%]", "+12%", "-5 times [-9 times, 3 times]"):
        assert plain_cell(cell) == cell
    assert plain_cell("-5 times more") == "'-5 times more"


def test_a_study_with_a_hostile_task_is_refused_at_the_door(tmp_path: Path, capsys: Any) -> None:
    study = write_measured_study(tmp_path / "study")
    from safecritic.core import files

    content = files.read_json(study / "study.json")
    content["jobs"][0]["task"] = HOSTILE[0]
    files.write_json(study / "study.json", content)
    with pytest.raises(files.FileError, match=r"key jobs\[0\]\.task: expected letters, digits"):
        grid.read_folder(study)
    assert cli.main(["report", str(study)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")
def test_a_browser_draws_the_page_under_its_policy_and_runs_no_other_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = data.read(write_measured_study(tmp_path / "study"))
    monkeypatch.setattr("safecritic.study.runs.Run.task", property(lambda run: HOSTILE[4]))
    drawn = figures.all_figures(study)
    path = tmp_path / "index.html"
    page.write(study, tables.all_tables(study, tmp_path), drawn, path)
    cells, console = browse(path, tmp_path / "profile")
    assert console == []
    assert all(shapes > 10 for shapes in cells.plots.values())
    # a script that somebody adds is not run
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("</main>", "<script>nothing.here()</script></main>"))
    _, console = browse(path, tmp_path / "profile")
    assert "Content Security Policy" in "".join(console)
    assert "nothing is not defined" not in "".join(console)
