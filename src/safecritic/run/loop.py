"""The part that all training loops share: counting, tables, checkpoints, callbacks, signals.

`OffPolicyTraining` (one learning step per environment step) and `OnPolicyTraining` (rollouts)
define what one advance does and what the state of the run is.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from safecritic.run import checkpoint
from safecritic.run.callbacks import BaseCallback
from safecritic.run.checkpoint import Arrays
from safecritic.run.episode import EPISODE_COLUMNS
from safecritic.run.folder import RunFolder

WINDOW = 100  # episodes in the running success, reward and cost


@dataclass(frozen=True)
class Intervals:
    """How often a run writes, in environment steps."""

    log_every: int = 1_000
    critic_every: int = 5_000  # AUC and bias of the safety critic; a multiple of log_every
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                flag = name.replace("_", "-")
                raise ValueError(f"{name} must be >= 1, got {value} (--{flag})")
        if self.critic_every % self.log_every:
            raise ValueError(
                f"critic_every must be a multiple of log_every {self.log_every}, "
                f"got {self.critic_every} (--critic-every)"
            )


class NotFiniteError(RuntimeError):
    """A loss, an action or what the environment returned was NaN or infinite."""

    def __init__(self, quantity: str, step: int):
        super().__init__(f"{quantity} was not finite at step {step}: the run was stopped")
        self.quantity, self.step = quantity, step


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run after a whole step, and what was to be saved is saved."""


class Loop:
    """One run: its counters, its last episodes, and the part of the work all loops share."""

    compiled: Any  # the agent's functions under jit; ``metrics`` are the names of what they log
    device: Any  # ``agent`` is the agent's state

    def __init__(self, env: Any, config: Any, spec: Any, seed: int):
        self.env, self.config, self.spec, self.seed = env, config, spec, seed
        self.step = 0
        self.episodes = 0
        self.window: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self.locals: dict[str, Any] = {}  # the last step, for callbacks

    # to be provided

    def advance(self) -> list[dict[str, float]]:
        """One or more environment steps with their learning; the rows of episodes that ended."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if a metric was not finite at some step."""
        raise NotImplementedError

    def take_metrics(self) -> dict[str, float]:
        """Means over the updates since the last call; empty if there was none."""
        raise NotImplementedError

    def take_critic_quality(self) -> dict[str, float]:
        """Return the safety critic's quality on the episodes that ended since the last call."""
        return {}

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """All of the run as arrays and numbers."""
        raise NotImplementedError

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Go on from `state()`; says what could not be brought back."""
        raise NotImplementedError

    def borrowed_env(self) -> AbstractContextManager[list[str]]:
        """Lend the environment: it may be reset and stepped, and is put back at the end.

        Yields a list to which notes on what could not be put back are added at the end.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called when `run` ends: let go of what is only needed while running."""

    # the run

    def note_episode(self, row: dict[str, Any], step: int) -> dict[str, float]:
        """Count an episode that ended at that step; its line of the table."""
        self.episodes += 1
        full = row | {"episode": self.episodes, "step": step}
        found = {name: float(full[name]) for name in EPISODE_COLUMNS}
        self.window.append(found)
        return found

    def run(
        self,
        until: int,
        callback: BaseCallback,
        folder: RunFolder | None = None,
        every: Intervals = Intervals(),  # noqa: B008 (frozen)
    ) -> str:
        """Steps up to number `until`: "finished", or "stopped" by callback or "interrupted"."""
        reason, saved = "finished", -1
        clock, clock_step = time.perf_counter(), self.step
        with stop_signals() as received:
            try:
                while self.step < until:
                    before = self.step
                    for row in self.advance():
                        if folder is not None:
                            folder.write_episode(row)
                        callback.on_episode_end(row)
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
            except NotFiniteError as error:
                if folder is not None:
                    self.save(folder, name="failed")
                    error.args = (f"{error}; its state is in {folder.path / 'failed'}",)
                raise
            finally:
                self.close()
            if folder is not None and saved != self.step:
                self.save(folder)
        return reason

    def _passed(self, interval: int, before: int) -> bool:
        """Whether a multiple of the interval lies in the steps since `before`."""
        return self.step // interval > before // interval

    def save(self, folder: RunFolder, name: str = "checkpoint") -> None:
        if name == "checkpoint":
            self.check()
        arrays, numbers = self.state()
        numbers["tables"] = folder.positions()
        checkpoint.save(folder.path / name, arrays, numbers)

    # parts of `state` and `restore`

    def counters(self) -> tuple[Arrays, dict[str, Any]]:
        table = [[row[name] for name in EPISODE_COLUMNS] for row in self.window]
        window = np.array(table, np.float64).reshape(-1, len(EPISODE_COLUMNS))
        return {"window": window}, {"step": self.step, "episodes": self.episodes}

    def restore_counters(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        self.step, self.episodes = numbers["step"], numbers["episodes"]
        self.window.clear()
        for values in arrays["window"].tolist():
            self.window.append(dict(zip(EPISODE_COLUMNS, values, strict=True)))

    def checked(self, quantity: str, values: Any) -> Any:
        if not np.isfinite(values).all():
            raise NotFiniteError(quantity, self.step)
        return values


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted in the list and end the run after its step; again: at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
