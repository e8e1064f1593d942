"""On-policy training: each update uses one rollout of the current policy, then discards it.

    roll     `rollout_steps` steps in `rollout_envs` environments, on all cores
    update   one compiled call on the whole rollout

A rollout has the same number of decisions each time: as many as its steps hold, rounded up. It
takes fewer steps where an episode ends while an action is held. A run advances by whole rollouts,
so its steps are rounded up. `state()`
includes the open episodes of all environments, and a resumed run equals an uninterrupted one.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.agents import scaling
from safecritic.agents.cpo import Rollout
from safecritic.agents.interface import EnvSpec
from safecritic.fast import compilation
from safecritic.run import env_state, records, restored
from safecritic.run.checkpoint import Arrays
from safecritic.run.compiled import act, device_arrays, first_state, restore_device
from safecritic.run.episode import STEP_COLUMNS
from safecritic.run.loop import Loop, NotFiniteError
from safecritic.run.processes import cores
from safecritic.run.rollouts import GaussianPolicy, State, Stream, StreamRollout, Streams, Workers
from safecritic.tasks.adapter import is_ours, make_env

SIGNALS = Rollout._fields[:-2]  # the fields that `StreamRollout` has too


class Compiled(NamedTuple):
    """The functions of one run under jit, and the names of the metrics of an update."""

    init: Any
    act: Any
    deploy: Any
    update: Any
    values: Any
    metrics: tuple[str, ...]


class Device(NamedTuple):
    """The state on the device."""

    agent: Any  # the agent's state


@functools.lru_cache(maxsize=16)
def compile_agent(agent: Any, config: Any, spec: EnvSpec) -> Compiled:
    """Compile the agent's functions; the same settings return the same objects, compiled once."""

    def jit(function: Any, **fixed: Any) -> Any:
        return jax.jit(functools.partial(function, **fixed))

    init = compilation.jit(agent.init, once=True, spec=spec, config=config)
    update = jit(agent.update, config=config)
    state = jax.eval_shape(init, jax.random.PRNGKey(0))
    empty = jax.eval_shape(lambda: empty_rollout(config, spec))
    return Compiled(
        init=init,
        act=jit(act, agent=agent, config=config, explore=True),
        deploy=jit(act, agent=agent, config=config, explore=False),
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
    """One on-policy run: environments, agent, and every counter and random stream.

    The environments are made from `env_id`; without one, `env` alone is stepped.
    """

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
        compilation.use_compilation_cache()
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

    def _streams(self) -> Streams | Workers:
        """Return the streams, starting them if there are none."""
        if self.pool is not None:
            return self.pool
        processes = min(self.config.rollout_workers or cores(), self.n_envs)
        if self.env_id is None:
            self.pool = Streams([Stream(self.env, self.seed, 0)])
        elif processes > 1 and importable_elsewhere(self.env_id):
            self.pool = Workers(self.env_id, self.seed, self.n_envs, processes, self._making())
        else:
            envs = [make_env(self.env_id, **self._making())[0] for _ in range(self.n_envs)]
            self.pool = Streams([Stream(env, self.seed, i) for i, env in enumerate(envs)])
        if self.saved_streams is not None:
            self.pool.restore(self.saved_streams)
            self.saved_streams = None
        return self.pool

    def _making(self) -> dict[str, Any]:
        """Return the keywords with which `make_env` makes a further environment."""
        return {"action_repeat": self.config.action_repeat, **self.declared}

    def advance(self) -> list[dict[str, float]]:
        """Take one rollout and make one update; return the rows of ended episodes in order."""
        each = decisions(self.config, self.n_envs)
        policy = numpy_policy(self.device.agent, self.config)
        try:
            parts = self._streams().roll(policy, each, self.config.gamma, self.step)
        except BaseException:
            if isinstance(self.pool, Workers):  # they have closed themselves
                self.pool = None
            raise
        taken = np.cumsum(np.sum([part.steps for part in parts], axis=0))
        rows = self._rows(parts, taken)
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

    def _rows(self, parts: list[StreamRollout], taken: np.ndarray) -> list[dict[str, float]]:
        """Count the episodes that ended, in order of their decisions; return their rows.

        `taken` are the steps of all environments up to each decision.
        """
        ended = [(t, number, row) for number, part in enumerate(parts) for t, row in part.episodes]
        ended.sort(key=lambda episode: episode[:2])
        return [
            self.record_episode(row | {"multiplier": math.nan}, self.step + int(taken[t]))
            for t, _, row in ended
        ]

    def _episode_means(self, parts: list[StreamRollout]) -> tuple[float, float]:
        """Return mean cost and decisions of the episodes that ended in the last rollout with any.

        Before any has ended, these are the cost and decisions so far of the open ones.
        """
        costs = [row["cost"] for part in parts for _, row in part.episodes]
        if costs:
            lengths = [length for part in parts for length in part.decisions]
            self.last_episodes = (float(np.mean(costs)), float(np.mean(lengths)))
        elif math.isnan(self.last_episodes[0]):
            cost, length = np.mean([part.open for part in parts], axis=0)
            return float(cost), float(length)
        return self.last_episodes

    def last_step(self, until: int) -> int:
        """Return the step at which a run up to `until` ends: with a whole rollout."""
        each = decisions(self.config, self.n_envs) * self.n_envs * self.config.action_repeat
        return self.step + -(-(until - self.step) // each) * each

    def check(self) -> None:
        """Do nothing: `advance` raises NotFiniteError itself."""

    def take_metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call; empty if there were none."""
        means = {name: x / self.updates for name, x in self.metric_sums.items()}
        self.metric_sums, self.updates = {}, 0
        return means

    # ------------------------------------------------------------ checkpoints

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the whole run as arrays and numbers."""
        arrays, numbers = self.counters()
        arrays |= device_arrays(self.device)
        streams = self.saved_streams if self.pool is None else self.pool.states()
        numbers |= {
            "last_episodes": None
            if math.isnan(self.last_episodes[0])
            else list(self.last_episodes),
            "metric_sums": self.metric_sums,
            "updates": self.updates,
            "streams": None if streams is None else [values for _, values in streams],
        }
        for number, (content, _) in enumerate(streams or []):
            arrays |= {f"stream{number}/{name}": x for name, x in content.items()}
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Restore the run from `state()`; return notes on what could not be restored."""
        restored.check_numbers(records.OnPolicyNumbers, numbers)
        restored.check_streams(arrays, numbers["streams"], self.n_envs, self.spec)
        self.device = restore_device(self.device, arrays)
        self.restore_counters(arrays, numbers)
        self.last_episodes = tuple(numbers["last_episodes"] or (math.nan, math.nan))
        self.metric_sums, self.updates = numbers["metric_sums"], numbers["updates"]
        if numbers["streams"] is None:
            return []
        states = []
        for number, values in enumerate(numbers["streams"]):
            prefix = f"stream{number}/"
            content = {
                name.removeprefix(prefix): x
                for name, x in arrays.items()
                if name.startswith(prefix)
            }
            states.append((content, values))
        if self.env_id is None and self.env is not None:
            return self._streams().restore(states)
        self.saved_streams = states
        lost = [content["steps"] for content, values in states if "env" not in values]
        steps = sum(int(table[:, STEP_COLUMNS.index("steps")].sum()) for table in lost)
        return [env_state.dropped_note(steps)] if lost else []

    def close(self) -> None:
        """End the workers; the next run starts again from the states of their streams."""
        if isinstance(self.pool, Workers):
            pool, self.pool = self.pool, None
            try:
                self.saved_streams = pool.states()
            finally:
                pool.close()

    @contextmanager
    def borrowed_env(self) -> Iterator[list[str]]:
        """Lend the environment to the caller and restore it at the end (see `Loop`)."""
        pool = self.pool
        notes: list[str] = []
        if pool is None or self.env_id is not None:  # `env` is not the one being stepped
            yield notes
            return
        states = pool.states()
        try:
            yield notes
        finally:
            notes += pool.restore(states)


def importable_elsewhere(env_id: str) -> bool:
    """Return whether another process can make this environment.

    It cannot if the environment is registered in this process alone.
    """
    return is_ours(env_id) or ":" in env_id


def numpy_policy(state: Any, config: Any) -> GaussianPolicy:
    """Return the policy in the form that the streams use."""
    scaled = config.observation_scaling != "none"
    closeness = np.asarray(state.scaler.closeness)
    mean, var = np.asarray(state.scaler.mean), np.asarray(state.scaler.var)
    return GaussianPolicy(
        layers=[(np.asarray(x["w"]), np.asarray(x["b"])) for x in state.policy.mean],
        std=np.exp(np.asarray(state.policy.log_std)),
        shift=mean if scaled else np.zeros_like(mean),
        spread=np.sqrt(np.maximum(var, np.float32(scaling.LEAST_VARIANCE)))
        if scaled
        else np.ones_like(var),
        closeness=closeness[: None if scaling.widens(config) else 0],
        power=config.sharpening,
        clip=scaling.CLIP if scaled else math.inf,
    )
