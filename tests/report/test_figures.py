"""The figures of a report: that all are drawn, in one look, and what a curve is."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safecritic.report import data, figures, interactive
from safecritic.report.marks import Heat, Line, Panel, Points, Scale, outline
from safecritic.study import grid
from safecritic.study.table import Run
from studies import (
    write_limits_study,
    write_measured_study,
    write_outcomes,
    write_study,
)


@pytest.mark.slow
def test_every_figure_is_a_png_a_pdf_and_valid_for_plotly(finished: Path) -> None:
    import plotly.graph_objects

    drawn = figures.all_figures(data.read(finished))
    names = {figure.name for figure in drawn}
    assert names == {
        "curves-CarGoal1",
        "pareto",
        "pareto-deployed",
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
    assert figures.limits(data.read(write_study(tmp_path))) == []


def test_a_single_limit_has_no_frontier(tmp_path: Path) -> None:
    outcomes = {"sc": [(0.0, 1.0, 1.0)], "usc": [(0.5, 1.0, 2.0)]}
    study = data.read(write_outcomes(tmp_path, outcomes, limits=[0.5]))
    assert study.case_of["CarGoal1-limit0.5"].swept
    assert figures.limits(study) == []


def test_pareto_is_points_with_whiskers(tmp_path: Path) -> None:
    outcomes = {"sc": [(0.0, 1.0, 1.0), (2.0, 1.0, 5.0)], "usc": [(0.5, 1.0, 2.0)]}
    study = data.read(write_outcomes(tmp_path, outcomes))
    (figure,) = figures.deployed_pareto(study)
    (panel,) = figure.panels
    sc, usc = panel.marks
    assert isinstance(sc, Points)
    assert isinstance(usc, Points)
    assert (sc.x[0], sc.y[0]) == (1.0, 3.0)
    assert (sc.across, sc.error) == (np.array([1.0]), np.array([2.0]))
    assert (usc.across, usc.error) == (np.array([0.0]), np.array([0.0]))  # one run has none
    assert panel.xrange is not None
    assert panel.xrange[0] < 0 < 2 < panel.xrange[1]
    trace = interactive.plotly(figure)["data"][0]
    assert (trace["error_x"]["array"], trace["error_y"]["array"]) == ([1.0], [2.0])


def test_a_panel_says_what_it_clips() -> None:
    x = np.array([10.0, 20.0, 30.0, 40.0])
    lines = [Line(x, np.array([9.0, 7.0, 1.0, 1.0])), Line(x, np.array([5.0, 1.0, 1.0, -3.0]))]
    panel = Panel("", [*lines], yrange=(0.0, 6.0))
    assert figures._clipped(panel) == "cut off: down to -3 until step 40, up to 9 until step 20"
    panel.yrange = (-3.0, 9.0)
    assert figures._clipped(panel) == ""


def test_maps_share_a_scale_and_show_what_costs(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    instant, rolled = figures.cost_maps(study)
    assert [panel.title for panel in instant.panels[1:]] == ["SC, seed 0", "USC, seed 0"]
    truth, *predicted = [panel.scale for panel in instant.panels]
    assert predicted[0] is not None
    assert predicted == [predicted[0]] * 2 != [truth] * 2
    values = np.concatenate(
        [m.z.ravel() for p in instant.panels[1:] for m in p.marks if isinstance(m, Heat)]
    )
    assert predicted[0].low == 0.0
    assert np.quantile(values, 0.98) < predicted[0].high <= values.max()
    assert len(rolled.scales) == 1
    run = study.of("sc", "CarGoal1")[0]
    border = outline(run.arrays["map/instant"][0] > 0, 1.5)
    for panel in (*instant.panels, *rolled.panels):
        drawn = panel.marks[-1]
        assert isinstance(drawn, Line)
        np.testing.assert_array_equal(drawn.x, border.x)
    layout = interactive.plotly(instant)["layout"]
    assert (layout["coloraxis2"]["cmin"], layout["coloraxis2"]["cmax"]) == predicted[0][1:]
    kinds = [x["coloraxis"] for x in interactive.plotly(instant)["data"] if x["type"] == "heatmap"]
    assert kinds == ["coloraxis", "coloraxis2", "coloraxis2"]


def test_one_critic_has_its_two_maps_side_by_side(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    study.runs = [run for run in study.runs if run.method == "usc"]
    instant, rolled = figures.cost_maps(study)
    assert (instant.shape, rolled.shape) == ((1, 2), (1, 2))


def test_the_outline_of_a_square() -> None:
    inside = np.zeros((4, 4), bool)
    inside[1:3, 1:3] = True  # from -1 to 1 on a map from -2 to 2
    line = outline(inside, 2.0)
    known = ~np.isnan(line.x)
    assert (line.x[known].min(), line.x[known].max()) == (-1.0, 1.0)
    assert np.hypot(line.x, line.y)[known].min() > 0.7
    assert len(outline(np.zeros((4, 4), bool), 2.0).x) == 0
    edge = outline(np.ones((4, 4), bool), 2.0)
    assert np.nanmax(edge.x) == 2.0  # closed where it leaves the map


@pytest.mark.parametrize("layout", ["layout", "narrow"])
def test_panels_colour_bars_and_legends_do_not_overlap(tmp_path: Path, layout: str) -> None:
    for figure in figures.all_figures(data.read(write_measured_study(tmp_path))):
        made = interactive.plotly(figure)[layout]
        margin = made["margin"]
        plot = made["height"] - margin["t"] - margin["b"]
        axes = [x for x in made if x.startswith("xaxis")]
        boxes = [(made[x]["domain"], made[x.replace("x", "y", 1)]["domain"]) for x in axes]
        assert len(boxes) == len(figure.panels)
        if layout == "narrow":
            assert {across for across, _ in boxes} == {(0.0, 1.0)}
        for at, (across, up) in enumerate(boxes):
            assert 0 <= across[0] < across[1] <= 1
            assert 0 <= up[0] < up[1] <= 1
            for other_across, other_up in boxes[:at]:
                beside = across[0] >= other_across[1] or across[1] <= other_across[0]
                below = (other_up[0] - up[1]) * plot > 50  # room for ticks and a title
                assert beside or below, figure.name
        for name in [x for x in made if x.startswith("coloraxis")]:
            bar = made[name]["colorbar"]
            top = margin["t"] + plot * (1 - bar["y"])
            assert top + 45 <= made["height"], figure.name
            for _, up in boxes:
                assert bar["y"] < up[0] or bar["y"] > up[1]


def test_scales_are_told_apart_by_label_and_range() -> None:
    panels = [
        Panel("", [Heat(np.zeros((2, 2)), 1.0, Scale(label, 0.0, 1.0))])
        for label in ("a", "b", "a")
    ]
    figure = figures.Figure("", "", "", panels)
    assert list(figure.scales.values()) == [[0, 2], [1]]


def test_small_costs_are_seen_beside_large_ones(tmp_path: Path) -> None:
    (figure,) = [x for x in figures.limits(data.read(write_limits_study(tmp_path))) if not x.empty]
    made = interactive.plotly(figure)
    trace = next(x for x in made["data"] if x.get("name") == "SC")
    np.testing.assert_allclose(trace["y"], [1.0, 1.0])  # roots of the costs
    np.testing.assert_allclose(trace["error_y"]["array"], np.sqrt(1.5) - 1, atol=1e-6)
    np.testing.assert_allclose(trace["error_y"]["arrayminus"], 1 - np.sqrt(0.5), atol=1e-6)
    axis = made["layout"]["yaxis"]
    labels = dict(zip(axis["ticktext"], axis["tickvals"], strict=True))
    assert labels["0"] == 0
    assert labels["5"] == pytest.approx(np.sqrt(5))


def test_a_single_method_is_named_too(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    study.runs = [run for run in study.runs if run.method == "usc"]
    for figure in figures.all_figures(study):
        named = any("USC" in panel.title for panel in figure.panels)
        along = any(panel.xticks and "USC" in panel.xticks[1] for panel in figure.panels)
        assert named or along or (figure.shows_legend and "USC" in figure.legend), figure.name
