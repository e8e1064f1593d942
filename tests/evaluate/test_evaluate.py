"""Evaluation of a trained policy: how it reads, and the influence of its steps."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from probes import KeptPoint
from safecritic import SC
from safecritic.evaluate.critic_quality import critic_steps
from safecritic.evaluate.episodes import Evaluation, influence_of


@pytest.fixture
def evaluation() -> Evaluation:
    means = {"reward": 12.354, "cost": 0.8, "success": 0.9}
    critic = {"auc": 0.9314, "ratio": 1.1}
    steps = critic_steps([], 0.95)
    rows = [means | {"episode": number} for number in range(10)]
    return Evaluation(rows, means, critic, 10_000, [], steps, np.zeros((0, 2)), 1.0, screen=True)


def test_an_evaluation_reads_as_a_few_lines(evaluation: Evaluation) -> None:
    assert repr(evaluation).splitlines() == [
        "Evaluation",
        "  policy        deployed: no exploration noise, screen on",
        "  episodes      10, seeds 10000 to 10009",
        "  reward        12.35",
        "  cost          0.80 (limit 1)",
        "  limit         KEPT: mean cost 0.8 of 10 episodes, 95% interval 0.8 to 0.8, limit 1",
        "  success       90%",
        "  AUC of Q_C    0.931 (1 is best, 0.5 is chance)",
        "  ratio of Q_C  1.10 (mean Q_C / realised discounted cost)",
        "  Q_C           USEFUL: AUC 0.93, and it expects 1.10 times the cost that comes",
    ]


def test_numbers_that_do_not_exist_are_left_out(evaluation: Evaluation) -> None:
    means = evaluation.means | {"success": math.nan}
    bare = dataclasses.replace(evaluation, means=means, critic={}, cost_limit=None)
    assert [line.split()[0] for line in repr(bare).splitlines()[1:]] == [
        "policy",
        "episodes",
        "reward",
        "cost",
    ]
    assert repr(bare).endswith("cost          0.80")


def test_influence_is_taken_in_batches_and_put_back_in_order() -> None:
    sizes = []

    def values(obs: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        sizes.append(len(obs))
        return {"influence": obs[:, 0] + action[:, 0]}

    obs, action = np.arange(10.0)[:, None], np.full((10, 1), 0.5)
    assert influence_of(values, obs, action, 4).tolist() == [i + 0.5 for i in range(10)]
    assert sizes == [4, 4, 4]


def test_the_mean_row_is_the_mean_and_the_least_distance_has_its_own_name() -> None:
    evaluation = ready.point(SC).evaluate(episodes=3, seed=5)
    nearest = [row["hazard_distance_min"] for row in evaluation.episodes]
    assert evaluation.means["hazard_distance_min"] == pytest.approx(np.mean(nearest))
    assert evaluation.nearest == min(nearest) < np.mean(nearest)


def test_the_screen_can_be_switched_off() -> None:
    agent = ready.point(SC, **{"screen.tolerance": 0.0})
    on, off = (agent.evaluate(episodes=2, seed=5, screen=screen) for screen in (True, False))
    assert on.means["screened"] > 0.0 == off.means["screened"]
    assert on.means["reward"] != off.means["reward"]
    assert "screen on" in repr(on)
    assert "screen switched off" in repr(off)
    bare = SC(KeptPoint(), cost_limit=0.5, hidden=(16, 16), screen=False)
    bare.training.device = agent.training.device
    plain = bare.evaluate(episodes=2, seed=5)
    assert plain.means["cost"] == off.means["cost"]
    assert plain.screen is None
    assert "screen" not in repr(plain)


class InParts(KeptPoint):
    """A probe that says what its cost is made of."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        half, more = info["cost"] / 2, float(self.steps == 1)
        parts: dict[str, Any] = {"cost_left": half, "cost_start": more, "cost_sum": info["cost"]}
        parts |= {"cost_of": "much", "cost_[bold]": 1.0, "cost_never": 0.0}
        return obs, reward, terminated, truncated, info | parts


def test_what_the_cost_is_made_of(tmp_path: Path) -> None:
    agent = ready.point(SC)
    parted = SC(InParts(), cost_limit=0.5, hidden=(16, 16))
    parted.training.device = agent.training.device
    evaluation = parted.evaluate(episodes=3, seed=5)
    parts = evaluation.cost_parts
    assert set(parts) == {"left", "start", "never"}  # no sum, word or markup
    means = [part.mean for part in parts.values()]
    assert means == sorted(means, reverse=True)
    assert parts["left"].mean == pytest.approx(evaluation.means["cost"] / 2)
    assert parts["left"].mean > 0
    assert (parts["start"], parts["never"]) == ((1.0, 3), (0.0, 0))
    assert "  its parts     " in repr(evaluation)
    evaluation.save(tmp_path / "evaluation.json")
    saved = json.loads((tmp_path / "evaluation.json").read_text())["cost_parts"]
    assert saved["start"] == {"mean": 1.0, "episodes": 3}
    assert "parts" not in repr(agent.evaluate(episodes=1))
