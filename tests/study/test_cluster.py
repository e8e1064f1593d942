"""What the driver of a cluster does with lost runs and with the files it is sent, without Ray."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safecritic.run.failure import write_failure
from safecritic.study import grid
from safecritic.study.driver import Driver
from safecritic.study.grid import StudyError
from safecritic.study.ray import Cluster, Mailbox
from studies import FILE, write_file

exceptions = pytest.importorskip("ray.exceptions", reason="needs safecritic[ray]")


class Remote:
    """An object whose methods are called through `.remote`, at once."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self.thing, name))


class FakeRay:
    """A cluster on which tasks do nothing: tests say how they end."""

    exceptions = exceptions

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []
        self.options: list[dict[str, Any]] = []
        self.results: dict[int, Any] = {}
        self.cancelled: list[int] = []
        self.dead: set[str] = set()

    def remote(self, **options: Any) -> Any:
        def declare(thing: Any) -> Any:
            if thing is Mailbox:
                return SimpleNamespace(remote=lambda: Remote(Mailbox()))

            def start(*arguments: Any) -> int:
                self.started.append(arguments)
                self.options.append(options)
                return len(self.started) - 1

            return SimpleNamespace(remote=start)

        return declare

    def get(self, ref: Any) -> Any:
        value = self.results.get(ref, ref) if isinstance(ref, int) else ref
        if isinstance(value, Exception):
            raise value
        return value

    def wait(self, refs: list[int], num_returns: int, timeout: float) -> Any:
        ready = [ref for ref in refs if ref in self.results]
        return ready, [ref for ref in refs if ref not in ready]

    def cancel(self, ref: int, force: bool = False) -> None:
        self.cancelled.append(ref)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "Alive": name not in self.dead, "Resources": {"memory": 8e9}}
            for name in ("a", "b")
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "a" * 56)


def make(folder: Path, more: str = "retries = 1\n") -> tuple[FakeRay, Cluster]:
    jobs = grid.read(write_file(folder, more + FILE))
    grid.open_folder(folder / "out", jobs, "small.toml")
    ray = FakeRay()
    cluster = Cluster(ray, Driver(folder / "out", jobs, 1))
    cluster.start_all()
    return ray, cluster


NAME = "ddpg-KeptPoint-v0-seed0"  # the first


def test_a_lost_run_is_started_again_and_its_first_attempt_is_not_heard(tmp_path: Path) -> None:
    ray, cluster = make(tmp_path)
    mailbox, run = cluster.mailbox.thing, tmp_path / "out" / "runs" / NAME
    assert [arguments[1] for arguments in ray.started] == [0, 0, 0, 0]
    assert mailbox.ask((NAME, 0), "b") is None
    mailbox.put((NAME, 0), {"updates.csv": b"first"}, {"step": 7})
    assert cluster.tick() == []
    assert mailbox.ask((NAME, 0), "b") == {"updates.csv": b"first"}
    assert cluster.driver.all[0].step == 7

    ray.dead.add("b")  # Ray says nothing of the task itself
    assert cluster.tick() == []
    assert len(ray.started) == 5
    assert (ray.started[4][0]["seed"], ray.started[4][1]) == (0, 1)
    mailbox.put((NAME, 0), {"updates.csv": b"late"}, {"step": 9})
    mailbox.put((NAME, 1), {"episodes.csv": b"second"}, {})
    cluster.tick()
    assert (run / "updates.csv").read_bytes() == b"first"
    assert (run / "episodes.csv").read_bytes() == b"second"
    assert mailbox.ask((NAME, 1), "a") is None
    cluster.tick()
    assert mailbox.ask((NAME, 1), "a") == {"updates.csv": b"first", "episodes.csv": b"second"}

    ray.results[4] = exceptions.WorkerCrashedError()
    (ended,) = cluster.tick()
    assert (ended.job.name, ended.state) == (NAME, "failed")
    assert ended.error.startswith("lost 2 times (retries): ")
    assert len(ray.started) == 5


def test_how_a_task_ended(tmp_path: Path) -> None:
    ray, cluster = make(tmp_path)
    write_failure(tmp_path / "run", ValueError("no"))
    failure = (tmp_path / "run" / "error.json").read_bytes()
    cluster.mailbox.thing.put((NAME, 0), {"error.json": failure}, {})
    ray.results = {0: 1, 1: -9, 2: 0}
    ended = {one.job.name: (one.state, one.error) for one in cluster.tick()}
    assert ended == {
        NAME: ("failed", "ValueError: no"),
        "ddpg-KeptPoint-v0-seed1": ("failed", "exit code 0"),  # its files never came
    }
    assert ray.started[4][0]["method"] == "rcpo"  # killed, and started again


def test_files_that_no_run_writes_fail_their_run_alone(tmp_path: Path) -> None:
    ray, cluster = make(tmp_path)
    cluster.mailbox.thing.put((NAME, 0), {"../../study.json": b"{}", "config.json": b"{}"}, {})
    cluster.mailbox.thing.put(("../../..", 0), {"config.json": b"{}"}, {})
    before = (tmp_path / "out" / "study.json").read_bytes()
    (ended,) = cluster.tick()
    assert "is not the name of a file of a run" in ended.error
    assert (ended.job.name, ray.cancelled, len(cluster.pending)) == (NAME, [0], 3)
    assert (tmp_path / "out" / "study.json").read_bytes() == before
    assert not (tmp_path / "out" / "runs").exists()


def test_memory_of_a_run(tmp_path: Path) -> None:
    ray, _ = make(tmp_path, "memory_gb = 2.5\n")
    assert {options["memory"] for options in ray.options} == {2_500_000_000}
    with pytest.raises(StudyError, match=r"needs 9 GB \(memory_gb\), the largest .* has 8\.0"):
        make(tmp_path, "memory_gb = 9\n")
