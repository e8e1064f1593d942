"""The part that all training loops share: counting, tables, checkpoints, callbacks, signals.

`OffPolicyTraining` (one learning step per decision) and `OnPolicyTraining` (rollouts)
define what one advance does and what the state of the run is.
"""

import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.files import FileError
from safecritic.run import checkpoint, restored
from safecritic.run.callbacks import BaseCallback
from safecritic.run.checkpoint import Arrays
from safecritic.run.episode import EPISODE_COLUMNS, WINDOW, Intervals
from safecritic.run.folder import RunFolder
from safecritic.run.watch import STEPS, RunWarning, Watch
from safecritic.tasks.checks import EnvError, StepChecks

COMPILING = "compiling the update: some seconds, in which Ctrl-C has to wait"
STOPPING = b"\nstopping after this step, and saving; Ctrl-C again stops at once, without saving\n"


class RunStopped(RuntimeError):
    """A run that cannot go on; the message says why, and at which step."""


class NotFiniteError(RunStopped):
    """A metric, an action or a value from the environment was NaN, infinite or far too large."""

    def __init__(self, quantity: str, step: int, why: str = ""):
        about = f" ({why})" if why else ""
        super().__init__(f"{quantity} was not finite at step {step}{about}: the run was stopped")
        self.quantity, self.step, self.why = quantity, step, why


def stop_of(error: EnvError, step: int) -> RunStopped:
    """Return the error of a run whose environment failed at `step`."""
    if not error.finite:
        return NotFiniteError(error.quantity, step, str(error))
    return RunStopped(f"{error}; at step {step}: the run was stopped")


