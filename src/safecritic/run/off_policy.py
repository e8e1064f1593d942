"""Off-policy training: one compiled learning step on the device for each decision.

    act        with the current parameters                            dispatched, small
    learn      observe + insert + sample + update with the previous   dispatched, runs while
               transition, buffers donated                            the physics below runs
    step       with the action, held for `action_repeat` steps        on the host

A transition therefore waits one decision (`pending`) before it is learned from. Metrics are summed
on the device and fetched only at the log interval. The compiled functions are in `compiled.py`.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from safecritic.core.interface import EnvSpec
from safecritic.run import restored
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import Device, compile_agent, compile_ahead, cut_off, first_state, pack
from safecritic.run.episode import Episode, episode_row, steps_table
from safecritic.run.failure import NotFiniteError
from safecritic.run.loop import Loop
from safecritic.run.records import OffPolicyNumbers
from safecritic.run.rollout import UNKNOWN
from safecritic.run.stream import State, Stream

# Compares Q_C with the costs of finished episodes, given the discount; returns metrics by name.
CriticQuality = Callable[[Sequence[Episode], float], dict[str, float]]


class OffPolicyTraining(Loop):
    """One off-policy run: environment, agent, replay, and every counter and random stream."""

    device: Device
    numbers = OffPolicyNumbers

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
        super().__init__(env, config, spec, seed)
        self.compiled = compile_agent(agent, config, spec)
        self.device = first_state(self.compiled.init, seed, fresh)
        rng = np.random.default_rng(seed)  # of warm-up actions
        self.stream: Any = None if env is None else Stream(env, seed, rng)
        self.saved_streams: list[State] | None = None  # of a run restored without environment
        self.pending: np.ndarray | None = None
        self.compiling: list[threading.Thread] = []  # what the first learning step needs
        self.critic_quality = critic_quality
        self.unassessed_episodes: list[Episode] = []  # ended since `take_critic_quality`

    def prepare(self) -> None:
        self.compiling = compile_ahead(self.compiled, self.device, self.spec)

    def advance(self) -> list[dict[str, float]]:
        """Take one decision and one learning step; return the row of an ended episode."""
        obs, learning = self.stream.ready(), self.step >= self.config.learning_starts
        packed = None
        if learning:
            while self.compiling:
                self.compiling.pop().join()
            cost = np.float32(self.stream.episode.cost)
            carry, packed = self.compiled.act(self.device.agent, obs, cost)
            self.device = self.device._replace(agent=self.device.agent._replace(**carry))
        if self.pending is not None:
            ingest = self.compiled.learn if learning else self.compiled.store
            row, self.pending = self.pending, None
            self.device = ingest(self.device, row)  # returns at once and runs beside the physics
        n = self.spec.action_dim
        if packed is None:
            action, predicted = self.stream.rng.uniform(-1.0, 1.0, n).astype(np.float32), UNKNOWN
        else:
            decided = np.array(packed)
            action, predicted = decided[:n], tuple(decided[n:].tolist())
        transition = self.stream.step(action, predicted)
        self.locals.update(
            action=action,
            reward=transition.reward,
            cost=transition.cost,
            info=transition.info,
            done=transition.ended,
        )
        self.step += transition.steps
        self.pending = pack(transition)
        return [self._end_episode()] if transition.ended else []

    def _end_episode(self) -> dict[str, float]:
        episode = self.stream.episode
        row = episode_row(episode, self.config.gamma, self.env)
        agent, _ = self.compiled.end_episode(
            self.device.agent, np.float32(row["cost"]), np.float32(len(episode.steps))
        )
        self.device = self.device._replace(agent=agent)
        multiplier = getattr(agent, "multiplier", None)
        row["multiplier"] = math.nan if multiplier is None else float(multiplier)
        self.unassessed_episodes.append(episode)
        self.stream.reset()
        return self.record_episode(row, self.step)

    def check(self) -> None:
        # waits for the device
        steps = np.asarray(self.device.first_nonfinite_step)
        if steps.any():
            first = int(np.argmin(np.where(steps > 0, steps, np.iinfo(steps.dtype).max)))
            raise NotFiniteError(self.compiled.metrics[first], int(steps[first]))

    def take_metrics(self) -> dict[str, float]:
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
        # Q_C at the time of acting, before the outcome was known or learned
        episodes, self.unassessed_episodes = self.unassessed_episodes, []
        if self.critic_quality is None:
            return {}
        quality = self.critic_quality(episodes, self.config.gamma)
        return {f"critic/{name}": value for name, value in quality.items()}

    def set_env(self, env: Any, env_id: str | None, declared: dict[str, Any]) -> None:
        rng = np.random.default_rng(self.seed) if self.stream is None else self.stream.rng
        self.env, self.stream, self.saved_streams = env, Stream(env, self.seed, rng), None
        if self.pending is not None:
            self.pending = cut_off(self.pending)

    def streams(self) -> list[State] | None:
        return self.saved_streams if self.stream is None else [self.stream.state()]

    def put_back(self, states: list[State]) -> list[str]:
        if self.stream is None:
            self.saved_streams = states
            return []
        notes = self.stream.restore(states[0])
        if notes and self.pending is not None:
            # no n-step window may run across the episode that was dropped
            self.pending = cut_off(self.pending)
        return notes

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, numbers = super().state()
        size = int(self.device.replay.size)
        for name, x in arrays.items():
            if name.startswith("device/replay/") and x.ndim:
                arrays[name] = x[:size]  # only the filled rows
        tables = [steps_table(episode) for episode in self.unassessed_episodes]
        arrays["unassessed"] = np.concatenate([*tables, steps_table(Episode())])
        numbers["lengths"] = [len(table) for table in tables]
        numbers["terminated"] = [episode.terminated for episode in self.unassessed_episodes]
        if self.pending is not None:
            arrays["pending"] = self.pending
        return arrays, numbers

    def check_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        restored.check_off_policy(arrays, numbers, self.spec)
        restored.check_replay(arrays, len(self.device.replay.cost), numbers["step"])

    def restore_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        *tables, _ = np.split(arrays["unassessed"], np.cumsum(numbers["lengths"], dtype=int))
        self.unassessed_episodes = [
            Episode.of(table, terminated, not terminated)
            for table, terminated in zip(tables, numbers["terminated"], strict=True)
        ]
        self.pending = arrays.get("pending")
