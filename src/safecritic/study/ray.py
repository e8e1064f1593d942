"""Run a study on a Ray cluster: each run is a Ray task, its folder on a disk all machines share.

    safecritic study paper.toml --ray local
    safecritic study paper.toml --ray ray://head:10001 --out /shared/studies/paper

A task starts the same worker process as the local driver, so a run is the same wherever it runs.
When Ray loses a worker it starts the task again, and the run continues from its checkpoint.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from safecritic.files import FileError
from safecritic.run.folder import lock_folder, read_table
from safecritic.run.processes import search_path, worker_environment
from safecritic.study import grid
from safecritic.study.driver import RETRIES, Driver, Progress
from safecritic.study.grid import Job, StudyError


class WorkerKilledError(RuntimeError):
    """Raised when the run's process was killed, so that Ray starts the task again."""


def one_run(out: str, name: str, path: str) -> int:
    """Run one job as a Ray task and return the worker's exit code."""
    command = [sys.executable, "-m", "safecritic.study.worker", out, name, "-1"]
    env = worker_environment(path)
    # One thread of XLA: the cores a task may use are counted by Ray, not by the machine. Its own
    # flag for that (xla_cpu_multi_thread_eigen) would change the last bits of products.
    env["NPROC"] = "1"
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # ray.cancel
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    if code < 0:
        raise WorkerKilledError(f"killed by signal {-code}")
    return code


def run(out: Path, jobs: list[Job], source: str, address: str, show: Any = None) -> list[Progress]:
    """Run the jobs that are not done on the cluster; call `show(driver, ended)` now and then."""
    try:
        import ray
    except ImportError:
        raise ImportError("ray is not installed: pip install ray") from None
    out = out.resolve()
    grid.open_folder(out, jobs, source)
    lock = lock_folder(out)
    try:
        about: Any = {"ignore_reinit_error": True, "log_to_driver": False, "logging_level": "error"}
        ray.init(address=None if address == "local" else address, **about)
    except ConnectionError as error:
        raise StudyError(f"no Ray cluster at {address}: {error} (--ray)") from error
    try:
        driver = Driver(out, jobs, max(int(ray.cluster_resources().get("CPU", 1)), 1))
        options: Any = {"max_retries": RETRIES, "retry_exceptions": [WorkerKilledError]}
        remote: Any = ray.remote(num_cpus=1, **options)(one_run)
        path = search_path()
        pending = {remote.remote(str(out), one.job.name, path): one for one in driver.waiting}
        driver.waiting.clear()
        while pending:
            try:
                ready, _ = ray.wait(list(pending), timeout=1.0)
            except KeyboardInterrupt:
                for ref in pending:
                    ray.cancel(ref)
                ray.wait(list(pending), num_returns=len(pending), timeout=60)
                raise
            ended = []
            for ref in ready:
                one = pending.pop(ref)
                _end(driver, one, ray, ref)
                ended.append(one)
            for one in pending.values():
                _look(out, one)
            if show is not None:
                show(driver, ended)
        return driver.all
    finally:
        ray.shutdown()
        if lock is not None:
            lock.close()


def _end(driver: Driver, one: Progress, ray: Any, ref: Any) -> None:
    try:
        code = ray.get(ref)
    except ray.exceptions.RayError as error:
        one.state, one.error = "failed", str(error).strip().splitlines()[-1]
        return
    if one.started:
        one.seconds = time.monotonic() - one.started
    if code == 0 and grid.done(driver.out, one.job):
        one.state, one.about["step"] = "done", one.job.steps
    else:
        one.state, one.error = "failed", driver.error_of(one, code)


def _look(out: Path, one: Progress) -> None:
    """Read a run's progress from its table: the worker may be on another machine."""
    file = out / "runs" / one.job.name / "episodes.csv"
    if not file.is_file():
        return
    if not one.started:
        one.state, one.started = "running", time.monotonic()
    try:
        table = read_table(file)
        if table["step"]:
            one.about["step"] = table["step"][-1]
            for name in ("reward", "cost", "success"):
                one.about[name] = table[name][-1]
    except (FileError, KeyError, OSError):
        return  # the last line is being written
