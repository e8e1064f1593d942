"""Run a study's jobs in worker processes on this machine, one core each.

A run that fails is reported with its error and does not stop the rest; one whose process was killed
is started again from its checkpoint. Ctrl-C, or SIGTERM as job schedulers send it, lets the workers
save their runs first.
"""

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safecritic.files import FileError
from safecritic.run.folder import locked
from safecritic.run.processes import cores, memory, worker_environment
from safecritic.study import grid
from safecritic.study.grid import Job

ACTIVE = ("running", "deploying", "measuring")


@dataclass
class Progress:
    """The state of one job."""

    job: Job
    state: str = "waiting"  # running, deploying, measuring, done, failed
    about: dict[str, float] = field(default_factory=dict)  # step, recent reward, cost, success
    started: float = 0.0
    seconds: float = 0.0
    first_step: int = 0
    kills: int = 0
    error: str = ""

    @property
    def step(self) -> int:
        """The environment steps done."""
        return int(self.about.get("step", 0))

    @property
    def rate(self) -> float | None:
        """The steps per second of this process; None if too little is known."""
        seconds = self.seconds or (time.monotonic() - self.started if self.started else 0.0)
        return (self.step - self.first_step) / seconds if seconds > 5 and self.step else None


class Driver:
    """The jobs of one study: waiting, running on a core, or ended."""

    def __init__(self, out: Path, jobs: list[Job], workers: int):
        self.out, self.workers = out, workers
        self.all = [Progress(job) for job in jobs]
        self.running: dict[int, tuple[Progress, subprocess.Popen]] = {}  # by core
        self.listeners: dict[int, threading.Thread] = {}  # by core too
        self.lines: queue.Queue[tuple[Progress, dict[str, Any]]] = queue.Queue()
        self.waiting: deque[Progress] = deque()
        for one in self.all:
            run = out / "runs" / one.job.name
            if grid.done(out, one.job):
                one.state, one.about = "done", {"step": one.job.steps}
            elif (failure := grid.failure(run)) is not None and failure.diverged:
                one.state, one.error = "failed", f"{failure.text}; to train it again, remove {run}"
            else:
                self.waiting.append(one)

    def start(self, one: Progress, slot: int) -> None:
        """Start a worker for a job."""
        core = slot if self.workers <= cores() else -1
        command = [sys.executable, "-m", "safecritic.study.worker"]
        command += [str(self.out), one.job.name, str(core)]
        process = subprocess.Popen(
            command,
            env=worker_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches it through us alone
        )
        one.state, one.started, one.first_step = "running", time.monotonic(), -1
        self.running[slot] = (one, process)
        listener = threading.Thread(target=self._listen, args=(one, process), daemon=True)
        listener.start()
        self.listeners[slot] = listener

    def _listen(self, one: Progress, process: subprocess.Popen) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self.lines.put((one, json.loads(line)))
            except ValueError:
                continue  # something a library printed

    def tick(self) -> list[Progress]:
        """Read what the workers report, start waiting jobs, and return those that ended."""
        self._take_lines()
        ended = []
        for slot, (one, process) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[slot]
            self.listeners.pop(slot).join(timeout=5)  # what it said last is still on its way
            self._take_lines()
            one.seconds = time.monotonic() - one.started
            if code == 0 and grid.done(self.out, one.job):
                one.state, one.about["step"] = "done", one.job.steps
            elif code < 0 and one.kills < one.job.retries:
                one.kills += 1
                one.state = "waiting"
                self.waiting.appendleft(one)
                continue
            else:
                one.state, one.error = "failed", self.error_of(one, code)
            ended.append(one)
        for slot in range(self.workers):
            if self.waiting and slot not in self.running:
                self.start(self.waiting.popleft(), slot)
        return ended

    def _take_lines(self) -> None:
        """Take note of what the workers have reported."""
        while not self.lines.empty():
            one, about = self.lines.get()
            one.state = about.pop("state", one.state)
            one.about |= about
            if one.first_step < 0 and "step" in about:
                one.first_step, one.started = one.step, time.monotonic()

    def error_of(self, one: Progress, code: int) -> str:
        """Return the last line of the run's error.txt, or else how its process ended."""
        try:
            line = grid.error_line(self.out / "runs" / one.job.name)
        except FileError as error:
            return str(error)
        if line:
            return line
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def left(self) -> float | None:
        """Return the seconds left, from the rates so far; None if nothing is known yet.

        A run is taken to need as long a step as those of its method on its task, or else of its
        method, or else of all.
        """
        step_times: dict[tuple[str, ...], list[float]] = {}
        for one in self.all:
            if one.rate and one.state != "failed":
                for key in _alike(one.job):
                    step_times.setdefault(key, []).append(1 / one.rate)
        if not step_times:
            return None
        total = 0.0
        for one in self.all:
            if one.state in ("waiting", *ACTIVE):
                likely = next(step_times[key] for key in _alike(one.job) if key in step_times)
                total += max(one.job.steps - one.step, 0) * sum(likely) / len(likely)
        return total / self.workers

    def stop(self) -> None:
        """Interrupt the workers, which save their runs, and wait for them."""
        for _, process in self.running.values():
            process.send_signal(signal.SIGINT)
        for _, process in self.running.values():
            process.wait()


def _alike(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the groups of runs that tell how long a run will take, the most alike first."""
    return (job.label, job.task), (job.label,), ()


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_many_as_fit(jobs: list[Job]) -> int:
    """Return one worker per core, or fewer if the machine has no memory for as many runs."""
    each = max(job.memory_gb or 0.0 for job in jobs)
    return max(min(cores(), int(memory() / 1e9 / each)), 1) if each else cores()


def run(
    out: Path, jobs: list[Job], source: str, workers: int | None = None, show: Any = None
) -> list[Progress]:
    """Run the jobs that are not done; call `show(driver, ended)` a few times a second."""
    grid.open_folder(out, jobs, source)
    with locked(out), interrupted_by_sigterm():
        driver = Driver(out, jobs, workers or as_many_as_fit(jobs))
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
