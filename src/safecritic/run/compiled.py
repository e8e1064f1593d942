"""The compiled step of off-policy training: its state on the device and its functions.

`learn` ingests a transition, draws a batch and updates the agent in one call whose buffers are
donated, so the replay is written in place. It also sums the metrics and records the first step at
which one was not finite, because the host reads them only at its log interval.
"""

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic import replay
from safecritic.agents.interface import EnvSpec
from safecritic.fast.compilation import jit
from safecritic.replay import Transition
from safecritic.run.checkpoint import Arrays, CheckpointError
from safecritic.run.episode import ACT_COLUMNS


class Device(NamedTuple):
    """The state that the compiled step reads and writes."""

    agent: Any  # the agent's state
    replay: replay.Replay
    key: jax.Array
    step: jax.Array  # environment steps of the transitions ingested
    updates: jax.Array  # updates since the last log
    metric_sums: jax.Array  # (M,) sums of their metrics
    first_nonfinite_step: jax.Array  # (M,) when a metric was first not finite, 0: never


class Compiled(NamedTuple):
    """The functions of one run under jit, and the names of the metrics in `metric_sums`."""

    init: Any
    act: Any
    deploy: Any
    store: Any
    learn: Any
    end_episode: Any
    values: Any
    metrics: tuple[str, ...]


def pack(
    obs: Any, action: Any, reward: Any, cost: Any, next_obs: Any, ends: Any, steps: int = 1
) -> np.ndarray:
    """Pack a transition into one new float32 row: one transfer, and no view of other arrays.

    `ends` says whether it terminated, was truncated, and succeeded.
    """
    return np.concatenate([obs, action, (reward, cost, steps), next_obs, ends], dtype=np.float32)


def unpack(row: jax.Array, spec: EnvSpec) -> Transition:
    """Return the transition that is packed in a row."""
    o, a = spec.obs_dim, spec.action_dim
    obs, action, (reward, cost, _), next_obs, ends = jnp.split(
        row, [o, o + a, o + a + 3, 2 * o + a + 3]
    )
    return Transition(obs, action, reward, cost, next_obs, *(ends > 0))


def packed_steps(row: jax.Array, spec: EnvSpec) -> jax.Array:
    """Return the number of environment steps of the transition that is packed in a row."""
    return row[spec.obs_dim + spec.action_dim + 2].astype(jnp.int32)


def store(device: Device, row: jax.Array, agent: Any, config: Any, spec: EnvSpec) -> Device:
    """Ingest one transition: update the observation scale and the replay."""
    transition = unpack(row, spec)
    return device._replace(
        agent=agent.observe(device.agent, transition, config),
        replay=replay.insert(device.replay, transition),
        step=device.step + packed_steps(row, spec),
    )


def learn(
    device: Device, row: jax.Array, agent: Any, update: Any, config: Any, spec: EnvSpec
) -> Device:
    """Ingest one transition and make one update on a batch."""
    device = store(device, row, agent, config, spec)
    key, key_batch = jax.random.split(device.key)
    batch = replay.sample(device.replay, key_batch, config)
    state, metrics = update(device.agent, batch)
    values = jnp.stack([metrics[name].astype(jnp.float32) for name in sorted(metrics)])
    first = (device.first_nonfinite_step == 0) & ~jnp.isfinite(values)
    return device._replace(
        agent=state,
        key=key,
        updates=device.updates + 1,
        metric_sums=device.metric_sums + values,
        first_nonfinite_step=jnp.where(first, device.step, device.first_nonfinite_step),
    )


def act(
    state: Any, obs: jax.Array, spent: jax.Array, agent: Any, config: Any, explore: bool
) -> tuple[Any, Any]:
    """Act, and return the fields of the state that changed and the packed result.

    The result is one array, the action followed by ACT_COLUMNS: one transfer to the host. Behind
    them, without exploration, are the action that the policy proposed and its Q_C.
    """
    action, carry, info = agent.act(state, obs, spent, config, explore)
    columns = [jnp.asarray(info.get(name, jnp.nan), jnp.float32) for name in ACT_COLUMNS]
    packed = [action, jnp.stack(columns)]
    if not explore:
        q_proposed = jnp.asarray(info.get("q_proposed", jnp.nan), jnp.float32)
        packed += [info.get("proposed", action), q_proposed[None]]
    return carry, jnp.concatenate(packed)


@functools.lru_cache(maxsize=16)
def compile_agent(agent: Any, config: Any, spec: EnvSpec) -> Compiled:
    """Compile the agent's functions; the same settings return the same objects, compiled once."""

    def first_metrics(key: jax.Array) -> dict[str, jax.Array]:
        device = init_device(key, agent, config, spec, metrics=0)
        return update(device.agent, replay.sample(device.replay, key, config))[1]

    # under jit by itself: traced once for both uses
    update = jax.jit(functools.partial(agent.update, config=config))
    metrics = tuple(sorted(jax.eval_shape(first_metrics, jax.random.PRNGKey(0))))
    return Compiled(
        init=jit(
            init_device, once=True, agent=agent, config=config, spec=spec, metrics=len(metrics)
        ),
        act=jit(act, agent=agent, config=config, explore=True),
        deploy=jit(act, agent=agent, config=config, explore=False),
        store=jit(store, donate=True, agent=agent, config=config, spec=spec),
        learn=jit(learn, donate=True, agent=agent, update=update, config=config, spec=spec),
        end_episode=jit(agent.end_episode, config=config),
        values=jit(agent.values, config=config),
        metrics=metrics,
    )


