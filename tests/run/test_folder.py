"""The tables of a run folder, its lock, and the events for TensorBoard."""

from pathlib import Path

import numpy as np
import pytest

from helpers.fakes import row_of_ones
from safecritic.run.checkpoint import CheckpointError
from safecritic.run.folder import RunFolder, read_table


def test_tables_shorter_than_the_checkpoint_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_episode(row_of_ones())
    positions = folder.positions()
    folder.close()
    path = tmp_path / "episodes.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    folder = RunFolder(tmp_path, ("a/one",))
    with pytest.raises(CheckpointError, match="lines were removed"):
        folder.cut_back(positions)


def test_tables_hold_every_digit_and_empty_cells_for_the_unknown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_episode(row_of_ones() | {"reward": 1 / 3, "success": np.nan})
    folder.write_update(50, {"a/one": 0.1, "time/steps_per_second": 2.0})
    read = read_table(tmp_path / "episodes.csv")
    assert read["reward"] == [1 / 3]
    assert np.isnan(read["success"][0])
    lines = (tmp_path / "updates.csv").read_text().splitlines()
    assert lines[1] == "50,2.0,0.1,,,,,,"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ())
    with pytest.raises(RuntimeError, match="in use by another process"):
        RunFolder(tmp_path, ())
    folder.close()
    RunFolder(tmp_path, ()).close()


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 (the format's other half)

    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_update(50, {"a/one": 0.25})
    folder.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    data, events = path.read_bytes(), []
    while data:  # length, its checksum, the event, its checksum
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert events[-1].step == 50
    assert [(v.tag, v.simple_value) for v in events[-1].summary.value] == [("a/one", 0.25)]
