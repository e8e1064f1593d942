"""A safety critic's map of a scene against the truth: the paper's Table 2 and its first figure.

A map has one value for each cell of a square grid over the arena, row by row from y = -extent, the
car at rest at the cell's middle; of several headings it is the mean. Both maps are scaled to [0, 1]
before they are compared:

    gradient MSE    mean over cells and both directions of (d map/dx - d truth/dx)^2, per metre^2
    contrast error  |(mean inside - mean outside) of the map - the same of the truth|
    entropy error   |H(map) - H(truth)|, H(m) = -sum p log p with p = m / sum m

Inside are the cells where standing costs something. There are two truths. `instant` is the cost of
standing there for one step, whatever the policy: the printed measure. `discounted` is what
the critic is asked for: the discounted cost that followed when the deployed policy was started
there, one episode for each cell.
"""

from typing import Any, NamedTuple

import numpy as np

from safecritic.run.episode import discounted_sums

HEADINGS = (0.0, 0.5 * np.pi, np.pi, -0.5 * np.pi)
SIZE = 64  # cells along a side
ROLLED_SIZE = 20  # of the discounted truth, for which every cell is an episode
ROLLED_HEADING = 0.0
SCENES = (20_000, 20_001, 20_002, 20_003, 20_004)  # seeds of the scenes that are mapped


class MapErrors(NamedTuple):
    gradient_mse: float
    contrast_error: float
    entropy_error: float


def errors(
    found: np.ndarray, truth: np.ndarray, inside: np.ndarray, cell: float = 1.0
) -> MapErrors:
    """Of two maps (H, W) whose cells are `cell` metres wide; `inside` (H, W) is boolean."""
    found, truth = scaled(found), scaled(truth)
    difference = gradient(found, cell) - gradient(truth, cell)
    return MapErrors(
        gradient_mse=float(np.mean(difference**2)),
        contrast_error=abs(contrast(found, inside) - contrast(truth, inside)),
        entropy_error=abs(entropy(found) - entropy(truth)),
    )


def scaled(values: np.ndarray) -> np.ndarray:
    """To [0, 1]; a constant map is 0 everywhere."""
    values = np.asarray(values, np.float64)
    spread = np.ptp(values)
    return (values - values.min()) / spread if spread > 0 else np.zeros_like(values)


def gradient(values: np.ndarray, cell: float) -> np.ndarray:
    """Along x and y (2, H, W): central differences, one-sided at the border."""
    along_y, along_x = np.gradient(values, cell)
    return np.stack([along_x, along_y])


def contrast(values: np.ndarray, inside: np.ndarray) -> float:
    """Mean inside minus mean outside; 0 if one of the two is empty."""
    if inside.all() or not inside.any():
        return 0.0
    return float(values[inside].mean() - values[~inside].mean())


def entropy(values: np.ndarray) -> float:
    """In nats, of the map as a distribution over cells; the largest for a map of zeros."""
    total = values.sum()
    if not total > 0:
        return float(np.log(values.size))
    share = values[values > 0] / total
    return float(-(share * np.log(share)).sum())


# ---------------------------------------------------------------- drawing them up


def poses(extent: float, size: int, heading: float) -> np.ndarray:
    """Middles of the cells with that heading, (size * size, 3), x fastest."""
    middles = (np.arange(size) + 0.5) / size * 2 * extent - extent
    y, x = np.meshgrid(middles, middles, indexing="ij")
    return np.column_stack([x.ravel(), y.ravel(), np.full(size * size, heading)])


def predicted(critic: Any, env: Any, size: int, headings: tuple[float, ...]) -> np.ndarray:
    """Q_C of the policy's own action at each cell, (size, size)."""
    from safecritic.tasks.car.poses import observations

    found = np.zeros(size * size)
    for heading in headings:
        obs = observations(env, poses(env.arena.extent, size, heading)).astype(np.float32)
        found += critic.q_cost(obs, critic.actions(obs))
    return (found / len(headings)).reshape(size, size)


