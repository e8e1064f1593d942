"""Run a study on a Ray cluster whose machines share no disk: each run is a Ray task.

A task starts the same worker process as the local driver, in a folder of its own machine. Each
checkpoint and, at the end, all files of the run go through a mailbox, an actor beside the driver,
which writes them into the study's folder. When a process or a machine is lost, the run is started
again elsewhere from the last checkpoint that arrived.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from safecritic.core.files import FileError
from safecritic.run.failure import clear_failure
from safecritic.run.folder import locked
from safecritic.run.processes import search_path, worker_environment
from safecritic.run.watch import RunWarning
from safecritic.study import grid, transfer
from safecritic.study.driver import Driver, Progress, interrupted_by_sigterm, start_worker
from safecritic.study.grid import Job, StudyError
from safecritic.study.transfer import Contents

LOOK = 0.5  # seconds between looks for a new checkpoint
TO_SAVE = 60.0  # seconds that runs have to save after Ctrl-C

Sender = tuple[str, int]  # name of a run, number of its attempt


class Mailbox:
    """What runs hand over until the driver takes it, and what the driver gives them to start from.

    A Ray actor on the driver's machine, or on the head of the cluster for a driver outside of it.
    """

    def __init__(self) -> None:
        self._asked: dict[Sender, str] = {}  # with the id of the machine
        self._answers: dict[Sender, Contents] = {}
        self._contents: dict[Sender, Contents] = {}
        self._about: dict[Sender, dict[str, Any]] = {}

    def ask(self, sender: Sender, machine: str) -> Contents | None:
        """Return the files that a run starts from; None as long as the driver has not answered."""
        if sender not in self._answers:
            self._asked[sender] = machine
            return None
        return self._answers.pop(sender)

    def answer(self, sender: Sender, contents: Contents) -> None:
        self._answers[sender] = contents

    def put(self, sender: Sender, contents: Contents, about: dict[str, Any]) -> None:
        """Keep files and progress of a run; a newer checkpoint takes the place of an older one."""
        if contents:
            states = {name.partition("/")[0] for name in contents if "/" in name}
            kept = self._contents.get(sender, {})
            kept = {name: x for name, x in kept.items() if name.partition("/")[0] not in states}
            self._contents[sender] = kept | contents
        self._about.setdefault(sender, {}).update(about)

    def take(self) -> tuple[dict[Sender, str], dict[Sender, Contents], dict[Sender, Any]]:
        """Return who asks for files, the files and the progress since the last call."""
        taken = self._asked, self._contents, self._about
        self._asked, self._contents, self._about = {}, {}, {}
        return taken


# ---------------------------------------------------------------- on the machine of a run


def one_run(job: dict[str, Any], attempt: int, path: str, mailbox: Any) -> int:
    """Run one job as a Ray task and return the worker's exit code; below 0 if it was killed."""
    import ray

    known = Job(**job)
    sender = (known.name, attempt)
    with tempfile.TemporaryDirectory(prefix="safecritic-", ignore_cleanup_errors=True) as folder:
        out = Path(folder)
        run = out / "runs" / known.name
        grid.open_folder(out, [known], "a run of a study")
        machine = ray.get_runtime_context().get_node_id()
        while (contents := ray.get(mailbox.ask.remote(sender, machine))) is None:
            time.sleep(LOOK)
        transfer.write(run, contents)

        def send(contents: Contents, about: dict[str, Any]) -> None:
            if contents or about:
                ray.get(mailbox.put.remote(sender, contents, about))  # until it has arrived

        return _work(out, known.name, path, send)


def _work(out: Path, name: str, path: str, send: Any) -> int:
    """Run the worker process of a job and send what it writes."""
    env = worker_environment(_joined(search_path(), path))
    # One thread of XLA: the cores a task may use are counted by Ray, not by the machine. Its own
    # flag for that (xla_cpu_multi_thread_eigen) would change the last bits of products.
    env["NPROC"] = "1"
    about: dict[str, Any] = {}
    run = out / "runs" / name
    sent = transfer.stamp(run)
    process, listener = start_worker(out, name, -1, about.update, env)
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK)
            before, sent = sent, transfer.stamp(run)
            send({} if sent == before else transfer.collect(run), _emptied(about))
    except KeyboardInterrupt:  # ray.cancel
        process.send_signal(signal.SIGINT)
        process.wait()
        send(transfer.collect(run), {})
        raise
    finally:
        if process.poll() is None:  # the driver is gone
            process.kill()
            process.wait()
    listener.join(timeout=5)
    send(transfer.collect(run), _emptied(about))
    return process.returncode


