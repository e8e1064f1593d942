"""Trackio: the real one gets what TensorBoard gets, and keeps it on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import FLAGS, TASK, TESTS
from safecritic.run.folder import read_table

SCRIPT = """
import sys
from trackio.sqlite_storage import SQLiteStorage
from safecritic import cli
code = cli.main(sys.argv[1:])
rows = SQLiteStorage.get_logs("mine", "run")
print("rewards", [row["episode/reward"] for row in rows if "episode/reward" in row])
sys.exit(code)
"""


@pytest.mark.slow
def test_a_run_appears_in_trackio(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="needs trackio")
    flags = [*FLAGS, "--steps", "200", "--out", "run", "--trackio", "mine"]
    own = {"TRACKIO_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "train", "ddpg", TASK, *flags],
        cwd=tmp_path,
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rewards = read_table(tmp_path / "run/episodes.csv")["reward"]
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("rewards ")]
    assert json.loads(line.removeprefix("rewards ")) == pytest.approx(rewards)
