"""A study on a Ray cluster has the numbers of one on this machine, whatever is lost on the way."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import PATIENCE
from helpers.machines import Machines, machines
from safecritic.run import checkpoint
from studies import command, numbers, workers_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc"),
]


STEPS = 6_000  # of each run of the study
NOT_SLOWER = {"RAY_worker_niceness": "0"}  # than the rest of the tests: Ray's default is 15
OPEN = {"RAY_AUTH_MODE": "disabled"}  # nobody else is in the network of the machines


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder with a short name: Ray puts sockets into it, whose names are bounded."""
    pytest.importorskip("ray", reason="needs safecritic[ray]")
    with tempfile.TemporaryDirectory(prefix="sc", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def with_checkpoints(file: Path, folder: Path, every: int = 1_000) -> Path:
    """Write a part of the study of `file`, two runs, with checkpoints and patience."""
    text = file.read_text().replace('"ddpg", "rcpo"', '"ddpg"').partition("[method.rcpo]")[0]
    new = folder / "often.toml"
    new.write_text(f"checkpoint_every = {every}\nretries = 5\n{text}")
    return new


def expected_numbers(study: Path) -> dict[str, Any]:
    """Return the numbers of the two runs in the undisturbed study."""
    both = {name: x for name, x in numbers(study).items() if name.startswith("ddpg")}
    assert len(both) == 2
    return both


def stop_after_a_checkpoint(out: Path, disk: Path, process: subprocess.Popen) -> tuple[int, str]:
    """Stop a worker that has written a checkpoint, and wait until this has reached the study.

    Returns the worker's process, which goes no further, and the name of its run.
    """
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        for worker in workers_of(disk):
            try:
                words = Path(f"/proc/{worker}/cmdline").read_text().split("\0")
            except OSError:
                continue
            if "safecritic.study.worker" not in words:  # it has ended since it was listed
                continue
            folder, name = words[words.index("safecritic.study.worker") + 1 :][:2]
            theirs = Path(f"/proc/{worker}/root{folder}/runs/{name}/checkpoint")  # on their disk
            if not checkpoint.exists(theirs):
                continue
            os.kill(worker, signal.SIGSTOP)
            if not checkpoint.load_index(theirs)["numbers"]["step"] < STEPS:
                os.kill(worker, signal.SIGCONT)  # too late for this one
                continue
            while not checkpoint.exists(out / "runs" / name / "checkpoint"):
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.05)
            return worker, name
        time.sleep(0.02)
    raise AssertionError("no checkpoint was written")


def first_steps(run: Path) -> list[int]:
    """Return the step at which each process that trained the run began (TensorBoard's events)."""
    from tensorboardX.proto.event_pb2 import Event

    steps = []
    for path in sorted(run.glob("events.*"), key=lambda path: path.name):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += size + 16
            if event.HasField("session_log"):
                steps.append(event.step)
                break
    return steps


def start_locally(out: Path, file: Path, disk: Path) -> subprocess.Popen:
    """Start a study on a cluster of this machine, whose runs write below `disk / "node"`."""
    about = command(out, file, "--ray", "local")
    about["env"] |= {"TMPDIR": str(disk / "node"), "RAY_TMPDIR": str(disk)} | NOT_SLOWER
    (disk / "node").mkdir()
    return subprocess.Popen(**about)


def assert_undisturbed(process: subprocess.Popen, out: Path, name: str, whole: Path) -> None:
    """The study ends with the numbers of `whole`; its lost run went on from a checkpoint."""
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    assert "2 of 2 runs are done" in text
    assert numbers(out) == expected_numbers(whole)
    _, again = first_steps(out / "runs" / name)
    assert again > 1_000  # from the checkpoint, not from the start


