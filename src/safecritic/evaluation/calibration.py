"""Does the influence u know where the critic errs? Curves and one number for each.

Error is |Q_C - realised discounted cost| of a step. All functions take arrays (N,) of u and of
the error of the same N steps.
"""

from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluation.critic_quality import rank_correlation

__all__ = ["Reliability", "RiskCoverage", "rank_correlation", "reliability", "risk_coverage"]


class Reliability(NamedTuple):
    """Mean u and mean error of groups of steps of equal number, from low u to high."""

    influence: np.ndarray
    error: np.ndarray
    count: np.ndarray  # type: ignore[assignment]


class RiskCoverage(NamedTuple):
    """Risk: the mean error of the share of steps (coverage) with the least u.

    ``area`` is the mean of the risk over the coverages 1/N .. 1; ``random`` what an order that
    knows nothing has (the mean error), ``oracle`` what the order by the error itself has.
    ``excess`` is (area - oracle) / (random - oracle): 0 for the oracle, 1 for chance.
    """

    coverage: np.ndarray
    risk: np.ndarray
    area: float
    random: float
    oracle: float
    excess: float


def reliability(u: np.ndarray, error: np.ndarray, groups: int = 10) -> Reliability:
    """Steps sorted by u and cut into ``groups`` parts whose sizes differ by one at most."""
    u, error = _checked(u, error)
    parts = np.array_split(np.argsort(u, kind="stable"), min(groups, len(u)))
    return Reliability(
        influence=np.array([u[part].mean() for part in parts]),
        error=np.array([error[part].mean() for part in parts]),
        count=np.array([len(part) for part in parts]),
    )


def risk_coverage(u: np.ndarray, error: np.ndarray) -> RiskCoverage:
    """Ties in u are shared: every one of the tied steps counts with their mean error."""
    u, error = _checked(u, error)
    _, group = np.unique(u, return_inverse=True)
    shared = (np.bincount(group, error) / np.bincount(group))[group]
    number = np.arange(1, len(u) + 1)
    risk = np.cumsum(shared[np.argsort(u, kind="stable")]) / number
    best = np.cumsum(np.sort(error)) / number
    area, random, oracle = float(risk.mean()), float(error.mean()), float(best.mean())
    spread = random - oracle
    excess = (area - oracle) / spread if spread > 0 else float("nan")
    return RiskCoverage(number / len(u), risk, area, random, oracle, excess)


def calibrated(influence: np.ndarray, error: np.ndarray) -> dict[str, float]:
    """One number for each curve."""
    curve = risk_coverage(influence, error)
    return {
        "rank_correlation": rank_correlation(influence, error),
        "area": curve.area,
        "random": curve.random,
        "oracle": curve.oracle,
        "excess": curve.excess,
    }


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure the influence at the steps of an evaluation; numbers where there is one."""
    if critic is None:
        return None
    steps = evaluation.steps
    arrays = {"steps/q_cost": steps.q_cost, "steps/realised": steps.realised}
    if steps.influence is None or not len(steps.influence):
        return None, arrays
    arrays["steps/influence"] = steps.influence
    return calibrated(steps.influence, steps.error), arrays


def _checked(u: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u, error = np.asarray(u, np.float64), np.asarray(error, np.float64)
    if u.shape != error.shape or u.ndim != 1 or not len(u):
        raise ValueError(f"u and error must be (N,) with N > 0, got {u.shape} and {error.shape}")
    return u, error
