"""An agent whose every number is known, a callback that records, and short runs on the probes."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probes import SMALL, KeptPoint
from safecritic.agents import methods
from safecritic.core.interface import EnvSpec
from safecritic.evaluate.critic_quality import episode_critic_quality
from safecritic.run.callbacks import BaseCallback
from safecritic.run.episode import EPISODE_COLUMNS
from safecritic.run.loop import Intervals, Loop
from safecritic.run.off_policy import OffPolicyTraining

SPEC = EnvSpec(obs_dim=2, action_dim=1, cost_max=0.5)
EVERY = Intervals(log_every=50, critic_every=100, checkpoint_every=10_000)
CONFIG = methods.make_config("ddpg", None, **SMALL)


class FakeState(NamedTuple):
    key: jax.Array
    noise: jax.Array
    seen: jax.Array
    updates: jax.Array
    multiplier: jax.Array


class FakeAgent:
    """An agent with known numbers: its action is 0.5, its loss the number of the update."""

    def __init__(self, bad_update: int = 0, bad_action: int = 0):
        self.bad_update, self.bad_action = bad_update, bad_action

    def init(self, key: Any, spec: Any, config: Any) -> FakeState:
        self.action_dim = spec.action_dim
        # separate buffers: a donated one must not be passed twice
        return FakeState(key, *(jnp.full((), x, jnp.float32) for x in (0, 0, 0, 1)))

    def act(self, state: FakeState, obs: Any, spent: Any, config: Any, explore: bool) -> Any:
        bad = (state.updates == self.bad_action) & (self.bad_action > 0)
        action = jnp.where(bad, jnp.nan, jnp.full(self.action_dim, 0.5, jnp.float32))
        carry = {"key": state.key, "noise": state.noise + 1}
        return action, carry, {"q_cost": obs[0], "screened": 1.0, "changed": 0.0}

    def observe(self, state: FakeState, transition: Any, config: Any) -> FakeState:
        return state._replace(seen=state.seen + 1)

    def update(self, state: FakeState, batch: Any, config: Any) -> Any:
        updates = state.updates + 1
        bad = (updates == self.bad_update) & (self.bad_update > 0)
        loss = jnp.where(bad, jnp.inf, updates)
        return state._replace(updates=updates), {"b/loss": loss, "a/one": jnp.ones(())}

    def end_episode(self, state: FakeState, episode_cost: Any, decisions: Any, config: Any) -> Any:
        return state._replace(multiplier=state.multiplier + episode_cost), {}

    def values(self, state: FakeState, obs: Any, action: Any, config: Any) -> Any:
        return {}


class Recorder(BaseCallback):
    """Keeps the rows and the metrics of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []
        self.metrics: list[dict[str, float]] = []

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def _on_log(self, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)


fake_agent = cache(FakeAgent)  # the same agent is compiled once


def fake_training(env: Any = None, **bad: int) -> OffPolicyTraining:
    """Return a run of the fake agent that measures its safety critic."""
    return OffPolicyTraining(
        env or KeptPoint(), fake_agent(**bad), CONFIG, SPEC, 0, episode_critic_quality
    )


def small_training(name: str, env: Any = None, seed: int = 0) -> OffPolicyTraining:
    """Return a run of a real method with small networks."""
    tiny = {"refinement.top": 4, "safety.steps": 3}
    config = methods.make_config(name, None, **SMALL, **(tiny if name == "usc" else {}))
    return OffPolicyTraining(env or KeptPoint(), methods.get(name).load_agent(), config, SPEC, seed)


def assert_same_state(one: Loop, other: Loop) -> None:
    """Assert that every array and number of the two runs is the same, to the bit."""
    (a, m), (b, n) = one.state(), other.state()
    assert m == n
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].tobytes() == b[name].tobytes(), name


def row_of_ones() -> dict[str, float]:
    return dict.fromkeys(EPISODE_COLUMNS, 1.0)
