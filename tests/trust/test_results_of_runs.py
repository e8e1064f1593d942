"""Results belong to their run: a study takes none of another run, seed or way of deploying."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from safecritic.core.files import FileError, read_json, write_json
from safecritic.study import grid, worker
from safecritic.study.grid import Job

JOB: dict[str, Any] = {"method": "ddpg", "task": "CarGoal1", "seed": 1, "steps": 210}
JOB |= {"deployment_episodes": 1, "settings": {"cost_limit": 1.0, "batch_size": 16}}


@pytest.fixture
def run(good_run: Path, tmp_path: Path) -> Path:
    run = tmp_path / "runs" / Job(**JOB).name
    shutil.copytree(good_run, run)
    return run


def changed(file: Path, **changes: Any) -> None:
    """Change entries of a JSON file, with a checksum that fits."""
    write_json(file, read_json(file) | changes)


def test_results_of_this_run_are_taken(run: Path) -> None:
    assert grid.strange(run, Job(**JOB)) == ""
    assert grid.deployed(run, Job(**JOB))
    assert read_json(run / "evaluation.json")["run"] == read_json(run / "summary.json")["run"]


def test_a_run_that_is_not_finished_has_nothing_strange(run: Path) -> None:
    for name in ("summary.json", "evaluation.json"):
        (run / name).unlink()
    assert grid.lost(run, Job(**JOB)) == ""
    assert not grid.done(run.parents[1], Job(**JOB))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"run": "0" * 64}, "is of another run"),
        ({"run": None}, "is of another run"),
        ({"screen": False}, "without the screen"),
        ({"seed": 7}, "with other scenes"),
    ],
)
def test_an_evaluation_of_something_else_is_made_again(
    run: Path, changes: dict[str, Any], text: str
) -> None:
    changed(run / "evaluation.json", **changes)
    assert text in grid.lost(run, Job(**JOB))
    assert not grid.deployed(run, Job(**JOB))


def test_measures_of_another_run_or_without_their_arrays_are_made_again(run: Path) -> None:
    own = read_json(run / "summary.json")["run"]
    write_json(run / "measures.json", {"run": "0" * 64})
    assert "measures.json is of another run" in grid.lost(run, Job(**JOB))
    write_json(run / "measures.json", {"run": own})
    assert grid.done(run.parents[1], Job(**JOB))
    write_json(run / "measures.json", {"run": own, "arrays_sha256": "0" * 64})
    assert not grid.measured(run)
    assert grid.lost(run, Job(**JOB)) == "measures.safetensors is missing"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seed": 2}, r"seed 1 \(the study has 2\)"),
        ({"method": "sc"}, r"method ddpg \(the study has sc\)"),
        ({"task": "CarGoal2"}, r"task CarGoal1 \(the study has CarGoal2\)"),
        ({"settings": {"cost_limit": 5.0}}, r"cost_limit 1.0 \(the study has 5.0\)"),
    ],
)
def test_the_folder_of_another_run_is_refused(run: Path, change: dict[str, Any], text: str) -> None:
    job = Job(**JOB | change)
    folder = run.parent / job.name
    if folder != run:
        run.rename(folder)
    assert not grid.done(run.parents[1], job)
    with pytest.raises(FileError, match=f"holds a run with {text}.*: remove it"):
        worker.work(run.parents[1], job)


def test_tables_of_another_run_do_not_fit_its_settings(run: Path) -> None:
    config = read_json(run / "config.json")
    write_json(run / "config.json", config | {"config": config["config"] | {"gamma": 0.5}})
    assert "its summary was not made from" in grid.lost(run, Job(**JOB))
