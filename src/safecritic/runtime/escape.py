"""The way out of a place where a policy without noise would pay for ever.

A deployed policy has no noise: where it pushes against something it cannot move, it does so to the
end of the episode, and the critic, which sees no action that helps at once, lets it. So once the
budget is used up, if each of the last decisions cost something and the observation has hardly
changed meanwhile, the opposite of what was tried is done for a few decisions, and after that, in
turn, a corner of the box of actions and the opposite again.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

Array = np.ndarray
ROUNDING = 1e-6  # of a budget, by which sums of the same costs may differ


class Rule(NamedTuple):
    """When to escape, and for how long."""

    after: int  # decisions in a row that cost something
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
        self._before: float | None = None  # what was spent at the last decision
        self._left = 0  # decisions for which the way out is still held
        self._number = 0  # of ways out so far
        self._way = np.zeros(0, np.float32)

    def __call__(self, obs: Array, action: Array, spent: float) -> Array | None:
        """Return the action (A,) to do in the place of the policy's `action`, or None.

        Both are in [-1, 1]. `obs` (O,) is as the environment gives it, `spent` what the episode
        has cost so far.
        """
        rule = self.rule
        if self._before is not None:
            self._costly = self._costly + 1 if spent > self._before else 0
        self._before = spent
        scaled = (np.asarray(obs, np.float64) - rule.mean) / rule.spread
        self._seen.append(np.clip(scaled, -rule.clip, rule.clip))
        self._tried.append(np.asarray(action, np.float64))
        if self._left == 0 and self._is_stuck(spent):
            self._way = self._next_way()
            self._left = rule.length
            self._costly = 0
        if self._left == 0:
            return None
        self._left -= 1
        return self._way

    def _is_stuck(self, spent: float) -> bool:
        rule = self.rule
        if self._costly < rule.after or spent <= rule.limit * (1.0 + ROUNDING):
            return False
        return float(np.mean((self._seen[-1] - self._seen[0]) ** 2)) < rule.near

    def _next_way(self) -> Array:
        number, self._number = self._number, self._number + 1
        if number % 2 == 0:
            return -np.sign(np.mean(self._tried, axis=0)).astype(np.float32)
        size = len(self._tried[-1])
        bits = (number // 2) >> np.arange(size)[::-1]  # the corners in the order of binary numbers
        return (2.0 * (bits & 1) - 1.0).astype(np.float32)
