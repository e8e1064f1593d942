"""The loop of a method that learns from rollouts of its present policy, and then forgets them.

    roll     `rollout_steps` steps in `rollout_envs` environments, on all cores
    update   one compiled call on the whole rollout

A run advances by whole rollouts, so its steps are rounded up to them. `state()` has the open
episodes of all environments; a resumed run equals the uninterrupted one.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.agents import settings as common
from safecritic.agents.cpo import Rollout
from safecritic.fast.compilation import use_compilation_cache
from safecritic.networks import EnvSpec
from safecritic.run import compiled as device
from safecritic.run import env_state
from safecritic.run.checkpoint import Arrays
from safecritic.run.loop import Loop, NotFiniteError
from safecritic.run.processes import cores
from safecritic.run.rollouts import GaussianPolicy, Rolled, State, Stream, Streams, Workers
from safecritic.tasks.adapter import is_ours, make_env

SIGNALS = Rollout._fields[:-2]  # what `Rolled` has too


class Compiled(NamedTuple):
    init: Any
    act: Any
    deploy: Any
    update: Any
    values: Any
    metrics: tuple[str, ...]


class Device(NamedTuple):
    agent: Any


@functools.lru_cache(maxsize=16)
def compile_agent(agent: Any, config: Any, spec: EnvSpec) -> Compiled:
    """The agent's functions under jit; the same objects for the same settings, so one compile."""

    def jit(function: Any, **fixed: Any) -> Any:
        return jax.jit(functools.partial(function, **fixed))

    init = jit(agent.init, spec=spec, config=config)
    update = jit(agent.update, config=config)
    state = jax.eval_shape(init, jax.random.PRNGKey(0))
    empty = jax.eval_shape(lambda: empty_rollout(config, spec))
    return Compiled(
        init=init,
        act=jit(device.act, agent=agent, config=config, explore=True),
        deploy=jit(device.act, agent=agent, config=config, explore=False),
        update=update,
        values=jit(agent.values, config=config),
        metrics=tuple(sorted(jax.eval_shape(update, state, empty)[1])),
    )


def empty_rollout(config: Any, spec: EnvSpec) -> Rollout:
    shape = (config.rollout_envs, config.rollout_steps // config.rollout_envs)
    obs = jnp.zeros((*shape, spec.obs_dim), jnp.float32)
    signal, end = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool)
    action = jnp.zeros((*shape, spec.action_dim), jnp.float32)
    number = jnp.zeros((), jnp.float32)
    return Rollout(obs, action, signal, signal, obs, end, end, number, number)