def instant(env: Any, size: int, headings: tuple[float, ...]) -> np.ndarray:
    """Cost of standing at each cell for one step, (size, size)."""
    from safecritic.tasks.car.poses import costs

    found = [costs(env, poses(env.arena.extent, size, heading)) for heading in headings]
    return np.mean(found, axis=0).reshape(size, size)


def rolled(policy: Any, env: Any, gamma: float, size: int, heading: float) -> np.ndarray:
    """Discounted cost of an episode of `policy` from each cell, (size, size).

    An episode is cut off after 3 / (1 - gamma) steps, where gamma^t is below 0.05.
    """
    from safecritic.tasks.car.model import CAR_FREE, car_pose

    task = env.unwrapped
    layout = task.layout
    horizon = int(np.ceil(3.0 / (1.0 - gamma))) if gamma < 1 else task.horizon
    start = task.state["qpos"]
    found = []
    for pose in poses(task.arena.extent, size, heading):
        state = {"qpos": np.concatenate([car_pose(*pose), start[CAR_FREE:]])}
        obs, _ = env.reset(options={"state": state, "layout": layout})
        paid = []
        for _ in range(horizon):
            obs, _, terminated, truncated, info = env.step(policy(obs))
            paid.append(info["cost"])
            if terminated or truncated:
                break
        found.append(discounted_sums(np.array(paid), gamma)[0])
    return np.array(found).reshape(size, size)


class Maps(NamedTuple):
    """What is kept of a run: all (scenes, size, size), the rolled ones of the first scene alone."""

    predicted: np.ndarray
    instant: np.ndarray
    rolled_predicted: np.ndarray  # at the rolled size, one heading
    rolled_truth: np.ndarray
    rolled_instant: np.ndarray


def map_run(agent: Any, critic: Any) -> Maps:
    """The maps of a trained agent of a car task, in the same scenes for every agent."""
    from safecritic.tasks.adapter import make_env

    size, rolled_size = SIZE, ROLLED_SIZE
    env, _ = make_env(agent.environment["id"])
    task = env.unwrapped
    found, truth = [], []
    for seed in SCENES:
        env.reset(seed=seed)
        found.append(predicted(critic, task, size, HEADINGS))
        truth.append(instant(task, size, HEADINGS))
    env.reset(seed=SCENES[0])
    near = predicted(critic, task, rolled_size, (ROLLED_HEADING,))
    here = instant(task, rolled_size, (ROLLED_HEADING,))
    followed = rolled(agent.policy(), env, agent.config.gamma, rolled_size, ROLLED_HEADING)
    return Maps(np.stack(found), np.stack(truth), near[None], followed[None], here[None])


def has_maps(env: Any) -> bool:
    """Whether the environment is a car task, where a place on the floor says what there is."""
    from safecritic.tasks.car.env import CarTask

    return isinstance(env.unwrapped, CarTask)


def figures(maps: Maps, extent: float) -> dict[str, dict[str, float]]:
    """Errors against both truths, means over the scenes."""
    cases = {
        "instant": (maps.predicted, maps.instant, maps.instant),
        "discounted": (maps.rolled_predicted, maps.rolled_truth, maps.rolled_instant),
    }
    found = {}
    for name, (prediction, truth, standing) in cases.items():
        cell = 2 * extent / prediction.shape[-1]
        rows = [
            errors(p, t, s > 0, cell) for p, t, s in zip(prediction, truth, standing, strict=True)
        ]
        means = np.mean(rows, axis=0)
        found[name] = dict(zip(MapErrors._fields, map(float, means), strict=True))
    return found


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure the maps of a safety critic of a car task."""
    if critic is None or agent.env is None or not has_maps(agent.env):
        return None
    maps = map_run(agent, critic)
    extent = float(agent.env.unwrapped.arena.extent)
    arrays = {f"map/{name}": values for name, values in maps._asdict().items()}
    return figures(maps, extent) | {"extent": extent}, arrays
