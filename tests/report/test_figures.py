"""The figures of a report: that all are drawn, in one look, and what a curve is."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safecritic.report import data, figures, interactive
from safecritic.study import grid
from safecritic.study.table import Run


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
