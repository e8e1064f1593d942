"""What is measured of a run once it is trained and deployed, and kept in its folder.

    measures.json         the numbers of each measure, under its name
    measures.safetensors  the arrays that figures are drawn from

A measure is a row of `MEASURES`: a name, and a function of the agent, its safety critic (None for a
method without one) and its evaluation, which returns numbers and arrays, or None if it does not
apply. `register` adds one; docs/report.md has an example.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from safecritic.core import files
from safecritic.evaluate import calibration, cost_map, theorem
from safecritic.evaluate.critic import Critic
from safecritic.evaluate.episodes import Evaluation
from safecritic.run import records
from safecritic.run.folder import finite_or_none, read_json, write_json

ARRAYS = "arrays_sha256"  # key of measures.json: checksum of the other file
RUN = "run"  # key of measures.json: digest of the run that was measured
MOST_BYTES = 256 * 2**20
STEPS = ("steps/q_cost", "steps/realised")

# numbers (anything JSON can hold, None for none) and arrays by name
Result = tuple[Any, dict[str, np.ndarray]] | None


@dataclass(frozen=True)
class Measure:
    """A name and what computes it."""

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
        computed, found = measure.compute(agent, critic, evaluation) or (None, {})
        if computed is not None:
            numbers[measure.name] = computed
        for name, array in found.items():
            if name in arrays:
                raise ValueError(
                    f"measure {measure.name!r} returns an array {name!r}, as another measure does: "
                    f"name it {measure.name}/..."
                )
            arrays[name] = np.ascontiguousarray(array, np.float32)
    path = run / "measures.json"
    files.refuse_special(path)
    path.unlink(missing_ok=True)  # it says that all is there, so it goes first and comes last
    content: dict[str, Any] = finite_or_none(numbers)
    if (digest := getattr(evaluation, "run", None)) is not None:
        content[RUN] = digest
    if arrays:
        blob = save(arrays)
        files.write_bytes(run / "measures.safetensors", blob)
        content[ARRAYS] = hashlib.sha256(blob).hexdigest()
    write_json(path, content)


def read_measures(run: Path) -> dict[str, Any]:
    """Return the numbers of each measure of a run; empty if it was not measured."""
    content = read_json(run / "measures.json", records.Measures)
    return {name: numbers for name, numbers in content.items() if name not in (ARRAYS, RUN)}


def read_arrays(run: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a run; none for a method without a safety critic."""
    sha256 = read_json(run / "measures.json", records.Measures).get(ARRAYS)
    if sha256 is None:
        return {}
    path = run / "measures.safetensors"
    arrays = files.read_arrays(path, MOST_BYTES, sha256)
    check_arrays(path, arrays)
    return arrays


def check_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Check the arrays that figures are drawn from."""
    for name, x in arrays.items():
        ours = name.startswith(("steps/", "map/"))
        if x.dtype != np.float32 or (ours and not np.isfinite(x).all()):
            raise files.damaged(path, f"{files.shown(name)} must be finite numbers of float32")
    steps = {name: x.shape for name, x in arrays.items() if name.startswith("steps/")}
    shapes = set(steps.values())
    if steps and (len(shapes) > 1 or len(*shapes) != 1 or not steps.keys() >= set(STEPS)):
        raise files.damaged(path, f"it must have {' and '.join(STEPS)}, of the same length")
    maps = {name: x for name, x in arrays.items() if name.startswith("map/")}
    square = all(x.ndim >= 3 and len(x) and x.shape[-1] == x.shape[-2] > 1 for x in maps.values())
    pairs = (("map/instant", "map/predicted"), ("map/rolled_truth", "map/rolled_predicted"))
    same = all(a in maps and b in maps and maps[a].shape == maps[b].shape for a, b in pairs)
    if maps and not (square and same):
        raise files.damaged(path, "its maps must be square, and alike in pairs")
