"""What all training loops share: counting, tables, checkpoints, callbacks, signals.

`OffPolicyTraining` and `OnPolicyTraining` define what one advance does. After `restore(*state())` a
run continues bit for bit as if it had not stopped.
"""

import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safecritic.core.compilation import use_compilation_cache
from safecritic.core.files import FileError
from safecritic.run import checkpoint, failure, restored
from safecritic.run.callbacks import BaseCallback, Logger
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import device_arrays, restore_device
from safecritic.run.episode import EPISODE_COLUMNS, WINDOW, Intervals
from safecritic.run.failure import NotFiniteError, RunStopped, stop_of
from safecritic.run.folder import RunFolder, finite
from safecritic.run.rollout import ActionError
from safecritic.run.stream import State, join, split
from safecritic.run.watch import STEPS, RunWarning, Watch
from safecritic.tasks.checks import EnvError

COMPILING = "compiling the update (a few seconds; Ctrl-C takes effect afterwards)"
STOPPING = b"\nstopping after this step, and saving; Ctrl-C again stops at once, without saving\n"


@dataclass(frozen=True)
class Fault:
    """What remains of a run that was stopped by an error."""

    step: int
    state: Path | None = None  # the folder of its state at that moment, if it could be saved
    usable: bool = False  # whether that state is finite


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped the run after a complete step; its files are written."""


class Loop:
    """One run: its counters, its last episodes, and the work that all loops share."""

    compiled: Any  # the agent's compiled functions; `metrics` names what its update logs
    device: Any  # the state on the device; `agent` is the agent's
    numbers: type  # the form of the numbers in its checkpoints

    def __init__(self, env: Any, config: Any, spec: Any, seed: int):
        use_compilation_cache()
        self.env, self.config, self.spec, self.seed = env, config, spec, seed
        self.step = 0
        self.episodes = 0
        self.window: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self.locals: dict[str, Any] = {}  # the last step, for callbacks
        self.watch = Watch(config.cost_limit)
        self.fault: Fault | None = None  # of the last `run`
        self.logger = Logger()  # of callbacks

    def prepare(self) -> None:
        """Begin what takes a while before the first learning step."""

    def advance(self) -> list[dict[str, float]]:
        """Take one or more environment steps and learn; return the rows of ended episodes."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise NotFiniteError if a metric was not finite at some step."""

    def take_metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call; empty if there were none."""
        raise NotImplementedError

    def take_critic_quality(self) -> dict[str, float]:
        """Return the safety critic's quality on the episodes that ended since the last call."""
        return {}

    def streams(self) -> list[State] | None:
        """Return the states of the environments that are stepped; None before the first step."""
        raise NotImplementedError

    def put_back(self, states: list[State]) -> list[str]:
        """Restore the environments; return notes on what could not be restored."""
        raise NotImplementedError

    def set_env(self, env: Any, env_id: str | None, declared: dict[str, Any]) -> None:
        """Go on in another environment, from a reset; the open episode is dropped."""
        raise NotImplementedError

    def steps_own_env(self) -> bool:
        """Return whether `env` is stepped, and not others like it."""
        return True

    def close(self) -> None:
        """Release what is only needed while running; `run` calls it when it ends."""

    def last_step(self, until: int) -> int:
        """Return the step to which a run up to `until` counts; its last decision may go beyond."""
        return until

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
        self.fault = None
        if folder is not None:
            failure.clear_failure(folder.path)
        with stop_signals() as received:
            try:
                return self._run(until, callback, folder, every, received)
            except Exception as error:
                stopped: Exception = error
                if isinstance(error, EnvError):
                    stopped = stop_of(error, self.step + 1)
                elif isinstance(error, ActionError):
                    stopped = NotFiniteError("action", self.step + 1)
                self.fault = self._save_apart(folder, stopped)
                if folder is not None and not isinstance(error, FileError):
                    failure.write_failure(folder.path, stopped)
                if isinstance(stopped, RunStopped) and self.fault.state is not None:
                    stopped.args = (f"{stopped}; its state is in {self.fault.state}",)
                if stopped is error:
                    raise
                raise stopped from error
            finally:
                self.close()

    def _run(
        self,
        until: int,
        callback: BaseCallback,
        folder: RunFolder | None,
        every: Intervals,
        received: list[int],
    ) -> str:
        self.prepare()
        reason, saved = "finished", -1
        clock, clock_step = time.perf_counter(), self.step
        compiled = False
        while self.step < until and reason == "finished":
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
                    warnings.warn(text, RunWarning, stacklevel=4)  # at the caller of `learn`
            if self._passed(every.log_every, before) and (metrics := self.take_metrics()):
                now = time.perf_counter()
                metrics["time/steps_per_second"] = (self.step - clock_step) / (now - clock)
                clock, clock_step = now, self.step
                if self._passed(every.critic_every, before):
                    metrics |= self.take_critic_quality()
                metrics |= finite(self.logger.take())
                if folder is not None:
                    folder.write_update(self.step, metrics)
                callback.on_log(metrics)
            if folder is not None and self._passed(every.checkpoint_every, before):
                self.save(folder)
                saved = self.step
            if not callback.on_step():
                reason = "stopped"
            elif received:
                reason = "interrupted"
        self.check()
        if folder is not None and saved != self.step:
            self.save(folder)
        return reason

    def _save_apart(self, folder: RunFolder | None, error: Exception) -> Fault:
        """Save the state at a fault beside the checkpoint, which stays as it is."""
        if folder is None or isinstance(error, FileError):  # where nothing can be written
            return Fault(self.step)
        try:
            arrays, numbers = self.state()
            numbers["tables"] = folder.positions()
            checkpoint.save(folder.path / "failed", arrays, numbers, folder.settings)
        except Exception:  # a broken environment may not even tell its state
            return Fault(self.step)
        usable = restored.first_unusable(arrays) is None
        return Fault(self.step, folder.path / "failed", usable)

    def _passed(self, interval: int, before: int) -> bool:
        """Return whether the steps since `before` include a multiple of `interval`."""
        return self.step // interval > before // interval

    def usable_state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the state; raise NotFiniteError if no run could go on from it."""
        self.check()
        arrays, numbers = self.state()
        unusable = restored.first_unusable(arrays)
        if unusable is not None:
            raise NotFiniteError(unusable, self.step)
        return arrays, numbers

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint to the run folder; a state that is not finite never becomes one."""
        arrays, numbers = self.usable_state()
        numbers["tables"] = folder.positions()
        checkpoint.save(folder.path / "checkpoint", arrays, numbers, folder.settings)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the whole run as arrays and numbers."""
        table = [[row[name] for name in EPISODE_COLUMNS] for row in self.window]
        window = np.array(table, np.float64).reshape(-1, len(EPISODE_COLUMNS))
        arrays, streams = join(self.streams())
        arrays |= device_arrays(self.device) | {"window": window}
        counts = {"step": self.step, "episodes": self.episodes}
        return arrays, counts | {"watch": self.watch.state(), "streams": streams}

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Restore the run from `state()`; return notes on what could not be restored."""
        restored.check_numbers(self.numbers, numbers)
        restored.check_window(arrays, numbers)
        restored.check_streams(arrays, numbers["streams"], self.spec)
        device = restore_device(self.device, arrays)
        self.check_content(arrays, numbers)
        self.device = device
        self.step, self.episodes = numbers["step"], numbers["episodes"]
        self.watch.restore(numbers["watch"])
        rows = (dict(zip(EPISODE_COLUMNS, x, strict=True)) for x in arrays["window"].tolist())
        self.window = deque(rows, WINDOW)
        self.restore_content(arrays, numbers)
        states = split(arrays, numbers["streams"])
        return [] if states is None else self.put_back(states)

    def check_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Raise CheckpointError if what this kind of run has beside the rest does not fit."""

    def restore_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        """Restore what this kind of run has beside the rest."""

    @contextmanager
    def borrowed_env(self) -> Iterator[list[str]]:
        """Lend the environment to the caller, who may reset and step it; restore it at the end.

        Yields a list that receives notes on what could not be restored.
        """
        notes: list[str] = []
        states = self.streams() if self.steps_own_env() else None
        try:
            yield notes
        finally:
            if states is not None:
                notes += self.put_back(states)


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
            os.write(2, STOPPING)  # not print, which a signal may interrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
