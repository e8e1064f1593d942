"""The figures of a report carry the numbers of the data."""

from pathlib import Path

import numpy as np
import pytest

from safecritic.core.style import method_style
from safecritic.report import data, figures, series
from safecritic.report.series import Curve
from safecritic.study import grid
from safecritic.study.runs import Run
from studies import write_limits_study, write_measured_study, write_outcomes, write_study


def traces(panel: figures.Panel) -> dict:
    """Return the traces by their name; the last of those with the same one."""
    return {trace.name: trace for trace in panel.plot.data}


def test_every_figure_has_one_look_for_a_method(tmp_path: Path) -> None:
    drawn = figures.all_figures(data.read(write_measured_study(tmp_path)))
    assert [figure.name for figure in drawn] == [
        "curves-CarGoal1",
        "pareto-training",
        "pareto-deployment",
        "deployment-CarGoal1",
        "cost-maps-CarGoal1",
        "cost-maps-discounted-CarGoal1",
        "calibration-CarGoal1",
    ]
    seen = set()
    for figure in drawn:
        for panel in figure.panels:
            for trace in panel.plot.data:
                if trace.legendgroup:
                    style = method_style(trace.legendgroup)
                    assert trace.line.color == trace.marker.color == style.colour
                    assert not figure.methods or trace.legendgroup in figure.methods
                    seen.add(trace.legendgroup)
    assert seen == {"ddpg", "sc", "usc"}


def test_a_curve_is_the_mean_of_the_seeds(tmp_path: Path) -> None:
    made = []
    for seed, reward in ((0, 1.0), (1, 3.0)):
        job = grid.jobs_of({"methods": ["sc"], "tasks": ["CarGoal1"], "seeds": [seed]})[0]
        run = Run(job, tmp_path, done=True)
        steps = np.arange(1.0, 11.0) * 10
        run.__dict__["episodes"] = {"step": steps, "reward": np.full(10, reward)}
        made.append(run)
    curve = series.learning_curve(made, "reward")
    np.testing.assert_allclose(curve.mean, 2.0)
    np.testing.assert_allclose(curve.error, 1.0)
    assert (curve.steps[0], curve.steps[-1]) == (10.0, 100.0)


def test_limits(tmp_path: Path) -> None:
    (figure,) = figures.limits(data.read(write_limits_study(tmp_path)))  # CarGoal1 has one limit
    assert figure.name == "limits-CarGoal2"
    cost, success, reward = figure.panels
    assert list(cost.plot.layout.xaxis.ticktext) == ["0.5", "2"]
    lines = traces(cost)
    assert list(lines) == ["cost = limit", "DDPG", "SC", "USC"]
    np.testing.assert_allclose(lines["cost = limit"].y, [0.5, 2.0])
    np.testing.assert_allclose(lines["SC"].y, [1.0, 1.0])
    np.testing.assert_allclose(lines["SC"].error_y.array, [0.5, 0.5])
    np.testing.assert_allclose(traces(success)["DDPG"].y, [50.0, 50.0])
    np.testing.assert_allclose(traces(reward)["USC"].y, [0.5, 2.0])
    assert figure.methods == ["ddpg", "sc", "usc"]


def test_a_study_with_a_single_limit_has_nothing_to_follow(tmp_path: Path) -> None:
    assert figures.limits(data.read(write_study(tmp_path / "none"))) == []
    outcomes = {"sc": [(0.0, 1.0, 1.0)], "usc": [(0.5, 1.0, 2.0)]}
    study = data.read(write_outcomes(tmp_path / "one", outcomes, limits=[0.5]))
    assert study.case_of["CarGoal1-limit0.5"].swept
    assert figures.limits(study) == []


