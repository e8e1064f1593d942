"""Time and memory of a run."""

import json
from pathlib import Path

import pytest

from safecritic.files import write_json
from safecritic.study.resources import note_memory, training_seconds


def test_training_seconds_add_up_the_intervals(tmp_path: Path) -> None:
    (tmp_path / "updates.csv").write_text("step,time/steps_per_second\n100,50.0\n300,100.0\n")
    assert training_seconds(tmp_path) == pytest.approx(100 / 50 + 200 / 100)


def test_the_largest_peak_of_memory_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="Windows does not tell")
    note_memory(tmp_path)
    path = tmp_path / "resources.json"
    assert json.loads(path.read_text())["peak_memory_bytes"] > 2**24
    write_json(path, {"peak_memory_bytes": 2**60})  # of a process before
    note_memory(tmp_path)
    assert json.loads(path.read_text())["peak_memory_bytes"] == 2**60
