"""Certificates: the two bounds, their coverage, the choice of a tolerance, and when one is void."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import safecritic
from deploy import ready
from helpers.policies import certificate_of
from safecritic import USC
from safecritic.api import Agent
from safecritic.cli import main
from safecritic.core.files import read_json, write_json
from safecritic.deploy import certificate as certificates_of
from safecritic.deploy.certificate import certify
from safecritic.deploy.export import prepare, require_valid
from safecritic.deploy.screened import Screened
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


def save(agent: Any, run: Path) -> Any:
    """Save an agent as of step 0, whose checkpoint has an empty replay."""
    device = agent.training.device
    agent.training.device = device._replace(replay=device.replay._replace(size=np.int32(0)))
    agent.save(run)
    return agent


@pytest.mark.slow
def test_a_certificate_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(ready.make("sc", "HalfCheetah", screen={"tolerance": 1.0}), tmp_path / "run")
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


def test_a_certificate_is_of_the_environment_that_was_run() -> None:
    from probes import KeptPoint

    class Elsewhere(KeptPoint):
        pass

    agent = ready.point(USC)
    made = certify(agent, episodes=19, seed=50, onnx=False, env=Elsewhere())
    assert made["environment"]["task"] == "Elsewhere"
    assert not made["environment"]["ours"]
    assert "on Elsewhere, an object of the class" in certificates.statement(made)
    with pytest.raises(ValueError, match="void: it was made on Elsewhere, this policy is for"):
        require_valid(made, prepare(agent, onnx=False))


@pytest.mark.parametrize("cost", [math.inf, math.nan, -5.0, np.ma.masked, None, "1"])
def test_no_cost_of_any_step_is_passed_over(cost: Any) -> None:
    from probes import KeptPoint
    from safecritic.tasks.checks import EnvError

    class Odd(KeptPoint):
        calls = 0

        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            Odd.calls += 1
            return (*rest, info | ({"cost": cost} if Odd.calls > 30 else {}))

    agent = ready.point(USC)
    with pytest.raises((EnvError, ValueError), match="cost"):
        certify(agent, episodes=19, seed=50, onnx=False, env=Odd())


def test_certificates_are_counted_and_never_share_a_scene_with_the_choice(tmp_path: Path) -> None:
    agent, ledger = ready.point(USC), tmp_path / "certificates.json"
    how: dict[str, Any] = {"episodes": 19, "onnx": False, "ledger": ledger}
    first = certify(agent, **how)
    second = certify(agent, seed=77, choose_tolerance=True, **how)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert "certified 1 times before: for the best of 2 certificates the confidence is 90%" in (
        certificates.statement(second)
    )
    assert certify(agent, episodes=19, onnx=False)["attempt"] is None
    scenes = certificates_of.CALIBRATION_SEED
    with pytest.raises(ValueError, match="was chosen on scenes from 2000000 on: certify on others"):
        certify(agent, seed=scenes + 18, **how)
    with pytest.raises(ValueError, match="certify on others than from 2,000,010"):
        certify(agent, seed=scenes + 10, choose_tolerance=True, episodes=19, onnx=False)
    assert len(read_json(ledger)["certificates"]) == 2


def test_episodes_with_an_order_have_no_bound() -> None:
    rng = np.random.default_rng(0)
    costs = np.zeros(99)
    for at in range(1, 99):  # AR(1), where Clopper-Pearson holds in two certificates of three
        costs[at] = 0.9 * costs[at - 1] + rng.exponential()
    told = [certificates.exchangeable(rng.permutation(costs)) for _ in range(100)]
    assert certificates.exchangeable(costs)[1] < certificates.SURPRISE
    assert certificates.exchangeable(np.arange(99.0))[0] < certificates.SURPRISE
    assert np.mean([min(p) < certificates.SURPRISE for p in told]) <= 0.03
    contract = {"cost_limit": 1e6, "task": "CarGoal1", "method": "usc"}
    contract |= {"policy_sha256": "0" * 64, "parameters_sha256": "0" * 64}
    made = certificate_of(contract, costs.tolist())
    assert certificates.headline(made).startswith("CANNOT BE TOLD")
    assert "so no bound holds" in certificates.statement(made)
    kept = certificate_of(contract, rng.permutation(costs).tolist())
    assert certificates.headline(kept).startswith("KEPT")
    kept = certificate_of(contract | {"cost_limit": 0.1}, kept["screen_on"]["costs"])
    assert certificates.headline(kept).startswith("NOT KEPT")


def test_a_certificate_is_checked_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    save(ready.make("sc", "SafetyPointRun0", screen={"tolerance": 1.0}), run)
    words = ["--episodes", "1", "--confidence", "0.5"]
    assert main(["certify", str(run), *words, "--no-onnx"]) == 0
    file = run / "certificate.json"
    assert main(["certify", "--check", str(file)]) == 0
    assert "checked: replayed with the same costs: seeds 1000000" in capsys.readouterr().out
    content = read_json(file)
    for change, text in (
        ({"cost_limit": 1e6}, "was altered"),
        ({"verdict": "NOT KEPT" if content["verdict"] == "KEPT" else "KEPT"}, "was altered"),
        ({"policy_sha256": "0" * 64}, "the certificate is void"),
        ({"confidence": 0.99}, "expected 99 or more"),
    ):
        write_json(file, content | change)
        assert main(["certify", "--check", str(file)]) == 2
        assert text in capsys.readouterr().err
    costs = [content["screen_on"]["costs"][0] + 0.5]
    made = certificates.numbers(costs, [0.0], content["cost_limit"], 0.5)
    forged = content | {"screen_on": content["screen_on"] | made | {"costs": costs}}
    forged["screen_on"]["rewards"] = [0.0]
    write_json(file, forged | {"verdict": certificates.verdict(forged)})
    assert main(["certify", "--check", str(file)]) == 2
    assert "it was not made by this policy and task" in capsys.readouterr().err


def test_a_signature_is_of_the_whole_certificate(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    contract = {"cost_limit": 1.0, "task": "CarGoal1", "method": "usc"}
    contract |= {"policy_sha256": "0" * 64, "parameters_sha256": "0" * 64}
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    pem = s.Encoding.PEM
    private = keys[0].private_bytes(pem, s.PrivateFormat.PKCS8, s.NoEncryption())
    (tmp_path / "key").write_bytes(private)
    for name, key in zip(("mine", "other"), keys, strict=True):
        public = key.public_key().public_bytes(pem, s.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / name).write_bytes(public)
    made = certificates_of.sign(certificate_of(contract, [0.5] * 19), tmp_path / "key")
    file = tmp_path / "certificate.json"
    write_json(file, made)

    def check(key: str) -> list[str]:
        return certificates_of.check_file(file, Agent.load, key=tmp_path / key)[1]

    assert f"signed with the key in {tmp_path / 'mine'}" in check("mine")
    with pytest.raises(ValueError, match="signed with another key"):
        check("other")
    write_json(file, made | {"versions": {"numpy": "0"}})
    with pytest.raises(ValueError, match="the signature does not fit"):
        check("mine")


POLICY = """
import numpy as np

