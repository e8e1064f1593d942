"""A safety critic's map of a scene against the truth: the paper's Table 2 and its first figure.

A map has one value for each cell of a square grid over the arena, row by row from y = -extent, with
the car at rest in the middle of the cell; it is the mean over several headings. Both maps are
scaled to [0, 1] before they are compared:

    gradient MSE    mean over cells and both directions of (d map/dx - d truth/dx)^2, per metre^2
    contrast error  |(mean inside - mean outside) of the map - the same of the truth|
    entropy error   |H(map) - H(truth)|, H(m) = -sum p log p with p = m / sum m

Inside are the cells where standing costs something. There are two truths. `instant` is the cost of
standing there for one step, whatever the policy: the paper's measure. `discounted` is what the
critic predicts: the discounted cost that followed when the deployed policy was started there, one
episode for each cell.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluation.evaluate import rollout_costs, rollout_horizon
from safecritic.run.episode import discounted_sums

HEADINGS = (0.0, 0.5 * np.pi, np.pi, -0.5 * np.pi)
SIZE = 64  # cells along a side
ROLLED_SIZE = 20  # of the discounted truth, for which every cell is an episode
ROLLED_HEADING = 0.0
SCENES = (20_000, 20_001, 20_002, 20_003, 20_004)  # seeds of the scenes that are mapped


class MapErrors(NamedTuple):
    """The three errors of one map."""

    gradient_mse: float
    contrast_error: float
    entropy_error: float


def errors(
    prediction: np.ndarray, truth: np.ndarray, inside: np.ndarray, cell: float = 1.0
) -> MapErrors:
    """Compare two maps (H, W) whose cells are `cell` metres wide; `inside` (H, W) is boolean."""
    prediction, truth = scaled(prediction), scaled(truth)
    difference = gradient(prediction, cell) - gradient(truth, cell)
    return MapErrors(
        gradient_mse=float(np.mean(difference**2)),
        contrast_error=abs(contrast(prediction, inside) - contrast(truth, inside)),
        entropy_error=abs(entropy(prediction) - entropy(truth)),
    )


def scaled(values: np.ndarray) -> np.ndarray:
    """Return a map scaled to [0, 1]; a constant map becomes 0 everywhere."""
    values = np.asarray(values, np.float64)
    spread = np.ptp(values)
    return (values - values.min()) / spread if spread > 0 else np.zeros_like(values)


def gradient(values: np.ndarray, cell: float) -> np.ndarray:
    """Return the slopes along x and y (2, H, W): central differences, one-sided at the border."""
    along_y, along_x = np.gradient(values, cell)
    return np.stack([along_x, along_y])


def contrast(values: np.ndarray, inside: np.ndarray) -> float:
    """Return the mean inside minus the mean outside; 0 if one of the two is empty."""
    if inside.all() or not inside.any():
        return 0.0
    return float(values[inside].mean() - values[~inside].mean())


def entropy(values: np.ndarray) -> float:
    """Return the entropy in nats of a map as a distribution over cells.

    A map of zeros has the largest there is, that of equal cells.
    """
    total = values.sum()
    if not total > 0:
        return float(np.log(values.size))
    share = values[values > 0] / total
    return float(-(share * np.log(share)).sum())


# ---------------------------------------------------------------- making the maps


def poses(extent: float, size: int, heading: float) -> np.ndarray:
    """Return the middles of the cells with that heading, (size * size, 3), x fastest."""
    middles = (np.arange(size) + 0.5) / size * 2 * extent - extent
    y, x = np.meshgrid(middles, middles, indexing="ij")
    return np.column_stack([x.ravel(), y.ravel(), np.full(size * size, heading)])


def predicted_map(critic: Any, env: Any, size: int, headings: tuple[float, ...]) -> np.ndarray:
    """Return Q_C of the policy's own action at each cell, (size, size)."""
    from safecritic.tasks.car.poses import observations

    sums = np.zeros(size * size)
    for heading in headings:
        obs = observations(env, poses(env.arena.extent, size, heading)).astype(np.float32)
        sums += critic.q_cost(obs, critic.actions(obs))
    return (sums / len(headings)).reshape(size, size)


