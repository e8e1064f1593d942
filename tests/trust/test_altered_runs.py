"""Altered run folders: each is refused with one clear error, or the alteration changes nothing."""

import random
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.alterations import alter, assert_clear, repeat
from safecritic.api import Agent
from safecritic.core.files import FileError
from safecritic.run.folder import read_episodes
from safecritic.run.loop import Intervals

pytestmark = pytest.mark.slow

OBSERVATION = np.linspace(-0.5, 0.5, 72).astype(np.float32)
KINDS = (
    "config.json",
    "checkpoint.json",
    "*.safetensors",
    "*.csv",
    "summary.json",
    "previous.json",
)


def use(run: Path) -> np.ndarray:
    """Do what `evaluate`, `show` and `--resume` do with a folder before they take their time."""
    agent = Agent.load(run)
    action, _ = agent.predict(OBSERVATION)
    assert agent._tables is not None
    read_episodes(run, agent._tables["episodes"])
    agent._finish_folder()
    agent._open(run, False, 1_000, Intervals()).close()
    return action


def attacked(
    good: Path, folder: Path, kind: str, number: int, outside: Path, expected: np.ndarray
) -> str:
    """Alter a copy of a run and use it; return what happened."""
    rng = random.Random(number)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    path = rng.choice(sorted(folder.rglob(kind)))
    done = alter(folder, path, rng, outside)
    start = time.monotonic()
    try:
        action = use(folder)
    except (FileError, ValueError) as error:
        assert_clear(str(error), done)
        return "refused"
    finally:
        assert outside.read_text() == "precious", done
        assert time.monotonic() - start < 20, done
    if "checksum" not in done:
        np.testing.assert_array_equal(action, expected, err_msg=done)
    return "harmless"


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_file_is_refused_or_harmless(
    good_run: Path, tmp_path: Path, outside: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecritic.api.draw_curves", lambda folder: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    expected, _ = Agent.load(good_run).predict(OBSERVATION)
    outcomes: list[str] = []

    def attack(number: int) -> None:
        outcomes.append(attacked(good_run, tmp_path / "run", kind, number, outside, expected))

    repeat(attack, 100)
    # the alterations do bite; what is left of the checkpoint before is used only if asked for
    assert outcomes.count("refused") > (0 if kind == "previous.json" else 10)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500 * 1024
