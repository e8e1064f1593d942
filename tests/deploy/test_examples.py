"""The examples run: the control loop in real time, the C++ program with the numbers of NumPy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from safecritic.deploy import c_header
from safecritic.deploy.export import prepare
from safecritic.runtime import Policy

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPILERS = [
    pytest.param(words, marks=pytest.mark.skipif(shutil.which(words[0]) is None, reason="absent"))
    for words in (("g++", "-x", "c++"), ("gcc", "-x", "c", "-std=c99"))
]
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("usc", "CarGoal1", {}),
    ("usc", "FetchReach", {"safety_critics": 2, "safety_output": "softplus", "layer_norm": "all"}),
    ("sc", "HalfCheetah", {"screen_from": "ou", "screen_choice": "cost", "tolerance": 0.01}),
    ("cpo", "FetchReach", {}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "task", "changes"), KINDS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_c_program_acts_as_numpy(
    compiler: tuple[str, ...], method: str, task: str, changes: Any, tmp_path: Path
) -> None:
    agent = ready.make(method, task, **changes)
    exported = prepare(agent, onnx=False)
    c_header.write(tmp_path / "policy.h", exported)
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", "-o", str(tmp_path / "policy")]
    source = str(EXAMPLES / "c" / "main.cpp")
    subprocess.run([*compiler[:1], *flags, *compiler[1:], source, "-lm"], check=True)

    obs = ready.observations(task, 400).astype(float)
    policy = Policy(exported.contents(), clock=None)
    left = np.linspace(-0.1, 1.0, len(obs)).astype(np.float32) * np.float32(policy.limit)
    made = policy.network.decide(obs.astype(np.float32), left)
    rows = np.concatenate([left[:, None], obs.astype(np.float32)], axis=1)
    rows = np.concatenate([rows, np.full((1, rows.shape[1]), np.nan)])
    text = "\n".join(" ".join(f"{x:.9g}" for x in row) for row in rows)
    run = subprocess.run([tmp_path / "policy"], input=text, capture_output=True, text=True,
                         check=True)  # fmt: skip
    lines = np.array([[float(word) for word in line.split()] for line in run.stdout.splitlines()])
    *lines, bad = lines
    dim = policy.network.action_dim
    lines = np.array(lines)
    apart = np.abs(lines[:, :dim] - made.action).max(axis=1) > 1e-5
    apart |= (lines[:, dim + 2] != made.screened) | (lines[:, dim + 3] != made.changed)
    assert apart.mean() <= 0.005  # ties
    same = ~apart
    np.testing.assert_allclose(lines[same, dim], made.q_cost[same], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lines[same, dim + 1], made.influence[same], atol=1e-4)
    assert made.screened.any() == (method != "cpo")
    assert bad[-1] == 1  # not finite
    np.testing.assert_array_equal(bad[:dim], lines[-1, :dim])


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
