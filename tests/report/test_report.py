"""The report of a small real study: its tables, its figures, and the page in a browser."""

import csv
import fcntl
import json
import os
import re
import shutil
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safecritic import cli
from safecritic.evaluation import cost_map, theorem
from safecritic.evaluation.measures import read_arrays
from safecritic.report import data, figures, interactive, tables
from safecritic.report.build import build
from safecritic.run.folder import read_table
from safecritic.study import grid as study
from safecritic.study import worker as study_worker
from safecritic.study.resources import training_seconds
from safecritic.study.table import Run, summarise

STUDY = """
methods = ["ddpg", "sc", "usc"]
tasks = ["CarGoal1"]
seeds = [0, 1]
steps = 2_100
deployment_episodes = 1
[settings]
hidden = [16, 16]
batch_size = 16
buffer_size = 500
learning_starts = 60
"""
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run really trained, deployed and measured, with maps small enough for a test.

    Made once, whichever of pytest's worker processes needs it first.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    out = shared / "report" / "small"
    out.parent.mkdir(exist_ok=True)
    with (out.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "report" / "index.html").is_file():
            make(out)
    return out


def make(out: Path) -> None:
    jobs = study.jobs_of(tomllib.loads(STUDY))
    study.open_folder(out, jobs, "small.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_map, "SCENES", cost_map.SCENES[:2])
        patch.setattr(cost_map, "SIZE", 16)
        patch.setattr(cost_map, "ROLLED_SIZE", 3)
        patch.setattr(theorem, "STATES", 16)
        patch.setattr(theorem, "DRAWS", 64)
        for job in jobs:
            study_worker.work(out, job)
    assert all(study.done(out, job) for job in jobs)
    build(out)


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# ---------------------------------------------------------------- tables


@pytest.mark.slow
def test_the_training_table_is_the_mean_of_all_episodes_of_the_runs(finished: Path) -> None:
    header, *lines = rows_of(finished / "report" / "tables" / "training.csv")
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


def test_the_papers_numbers_as_printed() -> None:
    paper = data.read_paper()
    assert len(paper) == 241
    assert paper["training", "usc", "CarGoal2", "reward"] == (8.84, 0.62)
    assert paper["training", "cpo", "HalfCheetah", "cost"] == (1.71, 1.93)
    assert paper["deployment", "usc", "CarGoal1", "cost"] == (0.70, 2.10)
    assert paper["deployment", "rcpo", "CarButton2", "success"].mean == 30
    assert paper["cost_map", "csc", "CarGoal2", "gradient_mse"] == (1.95, 1.37)


@pytest.mark.slow
def test_best_and_worse_cells(finished: Path) -> None:
    found = data.read(finished)
    table = tables.training_table(found, finished)
    costs = [found.values(method, "CarGoal1", "cost").mean() for method in found.methods]
    best = [place for place, mark in table.marks.items() if mark == "best"]
    assert (int(np.argmin(costs)), table.header.index("cost")) in best
    assert len(best) == 2
    success = tables.success_table(found, finished)
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


@pytest.mark.slow
def test_measures_of_a_run(finished: Path) -> None:
    run = finished / "runs" / "usc-CarGoal1-seed0"
    numbers = json.loads((run / "measures.json").read_text())
    assert set(numbers) == {"calibration", "cost_map", "theorem"}
    assert set(numbers["cost_map"]["instant"]) == set(tables.MAP_ERRORS)
    arrays = read_arrays(run)
    rights = [(run / f"measures.{kind}").stat().st_mode for kind in ("json", "safetensors")]
    assert rights[0] == rights[1]
    assert arrays["map/predicted"].shape == (2, 16, 16)
    assert len(arrays["steps/influence"]) == len(arrays["steps/q_cost"]) > 0
    assert training_seconds(run) > 0
    assert json.loads((run / "resources.json").read_text())["peak_memory_bytes"] > 2**26
    # a method without a safety critic has nothing of that, and that is known to be all
    assert json.loads((finished / "runs" / "ddpg-CarGoal1-seed0/measures.json").read_text()) == {}


def test_training_seconds_add_up_the_intervals(tmp_path: Path) -> None:
    (tmp_path / "updates.csv").write_text("step,time/steps_per_second\n100,50.0\n300,100.0\n")
    assert training_seconds(tmp_path) == pytest.approx(100 / 50 + 200 / 100)


# ---------------------------------------------------------------- figures


@pytest.mark.slow
def test_every_figure_is_a_png_a_pdf_and_valid_for_plotly(finished: Path) -> None:
    import plotly.graph_objects

    drawn = figures.all_figures(data.read(finished))
    names = {figure.name for figure in drawn}
    assert names == {
        "curves-CarGoal1",
        "pareto",
        "deployment-CarGoal1",
        "cost-maps-CarGoal1",
        "cost-maps-discounted-CarGoal1",
        "calibration-CarGoal1",
        "theorem-CarGoal1",
        "resources",
    }
    for figure in drawn:
        with Image.open(finished / "report" / "figures" / f"{figure.name}.png") as image:
            assert image.width > 400
            assert len(image.convert("L").getcolors() or []) > 8
        pdf = (finished / "report" / "figures" / f"{figure.name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        plotly.graph_objects.Figure(interactive.plotly(figure))  # raises on an unknown property


@pytest.mark.slow
def test_a_method_has_one_look_everywhere(finished: Path) -> None:
    looks: dict[str, set] = {}
    for figure in figures.all_figures(data.read(finished)):
        for label, style in figure.legend.items():
            looks.setdefault(label, set()).add((style.colour, style.marker))
    assert set(looks) == {"DDPG", "SC", "USC"}
    assert all(len(found) == 1 for found in looks.values())
    assert len({found.pop() for found in looks.values()}) == 3


def test_a_curve_is_the_mean_of_the_seeds(tmp_path: Path) -> None:
    made = []
    for seed, reward in ((0, 1.0), (1, 3.0)):
        job = study.jobs_of({"methods": ["sc"], "tasks": ["CarGoal1"], "seeds": [seed]})[0]
        run = Run(job, tmp_path, done=True)
        steps = np.arange(1.0, 11.0) * 10
        run.__dict__["episodes"] = {"step": steps, "reward": np.full(10, reward)}
        made.append(run)
    line = figures._curve(made, "reward", log=False)
    np.testing.assert_allclose(line.y, 2.0)
    assert line.high is not None
    np.testing.assert_allclose(line.high - line.y, 1.0)


# ---------------------------------------------------------------- a study in any state


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
    states = {row[0]: row[4] for row in rows_of(out / "report" / "tables" / "runs.csv")[1:]}
    assert states["usc-CarGoal1-seed1"] == "not begun"
    assert states["sc-CarGoal1-seed1"] == "failed"
    assert states["ddpg-CarGoal1-seed1"].startswith("at step ")
    assert states["ddpg-CarGoal1-seed0"] == "done"
    counts = {row[1]: row[2] for row in rows_of(out / "report" / "tables" / "training.csv")[1:]}
    assert counts == {"DDPG": "1", "SC": "1", "USC": "1"}


def test_a_study_that_has_not_begun(tmp_path: Path, capsys: Any) -> None:
    jobs = study.jobs_of({"methods": ["sc", "usc"], "tasks": ["HalfCheetah"], "seeds": [0]})
    study.open_folder(tmp_path / "new", jobs, "new.toml")
    assert cli.main(["report", str(tmp_path / "new"), "--out", str(tmp_path / "page")]) == 0
    assert "index.html" in capsys.readouterr().out
    _, *lines = rows_of(tmp_path / "page" / "tables" / "runs.csv")
    assert [line[4] for line in lines] == ["not begun", "not begun"]
    assert os.listdir(tmp_path / "page" / "figures") == []


def test_no_study_there(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "is not a study's folder" in capsys.readouterr().err


# ---------------------------------------------------------------- the page


@pytest.mark.slow
def test_the_page_asks_for_nothing_from_outside(finished: Path) -> None:
    text = (finished / "report" / "index.html").read_text(encoding="utf-8")
    start = text.index("<script>")  # Plotly itself follows
    assert "http" not in text[:start].replace("application", "")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?(https?:)?//", text)


class Cells(HTMLParser):
    """Tables by id, plots by id, and which rows are hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.hidden: list[bool] = []
        self.links: list[str] = []
        self.plots: dict[str, int] = {}
        self._table, self._cell, self._plot = "", False, ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        found = dict(attrs)
        if tag == "table":
            self._table = found["id"]
            self.tables[self._table] = []
        elif tag == "tr" and self._table:
            self.tables[self._table].append([])
            if self._table == "table-runs":
                self.hidden.append("hidden" in found)
        elif tag in ("td", "th") and self._table:
            self.tables[self._table][-1].append("")
            self._cell = True
        elif tag == "a" and self._table == "table-runs":
            self.links.append(found["href"])
        elif tag == "div" and "plot" in found.get("class", "").split():
            self._plot = found["id"]
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
    found = Cells()
    found.feed(done.stdout)
    return found, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_browser
@pytest.mark.slow
def test_the_page_in_a_browser(finished: Path, tmp_path: Path) -> None:
    found, console = browse(finished / "report" / "index.html", tmp_path)
    assert console == []
    files = sorted((finished / "report" / "tables").glob("*.csv"))
    assert {f"table-{path.stem}" for path in files} == set(found.tables)
    for path in files:
        assert found.tables[f"table-{path.stem}"] == rows_of(path)
    drawn = figures.all_figures(data.read(finished))
    assert len(found.plots) == len(drawn)
    for name, shapes in found.plots.items():
        assert shapes > 20, f"{name} was not drawn"
    for link in found.links:
        assert (finished / "report" / link / "config.json").is_file()


@needs_browser
@pytest.mark.slow
def test_a_search_leads_to_the_run(finished: Path, tmp_path: Path) -> None:
    found, _ = browse(finished / "report" / "index.html", tmp_path, "#run=usc%20seed1")
    shown = [
        row[0]
        for row, hidden in zip(found.tables["table-runs"][1:], found.hidden[1:], strict=True)
        if not hidden
    ]
    assert shown == ["usc-CarGoal1-seed1"]


@needs_browser
@pytest.mark.slow
def test_an_error_on_a_page_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><html><body><script>nothing.here()</script></body></html>")
    assert len(browse(page, tmp_path / "profile")[1]) == 1
