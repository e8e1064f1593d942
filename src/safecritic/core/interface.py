"""What an agent is to the rest of the package: a few pure functions on a state. Imports no JAX.

An agent is a module (or any object) with these functions; its state is one frozen pytree.

    init         key, spec, settings            -> state
    act          state, observation (O,), cost  -> action (A,), carry, info
    update       state, batch                   -> state, metrics
    observe      state, transition              -> state with the transition in its scales
    end_episode  state, episode's cost, length  -> state, metrics
    values       state, observations, actions   -> what the agent predicts, by name
    policy       state, observations (N, O)     -> actions (N, A) without noise or screen

`cost` is the cost of the episode so far, `carry` the parts of the state that acting changes;
`info` may have `q_cost`, `screened` and `changed`. An on-policy agent has no `observe` and no
`end_episode`; its batch is a rollout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import jax

    Metrics = dict[str, jax.Array]
    Carry = dict[str, jax.Array]
else:
    Metrics = Carry = dict


class EnvSpec(NamedTuple):
    """What an agent knows of its environment; actions always lie in [-1, 1]."""

    obs_dim: int
    action_dim: int
    cost_max: float | None = None  # largest cost of one decision, if known
    proximity: tuple[int, ...] = ()  # places of declared proximity inputs: in [0, 1], 1 for near
