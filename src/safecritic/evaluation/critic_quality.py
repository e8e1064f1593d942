"""How good Q_C is: its ranking, bias and error against the costs that followed.

Does Q_C rank the steps that lead to cost above the others (AUC)? Is its mean the realised
discounted cost (ratio)? Is the influence high where Q_C is wrong (rank correlation)?
"""

from collections.abc import Iterable, Sequence
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
    def positive(self) -> np.ndarray:
        """The steps that cost lies ahead of; where it does of all, those of more than the median.

        Without the second rule a cost in every step, such as a distance, would have no AUC.
        """
        if len(self.costly) and self.costly.all():
            return self.realised > np.median(self.realised)
        return self.costly

    @property
    def error(self) -> np.ndarray:
        """The error |Q_C - realised discounted cost| of each step."""
        return np.abs(self.q_cost - self.realised)


def critic_steps(
    episodes: Sequence[Episode], gamma: float, influence: np.ndarray | None = None
) -> CriticSteps:
    """Return Q_C at the steps taken and the costs that followed them.

    Steps without a prediction are left out, and so are the last 1/(1-gamma) steps of an episode
    that a time limit cut off, because their outcome was not seen. `influence` is that of all steps
    of all episodes in their order.
    """
    usable = [usable_steps(episode, gamma) for episode in episodes]

    def gather(columns: Iterable[np.ndarray], kind: type = float) -> np.ndarray:
        parts = [column[mask] for column, mask in zip(columns, usable, strict=True)]
        return np.concatenate([np.zeros(0, kind), *parts])

    if influence is not None:
        influence = np.asarray(influence, np.float64)[np.concatenate(usable)]

    costs = [episode.column("cost") for episode in episodes]
    return CriticSteps(
        gather(episode.column("q_cost") for episode in episodes),
        gather(discounted_sums(cost, gamma) for cost in costs),
        gather((cost_within(cost, discount_horizon(gamma)) for cost in costs), bool),
        influence,
    )


def critic_quality(steps: CriticSteps) -> dict[str, float]:
    """Return the quality of Q_C on some steps; nothing if there is no step."""
    q, truth = steps.q_cost, steps.realised
    if not len(q):
        return {}
    quality = {
        "auc": auc(q, steps.positive),
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


def usable_steps(episode: Episode, gamma: float) -> np.ndarray:
    """Return for each step whether it has a prediction and an outcome that was seen."""
    usable = ~np.isnan(episode.column("q_cost"))
    if not episode.terminated:
        usable[max(len(usable) - discount_horizon(gamma), 0) :] = False
    return usable


def discount_horizon(gamma: float) -> int:
    """Return the number of steps 1/(1-gamma) over which costs count."""
    return round(1.0 / (1.0 - gamma)) if gamma < 1 else 10**9


def cost_within(costs: np.ndarray, horizon: int) -> np.ndarray:
    """Return for each step t whether any of the steps t .. t + horizon - 1 costs something."""
    before = np.concatenate([[0], np.cumsum(costs > 0)])
    ends = np.minimum(np.arange(len(costs)) + horizon, len(costs))
    return before[ends] > before[:-1]


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
