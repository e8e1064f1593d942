"""Learning curves: a window shorter than the run, and what the deployed policy costs."""

import os
from pathlib import Path

import numpy as np
import pytest

from safecritic.run import checkpoint
from safecritic.run.curves import deployed_cost, running_mean, window_of
from safecritic.run.folder import write_json


def test_the_window_is_shorter_than_the_run() -> None:
    assert [window_of(number) for number in (0, 10, 40, 100, 600, 5000)] == [5, 5, 5, 10, 60, 100]


def test_a_mean_over_the_last_two_leaves_out_what_is_unknown() -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0])
    assert running_mean(values, 2).tolist() == [1.0, 2.0, 3.0, 5.0]


def test_an_evaluation_counts_only_if_it_is_of_the_last_checkpoint(tmp_path: Path) -> None:
    assert deployed_cost(tmp_path) is None
    index = tmp_path / "checkpoint" / checkpoint.INDEX
    index.parent.mkdir()
    index.write_text("{}")
    content = {"means": {"cost": 2.5}, "safety_critic": {}, "episodes": []}
    write_json(tmp_path / "evaluation.json", content)
    assert deployed_cost(tmp_path) == pytest.approx(2.5)
    later = (tmp_path / "evaluation.json").stat().st_mtime + 10
    os.utime(index, (later, later))  # trained further since
    assert deployed_cost(tmp_path) is None
