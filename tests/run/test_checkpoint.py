"""Checkpoints survive kill -9 and a full disk, and damaged ones are refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probes import small_disk
from safecritic.core import files
from safecritic.run import checkpoint
from safecritic.run.checkpoint import CheckpointError

ARRAYS = {
    "params/0/w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.array([1e-300, np.pi]),
    "key": np.array([3, 2**32 - 1], np.uint32),
    "wide": np.array([2**64 - 1], np.uint64),
    "flags": np.array([True, False]),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.float32),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
}
NUMBERS = {"step": 12, "rng": {"state": 2**127 + 1}, "words": ["a"]}


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, ARRAYS, NUMBERS)
    arrays, numbers = checkpoint.load(tmp_path)
    assert numbers == NUMBERS
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_two_generations_are_kept(tmp_path: Path) -> None:
    for step in range(4):
        checkpoint.save(tmp_path, {"x": np.array([step])}, {"step": step})
    suffixes = sorted(path.suffix for path in tmp_path.iterdir())
    assert suffixes == [".json", ".json", ".safetensors", ".safetensors"]
    for generation, step in (("checkpoint", 3), ("previous", 2)):
        arrays, numbers = checkpoint.load(tmp_path, generation)
        assert (arrays["x"].tolist(), numbers) == ([step], {"step": step})


def test_a_damaged_one_is_refused_and_the_one_before_it_named(tmp_path: Path) -> None:
    for step in range(2):
        checkpoint.save(tmp_path, {"x": np.array([step])}, {"step": step})
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"sha256.*before it \(step 0\).*--state previous"):
        checkpoint.load(tmp_path)
    assert checkpoint.load(tmp_path, "previous")[1] == {"step": 0}
    checkpoint.save(tmp_path, {"x": np.array([2])}, {"step": 2})  # not over the good one
    assert checkpoint.load(tmp_path, "previous")[1] == {"step": 0}
    assert checkpoint.load(tmp_path)[1] == {"step": 2}


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint in .*checkpoint\.json"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_truncated_arrays_are_refused(tmp_path: Path, kept: float) -> None:
    checkpoint.save(tmp_path, ARRAYS, NUMBERS)
    (path,) = tmp_path.glob("*.safetensors")
    data = path.read_bytes()
    length = int(kept * len(data)) if isinstance(kept, float) else kept
    path.write_bytes(data[:length])
    with pytest.raises(CheckpointError, match=f"truncated: expected {len(data)} bytes"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("file", ["*.safetensors", "*.json"])
def test_any_flipped_byte_is_refused(tmp_path: Path, file: str) -> None:
    checkpoint.save(tmp_path, ARRAYS, NUMBERS)
    (path,) = tmp_path.glob(file)
    data = path.read_bytes()
    for at in range(0, len(data), max(1, len(data) // 60)):
        if bytes([data[at]]).isspace():
            continue  # white space between the values of a JSON file means nothing
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CheckpointError, match=r"altered|damaged|truncated|cannot be read"):
            checkpoint.load(tmp_path)
    path.write_bytes(data)
    assert checkpoint.load(tmp_path)[1] == NUMBERS


def test_missing_arrays_and_another_format_are_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, ARRAYS, NUMBERS)
    index = json.loads((tmp_path / "checkpoint.json").read_text())
    (path,) = tmp_path.glob("*.safetensors")
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(tmp_path)
    files.write_json(tmp_path / "checkpoint.json", index | {"format": 99})
    with pytest.raises(CheckpointError, match="format 99, this version reads 5"):
        checkpoint.load(tmp_path)


WRITER = """
import sys, numpy as np
from safecritic.core import files
from safecritic.run import checkpoint
for step in range(1, 10**6):
    checkpoint.save(sys.argv[1], {"x": np.full(200_000, step, np.int64)}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(rng.uniform(0, 0.2)))
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read().split()
        arrays, numbers = checkpoint.load(tmp_path)
        # the one whose end was printed last, or the next if it was killed before printing
        printed = int(rest[-1]) if rest else 1
        assert numbers["step"] in (printed, printed + 1)
        assert set(arrays["x"].tolist()) == {numbers["step"]}
        seen.append(numbers["step"])
    assert max(seen) > 1


FILL = """
import resource, sys, numpy as np
from safecritic.core import files
from safecritic.run import checkpoint
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
checkpoint.save(sys.argv[1], {"x": np.full(10_000, 1.0)}, {"step": 1})
checkpoint.save(sys.argv[1], {"x": np.full(1_000_000, 2.0)}, {"step": 2})
"""


def _fill(folder: Path, how: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", FILL, str(folder), how], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    arrays, numbers = checkpoint.load(folder)
    assert numbers == {"step": 1}
    assert arrays["x"].tolist() == [1.0] * 10_000
    assert not list(folder.glob("*.part"))
    return run.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_write_that_fails_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    message = _fill(tmp_path, "limit")
    assert "could not write a checkpoint of 8.0 MB" in message
    assert message.endswith("File too large; the previous checkpoint is intact")


def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    with small_disk(tmp_path, "2m"):
        message = _fill(tmp_path, "disk")
    assert message.endswith("No space left on device; the previous checkpoint is intact")
