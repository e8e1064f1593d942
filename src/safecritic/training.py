"""The loop: environment steps on the host, one compiled learning step on the device for each.

    act        on the parameters as they are                          dispatched, small
    learn      observe + insert + sample + update with the previous   dispatched, runs while
               transition, buffers donated                            the physics below runs
    env.step   with the action                                        on the host

So a transition waits one step (`pending`) before it is learned from. `Training` holds all that a
run is: `state()` gives it as arrays and numbers, `restore()` takes them back, and the run goes on
as if it had not stopped, bit for bit. Metrics are summed on the device and fetched at the log
interval only. The compiled side is `device.py`.
"""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import gymnasium.wrappers
import jax
import jax.numpy as jnp
import numpy as np

from safecritic import checkpoint
from safecritic.callbacks import BaseCallback
from safecritic.checkpoint import Arrays, CheckpointError
from safecritic.deployment import STEP_COLUMNS, Episode, critic_figures, episode_row
from safecritic.device import ACTING, Device, compile_agent, pack, use_compilation_cache
from safecritic.networks import EnvSpec
from safecritic.run_folder import EPISODE_COLUMNS, RunFolder

WINDOW = 100  # episodes in the running success, reward and cost


@dataclass(frozen=True)
class Intervals:
    """How often a run writes, in environment steps."""

    log_every: int = 1_000
    figures_every: int = 5_000  # AUC and bias of the safety critic; a multiple of log_every
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                flag = name.replace("_", "-")
                raise ValueError(f"{name} must be >= 1, got {value} (--{flag})")
        if self.figures_every % self.log_every:
            raise ValueError(
                f"figures_every must be a multiple of log_every {self.log_every}, "
                f"got {self.figures_every} (--figures-every)"
            )


