"""The way out of a place where a policy without noise would stay for ever.

A deployed policy that pushes against something it cannot move does so to the end of the episode.
So once the budget is used up, if each of the last decisions cost something, the last no less than
half of their mean, and the observation has hardly changed, the opposite of what was tried is done
for a few decisions, and later in turn a corner of the box of actions and the opposite again. A way
out that costs more than staying did is the last of its episode.

A screen may hold up a policy too: every action that leads on costs something, so it takes one that
leads nowhere. If it has changed each of the last decisions and the observation has hardly changed,
it gives way for a few decisions, each time for twice as many. It also gives way while decisions
cost something: it is there to keep out of such a place, and inside it only makes the stay longer.
"""

import math
from typing import NamedTuple

import numpy as np

from .decide import CLIP
from .memory import AFTER, Row

Array = np.ndarray
LENGTH = 3  # decisions for which a way out is held: one alone is undone by the next
NEAR = 1.0  # mean squared change of the scaled observation; 2 between unrelated ones
ROUNDING = 1e-6  # of a total, by which sums of the same costs may differ
FADING = 0.5  # of the mean cost of the last decisions, below which the last one is no stay
SAME = 1e-3  # difference of two actions in [-1, 1] that is none to a plant


def differ(action: Array, proposed: Array) -> bool:
    """Return whether a plant can tell two actions (A,) apart: saturated candidates are the same."""
    pairs = zip(action.tolist(), proposed.tolist(), strict=True)
    return any(abs(x - y) > SAME for x, y in pairs)


class Rule(NamedTuple):
    """What the escape must know of a policy."""

    limit: float  # budget of an episode
    mean: Array  # (O,) of the observation in training, float64
    std: Array  # (O,)


def answer(rule: Rule, row: Row, obs: Array, action: Array, proposed: Array, paid: float) -> Array:
    """Return the action (A,) to do: the screened `action`, unless the policy is stuck.

    Actions are in [-1, 1]; `proposed` is the policy's own, `paid` the cost of the last decision.
    `row.gives_way` says afterwards whether the screen gave way to it.
    """
    row.paid = [*row.paid[1:], paid]
    row.costly = row.costly + 1 if paid > 0.0 else 0
    if row.watched > 0:
        row.watched -= 1
        row.worth -= paid
        row.ends |= row.worth < -ROUNDING * row.cost
    changed = differ(action, proposed)
    overruled = changed and paid > 0.0
    if overruled:
        action, changed = proposed, False
    row.changed = row.changed + 1 if changed else 0
    row.seen = [*row.seen[1:], obs]
    row.tried = [*row.tried[1:], action.astype(np.float64)]
    if row.left == 0 and _is_stuck(rule, row):
        row.gives_way, row.way = False, _next_way(row)
        row.left = row.watched = LENGTH
        row.worth = math.fsum(row.paid) / AFTER * LENGTH
        row.costly = 0
    elif row.left == 0 and row.changed >= AFTER and _stays(rule, row):
        row.gives_way = True
        row.left = LENGTH * 2**row.given
        row.given += 1
        row.changed = 0
    if row.left == 0:
        row.gives_way = overruled
        return action
    row.left -= 1
    return proposed if row.gives_way else row.way


def _is_stuck(rule: Rule, row: Row) -> bool:
    if row.ends or row.costly < AFTER or row.cost <= rule.limit * (1.0 + ROUNDING):
        return False
    on_its_way_out = row.paid[-1] < FADING * math.fsum(row.paid) / AFTER
    return not on_its_way_out and _stays(rule, row)


def _stays(rule: Rule, row: Row) -> bool:
    """Return whether the observation has hardly changed over the last decisions."""
    now, then = (np.clip((row.seen[at] - rule.mean) / rule.std, -CLIP, CLIP) for at in (-1, 0))
    change = now - then
    return float(change @ change) < NEAR * len(change)


def _next_way(row: Row) -> Array:
    number, row.number = row.number, row.number + 1
    if number % 2 == 0:
        return -np.sign(np.mean(row.tried, axis=0)).astype(np.float32)
    size = len(row.tried[-1])
    bits = (number // 2) >> np.arange(size)[::-1]  # the corners in the order of binary numbers
    return (2.0 * (bits & 1) - 1.0).astype(np.float32)
