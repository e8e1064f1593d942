"""The reader and the writer: what they refuse, and that they never leave the folder."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecritic.core import files
from safecritic.core.files import FileError
from safecritic.core.schema import check
from safecritic.run.folder import lock_folder


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.safetensors"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    target = tmp_path / "target"
    target.write_text("{}")
    path.symlink_to(target)
    with pytest.raises(FileError, match=r"is a link, .* not followed"):
        files.read_bytes(path, 100)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(FileError, match="is a link"):
        files.read_bytes(path, 100)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match="and is a pipe"):  # and no waiting for a writer
        files.read_bytes(path, 100)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match="and is a folder"):
        files.read_bytes(path, 100)
    with pytest.raises(FileError, match="and is a device"):
        files.read_bytes(Path("/dev/zero"), 100)
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "none", 100)


def test_the_size_is_known_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk, and would take all memory
    with pytest.raises(FileError, match="has 1,099,511,627,776 bytes"):
        files.read_json(path)
    with pytest.raises(FileError, match="at most"):
        files.read_table(path)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    inside = tmp_path / "run"
    inside.mkdir()
    for name in ("config.json", "curves.png", "gone"):
        (inside / name).symlink_to(outside if name != "gone" else tmp_path / "nowhere")
        with pytest.raises(FileError, match="is a link"):
            files.write_bytes(inside / name, b"x")
    (inside / ".lock").symlink_to(outside)
    with pytest.raises(FileError, match="is a link"):
        lock_folder(inside)
    (inside / "episodes.csv").hardlink_to(outside)
    with pytest.raises(FileError, match="has 2 names"):
        files.open_to_append(inside / "episodes.csv")
    (inside / "checkpoint").symlink_to(tmp_path)
    with pytest.raises(FileError, match="is a link"):
        files.make_folder(inside / "checkpoint")
    # a file with the old fixed name of a temporary one is nothing special
    (inside / "new.json.part").symlink_to(outside)
    files.write_json(inside / "new.json", {"a": 1})
    assert files.read_json(inside / "new.json") == {"a": 1}
    assert outside.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_as_lock_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(FileError, match="is a pipe"):
        lock_folder(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="no permissions")
def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(FileError, match=r"\.lock must be a regular file, and is a folder"):
        lock_folder(tmp_path)


def full(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError("the disk is full")


def test_a_failed_write_leaves_the_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_bytes(path, b"before")
    with pytest.raises(OSError, match="full"), files.replacing(path) as temporary:
        full(temporary)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_are_cleared_and_nothing_else(tmp_path: Path) -> None:
    kept = [".hidden", "a.part", ".a-part", ".a.json-xyz.part"]
    for name in (*kept, f".a.json-{'0' * 16}.part", f".b.gif-{'f' * 16}.part.gif"):
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested more than 24 deep"),
        ("[" + "[]," * 300_000 + "[]]", "300,002 lists"),
        ("[" + "0," * 1_100_000 + "0]", "1,100,000 values"),
        ('{"a": 1, "a": 2}', "a key is there twice"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[1]", "expected an object, got a list of 1"),
        ('{"a": 1}', "its key 'sha256' is missing"),
        ('{"a": 1, "sha256": "0"}', "was altered: its checksum"),
        ('{"a": ' + "9" * 5_000 + "}", "is damaged"),
        ("\x00\xff", "is damaged"),
    ],
)
def test_json_that_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError, match=message) as refused:
        files.read_json(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1 must be the names"),
        (b"a,a\r\n", "each once"),
        (b"a,b\r\n1\r\n", "line 2 has 1 cells, expected 2"),
        (b"a,b\r\n1,x\r\n", "line 2 has 'x', no number"),
        (b"a,b\r\n1,nan\r\n", "line 2 has 'nan', no number"),
        (b"a,b\r\n1,1e999\r\n", "no number"),
        (b"a,b\r\n1,1_000\r\n", "no number"),
        (b'a,b\r\n1,"2"\r\n', "no number"),
        (b"a,b\r\n1,2", "line 2 is cut off"),
        (b"a,b\r\n" + b"1" * 70_000 + b",2\r\n", "line 2 has 70,004 bytes"),
        (b"a,b\r\n" + b",\r\n" * 5_000_000, "10,000,002 cells"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    with pytest.raises(FileError, match=message):
        files.read_table(path)


def test_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\r\n1,\r\n0.25,-3e2\r\n")
    table = files.read_table(path, ("a",))
    assert table["a"] == [1.0, 0.25]
    assert np.isnan(table["b"][0])
    assert table["b"][1] == -300.0
    with pytest.raises(FileError, match="no column 'c'"):
        files.read_table(path, ("c",))


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"0000"),
        ({"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, b"0000"),
        ({"x": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}, b""),
        ({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"0000"),
        ({"x": 7}, b""),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    blob = len(text).to_bytes(8, "little") + text + data
    try:
        arrays = files.parse_arrays(tmp_path / "a.safetensors", blob)
    except FileError as error:
        assert "is damaged" in str(error)  # noqa: PT017
    else:
        assert sum(x.nbytes for x in arrays.values()) <= len(data)


def test_a_schema_names_the_key(tmp_path: Path) -> None:
    from safecritic.run.records import Config

    content = {"method": "usc", "title": "USC", "task": "CarGoal1", "seed": -1}
    with pytest.raises(FileError, match=r"c\.json, key seed: expected a whole number from 0 to"):
        check(Config, content, Path("c.json"))
    with pytest.raises(FileError, match=r"key paper_defaults: expected a value, got nothing"):
        check(Config, content | {"seed": 0}, Path("c.json"))
    with pytest.raises(FileError, match=r"key task: expected letters, digits and any of"):
        check(Config, content | {"task": "<script>"}, Path("c.json"))
    with pytest.raises(FileError, match="expected an object, got a list of 0"):
        check(Config, [], Path("c.json"))
