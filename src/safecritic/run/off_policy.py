"""Off-policy training: one compiled learning step on the device for each decision.

    act        with the current parameters                            dispatched, small
    learn      observe + insert + sample + update with the previous   dispatched, runs while
               transition, buffers donated                            the physics below runs
    env.step   with the action, held for `action_repeat` steps        on the host

A transition therefore waits one decision (`pending`) before it is learned from. `step` counts
environment steps. `OffPolicyTraining`
holds the whole run: `state()` returns it as arrays and numbers, and after `restore()` the run
continues bit for bit as if it had not stopped. Metrics are summed on the device and fetched only at
the log interval. The compiled functions are in `compiled.py`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from safecritic.agents.interface import EnvSpec
from safecritic.fast.compilation import use_compilation_cache
from safecritic.run import env_state, records, restored
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import (
    Device,
    compile_agent,
    device_arrays,
    first_state,
    pack,
    restore_device,
)
from safecritic.run.episode import ACT_COLUMNS, Episode, episode_row, steps_table
from safecritic.run.loop import Loop, NotFiniteError

# Compares Q_C with the costs of finished episodes, given the discount; returns metrics by name.
CriticQuality = Callable[[Sequence[Episode], float], dict[str, float]]


class OffPolicyTraining(Loop):
    """One off-policy run: environment, agent, replay, and every counter and random stream."""

    def __init__(
        self,
        env: Any,
        agent: Any,
        config: Any,
        spec: EnvSpec,
        seed: int,
        critic_quality: CriticQuality | None = None,
        fresh: bool = True,
    ):
        use_compilation_cache()
        super().__init__(env, config, spec, seed)
        self.compiled = compile_agent(agent, config, spec)
        self.device: Device = first_state(self.compiled.init, seed, fresh)
        self.rng = np.random.default_rng(seed)  # warm-up actions
        self.obs: np.ndarray | None = None
        self.pending: np.ndarray | None = None
        self.episode = Episode()
        self.critic_quality = critic_quality
        self.unassessed_episodes: list[Episode] = []  # ended since `take_critic_quality`

    def advance(self) -> list[dict[str, float]]:
        """Take one decision and one learning step; return the row of an ended episode."""
        obs, learning = self.begin()
        packed = None
        if learning:
            carry, packed = self.compiled.act(self.device.agent, obs, self.spent)
            self.device = self.device._replace(agent=self.device.agent._replace(**carry))
        if self.pending is not None:
            ingest = self.compiled.learn if learning else self.compiled.store
            row, self.pending = self.pending, None
            self.device = ingest(self.device, row)  # returns at once and runs beside the physics
        return self.step_env(None if packed is None else np.asarray(packed))

    @property
    def spent(self) -> np.float32:
        """The cost of the open episode so far."""
        return np.float32(self.episode.cost)

    def begin(self) -> tuple[np.ndarray, bool]:
        """Return the observation to act on, and whether the agent acts (or the warm-up does)."""
        obs = self._reset(seed=self.seed) if self.obs is None else self.obs
        return obs, self.step >= self.config.learning_starts

    def _reset(self, **options: Any) -> np.ndarray:
        self.obs = self.checked(self.checks.reset, **options)
        return self.obs

    def step_env(self, packed: np.ndarray | None) -> list[dict[str, float]]:
        """Step the environment with what `act` returned, or at random if that is None.

        Returns the row of the episode if it has ended.
        """
        assert self.obs is not None
        n = self.spec.action_dim
        if packed is not None:
            action, act_values = np.array(packed[:n]), tuple(packed[n:].tolist())
        else:
            action = self.rng.uniform(-1.0, 1.0, n).astype(np.float32)
            act_values = (math.nan,) * len(ACT_COLUMNS)
        if not math.isfinite(float(action.sum())):
            raise NotFiniteError("action", self.step + 1)
        step = self.checked(self.checks.step, action)
        next_obs, reward, cost, terminated, truncated, info, steps = step
        ended = terminated or truncated
        self.locals.update(action=action, reward=reward, cost=cost, info=info, done=ended)
        self.step += steps
        ends = (terminated, truncated, step.success)
        self.pending = pack(self.obs, action, reward, cost, next_obs, ends, steps)
        self.episode.add(step, act_values)
        if not ended:
            self.obs = next_obs
            return []
        self.episode.terminated, self.episode.truncated = terminated, truncated
        return [self._end_episode()]

    def end_agent_episode(self, cost: float, decisions: int) -> float:
        """Tell the agent that an episode of this cost has ended; return its multiplier."""
        agent, _ = self.compiled.end_episode(
            self.device.agent, np.float32(cost), np.float32(decisions)
        )
        self.device = self.device._replace(agent=agent)
        return float(getattr(agent, "multiplier", math.nan))

    def _end_episode(self) -> dict[str, float]:
        row = episode_row(self.episode, self.config.gamma, self.env)
        row["multiplier"] = self.end_agent_episode(row["cost"], len(self.episode.steps))
        self.unassessed_episodes.append(self.episode)
        self.episode = Episode()
        self._reset()
        return self.record_episode(row, self.step)

    # ------------------------------------------------------------ metrics

    def check(self) -> None:
        """Raise NotFiniteError if a metric was not finite at some step; waits for the device."""
        steps = np.asarray(self.device.first_nonfinite_step)
        if steps.any():
            first = int(np.argmin(np.where(steps > 0, steps, np.iinfo(steps.dtype).max)))
            raise NotFiniteError(self.compiled.metrics[first], int(steps[first]))

    def take_metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call; empty if there were none."""
        self.check()
        updates = int(self.device.updates)
        if updates == 0:
            return {}
        means = np.asarray(self.device.metric_sums, np.float64) / updates
        self.device = self.device._replace(
            metric_sums=jnp.zeros_like(self.device.metric_sums),
            updates=jnp.zeros_like(self.device.updates),
        )
        return dict(zip(self.compiled.metrics, means.tolist(), strict=True))

    def take_critic_quality(self) -> dict[str, float]:
        """Return the safety critic's quality on the episodes that ended since the last call.

        Q_C is the value at the time of acting, before the outcome of the step was known or learned.
        """
        episodes, self.unassessed_episodes = self.unassessed_episodes, []
        if self.critic_quality is None:
            return {}
        quality = self.critic_quality(episodes, self.config.gamma)
        return {f"critic/{name}": value for name, value in quality.items()}

    # ------------------------------------------------------------ checkpoints

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the whole run as arrays and numbers; only the filled rows of the replay."""
        arrays, numbers = self.counters()
        arrays |= device_arrays(self.device)
        size = int(self.device.replay.size)
        for name in arrays:
            if name.startswith("device/replay/") and arrays[name].ndim:
                arrays[name] = arrays[name][:size]
        episodes = [*self.unassessed_episodes, self.episode]
        arrays["steps"] = np.concatenate([steps_table(episode) for episode in episodes])
        numbers |= {
            "rng": self.rng.bit_generator.state,
            "lengths": [len(episode.steps) for episode in episodes],
            "terminated": [episode.terminated for episode in episodes],
        }
        if self.obs is not None:
            arrays["obs"] = self.obs
        if self.pending is not None:
            arrays["pending"] = self.pending
        if self.obs is not None and env_state.is_restorable(self.env):
            env_arrays, env_numbers = env_state.capture(self.env)
            arrays |= env_arrays
            numbers |= env_numbers
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Restore the run from `state()`; return notes on what could not be restored."""
        restored.check_numbers(records.OffPolicyNumbers, numbers)
        restored.check_off_policy(arrays, numbers, self.spec)
        device = restore_device(self.device, arrays)
        restored.check_replay(arrays, len(self.device.replay.cost), numbers["step"])
        self.device = device
        self.restore_counters(arrays, numbers)
        self.rng.bit_generator.state = numbers["rng"]
        ends = np.cumsum(numbers["lengths"])[:-1]
        episodes = [
            Episode([tuple(step) for step in steps.tolist()], terminated, not terminated)
            for steps, terminated in zip(
                np.split(arrays["steps"], ends), numbers["terminated"], strict=True
            )
        ]
        *self.unassessed_episodes, self.episode = episodes
        self.episode.truncated = False
        self.obs = arrays.get("obs")
        self.pending = arrays.get("pending")
        if self.obs is None or self.env is None:
            return []
        if "env" not in numbers or not env_state.is_restorable(self.env):
            return [self._restart_episode()]
        env_state.restore(self.env, arrays, numbers, self.seed)
        return []

    @contextmanager
    def borrowed_env(self) -> Iterator[list[str]]:
        """Lend the environment to the caller and restore it at the end (see `Loop`)."""
        notes: list[str] = []
        if self.obs is None:  # never reset: there is nothing to restore
            yield notes
            return
        saved = env_state.capture(self.env) if env_state.is_restorable(self.env) else None
        try:
            yield notes
        finally:
            if saved is None:
                notes.append(self._restart_episode())
            else:
                env_state.restore(self.env, *saved, self.seed)

    def _restart_episode(self) -> str:
        """Drop the open episode of an environment that cannot be restored, and start another."""
        if self.pending is not None and not self.pending[-3:-1].any():
            self.pending = self.pending.copy()
            self.pending[-2] = 1.0  # truncated, so that no n-step window runs into the next
        lost, self.episode = self.episode.length, Episode()
        self._reset(seed=self.seed + self.step)
        return env_state.dropped_note(lost)
