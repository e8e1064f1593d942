"""Commands in processes of their own, small runs, and comparisons of run folders."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from probes import SMALL, KeptPoint
from safecritic import DDPG
from safecritic.run import checkpoint
from safecritic.run.loop import Intervals

TESTS = Path(__file__).parent.parent
PATIENCE = 900  # seconds: what takes a few by itself may get a hundredth of a busy machine
TASK = "probes:KeptPoint-v0"
FLAGS = ["--hidden", "16", "16", "--batch-size", "16", "--buffer-size", "400"]
FLAGS += ["--learning-starts", "60", "--log-every", "100", "--critic-every", "500"]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a command in a process that knows the probes."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "safecritic", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Wait for something to happen while the process runs."""
    until = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)


def whole_run(steps: int, out: Path) -> DDPG:
    """Train without an interruption, in this process, as `train ddpg TASK *FLAGS` does."""
    every = Intervals(log_every=100, critic_every=500)
    return DDPG(KeptPoint(), seed=0, **SMALL).learn(steps, out=out, every=every)


def assert_same_run(run: Path, whole: Path) -> None:
    """Assert that two run folders have the same episodes and, to the bit, the same state."""
    assert (run / "episodes.csv").read_text() == (whole / "episodes.csv").read_text()
    (a, m), (b, n) = (checkpoint.load(path / "checkpoint") for path in (run, whole))
    assert m["step"] == n["step"]
    for name in a:
        if not name.startswith("env/"):  # counts of TimeLimit and the like differ in form
            assert a[name].tobytes() == b[name].tobytes(), name
