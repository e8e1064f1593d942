"""A study on a Ray cluster has the numbers of one on this machine."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from helpers.commands import PATIENCE
from studies import command, numbers, wait_for_a_run


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_kill_9_of_a_ray_worker_changes_nothing(whole: tuple[Path, Path], tmp_path: Path) -> None:
    """On a real local cluster: the worker Ray runs our task in is killed in the middle."""
    pytest.importorskip("ray", reason="needs safecritic[ray]")
    file, out = whole[0], tmp_path / "out"
    process = subprocess.Popen(**command(out, file, "--ray", "local"))
    ours = wait_for_a_run(out, process)[0]
    status = Path(f"/proc/{ours}/status").read_text()
    parent = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
    assert b"one_run" in Path(f"/proc/{parent}/cmdline").read_bytes()
    os.kill(parent, signal.SIGKILL)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    assert "4 of 4 runs are done" in text
    assert numbers(out) == numbers(whole[1])
