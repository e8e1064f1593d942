"""The notebooks are their scripts, and run from top to bottom."""

import importlib
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"STEPS": 1_200, "EPISODES": 3}  # in place of what each says


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("notebooks")


def test_notebooks_are_up_to_date(notebooks: Any) -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(notebooks.NAMES)
    for name in notebooks.NAMES:
        made = notebooks.notebook((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        kept = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
        assert kept == made, "write it again: python examples/notebooks.py"
        nbformat.validate(nbformat.reads(made, 4))


def test_cells_are_told_apart(notebooks: Any) -> None:
    script = "# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\nx = 1  # noqa: E402\n# why\ny = x\n"
    expected = [("markdown", "# Title\n\nText"), ("code", "x = 1\n# why\ny = x")]
    assert notebooks.cells(script) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_policy", "own_environment", "inside_a_critic"])
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    read = nbformat.read(EXAMPLES / f"{name}.ipynb", 4)
    for setting, value in SHORT.items():
        for cell in read.cells:
            pattern = re.compile(rf"^{setting} = [\d_]+", re.MULTILINE)
            cell.source = pattern.sub(f"{setting} = {value}", cell.source)
    NotebookClient(read, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in read.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
