"""The safety critic and the actor of a trained agent, evaluated on many rows at once."""

from typing import Any

import numpy as np

ROWS = 16_384  # in one call


class Critic:
    """Q_C and the actor of a trained agent whose method has a Q_C."""

    def __init__(self, agent: Any):
        import jax

        from safecritic.agents import methods

        functions, config = methods.get(agent.method).load_agent(), agent.config
        self._state = agent.training.device.agent
        # taken alone, so that the compiler leaves out the other values
        self._q_cost = jax.jit(lambda s, o, a: functions.values(s, o, a, config)["q_cost"])
        self._actions = jax.jit(lambda s, o: functions.policy(s, o, config))

    @staticmethod
    def of(agent: Any) -> "Critic | None":
        """Return the critic of an agent, or None if its method has no Q_C."""
        spec = agent.training.spec
        values = agent.values(np.zeros((1, spec.obs_dim)), np.zeros((1, spec.action_dim)))
        return Critic(agent) if "q_cost" in values else None

    def q_cost(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Return Q_C of each row (N,)."""
        rows = range(0, len(obs), ROWS)
        parts = [self._q_cost(self._state, obs[i : i + ROWS], action[i : i + ROWS]) for i in rows]
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    def actions(self, obs: np.ndarray) -> np.ndarray:
        """Return the actor's actions (N, A), without noise or screen."""
        return np.asarray(self._actions(self._state, obs))
