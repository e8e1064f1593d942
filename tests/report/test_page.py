"""The page in a browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from report.conftest import QUICK
from safecritic.report import data, figures, page
from studies import read_cells, write_outcomes

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")


@pytest.mark.slow
def test_the_page_asks_for_nothing_from_outside(report: Path) -> None:
    text = (report / "index.html").read_text(encoding="utf-8")
    start = text.index("<script>")  # Plotly itself follows
    assert "http" not in text[:start].replace("http-equiv", "").replace("application", "")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?(https?:)?//", text)


class Cells(HTMLParser):
    """Tables by id, plots by id, and which rows are hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.hidden: list[bool] = []
        self.plots: dict[str, int] = {}
        self._table, self._cell, self._plot = "", False, ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        known = dict(attrs)
        if tag == "table":
            self._table = known["id"]
            self.tables[self._table] = []
        elif tag == "tr" and self._table:
            self.tables[self._table].append([])
            if self._table == "table-runs":
                self.hidden.append("hidden" in known)
        elif tag in ("td", "th") and self._table:
            self.tables[self._table][-1].append("")
            self._cell = True
        elif tag == "div" and "plot" in known.get("class", "").split():
            self._plot = known["id"]
            self.plots[self._plot] = 0
        elif tag in ("path", "image") and self._plot and not self._table:
            self.plots[self._plot] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = ""
        if tag in ("td", "th"):
            self._cell = False
        if tag == "figure":
            self._plot = ""

    def handle_data(self, text: str) -> None:
        if self._cell:
            self.tables[self._table][-1][-1] += text


def browse(page: Path, profile: Path, fragment: str = "") -> tuple[Cells, list[str]]:
    """The page after its scripts have run, and what they wrote to the console."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--disable-quic", f"--user-data-dir={profile}", "--window-size=1360,9000"]
    command += ["--virtual-time-budget=30000", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*command, page.resolve().as_uri() + fragment], capture_output=True, text=True, timeout=300
    )
    assert "</html>" in done.stdout, done.stderr[-2000:]
    cells = Cells()
    cells.feed(done.stdout)
    return cells, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_browser
@pytest.mark.slow
def test_the_page_in_a_browser(report: Path, tmp_path: Path) -> None:
    cells, console = browse(report / "index.html", tmp_path)
    assert console == []
    files = sorted((report / "tables").glob("*.csv"))
    assert {f"table-{path.stem}" for path in files} == set(cells.tables)
    for path in files:
        assert cells.tables[f"table-{path.stem}"] == read_cells(path)
    drawn = figures.all_figures(data.read(QUICK))
    assert len(cells.plots) == sum(len(figure.panels) for figure in drawn)
    for name, shapes in cells.plots.items():
        assert shapes > 10, f"{name} was not drawn"


@needs_browser
@pytest.mark.slow
def test_a_search_leads_to_the_run(report: Path, tmp_path: Path) -> None:
    cells, _ = browse(report / "index.html", tmp_path, "#run=usc%20seed1")
    shown = [
        row[0]
        for row, hidden in zip(cells.tables["table-runs"][1:], cells.hidden[1:], strict=True)
        if not hidden
    ]
    assert set(shown) == {"usc-CarGoal1-seed1", "usc-nr-CarGoal1-seed1"}


@needs_browser
@pytest.mark.slow
def test_an_error_on_a_page_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><html><body><script>nothing.here()</script></body></html>")
    assert len(browse(page, tmp_path / "profile")[1]) == 1


def test_a_method_that_was_not_begun_does_not_count_as_one_of_few_seeds(tmp_path: Path) -> None:
    outcomes = {"sc": [(3.0, 1.0, 1.0)] * 5, "usc": [(0.5, 1.0, 1.0)] * 5, "csc": []}
    assert page._few(data.read(write_outcomes(tmp_path / "none", outcomes))) == ""
    outcomes["csc"] = [(0.5, 1.0, 1.0)]
    text = page._few(data.read(write_outcomes(tmp_path / "one", outcomes)))
    assert text.startswith("Some method has only 1 finished run on some task")
    assert text.endswith("it is compared with no other there, and never bold.")
