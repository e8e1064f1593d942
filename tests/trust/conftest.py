"""A run and a study to attack, made once, and a file outside of them that must stay as it is."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from safecritic.tasks.navigation.rules import FORMS
from studies import write_measured_study

# short episodes, so that there are lines in the tables of a short run
SHORT = (FORMS, "Goal1", replace(FORMS["Goal1"], horizon=40))


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the car tasks of these tests the horizon of the run that they attack."""
    monkeypatch.setitem(*SHORT)


@pytest.fixture(scope="session")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on a task of the package, with two checkpoints, a summary and an evaluation."""
    from safecritic import DDPG
    from safecritic.run.loop import Intervals

    out = tmp_path_factory.mktemp("good") / "run"
    small = {"hidden": (8,), "batch_size": 16, "buffer_size": 150, "learning_starts": 40}
    every = Intervals(log_every=50, critic_every=50, checkpoint_every=100)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr("safecritic.api.draw_curves", lambda folder: (folder / "curves.png").touch())
        patch.setitem(*SHORT)
        agent = DDPG("CarGoal1", seed=1, **small)
        agent.learn(210, out=out, every=every)
        agent.evaluate(1).save(out / "evaluation.json")
    return out


@pytest.fixture(scope="session")
def good_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose finished runs have all that a report can show."""
    return write_measured_study(tmp_path_factory.mktemp("good") / "study")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that no command on a folder may touch."""
    path = tmp_path / "outside" / "precious.txt"
    path.parent.mkdir()
    path.write_text("precious")
    return path
