"""How good Q_C is against the costs that followed.

Does Q_C rank the steps that lead to cost above the others (AUC)? Is its mean the realised
discounted cost (ratio)? Is the influence high where Q_C is wrong (rank correlation)?
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from safecritic.run.episode import Episode, discounted_sums


class CriticSteps(NamedTuple):
    """Steps with a prediction of Q_C and an outcome that was seen; each array is (N,)."""

    q_cost: np.ndarray
    realised: np.ndarray  # discounted cost that followed
    costly: np.ndarray  # whether any of the next 1/(1-gamma) steps cost something
    influence: np.ndarray | None = None

    @property
    def error(self) -> np.ndarray:
        """The error |Q_C - realised discounted cost| of each step."""
        return np.abs(self.q_cost - self.realised)


def critic_steps(
    episodes: Sequence[Episode], gamma: float, influence: np.ndarray | None = None
) -> CriticSteps:
    """Return Q_C at the steps taken and the costs that followed; `influence` is that of all steps.

    Steps without a prediction are left out, and the last 1/(1-gamma) steps of an episode that a
    time limit cut off, because their outcome was not seen.
    """
    horizon = round(1.0 / (1.0 - gamma)) if gamma < 1 else 10**9  # over which costs count
    nothing = np.zeros(0, bool)
    columns, kept = [(np.zeros(0), np.zeros(0), nothing)], [nothing]
    for episode in episodes:
        q, costs = episode.column("q_cost"), episode.column("cost")
        usable = ~np.isnan(q)
        if not episode.terminated:
            usable[max(len(usable) - horizon, 0) :] = False
        realised, before = discounted_sums(costs, gamma), np.cumsum([0, *(costs > 0)])
        ends = np.minimum(np.arange(len(costs)) + horizon, len(costs))
        costly = before[ends] > before[:-1]  # whether one of the next `horizon` steps costs
        columns.append((q[usable], realised[usable], costly[usable]))
        kept.append(usable)
    q, realised, costly = (np.concatenate(column) for column in zip(*columns, strict=True))
    kept_influence = None if influence is None else influence[np.concatenate(kept)]
    return CriticSteps(q, realised, costly, kept_influence)


def critic_quality(steps: CriticSteps) -> dict[str, float]:
    """Return the quality of Q_C on some steps; nothing if there is no step."""
    q, truth = steps.q_cost, steps.realised
    if not len(q):
        return {}
    positive = steps.costly  # where cost lies ahead
    if positive.all():  # such as a distance, which would have no AUC
        positive = truth > np.median(truth)
    quality = {
        "auc": auc(q, positive),
        "q_mean": float(q.mean()),
        "realised_mean": float(truth.mean()),
        "ratio": float(q.mean() / truth.mean()) if truth.mean() > 0 else float("nan"),
        "error_mean": float(steps.error.mean()),
        "steps": float(len(q)),
    }
    if steps.influence is not None:
        quality["influence_error_correlation"] = rank_correlation(steps.influence, steps.error)
    return quality


def episode_critic_quality(episodes: Sequence[Episode], gamma: float) -> dict[str, float]:
    """Return the quality of Q_C on the steps of some episodes, as a training run logs it."""
    return critic_quality(critic_steps(episodes, gamma))


# ---------------------------------------------------------------- its parts


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the chance that a positive outranks a negative, ties counting half."""
    from scipy.stats import rankdata  # half a second to import: not before it is needed

    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return float("nan")
    excess = rankdata(scores)[positive].sum() - n_positive * (n_positive + 1) / 2
    return float(excess / (n_positive * n_negative))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation; NaN if one of the two is constant."""
    from scipy.stats import spearmanr

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")  # where SciPy would warn
    return float(spearmanr(x, y).statistic)