def checked(step: int, call: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """Return what a checked environment returned, or raise with the step of the run."""
    try:
        return call(*values, **options)
    except EnvError as error:
        raise stop_of(error, step) from error


@dataclass(frozen=True)
class Fault:
    """What is left of a run that was stopped by an error."""

    step: int
    state: Path | None  # the folder of its state at that moment, if it could be saved
    usable: bool  # whether that state is finite


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped the run after a complete step; its files are written."""


class Loop:
    """One run: its counters, its last episodes, and the work that all loops share."""

    compiled: Any  # the agent's compiled functions; `metrics` names what its update logs
    device: Any  # the state on the device; `agent` is the agent's

    def __init__(self, env: Any, config: Any, spec: Any, seed: int):
        self.env, self.config, self.spec, self.seed = env, config, spec, seed
        self.step = 0
        self.episodes = 0
        self.window: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self.locals: dict[str, Any] = {}  # the last step, for callbacks
        self.watch = Watch(config.cost_limit)
        self.checks: Any = None if env is None else StepChecks(env)
        self.fault: Fault | None = None  # of the last `run`

    # what a loop provides

    def advance(self) -> list[dict[str, float]]:
        """Take one or more environment steps and learn; return the rows of ended episodes."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise NotFiniteError if a metric was not finite at some step."""
        raise NotImplementedError

    def take_metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call; empty if there were none."""
        raise NotImplementedError

    def take_critic_quality(self) -> dict[str, float]:
        """Return the safety critic's quality on the episodes that ended since the last call."""
        return {}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the whole run as arrays and numbers."""
        raise NotImplementedError

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Restore the run from `state()`; return notes on what could not be restored."""
        raise NotImplementedError

    def borrowed_env(self) -> AbstractContextManager[list[str]]:
        """Lend the environment to the caller, who may reset and step it; restore it at the end.

        Yields a list that receives notes on what could not be restored.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what is only needed while running; `run` calls it when it ends."""

    def last_step(self, until: int) -> int:
        """Return the step to which a run up to `until` counts; its last decision may go beyond."""
        return until

    # shared by all loops

    def record_episode(self, values: dict[str, Any], step: int) -> dict[str, float]:
        """Count an episode that ended at `step`; return its line of the table."""
        self.episodes += 1
        values = values | {"episode": self.episodes, "step": step}
        row = {name: float(values[name]) for name in EPISODE_COLUMNS}
        self.window.append(row)
        self.watch.add(row)
        return row

    def run(
        self,
        until: int,
        callback: BaseCallback,
        folder: RunFolder | None = None,
        every: Intervals = Intervals(),  # noqa: B008 (frozen)
    ) -> str:
        """Train up to step `until`; return "finished", "stopped" (callback) or "interrupted".

        A decision or rollout that has begun before is completed: the last step may be later.
        """
        reason, saved, self.fault = "finished", -1, None
        clock, clock_step = time.perf_counter(), self.step
        compiled = False
        with stop_signals() as received:
            try:
                while self.step < until:
                    before = self.step
                    if not compiled and before >= self.config.warm_up:
                        compiled = True
                        callback.on_status(COMPILING)
                    rows = self.advance()
                    for row in rows:
                        if folder is not None:
                            folder.write_episode(row)
                        callback.on_episode_end(row)
                    if rows or self._passed(STEPS, before):
                        for text in self.watch.look(self.window, self.step, until):
                            # points at the caller of `Agent.learn`
                            warnings.warn(text, RunWarning, stacklevel=3)
                    if self._passed(every.log_every, before) and (metrics := self.take_metrics()):
                        now = time.perf_counter()
                        metrics["time/steps_per_second"] = (self.step - clock_step) / (now - clock)
                        clock, clock_step = now, self.step
                        if self._passed(every.critic_every, before):
                            metrics |= self.take_critic_quality()
                        if folder is not None:
                            folder.write_update(self.step, metrics)
                        callback.on_log(metrics)
                    if folder is not None and self._passed(every.checkpoint_every, before):
                        self.save(folder)
                        saved = self.step
                    if not callback.on_step():
                        reason = "stopped"
                        break
                    if received:
                        reason = "interrupted"
                        break
                self.check()
                if folder is not None and saved != self.step:
                    self.save(folder)
            except Exception as error:
                self.fault = self._save_apart(folder, error)
                if isinstance(error, RunStopped) and self.fault.state is not None:
                    error.args = (f"{error}; its state is in {self.fault.state}",)
                raise
            finally:
                self.close()
        return reason

    def _save_apart(self, folder: RunFolder | None, error: Exception) -> Fault:
        """Save the state at a fault beside the checkpoint, which stays as it is."""
        if folder is None or isinstance(error, FileError):  # where nothing can be written
            return Fault(self.step, None, False)
        try:
            arrays, numbers = self.state()
            numbers["tables"] = folder.positions()
            checkpoint.save(folder.path / "failed", arrays, numbers, folder.settings)
        except Exception:  # a broken environment may not even tell its state
            return Fault(self.step, None, False)
        usable = restored.first_unusable(arrays) is None
        return Fault(self.step, folder.path / "failed", usable)

    def _passed(self, interval: int, before: int) -> bool:
        """Return whether the steps since `before` include a multiple of `interval`."""
        return self.step // interval > before // interval

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint to the run folder; a state that is not finite never becomes one."""
        self.check()
        arrays, numbers = self.state()
        unusable = restored.first_unusable(arrays)
        if unusable is not None:
            raise NotFiniteError(unusable, self.step)
        numbers["tables"] = folder.positions()
        checkpoint.save(folder.path / "checkpoint", arrays, numbers, folder.settings)

    # parts of `state` and `restore`

    def counters(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the counters and the last episodes as arrays and numbers."""
        table = [[row[name] for name in EPISODE_COLUMNS] for row in self.window]
        window = np.array(table, np.float64).reshape(-1, len(EPISODE_COLUMNS))
        counts = {"step": self.step, "episodes": self.episodes}
        return {"window": window}, counts | {"watch": self.watch.state()}

    def restore_counters(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Restore the counters and the last episodes from `counters()`."""
        restored.check_window(arrays, numbers)
        self.step, self.episodes = numbers["step"], numbers["episodes"]
        self.watch.restore(numbers["watch"])
        self.window.clear()
        for values in arrays["window"].tolist():
            self.window.append(dict(zip(EPISODE_COLUMNS, values, strict=True)))

    def checked(self, call: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Return what the environment returned, or raise with the step of the run."""
        return checked(self.step + (call == self.checks.step), call, *values, **options)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM in a list instead of raising; a second one raises at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if number == signal.SIGINT:
            # not print, which a signal may interrupt
            os.write(2, STOPPING)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
