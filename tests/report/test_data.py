"""What a report is made of: the paper's numbers, and what a run leaves in its folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from safecritic.evaluation.measures import read_arrays
from safecritic.report import data, tables
from safecritic.study.resources import training_seconds


def test_the_papers_numbers_as_printed() -> None:
    paper = data.read_paper()
    assert len(paper) == 241
    assert paper["training", "usc", "CarGoal2", "reward"] == (8.84, 0.62)
    assert paper["training", "cpo", "HalfCheetah", "cost"] == (1.71, 1.93)
    assert paper["deployment", "usc", "CarGoal1", "cost"] == (0.70, 2.10)
    assert paper["deployment", "rcpo", "CarButton2", "success"].mean == 30
    assert paper["cost_map", "csc", "CarGoal2", "gradient_mse"] == (1.95, 1.37)


@pytest.mark.slow
def measures_of(run: Path) -> dict[str, Any]:
    """Return the measures of a run without the checksums beside them."""
    content = json.loads((run / "measures.json").read_text())
    return {name: x for name, x in content.items() if not name.endswith("sha256")}


@pytest.mark.slow
def test_measures_of_a_run(finished: Path) -> None:
    run = finished / "runs" / "usc-CarGoal1-seed0"
    numbers = measures_of(run)
    assert set(numbers) == {"calibration", "cost_map", "theorem"}
    assert set(numbers["cost_map"]["instant"]) == set(tables.MAP_ERRORS)
    arrays = read_arrays(run)
    rights = [(run / f"measures.{kind}").stat().st_mode for kind in ("json", "safetensors")]
    assert rights[0] == rights[1]
    assert arrays["map/predicted"].shape == (2, 16, 16)
    assert len(arrays["steps/influence"]) == len(arrays["steps/q_cost"]) > 0
    assert training_seconds(run) > 0
    assert json.loads((run / "resources.json").read_text())["peak_memory_bytes"] > 2**26
    # a method without a safety critic has nothing of that, and that is known to be all
    assert measures_of(finished / "runs" / "ddpg-CarGoal1-seed0") == {}