def test_pareto_is_points_with_whiskers(tmp_path: Path) -> None:
    outcomes = {"sc": [(0.0, 1.0, 1.0), (2.0, 1.0, 5.0)], "usc": [(0.5, 1.0, 2.0)]}
    study = data.read(write_outcomes(tmp_path, outcomes))
    (figure,) = figures.pareto(study, "deployment")
    (panel,) = figure.panels
    sc, usc = (traces(panel)[name] for name in ("SC", "USC"))
    assert (sc.x, sc.y) == (np.array([1.0]), np.array([3.0]))
    assert (sc.error_x.array, sc.error_y.array) == (np.array([1.0]), np.array([2.0]))
    assert (usc.error_x.array, usc.error_y.array) == (np.array([0.0]), np.array([0.0]))
    low, high = panel.plot.layout.xaxis.range
    assert low < 0 < 2 < high
    assert panel.plot.layout.shapes[0].x0 == 1.0  # the limit


def test_a_method_far_from_all_others_does_not_flatten_them(tmp_path: Path) -> None:
    outcomes = {"ddpg": [(311.0, 1.0, 9.0)]}
    outcomes |= {name: [(0.5 + at, 1.0, 2.0)] for at, name in enumerate(("sc", "csc", "usc"))}
    study = data.read(write_outcomes(tmp_path, outcomes))
    (panel,) = figures.pareto(study, "deployment")[0].panels
    assert panel.note == "outside: DDPG (cost 311, reward 9)"
    assert panel.plot.layout.xaxis.range[1] < 4
    (figure,) = figures.deployment(study)
    cost = next(panel for panel in figure.panels if panel.title == "cost")
    assert cost.note == "outside: DDPG (mean 311)"
    assert cost.plot.layout.yaxis.range[1] < 4


def test_ranges_are_for_what_comes_after_the_warm_up() -> None:
    steps = np.arange(8.0)
    drawn = [Curve(steps, np.array([-90.0, -50, -9, 0, 2, 3, 4, 4]), np.zeros(8))]
    low, high = series.after_warm_up(drawn, None)
    assert -9 < low < 2 < 4 < high
    assert series.cut_text(drawn, (low, high)) == "cut off: down to -90"
    assert series.cut_text(drawn, (-90.0, 3.0)) == "cut off: up to 4"
    assert series.cut_text(drawn, (-90.0, 4.0)) == ""
    assert series.after_warm_up(drawn, 5.0) == (0.0, 15.0)


def test_maps_share_a_scale_and_show_what_costs(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    instant, rolled = figures.cost_maps(study)
    assert [panel.title for panel in instant.panels[1:]] == ["SC, seed 0", "USC, seed 0"]
    assert [panel.title for panel in rolled.panels[:2]] == ["SC: realised", "SC: Q_C"]
    run = study.of("sc", "CarGoal1")[0]
    heat, border = instant.panels[1].plot.data
    np.testing.assert_allclose(heat.z, run.arrays["map/predicted"][0], rtol=1e-6)
    np.testing.assert_array_equal(border.z, run.arrays["map/instant"][0] > 0)
    assert (heat.x0, heat.dx) == (-1.25, 0.5)  # six cells from -1.5 to 1.5
    values = np.concatenate([panel.plot.data[0].z.ravel() for panel in instant.panels[1:]])
    for figure, first in ((instant, 1), (rolled, 0)):
        ends = {panel.plot.data[0].zmax for panel in figure.panels[first:]}
        assert ends == {figure.scales[first][2]}
    assert np.quantile(values, 0.98) < instant.scales[1][2] <= values.max()


def test_calibration_ends_at_the_mean_error(tmp_path: Path) -> None:
    study = data.read(write_measured_study(tmp_path))
    (figure,) = figures.calibration_curves(study)
    u, error = series.influence_and_error(study, "usc", "CarGoal1")
    assert len(u) == 80  # 40 steps of two seeds
    reliable, risky = figure.panels
    assert len(traces(reliable)["USC"].x) == 10
    assert traces(risky)["USC"].y[-1] == pytest.approx(error.mean(), rel=1e-6)