def test_kill_9_of_a_ray_worker_changes_nothing(whole: tuple[Path, Path], disk: Path) -> None:
    """On a real local cluster: the process Ray runs our task in is killed after a checkpoint."""
    file, out = with_checkpoints(whole[0], disk), disk / "out"
    process = start_locally(out, file, disk)
    worker, name = stop_after_a_checkpoint(out, disk / "node", process)
    status = Path(f"/proc/{worker}/status").read_text()
    parent = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
    assert b"one_run" in Path(f"/proc/{parent}/cmdline").read_bytes()
    os.kill(parent, signal.SIGKILL)
    os.kill(worker, signal.SIGCONT)  # it ends by itself
    assert_undisturbed(process, out, name, whole[1])
    assert workers_of(disk) == []


def test_ctrl_c_brings_the_last_steps_home(whole: tuple[Path, Path], disk: Path) -> None:
    file, out = with_checkpoints(whole[0], disk, STEPS // 2), disk / "out"
    # so long that a slow machine cannot finish it before the signal has come through
    long = 20 * STEPS
    file.write_text(file.read_text().replace("steps = 6_000", f"steps = {long}"))
    process = start_locally(out, file, disk)
    worker, name = stop_after_a_checkpoint(out, disk / "node", process)
    saved = out / "runs" / name / "checkpoint"
    before = checkpoint.load_index(saved)["numbers"]["step"]
    (table,) = (disk / "node").glob(f"*/runs/{name}/episodes.csv")
    length = table.stat().st_size
    os.kill(worker, signal.SIGCONT)
    while table.stat().st_size == length:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, text
    assert "stopped; the runs are saved" in text
    assert "not saved within" not in text
    assert before < checkpoint.load_index(saved)["numbers"]["step"] < long
    assert workers_of(disk) == []
    assert not list((disk / "node").glob("*/runs"))  # and nothing is left on the machine


def start_ray(cluster: Machines, machine: int, disk: Path) -> None:
    """Start Ray on a machine: the first is the head and runs nothing."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    # a machine that is cut off is noticed soon, but not one that is only slow
    health = {"period_ms": "1000", "timeout_ms": "4000", "failure_threshold": "3"}
    env = os.environ | {f"RAY_health_check_{name}": x for name, x in health.items()}
    env |= {"PYTHONPATH": paths, "TMPDIR": str(disk), "RAY_TMPDIR": str(disk)} | NOT_SLOWER | OPEN
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    words += ["--node-ip-address", cluster.address(machine), "--disable-usage-stats"]
    words += ["--object-store-memory", "100000000", "--num-cpus", "1" if machine else "0"]
    if machine:
        words += ["--address", f"{cluster.address(0)}:6379"]
    else:
        words += ["--head", "--port", "6379", "--include-dashboard", "false"]
        words += ["--temp-dir", str(disk / "ray")]
    log = (disk / f"log{machine}").open("w")
    cluster.start(machine, words, env=env, stdout=log, stderr=subprocess.STDOUT)


def test_a_machine_that_is_cut_off_changes_nothing(whole: tuple[Path, Path], disk: Path) -> None:
    """Three machines without a shared disk: a head with the driver, and two that run."""
    file, out = with_checkpoints(whole[0], disk), disk / "out"
    with machines(3, disk) as cluster:
        start_ray(cluster, 0, disk)
        until = time.monotonic() + PATIENCE
        while "Ray runtime started" not in (disk / "log0").read_text():
            assert time.monotonic() < until, (disk / "log0").read_text()
            time.sleep(0.2)
        for machine in (1, 2):
            start_ray(cluster, machine, disk)
        about = command(out, file, "--ray", f"{cluster.address(0)}:6379")
        words = about.pop("args")
        about["env"] |= OPEN
        process = cluster.start(0, words, **about)
        worker, name = stop_after_a_checkpoint(out, disk, process)
        assert not Path(f"/proc/{worker}/root{out}").exists()  # the study is not on its disk
        (lost,) = [machine for machine in (1, 2) if worker in cluster.pids(machine)]
        cluster.cut_off(lost)
        assert_undisturbed(process, out, name, whole[1])
