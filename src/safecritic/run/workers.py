"""Rollouts of a Gaussian policy in several environments, in this process or in worker processes.

Each environment has its own random numbers, so its steps do not depend on which process takes them.
Workers import no JAX. They are started as `python -m safecritic.run.workers`, so that a script
needs no `if __name__ == "__main__"`, and end when their pipe is closed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.run.episode import episode_row
from safecritic.run.processes import worker_environment
from safecritic.run.rollout import ActionError, Transition
from safecritic.run.stream import State, Stream
from safecritic.runtime import decide
from safecritic.tasks.checks import EnvError


@dataclass(frozen=True)
class GaussianPolicy:
    """A Gaussian policy as plain arrays: scaled and clipped observations, tanh between layers."""

    layers: list[dict[str, np.ndarray]]
    std: np.ndarray
    near: np.ndarray  # places of the proximity inputs
    mean: np.ndarray  # of the inputs, as is obs_std
    obs_std: np.ndarray

    def draw(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a random action for one observation."""
        obs = np.asarray(obs, np.float32)
        x = decide.inputs(np, obs[None], self.near, self.mean, self.obs_std)
        out: np.ndarray = decide.forward(np, self.layers, x, "tanh")[0]
        return out + self.std * rng.standard_normal(len(self.std), np.float32)


class Ended(NamedTuple):
    """An episode that ended in a roll."""

    at: int  # the decision
    row: dict[str, float]  # of the table, without its number, step and multiplier
    decisions: int


class Roll(NamedTuple):
    """The decisions of one stream, arrays (S, ...), and the episodes that ended in them."""

    obs: np.ndarray
    action: np.ndarray  # as drawn, not clipped
    reward: np.ndarray
    cost: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    success: np.ndarray
    steps: np.ndarray
    episodes: list[Ended]
    open: tuple[float, int]  # cost and decisions so far of the episode that has not ended


def roll(stream: Stream, policy: GaussianPolicy, number: int, gamma: float) -> Roll:
    """Take `number` decisions of the policy."""
    transitions: list[Transition] = []
    ended = []
    for at in range(number):
        action = policy.draw(stream.ready(), stream.rng)
        transition = stream.step(np.clip(action, -1, 1))
        transitions.append(transition._replace(action=action))
        if transition.ended:
            episode = stream.episode
            ended.append(Ended(at, episode_row(episode, gamma, stream.env), len(episode.steps)))
            stream.reset()
    columns: dict[str, Any] = {
        name: np.array([getattr(x, name) for x in transitions]) for name in Roll._fields[:-2]
    }
    for name in ("reward", "cost"):
        columns[name] = columns[name].astype(np.float32)
    return Roll(**columns, episodes=ended, open=(stream.episode.cost, len(stream.episode.steps)))


class Streams:
    """Streams stepped one after another in this process."""

    def __init__(self, envs: Sequence[Any], seed: int, numbers: Sequence[int]):
        self.streams = []
        for env, number in zip(envs, numbers, strict=True):
            first, second = np.random.SeedSequence([seed, number]).generate_state(2).tolist()
            self.streams.append(Stream(env, first, np.random.default_rng(second)))

    def roll(self, policy: GaussianPolicy, number: int, gamma: float) -> list[Roll]:
        """Return `number` decisions of the policy in every stream."""
        return [roll(stream, policy, number, gamma) for stream in self.streams]

    def states(self) -> list[State]:
        """Return the state of every stream."""
        return [stream.state() for stream in self.streams]

    def restore(self, states: list[State]) -> list[str]:
        """Restore every stream; return notes on what could not be restored."""
        notes = [stream.restore(s) for stream, s in zip(self.streams, states, strict=True)]
        return sorted({*chain(*notes)})


class WorkerError(RuntimeError):
    """A worker process failed or was killed."""


class Workers:
    """Worker processes that each step a share of the streams."""

    def __init__(
        self, env_id: str, seed: int, streams: int, processes: int, making: dict[str, Any]
    ):
        """Start the processes; `making` are keywords of `make_env`."""
        self.shares = [list(range(streams))[at::processes] for at in range(processes)]
        self.processes: list[subprocess.Popen] = []
        self.pipes: list[Connection] = []
        key = os.urandom(16)
        environment = worker_environment() | {"SAFECRITIC_PIPE": key.hex()}
        with tempfile.TemporaryDirectory(prefix="safecritic-") as folder:
            address = None if sys.platform == "win32" else str(Path(folder) / "pipe")
            with Listener(address, authkey=key) as listener:
                command = [sys.executable, "-m", "safecritic.run.workers", str(listener.address)]
                for _ in self.shares:
                    self.processes.append(subprocess.Popen(command, env=environment))
                for _ in self.shares:
                    self.pipes.append(self._accept(listener))
        self._ask([("open", env_id, making, seed, share) for share in self.shares])

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

    def _ask(self, questions: Sequence[Any]) -> list[Any]:
        """Send every worker its question; return their answers, close them on any failure."""
        try:
            for pipe, question in zip(self.pipes, questions, strict=True):
                pipe.send(question)
            answers = [pipe.recv() for pipe in self.pipes]
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerError(
                "a rollout worker was killed: resume the run from its last checkpoint"
            ) from error
        except BaseException:  # Ctrl-C too: an answer left in a pipe would be read as the next one
            self.close()
            raise
        return answers

    def _each(self, *question: Any) -> list[Any]:
        """Ask all workers the same; return the answers of all streams in their order."""
        answers = self._ask([question] * len(self.pipes))
        by_number = dict(zip(chain(*self.shares), chain(*answers), strict=True))
        return [by_number[number] for number in sorted(by_number)]

    # as `Streams`

    def roll(self, policy: GaussianPolicy, number: int, gamma: float) -> list[Roll]:
        return self._each("roll", policy, number, gamma)

    def states(self) -> list[State]:
        return self._each("states")

    def restore(self, states: list[State]) -> list[str]:
        notes = self._ask([("restore", [states[i] for i in share]) for share in self.shares])
        return sorted({*chain(*notes)})

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

    streams = Streams([], 0, [])
    while True:
        try:
            question, *rest = pipe.recv()
        except (EOFError, OSError):
            return
        answer: Any = None
        try:
            if question == "open":
                env_id, making, seed, numbers = rest
                envs = [make_env(env_id, **making)[0] for _ in numbers]
                streams = Streams(envs, seed, numbers)
            else:
                answer = getattr(streams, question)(*rest)
        except (EnvError, ActionError) as error:
            answer = error
        except Exception:
            answer = WorkerError(f"a rollout worker failed:\n{traceback.format_exc(limit=-3)}")
        try:
            pipe.send(answer)
        except OSError:
            return


if __name__ == "__main__":
    from safecritic.run.workers import work as worker  # pickled classes must not be of __main__

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    worker(Client(sys.argv[1], authkey=bytes.fromhex(os.environ["SAFECRITIC_PIPE"])))
