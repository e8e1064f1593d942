"""What is measured of a run once it is trained and deployed, and kept in its folder.

    measures.json         numbers: calibration, cost maps, Theorem 1
    measures.safetensors  what the figures are drawn from: steps, maps
    resources.json        peak memory of the process that trained it

A method without a safety critic has none of the first three, a task other than a car no maps.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from safecritic.evaluation import calibration, cost_map, theorem
from safecritic.evaluation.evaluate import Evaluation
from safecritic.run.folder import finite_or_none, read_json, read_table, write_json

STATES, DRAWS = 256, 512  # of the check of Theorem 1
ROWS = 16_384  # in one evaluation of the critic


class Critic:
    """Q_C and the actor of a trained agent on many rows; only for a method that has a Q_C."""

    def __init__(self, agent: Any):
        import jax

        from safecritic import methods

        functions, config = methods.get(agent.method).load_agent(), agent.config
        self._state = agent.training.device.agent
        # taken alone, so that the compiler leaves out the other values
        self._q_cost = jax.jit(lambda s, o, a: functions.values(s, o, a, config)["q_cost"])
        self._actions = jax.jit(lambda s, o: functions.policy(s, o, config))

    @staticmethod
    def of(agent: Any) -> "Critic | None":
        shape = (agent.training.spec.obs_dim, agent.training.spec.action_dim)
        found = agent.values(np.zeros((1, shape[0])), np.zeros((1, shape[1])))
        return Critic(agent) if "q_cost" in found else None

    def q_cost(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        rows = range(0, len(obs), ROWS)
        parts = [self._q_cost(self._state, obs[i : i + ROWS], action[i : i + ROWS]) for i in rows]
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    def actions(self, obs: np.ndarray) -> np.ndarray:
        """Of the actor, without noise or screen."""
        return np.asarray(self._actions(self._state, obs))


def measure(agent: Any, found: Evaluation, run: Path) -> None:
    """Write the measures of a trained agent whose deployment found `found`."""
    numbers: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    critic = Critic.of(agent)
    if critic is not None:
        steps = found.steps
        arrays |= {"steps/q_cost": steps.q_cost, "steps/realised": steps.realised}
        if steps.influence is not None and len(steps.influence):
            arrays["steps/influence"] = steps.influence
            numbers["calibration"] = calibrated(steps.influence, steps.error)
        if agent.env is not None and cost_map.has_maps(agent.env):
            maps = cost_map.map_run(agent, critic)
            extent = float(agent.env.unwrapped.arena.extent)
            arrays |= {f"map/{name}": value for name, value in maps._asdict().items()}
            numbers["cost_map"] = cost_map.figures(maps, extent) | {"extent": extent}
        checks = check_theorem(critic, found.observations, agent.config, agent.seed)
        numbers["theorem"] = [one._asdict() for one in checks]
    if arrays:
        plain = {name: np.ascontiguousarray(x, np.float32) for name, x in arrays.items()}
        # not its save_file, which leaves a file that only its owner may read
        (run / "measures.safetensors").write_bytes(save(plain))
    write_json(run / "measures.json", finite_or_none(numbers))  # last: it says all is there


def calibrated(influence: np.ndarray, error: np.ndarray) -> dict[str, float]:
    """One number for each curve of `calibration`."""
    curve = calibration.risk_coverage(influence, error)
    return {
        "rank_correlation": calibration.rank_correlation(influence, error),
        "area": curve.area,
        "random": curve.random,
        "oracle": curve.oracle,
        "excess": curve.excess,
    }


def sigma_epsilon(config: Any) -> float:
    """Return eps of Eq. 3, where the method has a conservative term."""
    part = getattr(config, "conservative", None)
    return 1e-6 if part is None else part.sigma_epsilon


def check_theorem(critic: Critic, obs: np.ndarray, config: Any, seed: int) -> list[theorem.Check]:
    """On states that the deployed policy met, its own noise against uniform actions."""
    rng = np.random.default_rng(seed)
    states = obs[rng.permutation(len(obs))[:STATES]]
    own = critic.actions(states)
    sigma = float(critic.q_cost(states, own).std()) + sigma_epsilon(config)
    shape = (len(states), DRAWS, own.shape[1])
    noise = config.noise_sigma * rng.standard_normal(shape)
    samples = {
        "uniform": rng.uniform(-1.0, 1.0, shape),
        "policy": np.clip(own[:, None] + noise, -1.0, 1.0),
    }
    rows = np.repeat(states, DRAWS, axis=0)
    found = {
        name: critic.q_cost(rows, actions.astype(np.float32).reshape(-1, shape[2]))
        for name, actions in samples.items()
    }
    size = (len(states), DRAWS)
    return theorem.check(found["uniform"].reshape(size), found["policy"].reshape(size), sigma)


def note_memory(run: Path) -> None:
    """Peak resident memory of this process and of the largest it started, if the system tells."""
    try:
        import resource
    except ImportError:  # Windows
        return
    unit = 1 if sys.platform == "darwin" else 1024
    peaks = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    known = read_json(run / "resources.json").get("peak_memory_bytes", 0)
    write_json(run / "resources.json", {"peak_memory_bytes": max(known, unit * sum(peaks))})


# ---------------------------------------------------------------- reading them


def read_arrays(run: Path) -> dict[str, np.ndarray]:
    """Empty for a run whose method has no safety critic."""
    path = run / "measures.safetensors"
    return load_file(path) if path.is_file() else {}


def training_seconds(run: Path) -> float:
    """From the rates in updates.csv, so over all processes that had a share in the run."""
    table = read_table(run / "updates.csv")
    steps = np.diff(np.array([0.0, *table["step"]]))
    rates = np.array(table["time/steps_per_second"])
    known = rates > 0
    return float((steps[known] / rates[known]).sum()) if known.any() else float("nan")
