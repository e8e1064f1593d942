"""Ranking, bias and error of Q_C on cases worked by hand."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from safecritic.evaluate.critic_quality import (
    auc,
    critic_quality,
    critic_steps,
    rank_correlation,
)
from safecritic.run.episode import Episode


def test_auc_is_the_share_of_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 5, 60).astype(float), rng.random(60) < 0.3
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[positive] for n in scores[~positive]]
    assert auc(scores, positive) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert np.isnan(auc(scores, np.zeros(60, bool)))
    assert np.isnan(auc(scores, np.ones(60, bool)))


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 6, 40).astype(float), rng.normal(size=40)
    expected = stats.spearmanr(x, y).statistic
    assert rank_correlation(x, y) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(rank_correlation(np.ones(5), np.arange(5.0)))


def episode(costs: list[float], q: list[float], terminated: bool) -> Episode:
    steps = [(0.0, c, 0.0, np.nan, 1.0, v, 0.0, 0.0) for c, v in zip(costs, q, strict=True)]
    return Episode(steps, terminated, not terminated)


def quality_of(*arguments: Any) -> dict[str, float]:
    return critic_quality(critic_steps(*arguments))


def test_quality_by_hand() -> None:
    # gamma 0.5: the horizon is 2 steps
    first = episode([0.0, 0.0, 1.0], [0.1, 0.7, 0.9], terminated=True)
    # steps 2 and 3 of the truncated one are left out: what would have come is not known
    second = episode([0.0, 0.0, 0.0, 1.0], [0.2, np.nan, 9.0, 9.0], terminated=False)
    influence = np.array([1.0, 3.0, 0.5, 2.0, 0.0, 0.0, 0.0])
    quality = quality_of([first, second], 0.5, influence)
    truth = np.array([0.25, 0.5, 1.0, 0.125])
    q = np.array([0.1, 0.7, 0.9, 0.2])
    assert quality["steps"] == 4
    assert quality["auc"] == 1.0  # positives: 0.7 and 0.9, negatives: 0.1 and 0.2
    assert quality["q_mean"] == pytest.approx(q.mean())
    assert quality["realised_mean"] == pytest.approx(truth.mean())
    assert quality["ratio"] == pytest.approx(q.mean() / truth.mean())
    assert quality["error_mean"] == pytest.approx(np.abs(q - truth).mean())
    expected = stats.spearmanr([1.0, 3.0, 0.5, 2.0], np.abs(q - truth)).statistic
    assert quality["influence_error_correlation"] == pytest.approx(expected)


def test_quality_without_cost_or_without_prediction() -> None:
    calm = quality_of([episode([0.0] * 3, [0.1] * 3, True)], 0.5)
    assert np.isnan(calm["auc"])
    assert np.isnan(calm["ratio"])
    assert quality_of([episode([1.0], [np.nan], True)], 0.5) == {}
    assert quality_of([], 0.5) == {}
