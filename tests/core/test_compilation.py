"""The cache of compiled steps: where it is, and that it changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from safecritic.core import compilation

DIGEST = """
import hashlib
from probes import KeptPoint
from safecritic import DDPG
arrays, _ = DDPG(KeptPoint(), seed=0, learning_starts=20).learn(60).training.state()
print(hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest())
"""


def test_the_folder_is_the_one_named_and_can_be_switched_off(monkeypatch, tmp_path):
    monkeypatch.setenv("SAFECRITIC_CACHE", str(tmp_path / "here"))
    folder = compilation.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "here"
    assert folder.is_dir()
    monkeypatch.setenv("SAFECRITIC_CACHE", "off")
    assert compilation.cache_folder() is None


def test_a_folder_that_cannot_be_made_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SAFECRITIC_CACHE", str(tmp_path / "file" / "below"))
    assert compilation.cache_folder() is None


@pytest.mark.slow
def test_a_run_from_the_cache_is_the_same_to_the_bit(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])

    def digest() -> str:
        return subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=os.environ | {"PYTHONPATH": paths, "SAFECRITIC_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    digests = [digest() for _ in range(2)]
    assert list(tmp_path.rglob("*-cache"))
    assert digests[0] == digests[1]