def act(observation):
    return np.full(2, 0.5)

def words(observation):
    return "left"
"""


def test_any_function_is_certified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_policy.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    words = ["certify", "--env", "SafetyPointRun0", "--episodes", "1", "--confidence", "0.5"]
    assert main([*words, "--policy", "my_policy:act"]) == 0
    assert "KEPT: the 50% bound on the next cost" in capsys.readouterr().out
    made = read_json(tmp_path / "certificate.json")
    assert made["method"] == "my_policy:act"
    env, spent = safecritic.make("SafetyPointRun0"), 0.0
    env.reset(seed=1_000_000)
    ended = False
    while not ended:
        *_, terminated, truncated, info = env.step(np.full(2, 0.5))
        spent, ended = spent + info["cost"], terminated or truncated
    assert made["screen_off"]["costs"] == [spent]
    assert main([*words, "--policy", "my_policy:words"]) == 2
    assert "must return 2 finite numbers" in capsys.readouterr().err


def test_the_screen_of_a_run_round_another_policy() -> None:
    agent = ready.make("usc", "FetchReach")
    env = Screened(agent.env, agent.policy())
    env.reset(seed=0)
    rng, changed = np.random.default_rng(0), 0
    for _ in range(40):
        *_, info = env.step(rng.uniform(-1.0, 1.0, env.action_space.shape))
        changed += info["screen_changed"]
    assert changed > 0
    assert env.policy.spent > 0.0
    agent.env.reset(seed=0)
    with pytest.raises(ValueError, match="ddpg has no screen"):
        Screened(agent.env, ready.make("ddpg", "FetchReach").policy())


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
