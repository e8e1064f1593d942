"""One run of a study: its budget and its core."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from safecritic.run import processes
from safecritic.study import grid
from safecritic.study.worker import work
from studies import FILE, write_file

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_worker_stays_on_the_cores_its_study_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As under taskset or in a container, whose cores need not be numbered from 0."""
    monkeypatch.setattr(processes, "_held", [])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: chosen.append(cores))
    for number in range(3):
        processes.use_core(number)
    assert chosen == [{3}, {5}, {3}]
    # workers of two studies, both the first of theirs
    processes._held.clear()
    for _ in range(3):
        processes.use_core(0)
    assert chosen[3:] == [{3}, {5}, {3}]
    # where locks are not to be had, the number decides
    processes._held.clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    processes.use_core(1)
    processes.use_core(1)
    assert chosen[6:] == [{5}, {5}]


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_episodes_are_a_budget(tmp_path: Path) -> None:
    (job, *_) = grid.read(write_file(tmp_path, FILE + "\n[method.ddpg]\ntrain_episodes = 3\n"))
    said: list[dict[str, Any]] = []
    grid.open_folder(tmp_path, [job], "here")
    work(tmp_path, job, lambda **about: said.append(about))
    assert grid.done(tmp_path, job)
    run = tmp_path / "runs" / job.name
    assert json.loads((run / "summary.json").read_text())["episodes"] == 3
    assert said[0]["step"] == 1
    before = (run / "episodes.csv").read_text()
    work(tmp_path, job)
    assert (run / "episodes.csv").read_text() == before


HALL = """
methods = ["ddpg"]
tasks = ["own_envs:Hall-v0"]
seeds = [0]
steps = 100
deployment_episodes = 1
[settings]
hidden = [16, 16]
batch_size = 16
buffer_size = 400
learning_starts = 60
[task."own_envs:Hall-v0"]
cost_key = "damage"
proximity = ["lidar"]
"""


@pytest.mark.slow
def test_a_run_has_the_environment_that_the_file_declares(tmp_path: Path) -> None:
    (job,) = grid.read(write_file(tmp_path, HALL))
    work(tmp_path, job)
    config = json.loads((tmp_path / "runs" / job.name / "config.json").read_text())
    assert config["environment"]["declared"] == {"cost_key": "damage", "proximity": [0, 1]}
    grid.open_folder(tmp_path, [job], "here")
    (changed,) = grid.read(write_file(tmp_path, HALL.replace('["lidar"]', "[0]")))
    with pytest.raises(grid.StudyError, match=r"was run with proximity \[0, 1\] \(now \[0\]\)"):
        grid.open_folder(tmp_path, [changed], "here")
