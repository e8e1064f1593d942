"""Does Q_C rank the actions of a state as their true costs do?

stream.ready()                                                # a `run.stream.Stream`
truth = costs_of_actions(stream, policy, actions, gamma)      # (A,) in this state
agreement = rank_agreement(predicted, truths)                 # of (S, A), (S,)
"""

from typing import Any

import numpy as np

from safecritic.evaluate.critic_quality import rank_correlation
from safecritic.evaluate.episodes import discounted_costs
from safecritic.run.episode import discounted_sums
from safecritic.run.stream import Stream, is_restorable


def costs_of_actions(stream: Stream, policy: Any, actions: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted cost of each action (A, D) in this state, then of the policy, (A,)."""
    if not is_restorable(stream.env):
        raise ValueError("the environment cannot be put back: it has no get_checkpoint")
    state, totals = stream.state(), []
    for action in actions:
        costs = [stream.step(action).cost]
        if not stream.episode.ended:
            costs += discounted_costs(stream, policy, gamma)
        totals.append(discounted_sums(np.array(costs), gamma)[0])
        stream.restore(state)
    return np.array(totals)


def rank_agreement(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the rank correlation over each state's actions (S, A) where the truth differs."""
    rows = zip(predicted, truth, strict=True)
    return np.array([np.nan_to_num(rank_correlation(p, t)) for p, t in rows if np.ptp(t) > 0])