# Equal in runs that advance in step. Not stacked, they keep a branch a branch under vmap, and the
# replay is still written in place.
SHARED = re.compile(r"replay/(cursor|size)|agent/curvature/\d+/age")


class StackedRuns(NamedTuple):
    """The functions of `Compiled` for several runs stacked along a first axis."""

    act: Any
    store: Any
    learn: Any
    end_episode: Any  # of one run, given its number
    axes: Device  # 0 where the runs are stacked, None where they share a value


@functools.lru_cache(maxsize=16)
def compile_stacked(agent: Any, config: Any, spec: EnvSpec, metrics: int) -> StackedRuns:
    """Compile each of the agent's functions as one program over several runs."""
    shape = jax.eval_shape(
        functools.partial(init_device, agent=agent, config=config, spec=spec, metrics=metrics),
        jax.random.PRNGKey(0),
    )
    axes: Device = jax.tree_util.tree_map_with_path(
        lambda path, _: None if SHARED.fullmatch(_name(path)) else 0, shape
    )
    one_act = functools.partial(act, agent=agent, config=config, explore=True)
    one_store = functools.partial(store, agent=agent, config=config, spec=spec)
    update = functools.partial(agent.update, config=config)
    one_learn = functools.partial(learn, agent=agent, update=update, config=config, spec=spec)

    def end_one(
        agents: Any, number: jax.Array, cost: jax.Array, decisions: jax.Array
    ) -> tuple[Any, jax.Array]:
        one = unstack(agents, axes.agent, number)
        state, _ = agent.end_episode(one, cost, decisions, config=config)
        agents = jax.tree.map(
            lambda axis, whole, one: one if axis is None else whole.at[number].set(one),
            axes.agent,
            agents,
            state,
            is_leaf=lambda x: x is None,
        )
        return agents, getattr(state, "multiplier", jnp.full((), jnp.nan))

    return StackedRuns(
        act=jit(jax.vmap(one_act, in_axes=(axes.agent, 0, 0))),
        store=jit(jax.vmap(one_store, in_axes=(axes, 0), out_axes=axes), donate=True),
        learn=jit(jax.vmap(one_learn, in_axes=(axes, 0), out_axes=axes), donate=True),
        end_episode=jit(end_one, donate=True),
        axes=axes,
    )


def stack(devices: list[Device], axes: Device) -> Device:
    """Stack the states of several runs, except for what they share."""
    return jax.tree.map(
        # a part that an agent does without is None, as is the axis of what the runs share
        lambda axis, *leaves: (
            jax.tree.map(jnp.copy, leaves[0]) if axis is None else jnp.stack(leaves)
        ),
        axes,
        *devices,
        is_leaf=lambda x: x is None,
    )


def unstack(stacked: Any, axes: Any, number: Any) -> Any:
    """Return run `number` from stacked states of devices or agents."""
    return jax.tree.map(
        lambda axis, whole: jax.tree.map(jnp.copy, whole) if axis is None else whole[number],
        axes,
        stacked,
        is_leaf=lambda x: x is None,
    )


def init_device(key: jax.Array, agent: Any, config: Any, spec: EnvSpec, metrics: int) -> Device:
    """Return the state at the start of a run whose updates log `metrics` numbers."""
    key_agent, key_replay = jax.random.split(key)
    return Device(
        agent=agent.init(key_agent, spec, config),
        replay=replay.init(config.buffer_size, spec.obs_dim, spec.action_dim),
        key=key_replay,
        step=jnp.zeros((), jnp.int32),
        updates=jnp.zeros((), jnp.int32),
        metric_sums=jnp.zeros(metrics, jnp.float32),
        first_nonfinite_step=jnp.zeros(metrics, jnp.int32),
    )


def first_state(init: Any, seed: int, fresh: bool) -> Any:
    """Return the state that `init` gives for a seed; if it is to be restored, its shapes alone."""
    key = jax.random.PRNGKey(seed)
    return init(key) if fresh else jax.eval_shape(init, key)  # shapes take no memory


def device_arrays(device: Any) -> Arrays:
    """Return every array of the device's state by name."""
    return {f"device/{name}": np.asarray(x) for name, x in _named(device)}


def restore_device(template: Any, arrays: Arrays) -> Any:
    """Return the state saved by `device_arrays`; `template` has its structure and shapes."""
    leaves = [_restored(f"device/{name}", arrays, x) for name, x in _named(template)]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _named(tree: Any) -> list[tuple[str, jax.Array]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(_name(path), x) for path, x in leaves]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _restored(name: str, arrays: Arrays, template: jax.Array) -> jax.Array:
    """Return the saved array; fewer replay rows than in `template` fill its first rows."""
    saved = arrays.get(name)
    shape = template.shape
    if saved is None:
        raise CheckpointError(f"the checkpoint has no {name}: another method or version wrote it")
    part = saved.ndim == len(shape) > 0 and saved.shape[1:] == shape[1:]
    if name.startswith("device/replay/") and part and len(saved) < shape[0]:
        whole = np.zeros(shape, template.dtype)
        whole[: len(saved)] = saved
        saved = whole
    if saved.dtype == template.dtype and saved.dtype.kind == "f" and not np.isfinite(saved).all():
        raise CheckpointError(f"{name} in the checkpoint is not finite: no run can go on from it")
    if saved.shape != shape or saved.dtype != template.dtype:
        raise CheckpointError(
            f"{name} is {saved.dtype} {saved.shape} in the checkpoint, expected "
            f"{template.dtype} {shape}: it was written with another task, method or setting"
        )
    return jnp.array(saved)