def _joined(ours: str, others: str) -> str:
    """Return a PYTHONPATH of this machine's folders, then those of the driver that it has too."""
    folders = [*ours.split(os.pathsep), *filter(os.path.isdir, others.split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(folders))


def _emptied(about: dict[str, Any]) -> dict[str, Any]:
    return {name: about.pop(name) for name in list(about)}


# ---------------------------------------------------------------- on the driver's machine


def run(
    out: Path,
    jobs: list[Job],
    source: str | Path,
    address: str,
    show: Any = None,
    chosen: list[Job] | None = None,
) -> list[Progress]:
    """Run those jobs that are not done on the cluster, all or the `chosen` ones.

    `show(driver, ended)` is called now and then.
    """
    try:
        import ray
    except ImportError:
        raise ImportError("ray is not installed: pip install ray") from None
    out = out.resolve()
    grid.open_folder(out, jobs, source)
    with locked(out):
        try:
            about: Any = {"ignore_reinit_error": True, "log_to_driver": False}
            about["logging_level"] = "error"
            ray.init(address=None if address == "local" else address, **about)
        except ConnectionError as error:
            raise StudyError(f"no Ray cluster at {address}: {error} (--ray)") from error
        try:
            with interrupted_by_sigterm():  # after Ray, which has a handler of its own
                cluster = Cluster(ray, Driver(out, jobs if chosen is None else chosen, 1))
                try:
                    cluster.start_all()
                    while cluster.pending:
                        ended = cluster.tick()
                        if show is not None:
                            show(cluster.driver, ended)
                except KeyboardInterrupt:
                    cluster.stop()
                    raise
                return cluster.driver.all
        finally:
            ray.shutdown()


class Cluster:
    """The tasks of a study, and the files that they hand over."""

    def __init__(self, ray: Any, driver: Driver):
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray, self.driver = ray, driver
        here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), False)
        actor = ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox)
        self.mailbox = actor.remote()
        self.pending: dict[Any, Progress] = {}  # by the reference of its task
        self._machines: dict[Any, str] = {}  # on which each of them runs
        self._path = search_path()

    def start_all(self) -> None:
        """Start a task for each waiting run; Ray lets as many run as there is room for.

        A run that fits on no machine is refused: Ray would wait for a larger one for ever.
        """
        needed = max(
            (progress.job.memory_gb or 0.0 for progress in self.driver.waiting), default=0.0
        )
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        most = max((node.get("memory", 0.0) for node in nodes), default=0.0) / 1e9
        if needed > most:
            raise StudyError(
                f"a run needs {needed:g} GB (memory_gb), the largest machine of the cluster has "
                f"{most:.1f}: add a larger one, or lower memory_gb"
            )
        while self.driver.waiting:
            self.start(self.driver.waiting.popleft())

    def start(self, progress: Progress) -> None:
        clear_failure(self._folder(progress))  # of an attempt before
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}  # we start it again ourselves
        if progress.job.memory_gb is not None:
            options["memory"] = int(progress.job.memory_gb * 1e9)
        task = self.ray.remote(**options)(one_run)
        progress.begin("waiting")
        progress.started = 0.0  # Ray has it wait for room
        job = dataclasses.asdict(progress.job)
        self.pending[task.remote(job, progress.kills, self._path, self.mailbox)] = progress

    def _folder(self, progress: Progress) -> Path:
        return self.driver.out / "runs" / progress.job.name

    def tick(self, seconds: float = 1.0) -> list[Progress]:
        """Wait a moment, write what has arrived, and return the runs that ended."""
        ready, _ = self.ray.wait(list(self.pending), num_returns=1, timeout=seconds)
        self.driver.workers = max(int(self.ray.cluster_resources().get("CPU", 1)), 1)
        ended = self._collect()  # a task ends only when all it has sent is in the mailbox
        for ref in [*ready, *self._lost()]:
            if ref in self.pending and (progress := self._end(ref, ref not in ready)) is not None:
                ended.append(progress)
        return ended

    def _lost(self) -> list[Any]:
        """Return the tasks on machines that the cluster has given up.

        Ray itself notices such a task only when its connection breaks, which takes minutes.
        """
        dead = {node["NodeID"] for node in self.ray.nodes() if not node["Alive"]}
        return [ref for ref in self.pending if self._machines.get(ref) in dead]

    def _collect(self) -> list[Progress]:
        """Take what is in the mailbox; return the runs whose files were refused."""
        asked, contents, about = self.ray.get(self.mailbox.take.remote())
        runs = {
            (progress.job.name, progress.kills): (ref, progress)
            for ref, progress in self.pending.items()
        }
        refused = []
        for sender in [*contents.keys(), *asked]:
            if sender not in runs:  # from a machine that was given up
                continue
            ref, progress = runs[sender]
            try:
                if sender in contents:
                    transfer.write(self._folder(progress), contents[sender])
                if sender in asked:
                    self._machines[ref] = asked[sender]
                    answer = transfer.collect(self._folder(progress))
                    self.ray.get(self.mailbox.answer.remote(sender, answer))
            except FileError as error:
                progress.state, progress.error = "failed", str(error)
                self.ray.cancel(ref, force=True)
                del self.pending[ref], runs[sender]
                refused.append(progress)
        for sender, lines in about.items():
            if sender in runs:
                runs[sender][1].note(lines)
        return refused

    def _end(self, ref: Any, lost: bool) -> Progress | None:
        """Note how a task ended; None if its run was lost and has been started again."""
        progress = self.pending.pop(ref)
        code, why = -1, "its machine is gone"
        try:
            if not lost:
                code, why = self.ray.get(ref), ""
        except self.ray.exceptions.RayTaskError as error:  # not the run: what is around it
            progress.state, progress.error = "failed", str(error).strip().splitlines()[-1]
            return progress
        except self.ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[0]
        if self.driver.has_ended(progress, code, why):
            return progress
        self.start(progress)
        return None

    def stop(self) -> None:
        """Interrupt the runs, which save themselves, and write what they hand over."""
        for ref in self.pending:
            self.ray.cancel(ref)
        end = time.monotonic() + TO_SAVE
        left = list(self.pending)
        while left and time.monotonic() < end:
            _, left = self.ray.wait(left, num_returns=len(left), timeout=1.0)
            self._collect()
        if late := [self.pending[ref].job.name for ref in left if ref in self.pending]:
            warnings.warn(
                f"{', '.join(late)}: not saved within {TO_SAVE:g} seconds, continue from the "
                "checkpoint that arrived last",
                RunWarning,
                stacklevel=2,
            )
