"""Run a study's jobs in worker processes on this machine, one core each.

A run that fails is reported with its error and does not stop the rest; one whose process was killed
is started again from its checkpoint. Ctrl-C, or SIGTERM as job schedulers send it, lets the workers
save their runs first.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safecritic.core.files import FileError
from safecritic.run.folder import locked
from safecritic.run.processes import cores, memory, worker_environment
from safecritic.study import grid
from safecritic.study.grid import Job
from safecritic.study.pack import REUSED, results_of

ACTIVE = ("running", "deploying", "measuring")


@dataclass
class Progress:
    """The state of one job."""

    job: Job
    state: str = "waiting"  # running, deploying, measuring, done, failed
    about: dict[str, Any] = field(default_factory=dict)  # step, recent reward, cost, success
    started: float = 0.0
    seconds: float = 0.0
    first_step: int = 0
    kills: int = 0
    error: str = ""

    @property
    def step(self) -> int:
        return int(self.about.get("step", 0))

    @property
    def rate(self) -> float | None:
        """The steps per second of this process; None if too little is known."""
        seconds = self.seconds or (time.monotonic() - self.started if self.started else 0.0)
        return (self.step - self.first_step) / seconds if seconds > 5 and self.step else None

    def begin(self, state: str) -> None:
        self.state, self.started, self.seconds, self.first_step = state, time.monotonic(), 0.0, -1

    def note(self, about: dict[str, Any]) -> None:
        self.state = str(about.pop("state", "running"))
        self.about |= {name: x for name, x in about.items() if isinstance(x, int | float)}
        if self.first_step < 0 and "step" in about:
            self.first_step, self.started = self.step, time.monotonic()


class Driver:
    """The jobs of one study: waiting, running on a core, or ended."""

    def __init__(self, out: Path, jobs: list[Job], workers: int):
        self.out, self.workers = out, workers
        self.all = [Progress(job) for job in jobs]
        self.running: dict[int, tuple[Progress, subprocess.Popen, threading.Thread]] = {}  # by core
        self.waiting: deque[Progress] = deque()
        results = results_of(out, jobs)
        for progress in self.all:
            run = results.get(progress.job.name)
            if run is None:
                self.waiting.append(progress)
            elif run.failure is None:
                progress.state, progress.about = "done", {"step": progress.job.steps}
            else:
                where = run.path or out / REUSED
                progress.state = "failed"
                progress.error = f"{run.failure.text}; to train it again, remove {where}"

    def tick(self) -> list[Progress]:
        """Start waiting jobs, and return those that ended."""
        ended = []
        for slot, (progress, process, listener) in list(self.running.items()):
            if (code := process.poll()) is None:
                continue
            del self.running[slot]
            listener.join(timeout=5)  # what it said last is still on its way
            if self.has_ended(progress, code):
                ended.append(progress)
            else:
                self.waiting.appendleft(progress)
        for slot in range(self.workers):
            if self.waiting and slot not in self.running:
                progress = self.waiting.popleft()
                progress.begin("running")
                core = slot if self.workers <= cores() else -1
                self.running[slot] = (
                    progress,
                    *start_worker(self.out, progress.job.name, core, progress.note),
                )
        return ended

    def has_ended(self, progress: Progress, code: int, why: str = "") -> bool:
        """Note how a worker ended; return False if its run was lost and is to be started again."""
        if progress.started:
            progress.seconds = time.monotonic() - progress.started
        if code < 0 and progress.kills < progress.job.retries:
            progress.kills, progress.state = progress.kills + 1, "waiting"
            return False
        if code == 0 and grid.done(self.out, progress.job):
            progress.state, progress.about["step"] = "done", progress.job.steps
        else:
            progress.state, progress.error = "failed", self._error(progress, code, why)
        return True

    def _error(self, progress: Progress, code: int, why: str) -> str:
        if code < 0:
            return (
                f"lost {progress.kills + 1} times (retries): {why or f'killed by signal {-code}'}"
            )
        try:
            failure = grid.failure(self.out / "runs" / progress.job.name)
        except FileError as error:
            return str(error)
        return f"exit code {code}" if failure is None else failure.text

    def left(self) -> float | None:
        """Return the seconds left, from the rates of runs alike so far; None if none is known."""
        step_times: dict[tuple[str, ...], list[float]] = {}
        for progress in self.all:
            if progress.rate and progress.state != "failed":
                for key in _alike(progress.job):
                    step_times.setdefault(key, []).append(1 / progress.rate)
        if not step_times:
            return None
        total = 0.0
        for progress in self.all:
            if progress.state in ("waiting", *ACTIVE):
                likely = next(step_times[key] for key in _alike(progress.job) if key in step_times)
                total += max(progress.job.steps - progress.step, 0) * sum(likely) / len(likely)
        return total / self.workers

    def stop(self) -> None:
        """Interrupt the workers, which save their runs, and wait for them."""
        for _, process, _ in self.running.values():
            process.send_signal(signal.SIGINT)
        for _, process, _ in self.running.values():
            process.wait()


def _alike(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the groups of runs that tell how long a run will take, the most alike first."""
    return (job.label, job.task), (job.label,), ()


def start_worker(
    out: Path,
    name: str,
    core: int,
    note: Callable[[dict[str, Any]], None],
    env: dict[str, str] | None = None,
) -> tuple[subprocess.Popen, threading.Thread]:
    """Start the worker process of a run; a thread calls `note` with each line it reports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "safecritic.study.worker", str(out), name, str(core)],
        env=worker_environment() if env is None else env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches it through us alone
    )

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # something a library printed
                note(dict(json.loads(line)))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    return process, listener


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_many_as_fit(jobs: list[Job]) -> int:
    """Return one worker per core, or fewer if the machine has no memory for as many runs."""
    each = max(job.memory_gb or 0.0 for job in jobs)
    return max(min(cores(), int(memory() / 1e9 / each)), 1) if each else cores()


def run(
    out: Path,
    jobs: list[Job],
    source: str | Path,
    workers: int | None = None,
    show: Any = None,
    chosen: list[Job] | None = None,
) -> list[Progress]:
    """Run those jobs of a study that are not done, all or the `chosen` ones.

    `show(driver, ended)` is called a few times a second.
    """
    grid.open_folder(out, jobs, source)
    chosen = jobs if chosen is None else chosen
    with locked(out), interrupted_by_sigterm():
        driver = Driver(out, chosen, workers or as_many_as_fit(chosen))
        try:
            while driver.waiting or driver.running:
                ended = driver.tick()
                if show is not None:
                    show(driver, ended)
                time.sleep(0.2)
        except KeyboardInterrupt:
            driver.stop()
            raise
        return driver.all
