"""Time, memory and errors of the critic of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from safecritic.core.files import write_json
from safecritic.study.runs import note_memory
from safecritic.study.table import read
from studies import write_measured_study


def test_training_seconds_add_up_the_intervals(tmp_path: Path) -> None:
    """The table says 100 steps at 50 a second, then 200 at 100."""
    run = read(write_measured_study(tmp_path)).runs[0]
    assert run.row["seconds"] == pytest.approx(100 / 50 + 200 / 100)
    assert run.row["rate"] == pytest.approx(75.0)


def test_errors_of_the_critic_where_u_is_least_and_most(tmp_path: Path) -> None:
    run = read(write_measured_study(tmp_path)).runs[1]
    influence = np.array([0.9, 0.1, 0.3, 0.5, 0.7])
    arrays = {"steps/q_cost": np.arange(5.0), "steps/realised": np.array([4.0, 1.5, 2, 3, 4])}
    vars(run)["arrays"] = arrays | {"steps/influence": influence}
    assert (run.row["error_least_u"], run.row["error_most_u"]) == (0.5, 4.0)


def test_the_largest_peak_of_memory_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="Windows does not tell")
    note_memory(tmp_path)
    path = tmp_path / "resources.json"
    assert json.loads(path.read_text())["peak_memory_bytes"] > 2**24
    write_json(path, {"peak_memory_bytes": 2**60})  # of a process before
    note_memory(tmp_path)
    assert json.loads(path.read_text())["peak_memory_bytes"] == 2**60
