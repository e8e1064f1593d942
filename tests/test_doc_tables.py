"""Tables and figures that follow from the code or the committed runs say what these say."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from safecritic.agents import methods

ROOT = Path(__file__).parents[1]
ROUNDING_OF_PIXELS = 2.0  # mean difference of 255: another version of a font


@pytest.fixture(scope="module")
def tables() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import tables
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return tables


def test_pages_are_up_to_date(tables: Any) -> None:
    """Those of the README follow from the code, those of the results from the committed runs."""
    for page, names in tables.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert {match[2] for match in tables.MARKED.finditer(text)} == names
        assert text == tables.updated(page, text), f"write {page.name} again: python docs/tables.py"


def test_figures_are_those_of_the_committed_runs(
    tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import figures

    figures.write(tmp_path)
    made = sorted(tmp_path.iterdir())
    assert len(made) == 5
    for path in made:
        kept = Image.open(ROOT / "docs" / "images" / path.name).convert("RGB")
        again = Image.open(path).convert("RGB")
        assert again.size == kept.size, path.name
        apart = np.abs(np.asarray(again, float) - np.asarray(kept, float)).mean()
        assert apart < ROUNDING_OF_PIXELS, f"{path.name}: python docs/tables.py"


def test_committed_studies_are_small() -> None:
    paths = sorted((ROOT / "results").iterdir())
    assert {path.suffix for path in paths} == {".csv", ".parquet"}
    assert all(path.stat().st_size < 3e6 for path in paths)


@pytest.mark.parametrize("has_goal", [True, False])
def test_a_task_is_solved_by_the_first_good_window(tables: Any, has_goal: bool) -> None:
    failures, dear = np.arange(120) < 20, np.isin(np.arange(120), (30, 31))
    columns = {
        "step": 100.0 * np.arange(1, 121),
        "success": np.where(failures, 0.0, 1.0) if has_goal else np.full(120, np.nan),
        "reward": np.zeros(120) if has_goal else np.where(failures, 0.0, 30.0),
        "cost": np.where(dear, 26.0, 0.0),
    }
    task = "CarGoal1" if has_goal else "HalfCheetah"
    run = types.SimpleNamespace(episodes=columns, task=task, limit=1.0)
    # the two dear episodes leave the window of 50 one by one: with one of them, 26 / 50 is within 1
    assert tables.solved_at(run) == 100.0 * (30 + 1 + tables.WINDOW)
    columns["cost"] = np.full(120, 2.0)
    assert tables.solved_at(run) == np.inf


def test_a_difference_is_bold_where_its_interval_leaves_out_zero(tables: Any) -> None:
    cheap, dear = np.array([1.0, 1.4, 1.2]), np.array([3.0, 3.4, 3.2])
    # t(4) = 2.776, times 0.2 sqrt(2 / 3)
    assert tables.difference(dear, cheap, 2) == "**+2.00 [+1.55, +2.45]**"
    assert tables.difference(dear[:1], cheap, 2) == "+1.80"
    assert tables.difference(np.array([-0.001]), np.zeros(1), 2) == "+0.00"
    own, whole = np.array([1.0, 4.0, 2.0]), np.array([2.0, 2.5, 2.25, 2.6, 2.4])
    same = stats.ttest_ind(own, whole, equal_var=False).confidence_interval()
    text = f"{own.mean() - whole.mean():+.3f} [{same.low:+.3f}, {same.high:+.3f}]"
    assert tables.difference(np.append(own, np.nan), whole, 3) == text


def test_every_method_has_its_row_and_its_page(tables: Any) -> None:
    rows = tables.methods_table().splitlines()[2:]
    for row, method in zip(rows, methods._TABLE, strict=True):
        assert row.startswith(f"| [`{method.name}`](docs/methods/{method.name}.md) |")
        assert (ROOT / "docs" / "methods" / f"{method.name}.md").is_file()


def test_a_bar_in_a_cell_does_not_end_it(tables: Any) -> None:
    assert tables.markdown(("a",), [("|x|",)]) == "| a |\n|---|\n| \\|x\\| |\n"
