"""Screening of actions by the safety critic (Algorithm 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from safecritic import _jax  # noqa: F401
from safecritic.agents.settings import Part, require_not_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class Screen(Part):
    """Algorithm 1, lines 6-9: actions are screened in training and when deployed."""

    TITLE: ClassVar[str] = "screen"

    tolerance: float = 3.0  # Q_C above which an action is screened; paper: 0.3
    tolerance_in: Literal["cost", "limits"] = "cost"  # unit of the tolerance; paper: cost
    screen_candidates: int = 16  # number of actions tried, N; the paper gives no value
    screen_from: Literal["ou", "uniform"] = "ou"  # near the action, or over the box
    screen_spread: float = 0.2  # spread of the noise around the action

    def check(self) -> None:
        super().check()
        require_positive(self, "screen_candidates")
        require_not_negative(self, "screen_spread")


class Screened(NamedTuple):
    action: jax.Array  # (A,) the action to take
    q_cost: jax.Array  # its Q_C
    screened: jax.Array  # 1 if Q_C of the proposed action exceeded the tolerance
    changed: jax.Array  # 1 if another action was taken


def candidates(
    key: jax.Array, action: jax.Array, number: int, source: str, spread: float
) -> jax.Array:
    """Return `number` actions (number, A) in the box, around `action` or uniform over the box.

    "ou" takes independent first steps of the exploration process: action + spread N(0, 1).
    """
    shape = (number, action.shape[-1])
    if source == "uniform":
        return jax.random.uniform(key, shape, jnp.float32, minval=-1.0, maxval=1.0)
    noise = spread * jax.random.normal(key, shape, jnp.float32)
    return jnp.clip(action + noise, -1.0, 1.0)


def choose(action: jax.Array, q: jax.Array, others: jax.Array, q_others: jax.Array) -> Screened:
    """Algorithm 1, line 8: the action of least Q_C among the proposed one and the candidates."""
    best = jnp.argmin(q_others)
    better = q_others[best] < q
    return Screened(
        action=jnp.where(better, others[best], action),
        q_cost=jnp.minimum(q, q_others[best]),
        screened=jnp.ones((), jnp.float32),
        changed=better.astype(jnp.float32),
    )


def screen(
    key: jax.Array,
    action: jax.Array,
    q_cost: Callable[[jax.Array], jax.Array],
    part: Screen | None,
    tolerance: float | jax.Array,
) -> Screened:
    """Algorithm 1, lines 6-9: keep `action` unless its Q_C exceeds the tolerance.

    `q_cost` maps actions (n, A) to their Q_C (n,) in the present state, in units of `tolerance`.
    Without a screen every action is kept.
    """
    q = q_cost(action[None])[0]

    def keep() -> Screened:
        zero = jnp.zeros((), jnp.float32)
        return Screened(action, q, zero, zero)

    if part is None:
        return keep()

    def search() -> Screened:
        others = candidates(
            key, action, part.screen_candidates, part.screen_from, part.screen_spread
        )
        return choose(action, q, others, q_cost(others))

    return jax.lax.cond(q > tolerance, search, keep)
