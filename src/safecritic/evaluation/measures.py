"""What is measured of a run once it is trained and deployed, and kept in its folder.

    measures.json         the numbers of each measure, under its name
    measures.safetensors  the arrays that figures are drawn from

A measure is a row of `MEASURES`: a name, and a function of the agent, its safety critic and its
evaluation. To add one, write that function in a file of its own and `register` it:

    def action_size(agent, critic, evaluation):
        if critic is None:
            return None  # does not apply
        actions = critic.actions(evaluation.observations)
        return {"mean": float(abs(actions).mean())}, {"action_size/actions": actions}

    register(Measure("action_size", action_size))

and show it in the report with one line (`report.tables.register`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from safecritic.evaluation import calibration, cost_map, theorem
from safecritic.evaluation.critic import Critic
from safecritic.evaluation.evaluate import Evaluation
from safecritic.run.folder import finite_or_none, write_json

# numbers (anything JSON can hold, None for none) and arrays by name; None: does not apply
Result = tuple[Any, dict[str, np.ndarray]] | None


@dataclass(frozen=True)
class Measure:
    """A name and what computes it; the critic is None for a method without a safety critic."""

    name: str
    compute: Callable[[Any, Critic | None, Evaluation], Result]


MEASURES: dict[str, Measure] = {}  # in the order they are computed


def register(measure: Measure) -> None:
    """Add a measure; its name must be new."""
    if measure.name in MEASURES:
        raise ValueError(
            f"a measure named {measure.name!r} is registered already: choose another name"
        )
    MEASURES[measure.name] = measure


register(Measure("calibration", calibration.measure))
register(Measure("cost_map", cost_map.measure))
register(Measure("theorem", theorem.measure))


def measure_run(agent: Any, evaluation: Evaluation, run: Path) -> None:
    """Compute every measure of a trained agent and write them into its run's folder."""
    numbers: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    critic = Critic.of(agent)
    for measure in MEASURES.values():
        result = measure.compute(agent, critic, evaluation)
        if result is None:
            continue
        own_numbers, own_arrays = result
        if own_numbers is not None:
            numbers[measure.name] = own_numbers
        for name, array in own_arrays.items():
            if name in arrays:
                raise ValueError(
                    f"measure {measure.name!r} returns an array {name!r}, as another measure does: "
                    f"name it {measure.name}/..."
                )
            arrays[name] = np.ascontiguousarray(array, np.float32)
    if arrays:
        # not its save_file, which leaves a file that only its owner may read
        (run / "measures.safetensors").write_bytes(save(arrays))
    write_json(run / "measures.json", finite_or_none(numbers))  # last: it says all is there


def read_arrays(run: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a run; none for a method without a safety critic."""
    path = run / "measures.safetensors"
    return load_file(path) if path.is_file() else {}
