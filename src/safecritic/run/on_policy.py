"""On-policy training: each update uses one rollout of the current policy, then discards it.

    roll     `rollout_steps` steps in `rollout_envs` environments, on all cores
    update   one compiled call on the whole rollout

A rollout has the same number of decisions each time, as many as its steps hold, rounded up. A run
advances by whole rollouts.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.agents.cpo import Rollout
from safecritic.core import scaling
from safecritic.core.compilation import jit
from safecritic.core.interface import EnvSpec
from safecritic.run import restored
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import Compiled, act, first_state
from safecritic.run.episode import STEP_COLUMNS
from safecritic.run.failure import NotFiniteError
from safecritic.run.loop import Loop
from safecritic.run.processes import cores
from safecritic.run.records import OnPolicyNumbers
from safecritic.run.stream import State, dropped_note
from safecritic.run.workers import GaussianPolicy, Roll, Streams, Workers
from safecritic.tasks.adapter import is_ours, make_env

SIGNALS = Rollout._fields[:-2]  # the fields that `Roll` has too


class Device(NamedTuple):
    """The state on the device."""

    agent: Any


@functools.lru_cache(maxsize=16)
def compile_agent(agent: Any, config: Any, spec: EnvSpec) -> Compiled:
    """Compile the agent's functions; the same settings return the same objects, compiled once."""

    init = jit(agent.init, spec=spec, config=config)
    update = jit(agent.update, config=config)
    state = jax.eval_shape(init, jax.random.PRNGKey(0))
    empty = jax.eval_shape(lambda: empty_rollout(config, spec))
    return Compiled(
        init=init,
        act=jit(act, agent=agent, config=config),
        update=update,
        values=jit(agent.values, config=config),
        metrics=tuple(sorted(jax.eval_shape(update, state, empty)[1])),
    )


