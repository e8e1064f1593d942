"""Tables and figures from outside the package get their place on the page."""

from pathlib import Path

import plotly.graph_objects as go
import pytest

from safecritic.report import data, figures, tables
from safecritic.report.build import build
from safecritic.report.figures import Figure, Panel
from studies import write_study


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is gone after it."""
    for module, name in ((tables, "TABLES"), (figures, "FIGURES")):
        copy = {section: list(functions) for section, functions in getattr(module, name).items()}
        monkeypatch.setattr(module, name, copy)


def seen(study: data.Study, folder: Path) -> tables.Table:
    column = tables.Column("seen", "seen/share", best=min)
    return tables.Compared("seen", "Seen", "A share.", [column])(study, folder)


@figures.per_task
def line(study: data.Study, task: str) -> Figure:
    return Figure(f"line-{task}", "A line", "", [Panel("", go.Figure(go.Scatter(y=[1, 1])))])


def test_a_table_and_a_figure_from_outside_are_on_the_page(tmp_path: Path) -> None:
    tables.register("Uncertainty", seen)
    figures.register("Of our own", line)
    text = build(write_study(tmp_path)).read_text(encoding="utf-8")
    made = {table.name: table for table in tables.all_tables(data.read(tmp_path), tmp_path)}
    assert made["seen"].section == "Uncertainty"
    assert made["seen"].rows == [
        ["CarGoal1", "DDPG", "2", "1", "0 of 2", "900", "0.40 ± 0.10", "0.40 [0.30, 0.50]"],
        ["CarGoal1", "SC", "1", "1", "1 of 1", "900", "0.10", "–"],
    ]
    assert 'id="figure-line-cargoal1-0"' in text
    # a new section comes after ours
    assert 0 < text.index('<h2 id="runs">') < text.index('<h2 id="of-our-own">Of our own</h2>')


def test_nothing_is_registered_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="already, in the section 'Training'"):
        tables.register("Deployment", tables.late_table)
    tables.register("Training", lambda study, folder: tables.late_table(study, folder))
    study = data.read(write_study(tmp_path))
    with pytest.raises(ValueError, match="'late' is the name of two tables"):
        tables.all_tables(study, tmp_path)
