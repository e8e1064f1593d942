"""One run of a study in a process of its own: train or resume, deploy the policy, measure.

    python -m safecritic.study.worker STUDY NAME CORE

It reports its progress as lines of JSON on standard output, and ends when its standard input
closes: no worker outlives a driver that was killed.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core.files import FileError, make_folder, require_folder, write_text
from safecritic.evaluate.measures import measure_run
from safecritic.run.callbacks import BaseCallback
from safecritic.run.episode import Intervals, over_known
from safecritic.run.failure import clear_failure, write_failure
from safecritic.run.folder import RunFolderError, finite, locked
from safecritic.run.processes import use_core
from safecritic.study import grid
from safecritic.study.grid import Job
from safecritic.study.runs import note_memory


class ReportProgress(BaseCallback):
    """Reports progress about once a second and at the end; ends the run after its episodes."""

    def __init__(self, say: Any, train_episodes: int | None):
        super().__init__()
        self.say, self.train_episodes, self.next = say, train_episodes, 0.0

    def _on_step(self) -> bool:
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 1.0
            self._on_training_end()
        limit = self.train_episodes
        return limit is None or self.model.training.episodes < limit

    def _on_training_end(self) -> None:
        rows, names = self.model.recent_episodes, ("reward", "cost", "success")
        means = {name: over_known(np.mean, np.array([row[name] for row in rows])) for name in names}
        self.say(step=self.num_timesteps, **finite(means))


def work(out: Path, job: Job, say: Any = lambda **about: None) -> None:
    """Do what is left of a job: train, deploy, measure."""
    from safecritic.agent_classes import agent_class
    from safecritic.api import Agent

    run = require_folder(out / "runs" / job.name)
    if text := grid.other_run(run, job):
        raise FileError(f"{run} holds a run with {text}: remove it, and run the study again")
    clear_failure(run)
    (run / "error.txt").unlink(missing_ok=True)
    wait_until_free(run)
    agent = None
    if not grid.trained(run, job):
        if (run / "checkpoint").is_dir():
            # by the study's own file, not by what the folder says
            agent = Agent.load(run, env=job.task)
        else:
            own: dict[str, Any] = {"seed": job.seed, "paper_defaults": job.paper_defaults}
            agent = agent_class(job.method)(job.task, **own, **job.declared, **job.settings)
        finished = agent.training.episodes >= (job.train_episodes or float("inf"))
        if finished or agent.num_timesteps >= job.steps:
            # it was stopped between its last checkpoint and its summary
            agent._finish_folder()
        else:
            fresh = agent.run_folder is None
            agent.learn(
                job.steps - agent.num_timesteps,
                callback=ReportProgress(say, job.train_episodes),
                out=run,
                overwrite=fresh and (run / "config.json").is_file(),
                every=Intervals(checkpoint_every=job.checkpoint_every),
            )
        note_memory(run)
    if not (grid.deployed(run, job) and grid.measured(run)):
        say(state="deploying")
        agent = agent or Agent.load(run, env=job.task)
        evaluation = agent.evaluate(job.deployment_episodes)
        evaluation.save(run / "evaluation.json")
        say(state="measuring")
        measure_run(agent, evaluation, run)


def wait_until_free(run: Path, seconds: float = 20.0) -> None:
    """Wait for the worker of a driver that was just killed, which may take a moment to end."""
    end = time.monotonic() + seconds
    while run.is_dir() and time.monotonic() < end:
        try:
            with locked(run):
                return
        except RunFolderError:
            time.sleep(0.2)


def main(out: Path, name: str, core: int) -> int:
    """Run one job, on a core of its own unless `core` is -1; return the exit code."""
    if core >= 0:
        use_core(core)  # before JAX counts the cores
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    if hasattr(signal, "pthread_sigmask"):  # Ray blocks it, and its children inherit that
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    job = next(job for job in grid.read_folder(out) if job.name == name)

    def say(**about: Any) -> None:
        print(json.dumps(about), flush=True)

    try:
        work(out, job, say)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        text = traceback.format_exc()
        run = out / "runs" / name
        write_failure(run, error)
        print(text, file=sys.stderr)
        with contextlib.suppress(OSError, FileError):  # a full disk, or a folder that is a link
            write_text(make_folder(run) / "error.txt", text)
        return 1
    return 0


def _end_with_the_driver() -> None:
    # not through sys.stdin, whose lock the interpreter needs when it ends
    while os.read(0, 1024):
        continue
    os._exit(137)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
