"""`tasks ENV`: what was understood of an environment, before any training."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import TESTS
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
    assert "`safecritic limits ENV`" in text
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


def test_a_module_in_the_current_folder_is_found_where_it_is_named(tmp_path: Path) -> None:
    shutil.copy(TESTS / "own_envs.py", tmp_path / "own_envs.py")
    script = "import sys; from safecritic import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-P", "-c", script, "tasks"]  # -P: as the command `safecritic`

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True)

    done = run("own_envs:Hall-v0", "--cost-key", "damage")
    assert (done.returncode, done.stdout[:7]) == (0, "Hall-v0"), done.stderr
    (tmp_path / "wandb.py").write_text("raise SystemExit('a stranger ran')")
    assert not cli.names_own_module("evaluate", ["run"])
    assert cli.names_own_module("evaluate", ["run", "--trust-env"])
