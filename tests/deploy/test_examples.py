"""The examples run: the control loop in real time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import ready

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_control_loop_survives_bad_and_late_data(tmp_path: Path) -> None:
    path = ready.make("usc", "CarGoal1").export(tmp_path / "policy.safecritic", onnx=False)
    words = [sys.executable, str(EXAMPLES / "control_loop.py"), str(path), "--seconds", "5"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    counts = eval(run.stdout.splitlines()[-1])  # a printed dict of our own
    assert counts["no observation"] > 0
    assert counts["decisions"] > 3
    assert (tmp_path / "operation.jsonl").read_text().count("\n") >= 3
    assert "cost" in run.stderr
    assert os.path.getsize(tmp_path / "operation.jsonl") > 0
