"""Small agents, replay buffers with made-up rows, and comparisons of states."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from helpers.quick import jit
from safecritic.agents import methods
from safecritic.core import replay
from safecritic.core.interface import EnvSpec

SPEC = EnvSpec(obs_dim=4, action_dim=2, cost_max=1.0)
SMALL: dict[str, Any] = {
    "hidden": (8,),
    "batch_size": 8,
    "learning_starts": 8,
    "refinement.top": 3,
    "refinement.neighbours": 2,
}


sample = jit(replay.sample, static_argnames="config")


def settings(
    name: str,
    small: dict[str, Any] = SMALL,
    paper_defaults: bool = False,
    **changes: Any,
) -> Any:
    """Return a method's settings: `small` as far as the method has them, then `changes`."""
    off = {part for part, value in changes.items() if value is False}
    names = methods.get(name).setting_names(paper_defaults)
    usable = {key: x for key, x in small.items() if key in names and key.split(".")[0] not in off}
    return methods.make_config(name, None, paper_defaults, **(usable | changes))


def start(name: str, config: Any, seed: int = 0, spec: EnvSpec = SPEC) -> Any:
    """Return the first state of a method's agent."""
    init = jit(methods.get(name).load_agent(config).init, static_argnums=(1, 2))
    return init(jax.random.key(seed), spec, config)


@cache
def stepper(name: str, config: Any) -> tuple[Callable[..., Any], list[int]]:
    """Return a compiled step (observe, sample, update) and the list it adds to when traced."""
    agent, traces = methods.get(name).load_agent(config), []

    @jit
    def step(state: Any, store: replay.Replay, key: jax.Array) -> Any:
        traces.append(1)
        state = agent.observe(state, row(store), config)
        return agent.update(state, replay.sample(store, key, config), config)

    return step, traces


def filled_replay(spec: EnvSpec, rows: int, capacity: int = 64, **columns: Any) -> replay.Replay:
    """Return a replay buffer with random observations and actions, and the `columns` given.

    A column is a function of the random generator and the number of rows.
    """
    rng = np.random.default_rng(0)
    store = replay.init(capacity, spec.obs_dim, spec.action_dim)
    defaults: dict[str, Any] = {
        "obs": lambda rng, n: rng.normal(size=(n, spec.obs_dim)),
        "action": lambda rng, n: rng.uniform(-1, 1, size=(n, spec.action_dim)),
        "reward": lambda rng, n: rng.normal(size=n),
        "cost": lambda rng, n: rng.random(n),
        "next_obs": lambda rng, n: rng.normal(size=(n, spec.obs_dim)),
        "terminated": lambda rng, n: rng.random(n) < 0.1,
        "success": lambda rng, n: rng.random(n) < 0.5,
    }
    for name, column in (defaults | columns).items():
        stored = np.array(getattr(store, name))
        stored[:rows] = column(rng, rows)
        store = store._replace(**{name: jnp.asarray(stored)})
    return store._replace(size=jnp.int32(rows), cursor=jnp.int32(rows))


def costly_replay(rows: int = 40) -> replay.Replay:
    """Return rows with large observations and now and then a cost."""
    return filled_replay(
        SPEC,
        rows,
        obs=lambda rng, n: 5 * rng.normal(size=(n, 4)),
        cost=lambda rng, n: 0.2 * (rng.random(n) < 0.3),
        next_obs=lambda rng, n: 5 * rng.normal(size=(n, 4)),
    )


def row(store: replay.Replay, number: int = 0) -> replay.Transition:
    """Return one row of a replay buffer as the transition it was."""
    return replay.Transition(*(getattr(store, name)[number] for name in replay.Transition._fields))


def numbers(tree: Any) -> list[np.ndarray]:
    """Return every array of a tree as plain numbers, random keys included."""
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def assert_same(first: Any, second: Any, **tolerance: float) -> None:
    """Assert that two trees hold the same numbers, to the bit or within a tolerance."""
    for a, b in zip(numbers(first), numbers(second), strict=True):
        if tolerance:
            np.testing.assert_allclose(a, b, **tolerance)
        else:
            np.testing.assert_array_equal(a, b)
