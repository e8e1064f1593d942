"""Which limits bind: what policies cost, in words, as a file and as a picture."""

import json
from pathlib import Path

import pytest
from PIL import Image

from safecritic import cli
from safecritic.study.limits import BOUND, FREE, RANDOM, STILL, Limits, Policy


def found(still: float, free: float, bound: float) -> Limits:
    """Return limits as if each policy had cost this much, give or take a tenth."""
    costs = {STILL: still, RANDOM: 9.0, FREE: free, BOUND: bound}
    policies = {
        name: Policy(
            name, "", [{"cost": cost * x, "reward": x, "success": 1.0} for x in (0.9, 1.1)]
        )
        for name, cost in costs.items()
    }
    return Limits("Mine", 1_000, policies)


def test_a_limit_binds_between_the_constrained_and_the_unconstrained_policy() -> None:
    limits = found(still=0.5, free=10.0, bound=2.0)
    assert limits.range == pytest.approx((2.0, 10.0))
    assert limits.suggestion == 6.0
    assert "A limit above 10 asks for nothing" in limits.words
    assert "Limits from 2 to 10 bind" in limits.words
    assert "Standing still costs 0.5" in limits.words
    assert "--cost-limit 6 " in limits.words


def test_where_nothing_binds_it_says_so() -> None:
    assert "costs nothing" in found(0.0, 0.0, 0.0).words
    dear = found(0.0, 2.0, 3.0)
    assert dear.suggestion is None
    assert "costs no less than the unconstrained one, 2" in dear.words


@pytest.mark.slow
@pytest.mark.usefixtures("quick_runs")
def test_the_command_prints_writes_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["limits", "own_envs:Hall-v0", "--cost-key", "damage"]
    assert cli.main([*command, "--steps", "300", "--episodes", "2"]) == 0
    text = capsys.readouterr().out
    content = json.loads((tmp_path / "limits/Hall-v0/limits.json").read_text())
    costs = {name: [row["cost"] for row in rows] for name, rows in content["policies"].items()}
    assert list(costs) == [STILL, RANDOM, FREE, BOUND]
    assert costs[STILL] == [0.0, 0.0]
    assert f"{sum(costs[FREE]) / 2:.2f}" in text
    assert Image.open(tmp_path / "limits/Hall-v0/limits.png").size == (1080, 630)
    assert cli.main([*command[:2], "--no-cost", "--steps", "300"]) == 2
    assert "leave out --no-cost" in capsys.readouterr().err
