"""Agents ready for export without a training: states filled as one would fill them."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probes import KeptPoint
from safecritic.agent_classes import agent_class
from safecritic.agents import methods
from safecritic.core import scaling
from safecritic.deploy.network import extract
from safecritic.runtime import decide
from safecritic.runtime.network import Network
from safecritic.tasks.adapter import make_env

SIZES: dict[str, Any] = {
    "hidden": (16, 16),
    "batch_size": 16,
    "buffer_size": 512,
    "learning_starts": 60,
    "rollout_steps": 256,
    "rollout_envs": 1,
}


@cache
def observations(task: str, number: int) -> np.ndarray:
    """Return observations (number, O) of a task's episodes under slowly changing actions."""
    env, _ = make_env(task)
    rng = np.random.default_rng(0)
    rows: list[np.ndarray] = []
    episode = 0
    while len(rows) < number:
        obs, _ = env.reset(seed=episode)
        episode += 1
        action = np.zeros(env.action_space.shape)
        for _ in range(200):
            rows.append(np.asarray(obs, np.float32))
            action = np.clip(0.9 * action + 0.4 * rng.standard_normal(action.shape), -1.0, 1.0)
            obs, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated or len(rows) == number:
                break
    env.close()
    return np.stack(rows)


def make(method: str, task: str, seed: int = 0, small: bool = True, **changes: Any) -> Any:
    """Return an agent of a task with weights, scales, units and curvature as after a training."""
    printed = changes.get("paper_defaults", False)
    known = methods.get(method).setting_names(printed)
    sizes = {name: x for name, x in SIZES.items() if name in known} if small else {}
    agent = agent_class(method)(task, seed=seed, **(sizes | changes))
    fill(agent, observations(task, 400), seed)
    return agent


def point(kind: Any, **settings: Any) -> Any:
    """Return an agent of a small probe, ready in the same way."""
    agent = kind(KeptPoint(), cost_limit=0.5, hidden=(16, 16), **settings)
    rng = np.random.default_rng(0)
    rows = np.stack([rng.uniform(-1.0, 1.0, 400), rng.standard_normal(400)], axis=1)
    fill(agent, rows.astype(np.float32), seed=3)
    return agent


def fill(agent: Any, rows: np.ndarray, seed: int) -> None:
    """Fill the state of an agent: nothing in it stays as `init` made it."""
    rng = np.random.default_rng(seed)
    device = agent.training.device
    state, spec = device.agent, agent.training.spec

    def weights(tree: Any) -> Any:
        def drawn(x: jax.Array) -> jax.Array:
            size = 1.5 / np.sqrt(x.shape[0]) if x.ndim == 2 else 0.3
            return jnp.asarray(size * rng.standard_normal(x.shape), jnp.float32)

        return jax.tree.map(drawn, tree)

    changed: dict[str, Any] = {
        "scaler": scaling.scaler_update_many(state.scaler, jnp.asarray(rows))
    }
    for name in ("actor", "reward", "safety"):
        if getattr(state, name, None) is not None:
            changed[name] = weights(getattr(state, name))
    if hasattr(state, "actor"):  # the slow copy is deployed; the one that learns is another
        changed["target_actor"] = changed["actor"]
        changed["actor"] = jax.tree.map(lambda x: 0.5 * x, changed["actor"])
    if hasattr(state, "policy"):
        changed["policy"] = state.policy._replace(mean=weights(state.policy.mean))
    one = jnp.ones((), jnp.float32)
    if getattr(state, "multiplier", None) is not None:
        changed["multiplier"] = 0.4 * one
    cost = state.units.cost._replace(square=1.7 * one, size=0.9 * one, count=400 * one)
    changed["units"] = state.units._replace(cost=cost)
    if hasattr((getattr(state, "curvature", None) or [None])[0], "whitener"):
        changed["curvature"] = tuple(
            c._replace(whitener=jnp.tril(weights(c.whitener))) for c in state.curvature
        )
    device = device._replace(agent=state._replace(**changed))
    if hasattr(device, "replay"):
        store = device.replay
        obs, action = np.array(store.obs), np.array(store.action)
        obs[: len(rows)] = rows
        action[: len(rows)] = rng.uniform(-1.0, 1.0, (len(rows), spec.action_dim))
        store = store._replace(obs=jnp.asarray(obs), action=jnp.asarray(action))
        device = device._replace(replay=store._replace(size=jnp.int32(len(rows))))
    agent.training.device = device
    if hasattr(state, "safety"):
        centre(agent, rows)


def centre(agent: Any, rows: np.ndarray) -> None:
    """Shift the safety critic so that half of what the actor does exceeds a tolerance of 0.3."""
    network = Network(*extract(agent)).parts
    if network.safety is None:
        return
    x = decide.inputs(np, rows, network.near, network.mean, network.std)
    seen = x if network.gains is None else x * network.gains
    z, _ = decide.values(np, network.safety, seen, decide.act(np, network, x)[:, None])
    device = agent.training.device
    *first, last = device.agent.safety[0]
    shifted = last["b"] + jnp.float32(0.3 - np.median(z))
    safety = ((*first, {**last, "b": shifted}),)
    agent.training.device = device._replace(agent=device.agent._replace(safety=safety))