def shade_of(critic: Any, size: int = 40) -> Callable[[Any], np.ndarray]:
    """Return a function from a car task to its map in [0, 1]: Q_C at the car's own heading.

    1 is what the first map has in its highest hundredth.
    """
    full: list[float] = []

    def shade(task: Any) -> np.ndarray:
        values = predicted_map(critic, task, size, (task.heading,))
        if not full:
            full.append(max(float(np.quantile(values, 0.99)), 1e-6))
        return np.clip(values / full[0], 0.0, 1.0)

    return shade


def instant_map(env: Any, size: int, headings: tuple[float, ...]) -> np.ndarray:
    """Return the cost of standing at each cell for one step, (size, size)."""
    from safecritic.tasks.car.poses import costs

    by_heading = [costs(env, poses(env.arena.extent, size, heading)) for heading in headings]
    return np.mean(by_heading, axis=0).reshape(size, size)


def rolled_map(policy: Any, env: Any, gamma: float, size: int, heading: float) -> np.ndarray:
    """Return the discounted cost of an episode of `policy` from each cell, (size, size).

    An episode is cut off after 3 / (1 - gamma) decisions, where gamma^t is below 0.05.
    """
    from safecritic.tasks.car.model import CAR_FREE, car_pose

    task = env.unwrapped
    layout = task.layout
    start = task.state["qpos"]
    totals = []
    for pose in poses(task.arena.extent, size, heading):
        state = {"qpos": np.concatenate([car_pose(*pose), start[CAR_FREE:]])}
        obs, _ = env.reset(options={"state": state, "layout": layout})
        costs = rollout_costs(env, policy, obs, rollout_horizon(gamma))
        totals.append(discounted_sums(np.array(costs), gamma)[0])
    return np.array(totals).reshape(size, size)


class Maps(NamedTuple):
    """The maps of a run, each (scenes, size, size); the rolled ones of the first scene alone."""

    predicted: np.ndarray
    instant: np.ndarray
    rolled_predicted: np.ndarray  # at the rolled size, one heading
    rolled_truth: np.ndarray
    rolled_instant: np.ndarray


def make_maps(agent: Any, critic: Any) -> Maps:
    """Make the maps of a trained agent of a car task, in the same scenes for every agent."""
    from safecritic.tasks.adapter import make_again

    env, _ = make_again(agent.environment, None, agent.config.action_repeat)
    task = env.unwrapped
    predictions, truths = [], []
    for seed in SCENES:
        env.reset(seed=seed)
        predictions.append(predicted_map(critic, task, SIZE, HEADINGS))
        truths.append(instant_map(task, SIZE, HEADINGS))
    env.reset(seed=SCENES[0])
    rolled_predicted = predicted_map(critic, task, ROLLED_SIZE, (ROLLED_HEADING,))
    rolled_instant = instant_map(task, ROLLED_SIZE, (ROLLED_HEADING,))
    rolled_truth = rolled_map(agent.policy(), env, agent.config.gamma, ROLLED_SIZE, ROLLED_HEADING)
    return Maps(
        np.stack(predictions),
        np.stack(truths),
        rolled_predicted[None],
        rolled_truth[None],
        rolled_instant[None],
    )


def has_maps(env: Any) -> bool:
    """Return whether the environment is a car task, where a place says what a car there sees."""
    from safecritic.tasks.car.env import CarTask

    return isinstance(env.unwrapped, CarTask)


def map_errors(maps: Maps, extent: float) -> dict[str, dict[str, float]]:
    """Return the errors against both truths, means over the scenes."""
    cases = {
        "instant": (maps.predicted, maps.instant, maps.instant),
        "discounted": (maps.rolled_predicted, maps.rolled_truth, maps.rolled_instant),
    }
    means = {}
    for name, (prediction, truth, standing) in cases.items():
        cell = 2 * extent / prediction.shape[-1]
        scenes = zip(prediction, truth, standing, strict=True)
        by_scene = [errors(p, t, s > 0, cell) for p, t, s in scenes]
        values = np.mean(by_scene, axis=0)
        means[name] = dict(zip(MapErrors._fields, map(float, values), strict=True))
    return means


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure the cost maps of a safety critic; only for car tasks."""
    if critic is None or agent.env is None or not has_maps(agent.env):
        return None
    maps = make_maps(agent, critic)
    extent = float(agent.env.unwrapped.arena.extent)
    arrays = {f"map/{name}": values for name, values in maps._asdict().items()}
    return map_errors(maps, extent) | {"extent": extent}, arrays
