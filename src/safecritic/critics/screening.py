"""Screening of actions by the safety critic (Algorithm 1)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safecritic import _jax  # noqa: F401
from safecritic.agents.settings import Part, require_not_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class Screen(Part):
    """Algorithm 1, lines 6-9: actions are screened in training and when deployed."""

    TITLE: ClassVar[str] = "screen"

    tolerance: float = 0.2  # Q_C above which an action is screened; paper: 0.3
    tolerance_in: Literal["budget", "cost"] = "budget"  # what is left of the limit; paper: cost
    tolerance_least: float = 0.3  # smallest tolerance of a budget, in typical costs
    screen_choice: Literal["reward", "cost"] = "reward"  # best Q_R within; paper: least Q_C
    screen_price: float = 1.0  # of Q_C where nothing is within, in multipliers of at least 1
    training_tolerance: float = 1.0  # the same in training, as long as there is much to learn
    training_least: float = 0.1  # the smallest in training, in typical costs
    training_price: float = 3.0  # of Q_C in training, in multipliers
    screen_candidates: int = 16  # number of actions tried, N; the paper gives no value
    screen_from: Literal["grid", "uniform", "ou"] = "grid"  # paper: ou, noise on the action
    screen_spread: float = 0.2  # spread of the noise around the action
    escape_after: int = 6  # costly decisions in a row that mean stuck; 0: never; paper: 0
    escape_for: int = 3  # decisions for which the way out is held
    escape_near: float = 1.0  # change of the observation that is none; 2: between unrelated ones

    def check(self) -> None:
        super().check()
        require_positive(self, "screen_candidates")
        require_not_negative(self, "screen_spread", "tolerance_least", "training_least")
        require_not_negative(self, "escape_after")
        require_positive(self, "escape_for", "escape_near")


class Screened(NamedTuple):
    action: jax.Array  # (A,) the action to take
    q_cost: jax.Array  # its Q_C
    screened: jax.Array  # 1 if Q_C of the proposed action exceeded the tolerance
    changed: jax.Array  # 1 if another action was taken
    q_proposed: jax.Array | None = None  # Q_C of the proposed action


def candidates(
    key: jax.Array, action: jax.Array, number: int, source: str, spread: float
) -> jax.Array:
    """Return `number` actions (number, A) in the box, around `action` or uniform over the box.

    "ou" takes independent first steps of the exploration process: action + spread N(0, 1).
    "grid" takes the same actions every time, see `grid`.
    """
    shape = (number, action.shape[-1])
    if source == "grid":
        return jnp.asarray(grid(action.shape[-1], number))
    if source == "uniform":
        return jax.random.uniform(key, shape, jnp.float32, minval=-1.0, maxval=1.0)
    noise = spread * jax.random.normal(key, shape, jnp.float32)
    return jnp.clip(action + noise, -1.0, 1.0)


def grid(dim: int, number: int) -> np.ndarray:
    """Return `number` fixed actions (number, dim) that differ in what the plant does.

    First {-1, 0, 1}^dim, or the corners, or the centre: the largest of these that fits. The rest
    fills the box evenly (a Kronecker sequence).
    """
    first = np.zeros((1, dim))
    for levels in ((-1.0, 0.0, 1.0), (-1.0, 1.0)):
        if len(levels) ** dim <= number:
            first = np.array(list(itertools.product(levels, repeat=dim)))
            break
    ratio = 2.0  # the root of x^(dim + 1) = x + 1, whose powers are far from any fraction
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (dim + 1))
    steps = ratio ** -np.arange(1, dim + 1)
    rest = 2.0 * np.mod(0.5 + np.outer(np.arange(1, number - len(first) + 1), steps), 1.0) - 1.0
    return np.concatenate([first, rest]).astype(np.float32)


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


def choose_within(
    action: jax.Array,
    q: jax.Array,
    others: jax.Array,
    q_others: jax.Array,
    q_reward: jax.Array,
    tolerance: jax.Array,
    price: jax.Array,
    keep: jax.Array,
) -> Screened:
    """Return the action of best Q_R within the tolerance; if none is, of best Q_R - price Q_C.

    The proposed action is the first of `q_reward`, the others follow. With `keep` the action is
    kept where nothing is within.
    """
    actions, q_all = jnp.concatenate([action[None], others]), jnp.append(q, q_others)
    within = q_all <= tolerance
    otherwise = jnp.where(keep, -jnp.arange(len(q_all)), q_reward - price * q_all)
    value = jnp.where(within.any(), jnp.where(within, q_reward, -jnp.inf), otherwise)
    best = jnp.argmax(value)
    return Screened(
        action=actions[best],
        q_cost=q_all[best],
        screened=jnp.ones((), jnp.float32),
        changed=(best > 0).astype(jnp.float32),
    )


def screen(
    key: jax.Array,
    action: jax.Array,
    q_cost: Callable[[jax.Array], jax.Array],
    q_reward: Callable[[jax.Array], jax.Array],
    part: Screen | None,
    tolerance: float | jax.Array,
    price: float | jax.Array = 1.0,
    keep: bool | jax.Array = False,
) -> Screened:
    """Algorithm 1, lines 6-9: keep `action` unless its Q_C exceeds the tolerance.

    `q_cost` and `q_reward` map actions (n, A) to their values (n,) in the present state, Q_C in
    units of `tolerance`; `price` is that of one such unit in units of Q_R, and `keep` says to keep
    an action where nothing is within. Without a screen every action is kept.
    """
    q = q_cost(action[None])[0]

    def unchanged() -> Screened:
        zero = jnp.zeros((), jnp.float32)
        return Screened(action, q, zero, zero)

    if part is None:
        return unchanged()._replace(q_proposed=q)

    def search() -> Screened:
        others = candidates(
            key, action, part.screen_candidates, part.screen_from, part.screen_spread
        )
        if part.screen_choice == "reward":
            limit = jnp.asarray(tolerance, jnp.float32)
            reward = q_reward(jnp.concatenate([action[None], others]))
            cost, kept = jnp.asarray(price, jnp.float32), jnp.asarray(keep)
            return choose_within(action, q, others, q_cost(others), reward, limit, cost, kept)
        return choose(action, q, others, q_cost(others))

    chosen = jax.lax.cond(q > tolerance, search, unchanged)
    return chosen._replace(q_proposed=q)
