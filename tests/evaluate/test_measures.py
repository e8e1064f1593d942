"""The registry of measures: one from outside is computed, written and read like ours."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from safecritic.evaluate import measures
from safecritic.evaluate.measures import Measure

# of a method without a safety critic
AGENT = SimpleNamespace(
    values=lambda obs, action: {},
    training=SimpleNamespace(spec=SimpleNamespace(obs_dim=2, action_dim=1)),
)
EVALUATION: Any = SimpleNamespace(observations=np.arange(6.0).reshape(3, 2))


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(measures, "MEASURES", dict(measures.MEASURES))


def seen(agent: Any, critic: Any, evaluation: Any) -> Any:
    assert critic is None
    obs = evaluation.observations
    return {"mean": float(obs.mean()), "none": float("nan")}, {"seen/observations": obs}


def test_ours_do_not_apply_without_a_safety_critic(tmp_path: Path) -> None:
    assert list(measures.MEASURES) == ["calibration", "cost_map", "theorem"]
    measures.measure_run(AGENT, EVALUATION, tmp_path)
    assert (tmp_path / "measures.json").is_file()
    assert measures.read_measures(tmp_path) == {}
    assert measures.read_arrays(tmp_path) == {}


def test_a_measure_from_outside_is_written_beside_ours(tmp_path: Path) -> None:
    measures.register(Measure("seen", seen))
    measures.measure_run(AGENT, EVALUATION, tmp_path)
    assert measures.read_measures(tmp_path) == {"seen": {"mean": 2.5, "none": None}}
    arrays = measures.read_arrays(tmp_path)
    np.testing.assert_array_equal(arrays["seen/observations"], EVALUATION.observations)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a measure named 'theorem' is registered already"):
        measures.register(Measure("theorem", seen))
    measures.register(Measure("seen", seen))
    measures.register(Measure("again", seen))
    with pytest.raises(ValueError, match="'again' returns an array 'seen/observations'"):
        measures.measure_run(AGENT, EVALUATION, tmp_path)