def decisions(config: Any, n_envs: int) -> int:
    """Return the decisions that each of the environments takes in a rollout."""
    return -(-config.rollout_steps // (n_envs * config.action_repeat))


def empty_rollout(config: Any, spec: EnvSpec) -> Rollout:
    """Return a rollout of zeros with the shapes of a real one."""
    shape = (config.rollout_envs, decisions(config, config.rollout_envs))
    obs = jnp.zeros((*shape, spec.obs_dim), jnp.float32)
    signal, end = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
    action = jnp.zeros((*shape, spec.action_dim), jnp.float32)
    number = jnp.zeros((), jnp.float32)
    return Rollout(obs, action, signal, signal, obs, end, end, end, number, number)


class OnPolicyTraining(Loop):
    """One on-policy run, in environments made from `env_id` or else in `env` alone."""

    numbers = OnPolicyNumbers

    def __init__(
        self,
        env: Any,
        agent: Any,
        config: Any,
        spec: EnvSpec,
        seed: int,
        env_id: str | None = None,
        declared: dict[str, Any] | None = None,  # of the environment, keywords of `adapt`
        fresh: bool = True,
    ):
        super().__init__(env, config, spec, seed)
        self.env_id, self.declared = env_id, declared or {}
        self.n_envs = 1 if env_id is None else config.rollout_envs
        self.compiled = compile_agent(agent, config, spec)
        self.device = Device(first_state(self.compiled.init, seed, fresh))
        self.pool: Streams | Workers | None = None
        self.saved_streams: list[State] | None = None  # while there is no pool
        self.last_episodes = (math.nan, math.nan)  # mean cost and decisions when some last ended
        self.metric_sums: dict[str, float] = {}
        self.updates = 0

    def _pool(self) -> Streams | Workers:
        """Return the environments, starting them if there are none."""
        if self.pool is not None:
            return self.pool
        processes = min(self.config.rollout_workers or cores(), self.n_envs)
        making = {"action_repeat": self.config.action_repeat, **self.declared}
        if self.env_id is None:
            self.pool = Streams([self.env], self.seed, [0])
        elif processes > 1 and (is_ours(self.env_id) or ":" in self.env_id):
            # one that is registered in this process alone, no other process can make
            self.pool = Workers(self.env_id, self.seed, self.n_envs, processes, making)
        else:
            envs = [make_env(self.env_id, **making)[0] for _ in range(self.n_envs)]
            self.pool = Streams(envs, self.seed, range(self.n_envs))
        if self.saved_streams is not None:
            self.pool.restore(self.saved_streams)
            self.saved_streams = None
        return self.pool

    def advance(self) -> list[dict[str, float]]:
        """Take one rollout and make one update; return the rows of ended episodes in order."""
        each = decisions(self.config, self.n_envs)
        try:
            parts = self._pool().roll(numpy_policy(self.device.agent), each, self.config.gamma)
        except BaseException:
            if isinstance(self.pool, Workers):  # they have closed themselves
                self.pool = None
            raise
        taken = np.cumsum(np.sum([part.steps for part in parts], axis=0))
        ended = [(x.at, number, x.row) for number, part in enumerate(parts) for x in part.episodes]
        rows = [
            self.record_episode(row | {"multiplier": math.nan}, self.step + int(taken[at]))
            for at, _, row in sorted(ended, key=lambda episode: episode[:2])
        ]
        self.step += int(taken[-1])
        cost, length = self._episode_means(parts)
        stacked: Any = {name: np.stack([getattr(part, name) for part in parts]) for name in SIGNALS}
        stacked |= {"episode_cost": np.float32(cost), "episode_length": np.float32(length)}
        rollout = Rollout(**stacked)
        agent, metrics = self.compiled.update(self.device.agent, rollout)
        self.device = Device(agent)
        self.updates += 1
        for name, x in metrics.items():
            number = float(x)
            if not math.isfinite(number):
                raise NotFiniteError(name, self.step)
            self.metric_sums[name] = self.metric_sums.get(name, 0.0) + number
        self.locals.update(rollout=rollout, metrics=metrics)
        return rows

    def _episode_means(self, parts: list[Roll]) -> tuple[float, float]:
        """Return mean cost and decisions of the episodes that ended in the last rollout with any.

        Before any has ended, these are the cost and decisions so far of the open ones.
        """
        ended = [(x.row["cost"], x.decisions) for part in parts for x in part.episodes]
        if not ended and not math.isnan(self.last_episodes[0]):
            return self.last_episodes
        cost, length = np.mean(ended or [part.open for part in parts], axis=0).tolist()
        if ended:
            self.last_episodes = (cost, length)
        return cost, length

    def last_step(self, until: int) -> int:
        each = decisions(self.config, self.n_envs) * self.n_envs * self.config.action_repeat
        return self.step + -(-(until - self.step) // each) * each

    def take_metrics(self) -> dict[str, float]:
        means = {name: x / self.updates for name, x in self.metric_sums.items()}
        self.metric_sums, self.updates = {}, 0
        return means

    def set_env(self, env: Any, env_id: str | None, declared: dict[str, Any]) -> None:
        self.env, self.env_id, self.declared = env, env_id, declared
        self.n_envs = 1 if env_id is None else self.config.rollout_envs
        self.pool = self.saved_streams = None

    def streams(self) -> list[State] | None:
        return self.saved_streams if self.pool is None else self.pool.states()

    def put_back(self, states: list[State]) -> list[str]:
        if self.env_id is None and self.env is not None:
            return self._pool().restore(states)
        self.saved_streams = states  # until the environments are made
        lost = [content["steps"] for content, values in states if "env" not in values]
        return dropped_note(sum(int(x[:, STEP_COLUMNS.index("steps")].sum()) for x in lost))

    def steps_own_env(self) -> bool:
        return self.env_id is None and self.pool is not None

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays, numbers = super().state()
        last = None if math.isnan(self.last_episodes[0]) else list(self.last_episodes)
        sums = {"metric_sums": self.metric_sums, "updates": self.updates}
        return arrays, numbers | {"last_episodes": last} | sums

    def check_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        if numbers["streams"] is not None:
            number = len(numbers["streams"])
            restored.require(number == self.n_envs, "streams", self.n_envs, number)

    def restore_content(self, arrays: Arrays, numbers: dict[str, Any]) -> None:
        self.last_episodes = tuple(numbers["last_episodes"] or (math.nan, math.nan))
        self.metric_sums, self.updates = numbers["metric_sums"], numbers["updates"]

    def close(self) -> None:
        if isinstance(self.pool, Workers):  # the next run starts from the states of their streams
            pool, self.pool = self.pool, None
            try:
                self.saved_streams = pool.states()
            finally:
                pool.close()


def numpy_policy(state: Any) -> GaussianPolicy:
    """Return the policy in the form that the streams use."""
    return GaussianPolicy(
        layers=[{name: np.asarray(x) for name, x in layer.items()} for layer in state.policy.mean],
        std=np.exp(np.asarray(state.policy.log_std)),
        near=np.asarray(state.scaler.proximity),
        mean=np.asarray(state.scaler.mean),
        obs_std=np.asarray(scaling.std(state.scaler)),
    )
