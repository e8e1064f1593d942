"""Files of a run from another machine: which are sent, which are refused, and what is written."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from safecritic.core import files
from safecritic.core.files import FileError
from safecritic.run import checkpoint
from safecritic.study import transfer
from safecritic.study.ray import Mailbox
from studies import write_measured_study

NAME = "sc-CarGoal1-seed0"


def save(run: Path, step: int) -> None:
    checkpoint.save(run / "checkpoint", {"x": np.full(3, float(step))}, {"step": step})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with two checkpoints, and files that are nobody else's business."""
    run = write_measured_study(tmp_path / "there") / "runs" / NAME
    files.write_json(run / "config.json", {"method": "sc"})
    for step in (1, 2):
        save(run, step)
    for name in ("events.out.tfevents.17.host", ".lock", "notes.txt", ".episodes.csv-0.part"):
        (run / name).write_bytes(b"x")
    return run


def test_a_run_arrives_as_it_was_sent(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "here" / NAME
    contents = transfer.collect(run)
    transfer.write(target, contents)
    assert transfer.collect(target) == contents
    assert checkpoint.load(target / "checkpoint")[1]["step"] == 2
    there = {path.name for path in target.iterdir()}
    assert there >= {"episodes.csv", "summary.json", "measures.safetensors"}
    assert there & {".lock", "notes.txt", ".episodes.csv-0.part"} == set()
    assert transfer.collect(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    "name",
    [
        "../config.json",
        "/etc/passwd",
        "checkpoint/../../config.json",
        "checkpoint/arrays-0.safetensors",
        "checkpoint/previous.json",
        "other/checkpoint.json",
        "events.out.tfevents.1./../../x",
        "events.out.tfevents.1.a\n",
        ".lock",
        "report.html",
        "",
        "summary.json\0",
        7,
    ],
)
def test_other_names_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    target = tmp_path / "runs" / NAME
    with pytest.raises(FileError, match=r"not the name of a file of a run|has no name"):
        transfer.write(target, {"config.json": b"{}", name: b"x"})
    assert os.listdir(tmp_path) == []


def test_links_and_sizes_are_refused(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / NAME
    outside.mkdir()
    target.symlink_to(outside)
    with pytest.raises(FileError, match="is a link"):
        transfer.write(target, {"config.json": b"{}"})
    target.unlink()
    target.mkdir()
    (target / "checkpoint").symlink_to(outside)
    with pytest.raises(FileError, match="is a link"):
        transfer.collect(target)
    with pytest.raises(FileError, match="at most 1,048,576"):
        transfer.write(target, {"error.txt": bytes(2**20 + 1)})
    assert os.listdir(outside) == []


def test_a_damaged_checkpoint_leaves_the_last_good_one(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "here"
    transfer.write(target, transfer.collect(run))
    save(run, 3)
    contents = transfer.collect(run)
    (arrays,) = [name for name in contents if name.startswith("checkpoint/arrays")]
    index = f"checkpoint/{checkpoint.INDEX}"
    other = {"numbers": {"step": 9}}
    forged = json.dumps(json.loads(contents[index]) | other).encode()
    for wrong, message in (
        ({arrays: contents[arrays][:-1]}, "are not those it names"),
        ({arrays: bytes(len(contents[arrays]))}, "are not those it names"),
        ({index: forged}, "was altered"),
        ({index: b"{}"}, "is missing"),
    ):
        with pytest.raises(FileError, match=message):
            transfer.write(target, contents | wrong)
    del contents[arrays]
    with pytest.raises(FileError, match="came without its arrays"):
        transfer.write(target, contents)
    assert checkpoint.load(target / "checkpoint")[1]["step"] == 2
    transfer.write(target, transfer.collect(run))
    assert checkpoint.load(target / "checkpoint")[1]["step"] == 3
    assert checkpoint.load(target / "checkpoint", "previous")[1]["step"] == 2
    assert len(list((target / "checkpoint").glob("arrays-*"))) == 2


def test_summary_and_measures_are_written_last(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver killed at any moment has a run that is not done, or one that is whole."""
    written: list[str] = []
    write = files.write_bytes

    def note(path: Path, data: bytes, durable: bool = False) -> None:
        written.append(path.name)
        write(path, data, durable)

    monkeypatch.setattr(files, "write_bytes", note)
    transfer.write(tmp_path / "here", transfer.collect(run))
    assert written[-3:] == ["checkpoint.json", "measures.json", "summary.json"]
    assert written.index("episodes.csv") < written.index("checkpoint.json")


def test_a_new_checkpoint_is_noticed(run: Path, tmp_path: Path) -> None:
    before = transfer.stamp(run)
    assert before == transfer.stamp(run)
    save(run, 3)
    assert before != transfer.stamp(run)
    assert transfer.stamp(tmp_path / "nothing") is None


def test_the_mailbox_keeps_the_newest_checkpoint(run: Path) -> None:
    mailbox, sender = Mailbox(), (NAME, 0)
    assert mailbox.ask(sender, "a") is None
    mailbox.put(sender, transfer.collect(run), {"step": 1})
    save(run, 3)
    mailbox.put(sender, transfer.collect(run), {"step": 2, "cost": 0.5})
    mailbox.put(sender, {}, {})
    mailbox.put(("other", 1), {}, {"step": 5})
    asked, contents, about = mailbox.take()
    assert asked == {sender: "a"}
    assert contents == {sender: transfer.collect(run)}
    assert about == {sender: {"step": 2, "cost": 0.5}, ("other", 1): {"step": 5}}
    assert mailbox.take() == ({}, {}, {})
    mailbox.answer(sender, {"config.json": b"{}"})
    assert mailbox.ask(sender, "a") == {"config.json": b"{}"}
    assert mailbox.ask(sender, "a") is None
