"""Does the safety critic mean something? Ranking, bias and error of Q_C against realised costs.

Does Q_C rank the steps that lead to cost above the others (AUC), is its mean the realised
discounted cost, and does the influence point at its errors?
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from safecritic.run.episode import Episode, discounted_sums


def cost_within(costs: np.ndarray, horizon: int) -> np.ndarray:
    """Whether any of the steps t .. t + horizon - 1 costs something, for every step t."""
    seen = np.concatenate([[0], np.cumsum(costs > 0)])
    ends = np.minimum(np.arange(len(costs)) + horizon, len(costs))
    return seen[ends] > seen[:-1]


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the chance that a positive outranks a negative, ties counting half.

    NaN without one of each.
    """
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


def horizon_of(gamma: float) -> int:
    return round(1.0 / (1.0 - gamma)) if gamma < 1 else 10**9


def judged(episode: Episode, gamma: float) -> np.ndarray:
    """Which steps have a prediction and an outcome that was seen."""
    known = ~np.isnan(episode.column("q_cost"))
    if not episode.terminated:
        known[max(len(known) - horizon_of(gamma), 0) :] = False
    return known


class JudgedSteps(NamedTuple):
    """The steps of some episodes that have a prediction and an outcome, each array (N,)."""

    q_cost: np.ndarray
    realised: np.ndarray  # discounted cost that followed
    costly: np.ndarray  # whether any of the next 1/(1-gamma) steps cost something
    influence: np.ndarray | None = None

    @property
    def error(self) -> np.ndarray:
        return np.abs(self.q_cost - self.realised)


def judged_steps(
    episodes: Sequence[Episode], gamma: float, influence: Sequence[np.ndarray] | None = None
) -> JudgedSteps:
    """Q_C at the steps taken, and the costs that followed them.

    Steps without a prediction are left out, and the last 1/(1-gamma) steps of an episode cut off
    by a time limit, whose outcome was not seen.
    """
    known = [judged(episode, gamma) for episode in episodes]

    def gathered(columns: Iterable[np.ndarray], kind: type = float) -> np.ndarray:
        parts = [column[k] for column, k in zip(columns, known, strict=True)]
        return np.concatenate([np.zeros(0, kind), *parts])

    costs = [episode.column("cost") for episode in episodes]
    return JudgedSteps(
        gathered(episode.column("q_cost") for episode in episodes),
        gathered(discounted_sums(cost, gamma) for cost in costs),
        gathered((cost_within(cost, horizon_of(gamma)) for cost in costs), bool),
        None if influence is None else gathered(np.asarray(u, np.float64) for u in influence),
    )


def critic_figures(steps: JudgedSteps) -> dict[str, float]:
    """Does Q_C mean the cost? Nothing if no step was judged."""
    q, truth = steps.q_cost, steps.realised
    if not len(q):
        return {}
    figures = {
        "auc": auc(q, steps.costly),
        "q_mean": float(q.mean()),
        "realised_mean": float(truth.mean()),
        "ratio": float(q.mean() / truth.mean()) if truth.mean() > 0 else float("nan"),
        "error_mean": float(steps.error.mean()),
        "steps": float(len(q)),
    }
    if steps.influence is not None:
        figures["influence_error_correlation"] = rank_correlation(steps.influence, steps.error)
    return figures


def episode_figures(episodes: Sequence[Episode], gamma: float) -> dict[str, float]:
    """Return the critic's figures on the steps of some episodes, as a training run logs them."""
    return critic_figures(judged_steps(episodes, gamma))
