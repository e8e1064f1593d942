"""Certificates: the two bounds, their coverage, the choice of a tolerance, and when one is void."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from deploy import ready
from safecritic import USC
from safecritic.api import Agent
from safecritic.cli import main
from safecritic.core.files import read_json
from safecritic.deploy.certificate import certify
from safecritic.deploy.export import prepare, require_valid
from safecritic.runtime import certificate as certificates
from safecritic.runtime import load
from safecritic.runtime.certificate import conformal_bound, rate_bound


def test_the_conformal_bound_is_an_order_statistic() -> None:
    costs = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    assert conformal_bound(costs, 0.95) == 95.0
    assert conformal_bound(costs[:19], 0.95) == costs[:19].max()
    assert conformal_bound(costs[:18], 0.95) == math.inf
    assert [certificates.least_episodes(c) for c in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]


@pytest.mark.parametrize(("above", "episodes"), [(0, 99), (1, 99), (7, 50), (49, 50)])
def test_the_rate_bound_inverts_the_binomial(above: int, episodes: int) -> None:
    rate = rate_bound(above, episodes, 0.95)
    assert binom.cdf(above, episodes, rate) == pytest.approx(0.05)
    assert rate_bound(episodes, episodes, 0.95) == 1.0


def test_the_bounds_hold_as_often_as_promised() -> None:
    """200 certificates of 99 of 2,000 episodes, costs as tasks have them: mostly 0, a long tail."""
    rng = np.random.default_rng(0)
    pool = np.where(rng.random(2_000) < 0.4, 0.0, rng.lognormal(-1.0, 1.2, 2_000)).round(1)
    limit, confidence = 2.0, 0.95
    true_rate = (pool > limit).mean()
    covered, right = [], []
    for _ in range(200):
        order = rng.permutation(2_000)
        certifying, later = pool[order[:99]], pool[order[99:]]
        covered.append((later <= conformal_bound(certifying, confidence)).mean())
        right.append(true_rate <= rate_bound(int((certifying > limit).sum()), 99, confidence))
    # the promise is on the mean over certificates: for costs without ties it is met exactly, so
    # that of 200 of them is allowed three standard errors
    assert np.mean(covered) >= confidence - 3 * np.std(covered) / np.sqrt(200)
    assert np.mean(right) >= confidence
    assert min(covered) < confidence  # a certificate on its own may fall below


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_the_conformal_bound_covers_each_episode_left_out_as_often_as_promised(
    confidence: float,
) -> None:
    """Exactly, whatever the costs are: each of n + 1 episodes is the next one once."""
    rng = np.random.default_rng(0)
    for costs in (rng.random(200), rng.lognormal(0.0, 2.0, 150).round(), np.zeros(120)):
        left_out = [np.delete(costs, at) for at in range(len(costs))]
        held = [c <= conformal_bound(o, confidence) for c, o in zip(costs, left_out, strict=True)]
        assert np.mean(held) >= confidence


@pytest.mark.slow
def test_a_certificate_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ready.make("sc", "HalfCheetah", screen={"tolerance": 1.0})
    device = agent.training.device  # a checkpoint of step 0 has an empty replay
    agent.training.device = device._replace(replay=device.replay._replace(size=np.int32(0)))
    agent.save(tmp_path / "run")
    words = ["certify", str(tmp_path / "run"), "--episodes", "9", "--confidence", "0.9"]
    assert main([*words, "--choose-tolerance", "--no-onnx"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    made = read_json(tmp_path / "run" / "certificate.json")
    assert text.startswith(certificates.headline(made))  # the verdict comes first
    assert certificates.statement(made) in text
    on, off, chosen = made["screen_on"], made["screen_off"], made["choice_of_tolerance"]
    assert on["bound"] == max(on["costs"])
    assert len(off["costs"]) == 9
    assert on["above"] == sum(cost > 0.1 for cost in on["costs"])
    assert "with a probability of at least 90%" in certificates.statement(made)
    assert made["tolerance"] == chosen["tolerance"]
    assert chosen["seed"] != made["seed"]
    # the largest within the limit, or else that of the least bound
    bounds = [row["bound"] for row in chosen["tried"]]
    assert [row["tolerance"] for row in chosen["tried"]] == [8.0, 4.0, 2.0, 1.0, 0.5, 0.25,
                                                             0.125, 0.0][: len(bounds)]  # fmt: skip
    assert all(bound > 0.1 for bound in bounds[:-1])
    if not chosen["within_limit"]:
        assert bounds[[r["tolerance"] for r in chosen["tried"]].index(made["tolerance"])] == min(
            bounds
        )

    out = tmp_path / "policy.safecritic"
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--no-onnx"]) == 0
    policy = load(out)
    assert policy.certificate == made
    assert policy.contract["network"]["screen"]["tolerance"] == made["tolerance"]

    # other parameters, or another tolerance: void
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--tolerance", "0.3"]) == 0
    assert "left out: the certificate is void" in capsys.readouterr().out
    assert load(out).certificate is None
    other = ready.make("sc", "HalfCheetah", seed=1)
    with pytest.raises(ValueError, match="void: it was made for the policy"):
        require_valid(made, prepare(other, onnx=False))
    with pytest.raises(ValueError, match="void"):
        other.export(out, certificate=made, onnx=False)
    assert isinstance(Agent.load(tmp_path / "run"), Agent)


def test_too_few_episodes_are_refused() -> None:
    agent = ready.make("ddpg", "HalfCheetah")
    with pytest.raises(
        ValueError, match=r"episodes must be >= 19 for a confidence of 0\.95, got 10"
    ):
        certify(agent, episodes=10)
    with pytest.raises(ValueError, match="no screen, so there is no tolerance to choose"):
        certify(agent, episodes=19, choose_tolerance=True)


def test_the_certificate_is_of_the_episodes_of_evaluate() -> None:
    agent = ready.point(USC, action_repeat=2)
    evaluation = agent.evaluate(episodes=19, seed=50)
    made = certify(agent, episodes=19, seed=50, onnx=False)["screen_on"]
    assert made["costs"] == [row["cost"] for row in evaluation.episodes]
    np.testing.assert_allclose(made["rewards"], [row["reward"] for row in evaluation.episodes])
    assert made["faults"] == 0
    assert 0.0 < evaluation.means["screen_changed"] < 1.0
    assert len(set(made["costs"])) > 2
