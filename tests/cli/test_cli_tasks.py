"""`tasks ENV`: what was understood of an environment, before any training."""

import subprocess
import sys

import pytest

from safecritic import cli


def test_any_environment_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "Pendulum-v1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Pendulum-v1\n  observation  3 numbers\n")
    assert "  cost         none found: info has no keys\n" in text
    flags = ["--cost-key", "damage", "--proximity", "lidar", "--success-key", "won"]
    assert cli.main(["tasks", "own_envs:Hall-v0", *flags]) == 0
    text = capsys.readouterr().out
    assert "  proximity    0-1, declared: in [0, 1], 1 for near\n" in text
    assert "  cost         info['damage']\n" in text
    assert "choose a budget and give\n               it with --cost-limit" in text
    assert cli.main(["tasks", "own_envs:Hall-v0", "--no-cost"]) == 0
    assert "only ddpg can be trained" in capsys.readouterr().out


def test_a_task_of_ours_is_described_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "cargoal2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("CarGoal2: drive to the goal past 10 hazards and 10 vases\n")
    assert text.endswith("  limit        5 per episode, the task's (--cost-limit for another)\n")


def test_describing_imports_no_jax() -> None:
    script = (
        "import sys; from safecritic import cli; cli.main(['tasks', 'Pendulum-v1']);"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
