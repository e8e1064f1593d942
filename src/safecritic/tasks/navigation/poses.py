"""Observations and costs of a robot at rest at many poses of one scene, for cost maps.

The lidars are one NumPy expression over all poses; the other sensors of a robot at rest depend on
its heading alone and are read from the simulation once per heading; contacts come from MuJoCo's own
collision test, for poses near a solid object.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np

from safecritic.tasks.navigation.lidar import BINS, lidar_at
from safecritic.tasks.navigation.world import TOUCHING, Navigation

FAR = 1e3  # m, away from everything else


def observations(env: Navigation, poses: np.ndarray) -> np.ndarray:
    """Return the observation (N, O) at each of `poses` (N, 3: x, y, heading) in env's scene."""
    poses = np.asarray(poses, np.float64)
    obs = np.zeros((len(poses), env.observation_space.shape[0]))  # type: ignore[index]
    headings, which = np.unique(poses[:, 2], return_inverse=True)
    with _state_restored(env):
        for number, heading in enumerate(headings):
            _put(env, FAR, FAR, heading)
            mujoco.mj_forward(env.model, env.data)
            env._read()
            obs[which == number, : env.robot.sensed] = env._observe()[: env.robot.sensed]
    points = np.array(env._points)
    for number, kind in enumerate(env.arena.kinds):
        if not (kind == "buttons" and env._timer):  # unseen in the dead time
            first = env.robot.sensed + BINS * number
            seen = lidar_at(points[env._slices[kind]], poses, env.lidar_range)
            obs[:, first : first + BINS] = seen
    return obs


def costs(env: Navigation, poses: np.ndarray) -> np.ndarray:
    """Return the cost (N,) of standing at each of `poses`; reset env just before."""
    if env._gremlins is not None and env._gremlins.parked.any():
        raise ValueError(
            "gremlins must be awake for their contacts to count, got parked ones: reset first"
        )
    poses = np.asarray(poses, np.float64)
    hazards = _away(poses, env._points[env._hazards])
    paid = env.cost_unit * (hazards <= env.arena.hazard_radius).sum(axis=1).astype(float)
    if env.rules.cost is None:
        paid = np.minimum(paid, 1.0)
    for side, wall in enumerate(env.arena.walls):
        paid[np.abs(poses[:, side]) > wall] = 1.0
    solid = [point for where in env._counted for point in env._points[where]]
    near = (_away(poses, solid) <= TOUCHING).any(axis=1)
    with _state_restored(env):
        for row in np.flatnonzero(near):
            _put(env, *poses[row])
            mujoco.mj_fwdPosition(env.model, env.data)
            env._read()
            env._measure()
            paid[row] = env._cost(env._touched(), {})
    return paid


def _away(poses: np.ndarray, points: list) -> np.ndarray:
    """Return the distance of each pose from each point."""
    offset = poses[:, None, :2] - np.array(points, np.float64).reshape(1, -1, 2)
    return np.linalg.norm(offset, axis=2)


def _put(env: Navigation, x: float, y: float, heading: float) -> None:
    pose = env.robot.pose(x, y, heading)
    env.data.qpos[: len(pose)] = pose
    env.data.qvel[: env.robot.nv] = 0.0


@contextmanager
def _state_restored(env: Navigation) -> Iterator[None]:
    """Restore the simulation afterwards."""
    before = env.get_checkpoint()
    try:
        yield
    finally:
        env.set_checkpoint(before)