class OnPolicyTraining(Loop):
    """One run: environments, an agent, and every counter and random stream.

    `env_id` is what further environments are made from; without it there is the one given.
    """

    def __init__(
        self, env: Any, agent: Any, config: Any, spec: EnvSpec, seed: int, env_id: str | None = None
    ):
        use_compilation_cache()
        super().__init__(env, config, spec, seed)
        self.env_id = env_id
        self.number = 1 if env_id is None else config.rollout_envs
        self.compiled = compile_agent(agent, config, spec)
        self.device = Device(self.compiled.init(jax.random.PRNGKey(seed)))
        self.pool: Streams | Workers | None = None
        self.kept: list[State] | None = None  # of the streams while there is no pool
        self.last_ended = (math.nan, math.nan)  # mean cost and length when episodes last ended
        self.metric_sums: dict[str, float] = {}
        self.updates = 0

    def _streams(self) -> Streams | Workers:
        if self.pool is not None:
            return self.pool
        processes = min(self.config.rollout_workers or cores(), self.number)
        if self.env_id is None:
            self.pool = Streams([Stream(self.env, self.seed, 0)])
        elif processes > 1 and known_elsewhere(self.env_id):
            self.pool = Workers(self.env_id, self.seed, self.number, processes)
        else:
            envs = [make_env(self.env_id)[0] for _ in range(self.number)]
            self.pool = Streams([Stream(env, self.seed, i) for i, env in enumerate(envs)])
        if self.kept is not None:
            self.pool.restore(self.kept)
            self.kept = None
        return self.pool

    def advance(self) -> list[dict[str, float]]:
        """One rollout and one update; the rows of the episodes that ended, in order."""
        steps = self.config.rollout_steps // self.number
        policy = numpy_policy(self.device.agent, self.config)
        try:
            rolled = self._streams().roll(policy, steps, self.config.gamma, self.step)
        except BaseException:
            if isinstance(self.pool, Workers):  # they have closed themselves
                self.pool = None
            raise
        rows = self._rows(rolled)
        self.step += steps * len(rolled)
        cost, length = self._ended(rolled)
        stacked: Any = {name: np.stack([getattr(one, name) for one in rolled]) for name in SIGNALS}
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

    def _rows(self, rolled: list[Rolled]) -> list[dict[str, float]]:
        ended = [(t, number, row) for number, one in enumerate(rolled) for t, row in one.episodes]
        ended.sort(key=lambda found: found[:2])
        return [
            self.note_episode(row | {"multiplier": math.nan}, self.step + (t + 1) * len(rolled))
            for t, _, row in ended
        ]

    def _ended(self, rolled: list[Rolled]) -> tuple[float, float]:
        """Mean cost and length of the episodes that ended, or of the last that did."""
        rows = [row for one in rolled for _, row in one.episodes]
        if rows:
            self.last_ended = (
                float(np.mean([row["cost"] for row in rows])),
                float(np.mean([row["length"] for row in rows])),
            )
        elif math.isnan(self.last_ended[0]):  # none ever did: they cost this much so far
            cost, length = np.mean([one.open for one in rolled], axis=0)
            return float(cost), float(length)
        return self.last_ended

    def check(self) -> None: ...

    def take_metrics(self) -> dict[str, float]:
        """Means over the updates since the last call; empty if there was none."""
        found = {name: x / self.updates for name, x in self.metric_sums.items()}
        self.metric_sums, self.updates = {}, 0
        return found

    # ------------------------------------------------------------ checkpoints

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """All of the run as arrays and numbers."""
        arrays, numbers = self.counters()
        arrays |= device.device_arrays(self.device)
        streams = self.kept if self.pool is None else self.pool.states()
        numbers |= {
            "last_ended": None if math.isnan(self.last_ended[0]) else list(self.last_ended),
            "metric_sums": self.metric_sums,
            "updates": self.updates,
            "streams": None if streams is None else [about for _, about in streams],
        }
        for number, (content, _) in enumerate(streams or []):
            arrays |= {f"stream{number}/{name}": x for name, x in content.items()}
        return arrays, numbers

    def restore(self, arrays: Arrays, numbers: dict[str, Any]) -> list[str]:
        """Go on from `state()`; says what could not be brought back."""
        self.device = device.restored_device(self.device, arrays)
        self.restore_counters(arrays, numbers)
        self.last_ended = tuple(numbers["last_ended"] or (math.nan, math.nan))
        self.metric_sums, self.updates = numbers["metric_sums"], numbers["updates"]
        if numbers["streams"] is None:
            return []
        states = []
        for number, about in enumerate(numbers["streams"]):
            start = f"stream{number}/"
            content = {
                name[len(start) :]: x for name, x in arrays.items() if name.startswith(start)
            }
            states.append((content, about))
        if self.env_id is None and self.env is not None:
            return self._streams().restore(states)
        self.kept = states
        lost = [len(content["steps"]) for content, about in states if "env" not in about]
        return [env_state.LOST.format(steps=sum(lost))] if lost else []

    def close(self) -> None:
        """Workers are let go; their streams' states stay for the next run."""
        if isinstance(self.pool, Workers):
            self.kept = self.pool.states()
            self.pool.close()
            self.pool = None

    @contextmanager
    def borrowed_env(self) -> Iterator[list[str]]:
        """Lend the environment: it may be reset and stepped, and is put back at the end.

        Yields a list to which notes on what could not be put back are added at the end.
        """
        pool = self.pool
        notes: list[str] = []
        if pool is None or self.env_id is not None:
            yield notes
            return
        states = pool.states()
        try:
            yield notes
        finally:
            notes += pool.restore(states)


def known_elsewhere(env_id: str) -> bool:
    """Whether another process can make it: not if only this one has registered it."""
    return is_ours(env_id) or ":" in env_id


def numpy_policy(state: Any, config: Any) -> GaussianPolicy:
    """The policy as the workers use it."""
    scaled = config.observation_scaling != "none"
    mean, var = np.asarray(state.scaler.mean), np.asarray(state.scaler.var)
    return GaussianPolicy(
        layers=[(np.asarray(x["w"]), np.asarray(x["b"])) for x in state.policy.mean],
        std=np.exp(np.asarray(state.policy.log_std)),
        shift=mean if scaled else np.zeros_like(mean),
        spread=np.sqrt(np.maximum(var, np.float32(common.LEAST_VARIANCE)))
        if scaled
        else np.ones_like(var),
        clip=common.CLIP if scaled else math.inf,
    )
