"""Observations and costs of a car at rest at many poses of one scene, for cost maps.

The lidars are one NumPy expression over all poses; the other sensors of a car at rest depend on its
heading alone and are read from the simulation once per heading; contacts come from MuJoCo's own
collision test, for poses near a solid object.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np

from safecritic.tasks.car.env import FIRST_LIDAR, TOUCHING, CarTask
from safecritic.tasks.car.layout import HAZARD_RADIUS
from safecritic.tasks.car.lidar import lidar_at
from safecritic.tasks.car.model import CAR_FREE, CAR_NV, car_pose

FAR = 1e3  # m, away from everything else


def observations(env: CarTask, poses: np.ndarray) -> np.ndarray:
    """Return the observation (N, O) at each of `poses` (N, 3: x, y, heading) in env's scene."""
    poses = np.asarray(poses, np.float64)
    obs = np.empty((len(poses), env.observation_space.shape[0]))  # type: ignore[index]
    headings, which = np.unique(poses[:, 2], return_inverse=True)
    with _state_restored(env):
        for number, heading in enumerate(headings):
            _put(env, FAR, FAR, heading)
            mujoco.mj_forward(env.model, env.data)
            obs[which == number, :FIRST_LIDAR] = env._observe()[:FIRST_LIDAR]
    points = np.array(env._points)
    lidars = [lidar_at(points[env._slices[kind]], poses) for kind in env.kinds]
    if env._timer and env.arena.buttons:
        lidars[0][:] = 0.0  # buttons are unseen in the dead time
    obs[:, FIRST_LIDAR:] = np.concatenate(lidars, axis=1)
    return obs


def costs(env: CarTask, poses: np.ndarray) -> np.ndarray:
    """Return the cost (N,) of standing at each of `poses`; reset env just before."""
    if env._gremlins is not None and env._gremlins.parked.any():
        raise ValueError(
            "gremlins must be awake for their contacts to count, got parked ones: reset first"
        )
    poses = np.asarray(poses, np.float64)
    hazards = np.array(env._points[env._hazards])
    away = np.linalg.norm(poses[:, None, :2] - hazards[None], axis=2)
    paid = env.cost_unit * (away <= HAZARD_RADIUS).sum(axis=1).astype(float)
    if env.rules.cost is None:
        paid = np.minimum(paid, 1.0)
    solid = [*env._points[env._boxes]]
    if env.arena.buttons:
        solid += env._points[env._slices["buttons"]]
    away = np.linalg.norm(poses[:, None, :2] - np.array(solid)[None], axis=2)
    with _state_restored(env):
        for row in np.flatnonzero((away <= TOUCHING).any(axis=1)):
            _put(env, *poses[row])
            mujoco.mj_fwdPosition(env.model, env.data)
            env._measure()
            paid[row] = env._cost(env._touched(), {})
    return paid


def _put(env: CarTask, x: float, y: float, heading: float) -> None:
    env.data.qpos[:CAR_FREE] = car_pose(x, y, heading)
    env.data.qvel[:CAR_NV] = 0.0


@contextmanager
def _state_restored(env: CarTask) -> Iterator[None]:
    """Restore the simulation afterwards."""
    before = env.get_checkpoint()
    try:
        yield
    finally:
        env.set_checkpoint(before)