class NotFiniteError(RuntimeError):
    """A loss, an action or what the environment returned was NaN or infinite."""

    def __init__(self, quantity: str, step: int):
        super().__init__(f"{quantity} was not finite at step {step}: the run was stopped")
        self.quantity, self.step = quantity, step


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run after a whole step, and what was to be saved is saved."""


class Training:
    """One run: an environment, an agent, its replay, and every counter and random stream."""

    def __init__(self, env: Any, agent: Any, config: Any, spec: EnvSpec, seed: int):
        use_compilation_cache()
        self.env, self.config, self.spec, self.seed = env, config, spec, seed
        self.compiled = compile_agent(agent, config, spec)
        self.device: Device = self.compiled.init(jax.random.PRNGKey(seed))
        self.rng = np.random.default_rng(seed)  # warm-up actions
        self.step = 0
        self.episodes = 0
        self.obs: np.ndarray | None = None
        self.pending: np.ndarray | None = None
        self.episode = Episode()
        self.unjudged: list[Episode] = []  # finished since the critic's figures were last taken
        self.window: deque[dict[str, float]] = deque(maxlen=WINDOW)
        self.locals: dict[str, Any] = {}  # the last step, for callbacks

    def advance(self) -> dict[str, float] | None:
        """One environment step and one learning step; the episode's row if it has ended."""
        if self.obs is None:
            obs, _ = self.env.reset(seed=self.seed)
            self.obs = self._checked("observation", np.array(obs, np.float32))
        learning = self.step >= self.config.learning_starts
        if learning:
            small, packed = self.compiled.act(self.device.agent, self.obs)
            self.device = self.device._replace(agent=self.device.agent._replace(**small))
        if self.pending is not None:
            take_in = self.compiled.learn if learning else self.compiled.store
            row, self.pending = self.pending, None
            self.device = take_in(self.device, row)  # returns at once: runs beside the physics
        n = self.spec.action_dim
        if learning:
            acted = np.asarray(packed)
            action, acting = np.array(acted[:n]), tuple(acted[n:].tolist())
        else:
            action = self.rng.uniform(-1.0, 1.0, n).astype(np.float32)
            acting = (math.nan,) * len(ACTING)
        if not math.isfinite(float(action.sum())):
            raise NotFiniteError("action", self.step + 1)
        next_obs, reward, terminated, truncated, info = self.env.step(action)
        cost = info.get("cost", 0.0)
        self.locals.update(
            action=action, reward=reward, cost=cost, info=info, done=terminated or truncated
        )
        self.step += 1
        self.pending = pack(self.obs, action, reward, cost, next_obs, (terminated, truncated))
        if not math.isfinite(float(self.pending.sum())):
            self._checked("reward", np.float32(reward))
            self._checked("cost", np.float32(cost))
            self._checked("observation", np.asarray(next_obs, np.float32))
        self.episode.add(reward, info, acting)
        if not (terminated or truncated):
            self.obs = np.array(next_obs, np.float32)
            return None
        self.episode.terminated, self.episode.truncated = bool(terminated), bool(truncated)
        return self._end_episode()

    def _end_episode(self) -> dict[str, float]:
        row = episode_row(self.episode, self.config.gamma, self.env)
        agent, _ = self.compiled.end_episode(self.device.agent, np.float32(row["cost"]))
        self.device = self.device._replace(agent=agent)
        self.episodes += 1
        multiplier = getattr(agent, "multiplier", math.nan)
        row |= {"episode": self.episodes, "step": self.step, "multiplier": float(multiplier)}
        self.window.append(row)
        self.unjudged.append(self.episode)
        self.episode = Episode()
        obs, _ = self.env.reset()
        self.obs = self._checked("observation", np.array(obs, np.float32))
        return {name: float(row[name]) for name in EPISODE_COLUMNS}

    def _checked(self, quantity: str, values: Any) -> Any:
        if not np.isfinite(values).all():
            raise NotFiniteError(quantity, self.step)
        return values

    # ------------------------------------------------------------ metrics

    def check(self) -> None:
        """Raise if a metric was not finite at some step; waits for the device."""
        bad = np.asarray(self.device.bad)
        if bad.any():
            first = int(np.argmin(np.where(bad > 0, bad, np.iinfo(bad.dtype).max)))
            raise NotFiniteError(self.compiled.metrics[first], int(bad[first]))

    def take_metrics(self) -> dict[str, float]:
        """Means over the updates since the last call; empty if there was none."""
        self.check()
        updates = int(self.device.updates)
        if updates == 0:
            return {}
        means = np.asarray(self.device.sums, np.float64) / updates
        self.device = self.device._replace(
            sums=jnp.zeros_like(self.device.sums), updates=jnp.zeros_like(self.device.updates)
        )
        return dict(zip(self.compiled.metrics, means.tolist(), strict=True))

    def take_figures(self) -> dict[str, float]:
        """The critic's figures on the episodes finished since the last call.

        Q_C is the value at the time of acting, before the step's outcome was known or learned.
        """
        figures = critic_figures(self.unjudged, self.config.gamma)
        self.unjudged = []
        return {f"figures/{name}": value for name, value in figures.items()}

    # ------------------------------------------------------------ checkpoints

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """All of the run as arrays and numbers; of the replay only the filled rows."""
        arrays = {f"device/{name}": np.asarray(x) for name, x in _named(self.device)}
        size = int(self.device.replay.size)
        for name in arrays:
            if name.startswith("device/replay/") and arrays[name].ndim:
                arrays[name] = arrays[name][:size]
        arrays["window"] = np.array(
            [[row[name] for name in EPISODE_COLUMNS] for row in self.window], np.float64
        ).reshape(-1, len(EPISODE_COLUMNS))
        stretch = [*self.unjudged, self.episode]
        arrays["steps"] = np.concatenate([_steps(episode) for episode in stretch])
        numbers: dict[str, Any] = {
            "step": self.step,
            "episodes": self.episodes,
            "rng": self.rng.bit_generator.state,
            "lengths": [len(episode.steps) for episode in stretch],
            "terminated": [episode.terminated for episode in stretch],
        }
        if self.obs is not None:
            arrays["obs"] = self.obs
        if self.pending is not None:
            arrays["pending"] = self.pending
        if self.obs is not None and hasattr(self.env.unwrapped, "get_checkpoint"):
            kept = self.env.unwrapped.get_checkpoint()
            words = {name: str(x) for name, x in kept.items() if np.asarray(x).dtype.kind == "U"}
            arrays |= {
                f"env/{name}": np.asarray(x) for name, x in kept.items() if name not in words
            }
            numbers["env"] = words
            numbers["elapsed"] = [limit._elapsed_steps for limit in _time_limits(self.env)]
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Go on from `state()`; says what could not be brought back."""
        leaves = [
            _restored(f"device/{name}", arrays, template) for name, template in _named(self.device)
        ]
        self.device = jax.tree.unflatten(jax.tree.structure(self.device), leaves)
        self.step, self.episodes = numbers["step"], numbers["episodes"]
        self.rng.bit_generator.state = numbers["rng"]
        self.window.clear()
        for values in arrays["window"].tolist():
            self.window.append(dict(zip(EPISODE_COLUMNS, values, strict=True)))
        ends = np.cumsum(numbers["lengths"])[:-1]
        stretch = [
            Episode([tuple(step) for step in steps.tolist()], terminated, not terminated)
            for steps, terminated in zip(
                np.split(arrays["steps"], ends), numbers["terminated"], strict=True
            )
        ]
        *self.unjudged, self.episode = stretch
        self.episode.truncated = False
        self.obs = arrays.get("obs")
        self.pending = arrays.get("pending")
        if self.obs is None or self.env is None:
            return []
        if "env" not in numbers or not hasattr(self.env.unwrapped, "set_checkpoint"):
            return [self._restart_episode()]
        kept = {name[4:]: x for name, x in arrays.items() if name.startswith("env/")}
        words = {name: np.array(word) for name, word in numbers["env"].items()}
        return self._put_env_back(kept | words, numbers["elapsed"])

    def lend_env(self) -> Callable[[], list[str]]:
        """Let another reset and step the environment; the function returned puts it back."""
        if self.obs is None:
            return list
        if not hasattr(self.env.unwrapped, "get_checkpoint"):
            return lambda: [self._restart_episode()]
        kept = self.env.unwrapped.get_checkpoint()
        elapsed = [limit._elapsed_steps for limit in _time_limits(self.env)]
        return lambda: self._put_env_back(kept, elapsed)

    def _put_env_back(self, kept: dict[str, np.ndarray], elapsed: list[Any]) -> list[str]:
        self.env.reset(seed=self.seed)  # wrappers expect it before the first step
        self.env.unwrapped.set_checkpoint(kept)
        for limit, steps in zip(_time_limits(self.env), elapsed, strict=True):
            limit._elapsed_steps = steps
        return []

    def _restart_episode(self) -> str:
        """For an environment that cannot be put back: end the open episode and start another."""
        if self.pending is not None and not self.pending[-2:].any():
            self.pending = self.pending.copy()
            self.pending[-1] = 1.0  # truncated, so that no n-step window runs into the next
        lost = len(self.episode.steps)
        self.episode = Episode()
        obs, _ = self.env.reset(seed=self.seed + self.step)
        self.obs = self._checked("observation", np.array(obs, np.float32))
        return (
            f"this environment has no get_checkpoint/set_checkpoint: the open episode ({lost} "
            "steps) is dropped and a new one started, so the run is not the uninterrupted one"
        )

    # ------------------------------------------------------------ the run

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
                    row = self.advance()
                    if row is not None:
                        if folder is not None:
                            folder.write_episode(row)
                        callback.on_episode_end(row)
                    if self.step % every.log_every == 0 and (metrics := self.take_metrics()):
                        now = time.perf_counter()
                        metrics["time/steps_per_second"] = (self.step - clock_step) / (now - clock)
                        clock, clock_step = now, self.step
                        if self.step % every.figures_every == 0:
                            metrics |= self.take_figures()
                        if folder is not None:
                            folder.write_update(self.step, metrics)
                        callback.on_log(metrics)
                    if folder is not None and self.step % every.checkpoint_every == 0:
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
            if folder is not None and saved != self.step:
                self.save(folder)
        return reason

    def save(self, folder: RunFolder, name: str = "checkpoint") -> None:
        if name == "checkpoint":
            self.check()
        arrays, numbers = self.state()
        numbers["tables"] = folder.positions()
        checkpoint.save(folder.path / name, arrays, numbers)


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


def _time_limits(env: Any) -> list[Any]:
    """Gymnasium's TimeLimit counts outside the environment's own checkpoint."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            found.append(env)
        env = env.env
    return found


def _named(tree: Any) -> list[tuple[str, jax.Array]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), x) for path, x in leaves]


def _steps(episode: Episode) -> np.ndarray:
    return np.array(episode.steps, np.float64).reshape(-1, len(STEP_COLUMNS))


def _restored(name: str, arrays: Arrays, template: jax.Array) -> jax.Array:
    """The saved array in the place of `template`; replay rows fill the first of its rows."""
    saved = arrays.get(name)
    if saved is None:
        raise CheckpointError(f"the checkpoint has no {name}: it is of another method or version")
    shape = template.shape
    if name.startswith("device/replay/") and saved.ndim and len(saved) < shape[0]:
        whole = np.array(template)
        whole[: len(saved)] = saved
        saved = whole
    if saved.shape != shape or saved.dtype != template.dtype:
        raise CheckpointError(
            f"{name} is {saved.dtype} {saved.shape} in the checkpoint, expected "
            f"{template.dtype} {shape}: it is of another task, method or setting"
        )
    return jnp.array(saved)
