"""The figures of a report: that all are drawn, in one look, and what a curve is."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safecritic.report import data, figures, interactive
from safecritic.study import grid
from safecritic.study.table import Run
from studies import write_limits_study, write_study


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
    assert all(len(seen) == 1 for seen in looks.values())
    assert len({seen.pop() for seen in looks.values()}) == 3


def test_a_curve_is_the_mean_of_the_seeds(tmp_path: Path) -> None:
    made = []
    for seed, reward in ((0, 1.0), (1, 3.0)):
        job = grid.jobs_of({"methods": ["sc"], "tasks": ["CarGoal1"], "seeds": [seed]})[0]
        run = Run(job, tmp_path, done=True)
        steps = np.arange(1.0, 11.0) * 10
        run.__dict__["episodes"] = {"step": steps, "reward": np.full(10, reward)}
        made.append(run)
    line = figures._curve(made, "reward", log=False)
    np.testing.assert_allclose(line.y, 2.0)
    assert line.high is not None
    np.testing.assert_allclose(line.high - line.y, 1.0)


def test_the_frontier_of_a_task_with_limits(tmp_path: Path) -> None:
    study = data.read(write_limits_study(tmp_path))
    drawn = [figure for figure in figures.limits(study) if not figure.empty]
    (figure,) = drawn  # CarGoal1 has one limit
    assert figure.name == "limits-CarGoal2"
    cost, success, reward = figure.panels
    assert cost.xticks == ([0.0, 1.0], ["0.5", "2"])
    lines = {mark.label: mark for mark in cost.marks}
    assert list(lines) == ["cost = limit", "DDPG", "SC", "USC"]
    np.testing.assert_allclose(lines["cost = limit"].y, [0.5, 2.0])
    np.testing.assert_allclose(lines["SC"].y, [1.0, 1.0])
    np.testing.assert_allclose(lines["SC"].error, [0.5, 0.5])
    np.testing.assert_allclose(success.marks[0].y, [50.0, 50.0])
    np.testing.assert_allclose(reward.marks[2].y, [0.5, 2.0])  # USC
    assert cost.note == "above the axis: DDPG, up to 9.0"
    assert figure.shows_legend


def test_a_study_without_limits_has_no_frontier(tmp_path: Path) -> None:
    assert all(figure.empty for figure in figures.limits(data.read(write_study(tmp_path))))
