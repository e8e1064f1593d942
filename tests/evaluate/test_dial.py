"""One policy at several tolerances, and which of them keeps a limit."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from probes import KeptPoint
from safecritic import DDPG, USC, cli
from safecritic.evaluate.dial import FACTORS, SEED, Dial, Setting, dial

TINY = {"hidden": (16, 16), "learning_starts": 50, "cost_limit": 1.0, "screen.tolerance": 0.05}


def setting(tolerance: float, cost: float, reward: float) -> Setting:
    """Return a setting whose scenes differ by a tenth of the cost."""
    return Setting(tolerance, cost * np.tile([0.9, 1.1], 10), np.full(20, reward))


def test_the_setting_of_most_reward_within_the_limit_is_chosen() -> None:
    settings = [setting(math.inf, 20.0, 18.0), setting(2.0, 12.0, 15.0), setting(0.5, 4.0, 11.0)]
    found = Dial("Mine", settings, (25.0, 12.1, 5.0, 3.0), 0)
    best = [found.choose(limit) for limit in found.limits]
    assert best == [settings[0], settings[2], settings[2], None]  # 12.0 is not told from 12.1
    words = found.words
    assert words[0] == "limit 25: without screen, reward 18 at cost 20 (80% of it)"
    assert words[2] == "limit 5: --tolerance 0.5, reward 11 at cost 4 (80% of it)"
    assert words[3].startswith("limit 3: no tolerance keeps it; the least cost is 4 (--tolerance")
    assert "--tolerance 2" in repr(found)


@pytest.mark.slow
def test_settings_are_the_deployed_policy_in_the_same_scenes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = USC("probes:KeptPoint-v0", seed=0, **TINY).learn(300)
    found = dial(agent, episodes=3)
    assert len(found.settings) == len(FACTORS)
    for at, screen in ((0, False), (FACTORS.index(1.0), True)):
        evaluation = agent.evaluate(episodes=3, seed=SEED, screen=screen)
        assert found.settings[at].cost.value == pytest.approx(evaluation.means["cost"])
        assert found.settings[at].reward == pytest.approx(evaluation.means["reward"])
    assert found.limits == (1.0,)

    agent.save(tmp_path / "run")
    command = ["dial", str(tmp_path / "run"), "--trust-env", "--episodes", "3"]
    assert cli.main([*command, "--limits", "1", "2"]) == 0
    text = capsys.readouterr().out
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("limit")] == [
        "limit 1",
        "limit 2",
    ]
    content = json.loads((tmp_path / "run/dial.json").read_text())
    assert content["settings"][0]["tolerance"] is None  # no screen
    costs = [row["costs"] for row in content["settings"]]
    assert costs == [x.costs.tolist() for x in found.settings]
    assert Image.open(tmp_path / "run/dial.png").size == (1080, 630)


def test_what_has_no_screen_has_no_dial() -> None:
    with pytest.raises(ValueError, match="ddpg has no screen"):
        dial(DDPG(KeptPoint(), seed=0, cost_limit=1.0))
