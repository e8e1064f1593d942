"""Is the influence u high where the safety critic is wrong? Two curves, and a number for each.

The error of a step is |Q_C - realised discounted cost|. The functions take arrays (N,) of u and of
the error of the same N steps.
"""

from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluate.critic_quality import rank_correlation


class Reliability(NamedTuple):
    """Mean u and mean error of equally large groups of steps, from low u to high."""

    influence: np.ndarray
    error: np.ndarray
    count: np.ndarray  # type: ignore[assignment]


class RiskCoverage(NamedTuple):
    """The risk at each coverage: the mean error of that share of the steps, those with least u."""

    coverage: np.ndarray
    risk: np.ndarray
    area: float  # mean risk over the coverages 1/N .. 1
    random: float  # that of an order that knows nothing: the mean error
    oracle: float  # that of the order by the error itself
    excess: float  # (area - oracle) / (random - oracle): 0 for the oracle, 1 for chance


def reliability(u: np.ndarray, error: np.ndarray, groups: int = 10) -> Reliability:
    """Return the means of `groups` parts of the steps sorted by u; sizes differ by one at most."""
    u, error = _checked(u, error)
    parts = np.array_split(np.argsort(u, kind="stable"), min(groups, len(u)))
    columns = ([u[x].mean() for x in parts], [error[x].mean() for x in parts], map(len, parts))
    return Reliability(*(np.array(list(column)) for column in columns))


def risk_coverage(u: np.ndarray, error: np.ndarray) -> RiskCoverage:
    """Return the risk-coverage curve; steps with equal u all count with their mean error."""
    u, error = _checked(u, error)
    _, group = np.unique(u, return_inverse=True)
    shared = (np.bincount(group, error) / np.bincount(group))[group]
    number = np.arange(1, len(u) + 1)
    risk = np.cumsum(shared[np.argsort(u, kind="stable")]) / number
    best = np.cumsum(np.sort(error)) / number
    area, random, oracle = float(risk.mean()), float(error.mean()), float(best.mean())
    gap = random - oracle
    excess = (area - oracle) / gap if gap > 0 else float("nan")
    return RiskCoverage(number / len(u), risk, area, random, oracle, excess)


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure the calibration at the steps of an evaluation; no numbers without an influence."""
    if critic is None:
        return None
    steps = evaluation.steps
    arrays = {"steps/q_cost": steps.q_cost, "steps/realised": steps.realised}
    if steps.influence is None or not len(steps.influence):
        return None, arrays
    arrays["steps/influence"] = steps.influence
    curve = risk_coverage(steps.influence, steps.error)
    numbers = {"rank_correlation": rank_correlation(steps.influence, steps.error)}
    names = ("area", "random", "oracle", "excess")
    return numbers | {name: getattr(curve, name) for name in names}, arrays


def _checked(u: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u, error = np.asarray(u, np.float64), np.asarray(error, np.float64)
    if u.shape != error.shape or u.ndim != 1 or not len(u):
        raise ValueError(f"u and error must be (N,) with N > 0, got {u.shape} and {error.shape}")
    return u, error
