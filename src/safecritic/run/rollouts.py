"""Rollouts of a Gaussian policy in several environments, in this process or in workers.

A `Stream` is one environment with its open episode and its own random numbers, so its steps do not
depend on which process takes them or on how many processes there are. Workers import no JAX: they
receive the policy as NumPy arrays. They are started as `python -m safecritic.run.rollouts`, so that
a user's script needs no `if __name__ == "__main__"`, and they end when their pipe is closed.
"""

import math
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.run import env_state
from safecritic.run.checkpoint import Arrays
from safecritic.run.episode import ACT_COLUMNS, Episode, episode_row, steps_table
from safecritic.run.loop import NotFiniteError, RunStopped, checked
from safecritic.run.processes import worker_environment
from safecritic.tasks.checks import StepChecks

State = tuple[Arrays, dict[str, Any]]
NO_CRITIC = (math.nan,) * len(ACT_COLUMNS)


@dataclass(frozen=True)
class GaussianPolicy:
    """A Gaussian policy as plain arrays: scaled and clipped observations, tanh between layers."""

    layers: list[tuple[np.ndarray, np.ndarray]]
    std: np.ndarray
    shift: np.ndarray
    spread: np.ndarray
    clip: float
    closeness: np.ndarray  # places of the inputs that are sharpened
    power: float

    def draw(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a random action for one observation."""
        near = np.clip(obs[self.closeness], 0.0, 1.0) ** self.power
        x = np.concatenate([obs, near], dtype=np.float32)
        x = np.clip((x - self.shift) / self.spread, -self.clip, self.clip)
        for w, b in self.layers[:-1]:
            x = np.tanh(x @ w + b)
        w, b = self.layers[-1]
        return x @ w + b + self.std * rng.standard_normal(len(self.std), np.float32)


class StreamRollout(NamedTuple):
    """The decisions of one stream, arrays (S, ...), and the episodes that ended in them."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    success: np.ndarray
    steps: np.ndarray  # environment steps of each decision
    episodes: list[tuple[int, dict[str, float]]]  # last decision within the rollout, row
    decisions: list[int]  # of each of these episodes
    open: tuple[float, int]  # cost and decisions so far of the episode still open


class Stream:
    """One environment with its open episode and its random numbers."""

    def __init__(self, env: Any, seed: int, number: int):
        drawn = np.random.SeedSequence([seed, number]).generate_state(2)
        self.env, self.seed = env, int(drawn[0])
        self.checks = StepChecks(env)
        self.rng = np.random.default_rng(int(drawn[1]))
        self.obs: np.ndarray | None = None
        self.episode = Episode()

    def roll(self, policy: GaussianPolicy, number: int, gamma: float, base: int) -> StreamRollout:
        """Take `number` decisions of the policy; `base` is the run's step count, for messages."""
        if self.obs is None:
            self.obs = checked(base, self.checks.reset, seed=self.seed)
        size, n = len(self.obs), len(policy.std)
        obs, next_obs = (np.empty((number, size), np.float32) for _ in range(2))
        action = np.empty((number, n), np.float32)
        signals = np.empty((number, 2), np.float32)
        ends = np.empty((number, 3), bool)
        steps = np.empty(number, np.int64)
        finished, decisions = [], []
        for t in range(number):
            obs[t] = self.obs
            action[t] = policy.draw(self.obs, self.rng)
            if not math.isfinite(float(action[t].sum())):
                raise NotFiniteError("action", base)
            step = checked(base, self.checks.step, np.clip(action[t], -1, 1))
            next_obs[t] = step.obs
            signals[t] = step.reward, step.cost
            steps[t] = step.steps
            ends[t] = step.terminated, step.truncated, step.success
            self.episode.add(step, NO_CRITIC)
            self.obs = step.obs
            if step.terminated or step.truncated:
                self.episode.terminated, self.episode.truncated = step.terminated, step.truncated
                finished.append((t, episode_row(self.episode, gamma, self.env)))
                decisions.append(len(self.episode.steps))
                self.episode = Episode()
                self.obs = checked(base, self.checks.reset)
        open_episode = (float(self.episode.column("cost").sum()), len(self.episode.steps))
        reward, cost = signals.T.copy()
        terminated, truncated, success = ends.T.copy()
        signals_and_ends = (reward, cost, next_obs, terminated, truncated, success, steps)
        return StreamRollout(obs, action, *signals_and_ends, finished, decisions, open_episode)

    def state(self) -> State:
        """Return the stream as arrays and numbers."""
        arrays = {"steps": steps_table(self.episode)}
        numbers: dict[str, Any] = {"rng": self.rng.bit_generator.state}
        if self.obs is not None:
            arrays["obs"] = self.obs
            if env_state.is_restorable(self.env):
                env_arrays, env_numbers = env_state.capture(self.env)
                arrays |= env_arrays
                numbers |= env_numbers
        return arrays, numbers

    def restore(self, state: State) -> list[str]:
        """Restore the stream from `state()`; return notes on what could not be restored."""
        arrays, numbers = state
        self.rng.bit_generator.state = numbers["rng"]
        self.obs = arrays.get("obs")
        self.episode = Episode([tuple(step) for step in arrays["steps"].tolist()])
        if self.obs is None:
            return []
        if "env" in numbers and env_state.is_restorable(self.env):
            env_state.restore(self.env, arrays, numbers, self.seed)
            return []
        lost, self.episode = self.episode.length, Episode()
        self.obs = checked(0, self.checks.reset, seed=int(self.rng.integers(2**31)))
        return [env_state.dropped_note(lost)]


class Streams:
    """Streams stepped one after another in this process."""

    def __init__(self, streams: Sequence[Stream]):
        self.streams = list(streams)

    def roll(
        self, policy: GaussianPolicy, number: int, gamma: float, base: int
    ) -> list[StreamRollout]:
        """Return the rollout of every stream."""
        return [stream.roll(policy, number, gamma, base) for stream in self.streams]

    def states(self) -> list[State]:
        """Return the state of every stream."""
        return [stream.state() for stream in self.streams]

    def restore(self, states: list[State]) -> list[str]:
        """Restore every stream; return notes on what could not be restored."""
        notes = [stream.restore(s) for stream, s in zip(self.streams, states, strict=True)]
        return sorted({line for lines in notes for line in lines})

    def close(self) -> None:
        """Do nothing: there are no processes to end."""


class WorkerError(RuntimeError):
    """A worker process failed or was killed."""


class Workers:
    """Worker processes that each step a share of the streams."""

    def __init__(
        self,
        env_id: str,
        seed: int,
        streams: int,
        processes: int,
        making: dict[str, Any] | None = None,  # keywords of `make_env`
    ):
        self.shares = [list(range(streams))[at::processes] for at in range(processes)]
        self.processes: list[subprocess.Popen] = []
        self.pipes: list[Connection] = []
        key = os.urandom(16)
        environment = worker_environment() | {"SAFECRITIC_PIPE": key.hex()}
        with tempfile.TemporaryDirectory(prefix="safecritic-") as folder:
            address = None if sys.platform == "win32" else str(Path(folder) / "pipe")
            with Listener(address, authkey=key) as listener:
                command = [sys.executable, "-m", "safecritic.run.rollouts", str(listener.address)]
                for _ in self.shares:
                    self.processes.append(subprocess.Popen(command, env=environment))
                for _ in self.shares:
                    self.pipes.append(self._accept(listener))
        self._ask([("open", env_id, making or {}, seed, share) for share in self.shares])

    def _accept(self, listener: Listener) -> Connection:
        """Accept a worker's connection; raise WorkerError if a worker ends before that."""
        inner: Any = listener._listener  # type: ignore[attr-defined]
        if hasattr(inner, "_socket"):
            inner._socket.settimeout(1.0)
        while True:
            try:
                pipe: Any = listener.accept()
                return pipe
            except TimeoutError:
                dead = [p for p in self.processes if p.poll() is not None]
                if dead:
                    self.close()
                    raise WorkerError(
                        f"a rollout worker ended with exit code {dead[0].returncode} before it "
                        "connected: --rollout-workers 1 runs without workers"
                    ) from None

    def _ask(self, questions: Sequence[Any]) -> list[list[Any]]:
        """Send every worker its question and return their answers; close them on any failure."""
        try:
            for pipe, question in zip(self.pipes, questions, strict=True):
                pipe.send(question)
            answers = [pipe.recv() for pipe in self.pipes]
            for kind, content in answers:
                if kind == "not finite":
                    raise NotFiniteError(*content)
                if kind == "stopped":
                    raise RunStopped(content)
                if kind == "error":
                    raise WorkerError(f"a rollout worker failed:\n{content}")
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerError(
                "a rollout worker was killed: resume the run from its last checkpoint"
            ) from error
        except BaseException:  # Ctrl-C too: an answer left in a pipe would be read as the next one
            self.close()
            raise
        return [content for _, content in answers]

    def _in_order(self, answers: list[list[Any]]) -> list[Any]:
        """Return the answers of all streams, sorted by the number of the stream."""
        by_number = {
            number: one
            for share, answer in zip(self.shares, answers, strict=True)
            for number, one in zip(share, answer, strict=True)
        }
        return [by_number[number] for number in sorted(by_number)]

    def roll(
        self, policy: GaussianPolicy, number: int, gamma: float, base: int
    ) -> list[StreamRollout]:
        """Return the rollout of every stream."""
        question = ("roll", policy, number, gamma, base)
        return self._in_order(self._ask([question] * len(self.pipes)))

    def states(self) -> list[State]:
        """Return the state of every stream."""
        return self._in_order(self._ask([("states",)] * len(self.pipes)))

    def restore(self, states: list[State]) -> list[str]:
        """Restore every stream; return notes on what could not be restored."""
        notes = self._ask([("restore", [states[i] for i in share]) for share in self.shares])
        return sorted({line for lines in notes for line in lines})

    def close(self) -> None:
        """End the workers by closing their pipes; kill one that does not end."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.pipes, self.processes = [], []


def work(pipe: Connection) -> None:
    """Answer the questions that come through a pipe until it is closed."""
    from safecritic.tasks.adapter import make_env

    streams = Streams([])
    answers: dict[str, Callable[..., Any]] = {
        "roll": lambda *rest: streams.roll(*rest),
        "states": lambda: streams.states(),
        "restore": lambda states: streams.restore(states),
    }
    while True:
        try:
            kind, *rest = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if kind == "open":
                env_id, making, seed, numbers = rest
                envs = [make_env(env_id, **making)[0] for _ in numbers]
                streams = Streams([Stream(e, seed, i) for e, i in zip(envs, numbers, strict=True)])
                answer: Any = ("done", [])
            else:
                answer = ("done", answers[kind](*rest))
        except NotFiniteError as error:
            answer = ("not finite", (error.quantity, error.step, error.why))
        except RunStopped as error:
            answer = ("stopped", str(error))
        except Exception:
            answer = ("error", traceback.format_exc(limit=-3))
        try:
            pipe.send(answer)
        except OSError:
            return


if __name__ == "__main__":
    from safecritic.run.rollouts import work as worker  # pickled classes must not be of __main__

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    worker(Client(sys.argv[1], authkey=bytes.fromhex(os.environ["SAFECRITIC_PIPE"])))
