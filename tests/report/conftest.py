"""A small study that was really run, for all tests of its report."""

from pathlib import Path
from typing import Any

import pytest

from helpers.once import made_once
from probes import SMALL

STUDY: dict[str, Any] = {
    "methods": ["ddpg", "sc", "usc"],
    "tasks": ["CarGoal1"],
    "seeds": [0, 1],
    "steps": 2_100,
    "deployment_episodes": 1,
    "settings": SMALL,
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run really trained, deployed and measured, with maps small enough for a test."""
    return made_once(tmp_path_factory, "report", make)


def make(out: Path) -> None:
    """Train, deploy and measure every run, and build the report."""
    # here, because this file may be read before tests/conftest.py has set XLA's flags
    from helpers.quick import quick_runs
    from safecritic.evaluation import cost_map, theorem
    from safecritic.report.build import build
    from safecritic.study import grid
    from safecritic.study.worker import work

    jobs = grid.jobs_of(STUDY)
    grid.open_folder(out, jobs, "small.toml")
    with pytest.MonkeyPatch.context() as patch, quick_runs():
        patch.setattr(cost_map, "SCENES", cost_map.SCENES[:2])
        patch.setattr(cost_map, "SIZE", 16)
        patch.setattr(cost_map, "ROLLED_SIZE", 3)
        patch.setattr(theorem, "STATES", 16)
        patch.setattr(theorem, "DRAWS", 64)
        for job in jobs:
            work(out, job)
    assert all(grid.done(out, job) for job in jobs)
    build(out)
