"""What the car would see, and what it would pay, at rest at any number of poses of one scene.

Made for cost maps: thousands of poses at once. The lidars are one NumPy expression over all poses;
the other sensors of a car at rest depend on its heading alone and are read off the simulation once
for each; contacts with solid things come from MuJoCo's own collision test, for poses near one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np

from safecritic.tasks.car.env import FIRST_LIDAR, TOUCHING, CarTask
from safecritic.tasks.car.layout import HAZARD_RADIUS
from safecritic.tasks.car.lidar import lidar_at
from safecritic.tasks.car.model import CAR_FREE, CAR_NV, car_pose

FAR = 1e3  # m: where nothing else is


def observations(env: CarTask, poses: np.ndarray) -> np.ndarray:
    """The observation (N, O) at each of `poses` (N, 3): x, y, heading; the scene is the env's."""
    poses = np.asarray(poses, np.float64)
    found = np.empty((len(poses), env.observation_space.shape[0]))  # type: ignore[index]
    headings, which = np.unique(poses[:, 2], return_inverse=True)
    with _state_kept(env):
        for number, heading in enumerate(headings):
            _put(env, FAR, FAR, heading)
            mujoco.mj_forward(env.model, env.data)
            found[which == number, :FIRST_LIDAR] = env._observe()[:FIRST_LIDAR]
    points = np.array(env._points)
    lidars = [lidar_at(points[env._slices[kind]], poses) for kind in env.kinds]
    if env._timer and env.arena.buttons:
        lidars[0][:] = 0.0  # unseen in the dead time
    found[:, FIRST_LIDAR:] = np.concatenate(lidars, axis=1)
    return found


def costs(env: CarTask, poses: np.ndarray) -> np.ndarray:
    """The cost (N,) of standing at each of `poses`; the env must just have been reset."""
    if env._gremlins is not None and env._gremlins.parked.any():
        raise ValueError("gremlins are parked: their contacts are not seen; reset first")
    poses = np.asarray(poses, np.float64)
    hazards = np.array(env._points[env._hazards])
    away = np.linalg.norm(poses[:, None, :2] - hazards[None], axis=2)
    found = env.cost_unit * (away <= HAZARD_RADIUS).sum(axis=1).astype(float)
    if env.rules.cost is None:
        found = np.minimum(found, 1.0)
    solid = [*env._points[env._boxes]]
    if env.arena.buttons:
        solid += env._points[env._slices["buttons"]]
    away = np.linalg.norm(poses[:, None, :2] - np.array(solid)[None], axis=2)
    with _state_kept(env):
        for row in np.flatnonzero((away <= TOUCHING).any(axis=1)):
            _put(env, *poses[row])
            mujoco.mj_fwdPosition(env.model, env.data)
            env._measure()
            found[row] = env._cost(env._touched(), {})
    return found


def _put(env: CarTask, x: float, y: float, heading: float) -> None:
    env.data.qpos[:CAR_FREE] = car_pose(x, y, heading)
    env.data.qvel[:CAR_NV] = 0.0


@contextmanager
def _state_kept(env: CarTask) -> Iterator[None]:
    """The simulation is the same afterwards."""
    before = env.get_checkpoint()
    try:
        yield
    finally:
        env.set_checkpoint(before)
