"""Altered study folders: the report refuses them with one clear error, or shows the same."""

import random
import shutil
from pathlib import Path

import pytest

from helpers.alterations import alter, assert_clear, repeat
from safecritic.files import FileError
from safecritic.report import data, figures, page, tables
from safecritic.study.pack import pack

pytestmark = pytest.mark.slow

KINDS = ("study.json", "summary.json", "evaluation.json", "measures.*", "*.csv", "resources.json")
PACKED = ("summary.json", "*.gz")


def shown(study: Path, folder: Path) -> str:
    """Return the page of a study without its search for files, and every table."""
    content = data.read(study)
    all_tables = tables.all_tables(content, folder)
    for table in all_tables:
        table.write_csv(folder / f"{table.name}.csv")
        table.write_latex(folder / f"{table.name}.tex")
    page.write(content, all_tables, figures.all_figures(content), folder / "index.html")
    cells = [[*table.rows] for table in all_tables]
    return repr(cells)


@pytest.mark.parametrize(
    ("kind", "packed"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in PACKED)]
)
def test_an_altered_file_is_refused_or_harmless(
    good_study: Path,
    tmp_path: Path,
    outside: Path,
    kind: str,
    packed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Plotly's own script is the same in every page, and large
    monkeypatch.setattr(page, "plotly_script", lambda: "")
    study, folder = tmp_path / "study", tmp_path / "page"
    if packed:
        pack(good_study, tmp_path / "packed")
        good_study = tmp_path / "packed"
    folder.mkdir()
    expected = shown(good_study, folder)
    outcomes: list[str] = []

    def attack(number: int) -> None:
        rng = random.Random(number)
        shutil.rmtree(study, ignore_errors=True)
        shutil.copytree(good_study, study)
        path = rng.choice(sorted(study.rglob(kind)))
        done = alter(study, path, rng, outside)
        try:
            same = shown(study, folder) == expected
        except (FileError, ValueError) as error:
            assert_clear(str(error), done)
            outcomes.append("refused")
            return
        finally:
            assert outside.read_text() == "precious", done
        text = (folder / "index.html").read_text()
        assert "onerror" not in text, done
        missing = not path.exists()  # a run without it is shown as not finished
        assert same or missing or "checksum" in done, done
        outcomes.append("harmless")

    repeat(attack, 40)
    assert outcomes.count("refused") > 10
