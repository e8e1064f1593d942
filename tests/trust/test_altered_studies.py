"""Altered study folders: the report refuses them with one clear error, or shows the same."""

import hashlib
import io
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.alterations import alter, assert_clear, change, repeat
from safecritic.core.files import FileError
from safecritic.report import data, figures, page, tables
from safecritic.study.pack import CHECKSUM, ZEROS, pack

pytestmark = pytest.mark.slow

KINDS = ("study.json", "summary.json", "evaluation.json", "measures.*", "*.csv", "resources.json")


def shown(study: Path, folder: Path) -> str:
    """Return the page of a study without its search for files, and every table."""
    content = data.read(study)
    all_tables = tables.all_tables(content, folder)
    for table in all_tables:
        table.write_csv(folder / f"{table.name}.csv")
    page.write(content, all_tables, figures.all_figures(content), folder / "index.html")
    cells = [[*table.rows] for table in all_tables]
    return repr(cells)


def shown_or_refused(study: Path, folder: Path, outside: Path, done: str) -> str | None:
    """Return what is shown of an altered study; None if it is refused clearly."""
    try:
        found = shown(study, folder)
    except (FileError, ValueError) as error:
        assert_clear(str(error), done)
        return None
    finally:
        assert outside.read_text() == "precious", done
    assert "onerror" not in (folder / "index.html").read_text(), done
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_file_is_refused_or_harmless(
    good_study: Path,
    tmp_path: Path,
    outside: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Plotly's own script is the same in every page, and large
    monkeypatch.setattr(page, "plotly_script", lambda: "")
    study, folder = tmp_path / "study", tmp_path / "page"
    folder.mkdir()
    expected = shown(good_study, folder)
    outcomes: list[str] = []

    def attack(number: int) -> None:
        rng = random.Random(number)
        shutil.rmtree(study, ignore_errors=True)
        shutil.copytree(good_study, study)
        path = rng.choice(sorted(study.rglob(kind)))
        done = alter(study, path, rng, outside)
        found = shown_or_refused(study, folder, outside, done)
        missing = not path.exists()  # a run without it is shown as not finished
        assert found in (None, expected) or missing or "checksum" in done, done
        outcomes.append("refused" if found is None else "harmless")

    repeat(attack, 40)
    assert outcomes.count("refused") > 10


def test_an_altered_packed_study_is_refused_or_harmless(
    good_study: Path, tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "plotly_script", lambda: "")
    good, study, folder = tmp_path / "good.parquet", tmp_path / "study.parquet", tmp_path / "page"
    pack(good_study, good)
    folder.mkdir()
    expected = shown(good, folder)
    outcomes: list[str] = []

    def attack(number: int) -> None:
        rng = random.Random(number)
        remove(study)
        shutil.copy(good, study)
        fits = rng.random() < 0.7
        done = alter_cells(study, rng) if fits else alter(tmp_path, study, rng, outside)
        found = shown_or_refused(study, folder, outside, done)
        assert found in (None, expected) or fits, done  # a number that could be is shown as it is
        outcomes.append("refused" if found is None else "harmless")

    repeat(attack, 60)
    assert outcomes.count("refused") > 20
    remove(study)


def remove(path: Path) -> None:
    """Remove whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def alter_cells(path: Path, rng: random.Random) -> str:
    """Alter a cell, drop a column or change its type; the checksum fits afterwards."""
    table = pq.read_table(path)
    about = json.loads(pq.read_metadata(path).metadata[b"safecritic"])
    name, row = rng.choice(table.column_names), rng.randrange(len(table))
    kind = rng.choice(["cell", "cell", "cell", "cell", "drop", "text", "about", "twice"])
    column, field = table[name].to_pylist(), table.field(name)
    if kind == "drop":
        table = table.drop_columns([name])
    elif kind == "text":
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array([str(x)[:100] for x in column]))
    elif kind == "about":
        change(about, rng)
    elif kind == "twice":
        table = pa.concat_tables([table, table.slice(row, 1)])
    else:
        value = column[row]
        if isinstance(value, str) and value.startswith("{"):
            content = json.loads(value)
            kind += f" {change(content, rng)}"
            column[row] = json.dumps(content)
        elif isinstance(value, list):
            column[row] = rng.choice([value[:-1], [], [*value, 1e30], [float("nan")] * len(value)])
        elif isinstance(value, str):
            column[row] = rng.choice([None, "", "x", "../../x", "<img src=x onerror=alert(1)>"])
        elif pa.types.is_integer(field.type):
            column[row] = rng.choice([None, -1, 0, 2**62])
        else:
            column[row] = rng.choice([None, -1.0, 1e308, float("inf"), float("nan")])
        at = table.column_names.index(name)
        table = table.set_column(at, field, pa.array(column, field.type))
    data = io.BytesIO()
    with pq.ParquetWriter(data, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None))
        metadata = {"safecritic": json.dumps(about), "checksum": CHECKSUM + ZEROS}
        writer.add_key_value_metadata(metadata)
    text = data.getvalue()
    digest = hashlib.sha256(text).hexdigest().encode()
    path.write_bytes(text.replace(CHECKSUM + ZEROS, CHECKSUM + digest))
    return f"{kind} {name} of row {row}"
