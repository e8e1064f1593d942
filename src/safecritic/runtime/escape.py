"""The way out of a place where a policy without noise would stay for ever.

A deployed policy has no noise: where it pushes against something it cannot move, it does so to the
end of the episode, and the critic, which sees no action that helps at once, lets it. So once the
budget is used up, if each of the last decisions cost something, the last no less than half of their
mean, and the observation has hardly changed meanwhile, the opposite of what was tried is done for a
few decisions, and after that, in turn, a corner of the box of actions and the opposite again. A way
out that costs more than staying did is the last of its episode: the policy was on its way, and is
sent back each time.

A screen may hold up a policy in the same way: every action that leads on costs something, so it
takes one that leads nowhere. If it has changed each of the last decisions and the observation has
hardly changed meanwhile, it gives way: the policy has a few decisions of its own, each time twice
as many as before. It also gives way while decisions cost something: it is there to keep out of
such a place, and inside it a change of mind at every decision only makes the stay longer.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

Array = np.ndarray
ROUNDING = 1e-6  # of a total, by which sums of the same costs may differ
FADING = 0.5  # of the mean cost of the last decisions, below which the last one is no stay
SAME = 1e-3  # difference of two actions in [-1, 1] that is none to a plant


def differ(action: Array, proposed: Array) -> bool:
    """Return whether a plant can tell two actions (A,) apart.

    A screen may take a candidate for what is the same action, saturated, and which of the two it
    takes is a matter of rounding.
    """
    pairs = zip(action.tolist(), proposed.tolist(), strict=True)
    return any(abs(x - y) > SAME for x, y in pairs)


class Rule(NamedTuple):
    """When to escape, and for how long."""

    after: int  # decisions in a row that cost something, or that the screen changed
    length: int  # decisions for which the way out is held
    near: float  # mean squared change of the scaled observation; 2 between unrelated ones
    limit: float  # budget of an episode
    mean: Array  # (O,) of the observation in training
    spread: Array  # (O,)
    clip: float


class Escape:
    """Watches the decisions of an episode and answers in the place of the policy if it is stuck."""

    def __init__(self, rule: Rule):
        self.rule = rule
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._seen: deque[Array] = deque(maxlen=self.rule.after)
        self._tried: deque[Array] = deque(maxlen=self.rule.after)
        self._costly = 0  # decisions in a row
        self._paid: deque[float] = deque(maxlen=self.rule.after)  # for each of the last decisions
        self._watched = 0  # decisions of a way out whose cost is not known yet
        self._worth = 0.0  # what a way out may still cost before staying had been better
        self._ends = False  # no more ways out in this episode
        self._before: float | None = None  # what was spent at the last decision
        self._changed = 0  # decisions in a row that the screen changed
        self.gives_way = False  # the way out is the policy's own action
        self._given = 0  # times that the screen gave way
        self._left = 0  # decisions for which the way out is still held
        self._number = 0  # of ways out so far
        self._way = np.zeros(0, np.float32)

    def __call__(self, obs: Array, action: Array, spent: float, proposed: Array) -> Array | None:
        """Return the action (A,) to do in the place of the screened `action`, or None.

        Actions are in [-1, 1]; `proposed` is the policy's own. `obs` (O,) is as the environment
        gives it, `spent` what the episode has cost so far.
        """
        rule = self.rule
        changed = differ(action, proposed)
        pays = self._pay(spent)
        overruled = pays and changed
        if overruled:
            action, changed = proposed, False
        self._changed = self._changed + 1 if changed else 0
        self._seen.append(np.array(obs))  # a copy: the caller may use its array again
        self._tried.append(np.asarray(action, np.float64))
        if self._left == 0 and self._is_stuck(spent):
            self.gives_way, self._way = False, self._next_way()
            self._left = self._watched = rule.length
            self._worth = float(np.mean(self._paid)) * rule.length
            self._costly = 0
        elif self._left == 0 and self._changed >= rule.after and self._stays():
            self.gives_way = True
            self._left = rule.length * 2**self._given  # each time for longer
            self._given += 1
            self._changed = 0
        if self._left == 0:
            self.gives_way = overruled
            return np.array(proposed, np.float32) if overruled else None
        self._left -= 1
        return np.array(proposed, np.float32) if self.gives_way else self._way

    def _pay(self, spent: float) -> bool:
        """Take down what the last decision cost; return whether it cost something."""
        paid = 0.0 if self._before is None else spent - self._before
        self._before = spent
        self._paid.append(paid)
        self._costly = self._costly + 1 if paid > 0.0 else 0
        if self._watched > 0:
            self._watched -= 1
            self._worth -= paid
            self._ends |= self._worth < -ROUNDING * spent
        return paid > 0.0

    def _is_stuck(self, spent: float) -> bool:
        rule = self.rule
        if self._ends or self._costly < rule.after or spent <= rule.limit * (1.0 + ROUNDING):
            return False
        if self._paid[-1] < FADING * float(np.mean(self._paid)):
            return False  # it is on its way out
        return self._stays()

    def _stays(self) -> bool:
        change = self._scaled(self._seen[-1])
        change -= self._scaled(self._seen[0])
        return float(change @ change) < self.rule.near * len(change)

    def _scaled(self, obs: Array) -> Array:
        scaled: Array = np.subtract(obs, self.rule.mean, dtype=np.float64)
        scaled /= self.rule.spread
        np.minimum(scaled, self.rule.clip, out=scaled)  # np.clip takes three times as long
        return np.maximum(scaled, -self.rule.clip, out=scaled)

    def _next_way(self) -> Array:
        number, self._number = self._number, self._number + 1
        if number % 2 == 0:
            return -np.sign(np.mean(self._tried, axis=0)).astype(np.float32)
        size = len(self._tried[-1])
        bits = (number // 2) >> np.arange(size)[::-1]  # the corners in the order of binary numbers
        return (2.0 * (bits & 1) - 1.0).astype(np.float32)
