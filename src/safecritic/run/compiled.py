"""The compiled step of off-policy training: its state on the device and its functions.

`learn` ingests a transition, draws a batch and updates the agent in one call whose buffers are
donated, so the replay is written in place. The host reads metrics only at its log interval: until
then their sums are kept, and the first step at which one was not finite.
"""

import contextlib
import functools
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.core import replay
from safecritic.core.compilation import jit
from safecritic.core.interface import EnvSpec
from safecritic.core.replay import Transition
from safecritic.run.checkpoint import Arrays, CheckpointError
from safecritic.run.episode import ACT_COLUMNS
from safecritic.run.rollout import Transition as Made


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
    """The functions of one run under jit, and the names of the metrics of an update."""

    init: Any
    act: Any
    values: Any
    metrics: tuple[str, ...]
    store: Any = None  # off-policy, as are learn and end_episode
    learn: Any = None
    end_episode: Any = None
    update: Any = None  # on-policy


def pack(made: Made) -> np.ndarray:
    """Pack a transition into one new float32 row: one transfer, and no view of other arrays."""
    numbers = (made.reward, made.cost, made.steps)
    ends = (made.terminated, made.truncated, made.success)
    return np.concatenate([made.obs, made.action, numbers, made.next_obs, ends], dtype=np.float32)


def cut_off(row: np.ndarray) -> np.ndarray:
    """Return a packed transition whose episode goes no further: truncated, unless it ended."""
    row = row.copy()
    row[-2] = float(row[-2] or not row[-3])
    return row


def unpack(row: jax.Array, spec: EnvSpec) -> Transition:
    """Return the transition that is packed in a row."""
    o, a = spec.obs_dim, spec.action_dim
    obs, action, (reward, cost, _), next_obs, ends = jnp.split(
        row, [o, o + a, o + a + 3, 2 * o + a + 3]
    )
    return Transition(obs, action, reward, cost, next_obs, *(ends > 0))


def store(device: Device, row: jax.Array, agent: Any, config: Any, spec: EnvSpec) -> Device:
    """Ingest one transition: update the observation scale and the replay."""
    transition = unpack(row, spec)
    steps = row[spec.obs_dim + spec.action_dim + 2].astype(jnp.int32)
    return device._replace(
        agent=agent.observe(device.agent, transition, config),
        replay=replay.insert(device.replay, transition),
        step=device.step + steps,
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
    state: Any, obs: jax.Array, cost_so_far: jax.Array, agent: Any, config: Any
) -> tuple[Any, Any]:
    """Act with exploration; return what changed, and action and ACT_COLUMNS in one array."""
    action, carry, info = agent.act(state, obs, cost_so_far, config, explore=True)
    columns = [jnp.asarray(info.get(name, jnp.nan), jnp.float32) for name in ACT_COLUMNS]
    return carry, jnp.concatenate([action, jnp.stack(columns)])


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
        init=jit(init_device, agent=agent, config=config, spec=spec, metrics=len(metrics)),
        act=jit(act, agent=agent, config=config),
        store=jit(store, donate=True, agent=agent, config=config, spec=spec),
        learn=jit(learn, donate=True, agent=agent, update=update, config=config, spec=spec),
        end_episode=jit(agent.end_episode, config=config),
        values=jit(agent.values, config=config),
        metrics=metrics,
    )


def compile_ahead(compiled: Compiled, device: Device, spec: EnvSpec) -> list[threading.Thread]:
    """Compile in threads what the first learning step needs, while the caller does other things.

    A call that comes after its thread has ended finds the function compiled. There is nothing to do
    where another run with the same settings has compiled it already.
    """
    if compiled.learn._cache_size():
        return []
    number, obs = (jax.ShapeDtypeStruct(x, np.float32) for x in ((), (spec.obs_dim,)))
    row = jax.ShapeDtypeStruct((2 * spec.obs_dim + spec.action_dim + 6,), np.float32)
    shapes = jax.eval_shape(lambda: device)

    def compile_these(*calls: tuple[Any, tuple[Any, ...]]) -> None:
        for function, arguments in calls:
            # an error is raised where the function is called
            with contextlib.suppress(Exception):
                function.lower(*arguments).compile()

    acting = (compiled.act, (shapes.agent, obs, number))
    ending = (compiled.end_episode, (shapes.agent, number, number))
    plan = ([(compiled.learn, (shapes, row))], [acting, ending])
    threads = [threading.Thread(target=compile_these, args=calls) for calls in plan]
    for thread in threads:
        thread.start()
    return threads


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
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), x) for path, x in leaves]


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
