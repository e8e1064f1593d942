"""The loop: environment steps on the host, one compiled learning step on the device for each.

    act        on the parameters as they are                          dispatched, small
    learn      observe + insert + sample + update with the previous   dispatched, runs while
               transition, buffers donated                            the physics below runs
    env.step   with the action                                        on the host

A transition therefore waits one step (`pending`) before it is learned from. `OffPolicyTraining`
holds the whole run: `state()` returns it as arrays and numbers, and after `restore()` the run
continues bit for bit as if it had not stopped. Metrics are summed on the device and fetched only at
the log interval. The compiled functions are in `compiled.py`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.fast.compilation import use_compilation_cache
from safecritic.networks import EnvSpec
from safecritic.run import env_state
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import (
    Device,
    compile_agent,
    device_arrays,
    pack,
    restored_device,
)
from safecritic.run.episode import ACTING, Episode, episode_row, steps_table
from safecritic.run.loop import Loop, NotFiniteError

# Compares Q_C with the costs of finished episodes, given the discount; returns metrics by name.
CriticQuality = Callable[[Sequence[Episode], float], dict[str, float]]


class OffPolicyTraining(Loop):
    """One run: an environment, an agent, its replay, and every counter and random stream."""

    def __init__(
        self,
        env: Any,
        agent: Any,
        config: Any,
        spec: EnvSpec,
        seed: int,
        critic_quality: CriticQuality | None = None,
    ):
        use_compilation_cache()
        super().__init__(env, config, spec, seed)
        self.compiled = compile_agent(agent, config, spec)
        self.device: Device = self.compiled.init(jax.random.PRNGKey(seed))
        self.rng = np.random.default_rng(seed)  # warm-up actions
        self.obs: np.ndarray | None = None
        self.pending: np.ndarray | None = None
        self.episode = Episode()
        self.critic_quality = critic_quality
        self.unassessed_episodes: list[Episode] = []  # ended since `take_critic_quality`

    def advance(self) -> list[dict[str, float]]:
        """One environment step and one learning step; the episode's row if it has ended."""
        obs, learning = self.begin()
        packed = None
        if learning:
            carry, packed = self.compiled.act(self.device.agent, obs)
            self.device = self.device._replace(agent=self.device.agent._replace(**carry))
        if self.pending is not None:
            ingest = self.compiled.learn if learning else self.compiled.store
            row, self.pending = self.pending, None
            self.device = ingest(self.device, row)  # returns at once: runs beside the physics
        return self.move(None if packed is None else np.asarray(packed))

    def begin(self) -> tuple[np.ndarray, bool]:
        """The observation to act on, and whether the agent acts on it or chance."""
        if self.obs is None:
            obs, _ = self.env.reset(seed=self.seed)
            self.obs = self.checked("observation", np.array(obs, np.float32))
        return self.obs, self.step >= self.config.learning_starts

    def move(self, acted: np.ndarray | None) -> list[dict[str, float]]:
        """The environment's step with what `act` returned, or at random; the row if it ends."""
        assert self.obs is not None
        n = self.spec.action_dim
        if acted is not None:
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
            self.checked("reward", np.float32(reward))
            self.checked("cost", np.float32(cost))
            self.checked("observation", np.asarray(next_obs, np.float32))
        self.episode.add(reward, info, acting)
        if not (terminated or truncated):
            self.obs = np.array(next_obs, np.float32)
            return []
        self.episode.terminated, self.episode.truncated = bool(terminated), bool(truncated)
        return [self._end_episode()]

    def end_agent(self, cost: float) -> float:
        """Tell the agent that an episode of that cost has ended; its multiplier after that."""
        agent, _ = self.compiled.end_episode(self.device.agent, np.float32(cost))
        self.device = self.device._replace(agent=agent)
        return float(getattr(agent, "multiplier", math.nan))

    def _end_episode(self) -> dict[str, float]:
        row = episode_row(self.episode, self.config.gamma, self.env)
        row["multiplier"] = self.end_agent(row["cost"])
        self.unassessed_episodes.append(self.episode)
        self.episode = Episode()
        obs, _ = self.env.reset()
        self.obs = self.checked("observation", np.array(obs, np.float32))
        return self.note_episode(row, self.step)

    # ------------------------------------------------------------ metrics

    def check(self) -> None:
        """Raise if a metric was not finite at some step; waits for the device."""
        steps = np.asarray(self.device.first_nonfinite_step)
        if steps.any():
            first = int(np.argmin(np.where(steps > 0, steps, np.iinfo(steps.dtype).max)))
            raise NotFiniteError(self.compiled.metrics[first], int(steps[first]))

    def take_metrics(self) -> dict[str, float]:
        """Means over the updates since the last call; empty if there was none."""
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
        """All of the run as arrays and numbers; of the replay only the filled rows."""
        arrays, numbers = self.counters()
        arrays |= device_arrays(self.device)
        size = int(self.device.replay.size)
        for name in arrays:
            if name.startswith("device/replay/") and arrays[name].ndim:
                arrays[name] = arrays[name][:size]
        stretch = [*self.unassessed_episodes, self.episode]
        arrays["steps"] = np.concatenate([steps_table(episode) for episode in stretch])
        numbers |= {
            "rng": self.rng.bit_generator.state,
            "lengths": [len(episode.steps) for episode in stretch],
            "terminated": [episode.terminated for episode in stretch],
        }
        if self.obs is not None:
            arrays["obs"] = self.obs
        if self.pending is not None:
            arrays["pending"] = self.pending
        if self.obs is not None and env_state.can_be_kept(self.env):
            kept, words = env_state.take(self.env)
            arrays |= kept
            numbers |= words
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Go on from `state()`; says what could not be brought back."""
        self.device = restored_device(self.device, arrays)
        self.restore_counters(arrays, numbers)
        self.rng.bit_generator.state = numbers["rng"]
        ends = np.cumsum(numbers["lengths"])[:-1]
        stretch = [
            Episode([tuple(step) for step in steps.tolist()], terminated, not terminated)
            for steps, terminated in zip(
                np.split(arrays["steps"], ends), numbers["terminated"], strict=True
            )
        ]
        *self.unassessed_episodes, self.episode = stretch
        self.episode.truncated = False
        self.obs = arrays.get("obs")
        self.pending = arrays.get("pending")
        if self.obs is None or self.env is None:
            return []
        if "env" not in numbers or not env_state.can_be_kept(self.env):
            return [self._restart_episode()]
        env_state.put_back(self.env, arrays, numbers, self.seed)
        return []

    @contextmanager
    def borrowed_env(self) -> Iterator[list[str]]:
        """Lend the environment: it may be reset and stepped, and is put back at the end.

        Yields a list to which notes on what could not be put back are added at the end.
        """
        notes: list[str] = []
        if self.obs is None:
            yield notes
            return
        saved = env_state.take(self.env) if env_state.can_be_kept(self.env) else None
        try:
            yield notes
        finally:
            if saved is None:
                notes.append(self._restart_episode())
            else:
                env_state.put_back(self.env, *saved, self.seed)

    def _restart_episode(self) -> str:
        """For an environment that cannot be put back: end the open episode and start another."""
        if self.pending is not None and not self.pending[-2:].any():
            self.pending = self.pending.copy()
            self.pending[-1] = 1.0  # truncated, so that no n-step window runs into the next
        lost = len(self.episode.steps)
        self.episode = Episode()
        obs, _ = self.env.reset(seed=self.seed + self.step)
        self.obs = self.checked("observation", np.array(obs, np.float32))
        return env_state.LOST.format(steps=lost)
