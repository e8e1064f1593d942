"""A safety critic's map of a scene against the truth: the paper's Table 2 and its first figure.

A map has one value for each cell of a square grid over the arena, row by row from y = -extent, with
the car at rest in the middle of the cell; it is the mean over several headings. Both maps are
scaled to [0, 1] before they are compared:

    gradient MSE    mean over cells and both directions of (d map/dx - d truth/dx)^2, per metre^2
    contrast error  |(mean inside - mean outside) of the map - the same of the truth|
    entropy error   |H(map) - H(truth)|, H(m) = -sum p log p with p = m / sum m

Inside are the cells where standing costs something. The truth is `instant`, the cost of standing
there for one step (the paper's measure), or `discounted`, what the critic predicts: the discounted
cost that followed when the deployed policy was started there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from safecritic.evaluate.episodes import discounted_costs
from safecritic.run.episode import discounted_sums
from safecritic.run.rollout import Rollout
from safecritic.tasks.drawing import Shade

HEADINGS = (0.0, 0.5 * np.pi, np.pi, -0.5 * np.pi)
SIZE = 64  # cells along a side
ROLLED_SIZE = 20  # of the discounted truth, for which every cell is an episode
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
    difference = np.subtract(np.gradient(prediction, cell), np.gradient(truth, cell))
    return MapErrors(
        gradient_mse=float(np.mean(difference**2)),
        contrast_error=abs(contrast(prediction, inside) - contrast(truth, inside)),
        entropy_error=abs(entropy(prediction) - entropy(truth)),
    )


def scaled(values: np.ndarray) -> np.ndarray:
    """Return a map scaled to [0, 1]; a constant map becomes 0 everywhere."""
    values = np.asarray(values, np.float64)
    height = np.ptp(values)
    return (values - values.min()) / height if height > 0 else np.zeros_like(values)


def contrast(values: np.ndarray, inside: np.ndarray) -> float:
    """Return the mean inside minus the mean outside; 0 if one of the two is empty."""
    if inside.all() or not inside.any():
        return 0.0
    return float(values[inside].mean() - values[~inside].mean())


def entropy(values: np.ndarray) -> float:
    """Return the entropy in nats of a map as a distribution over cells; zeros are equal cells."""
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
    from safecritic.tasks.navigation.poses import observations

    def of(heading: float) -> np.ndarray:
        obs = observations(env, poses(env.arena.extent, size, heading)).astype(np.float32)
        return critic.q_cost(obs, critic.actions(obs))

    return np.mean([of(heading) for heading in headings], axis=0).reshape(size, size)


def shade_of(critic: Any, size: int = 40) -> Callable[[Any], Shade]:
    """Return a function from a navigation task to its map of Q_C; the first one sets the scale."""
    full: list[float] = []

    def shade(task: Any) -> Shade:
        values = predicted_map(critic, task, size, (task.heading,))
        if not full:
            full.append(max(float(np.quantile(values, 0.99)), 1e-6))
        return Shade(values, full[0])

    return shade


def instant_map(env: Any, size: int, headings: tuple[float, ...]) -> np.ndarray:
    """Return the cost of standing at each cell for one step, (size, size)."""
    from safecritic.tasks.navigation.poses import costs

    by_heading = [costs(env, poses(env.arena.extent, size, heading)) for heading in headings]
    return np.mean(by_heading, axis=0).reshape(size, size)


def rolled_map(policy: Any, env: Any, gamma: float, size: int, heading: float) -> np.ndarray:
    """Return the discounted cost of an episode of `policy` from each cell, (size, size)."""
    task, rollout = env.unwrapped, Rollout(env)
    layout = task.layout
    start = task.state["qpos"]
    totals = []
    for pose in poses(task.arena.extent, size, heading):
        place = task.robot.pose(*pose)
        state = {"qpos": np.concatenate([place, start[len(place) :]])}
        rollout.reset(options={"state": state, "layout": layout})
        costs = discounted_costs(rollout, policy, gamma)
        totals.append(discounted_sums(np.array(costs), gamma)[0])
    return np.array(totals).reshape(size, size)


def make_maps(agent: Any, critic: Any) -> dict[str, np.ndarray]:
    """Return the maps (scenes, size, size) of an agent of a car task."""
    from safecritic.tasks.adapter import make_again

    env, _ = make_again(agent.environment, None, agent.config.action_repeat)
    task = env.unwrapped
    predictions, truths = [], []
    for seed in SCENES:
        env.reset(seed=seed)
        predictions.append(predicted_map(critic, task, SIZE, HEADINGS))
        truths.append(instant_map(task, SIZE, HEADINGS))
    env.reset(seed=SCENES[0])
    small = ROLLED_SIZE, HEADINGS[:1]
    return {
        "predicted": np.stack(predictions),
        "instant": np.stack(truths),
        "rolled_predicted": predicted_map(critic, task, *small)[None],
        "rolled_instant": instant_map(task, *small)[None],
        "rolled_truth": rolled_map(
            agent.policy(), env, agent.config.gamma, ROLLED_SIZE, HEADINGS[0]
        )[None],
    }


def has_maps(env: Any) -> bool:
    """Return whether the environment is a navigation task where a place says what is seen there."""
    from safecritic.tasks.navigation.world import Navigation

    return isinstance(env.unwrapped, Navigation) and bool(env.unwrapped.arena.kinds)


def map_errors(maps: dict[str, np.ndarray], extent: float) -> dict[str, dict[str, float]]:
    """Return the errors against both truths, means over the scenes."""
    cases = {
        "instant": ("predicted", "instant", "instant"),
        "discounted": ("rolled_predicted", "rolled_truth", "rolled_instant"),
    }
    means = {}
    for name, parts in cases.items():
        scenes = zip(*(maps[part] for part in parts), strict=True)
        by_scene = [errors(p, t, s > 0, 2 * extent / len(p)) for p, t, s in scenes]
        values = map(float, np.mean(by_scene, axis=0))
        means[name] = dict(zip(MapErrors._fields, values, strict=True))
    return means


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure the cost maps of a safety critic; only for navigation tasks."""
    if critic is None or agent.env is None or not has_maps(agent.env):
        return None
    maps, extent = make_maps(agent, critic), float(agent.env.unwrapped.arena.extent)
    arrays = {f"map/{name}": values for name, values in maps.items()}
    return map_errors(maps, extent) | {"extent": extent}, arrays
