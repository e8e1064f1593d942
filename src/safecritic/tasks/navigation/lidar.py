"""What a robot observes and MuJoCo does not compute: its lidars, and the ball's rotation matrix.

`lidar` and `rotation_matrix` run once per step, in plain Python; `lidar_at` serves thousands of
poses at once.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

BINS = 16
LIDAR_RANGE = 3.0


def lidar(
    points: list[tuple[float, float]],
    starts: list[int],
    position: list[float],
    rotation: list[float],
    reach: float = LIDAR_RANGE,
) -> list[float]:
    """Return the lidars of all kinds, 16 bins each in [0, 1]; the nearest object wins a bin.

    Kind k are the points (on the floor) from starts[k] to starts[k + 1]. An object counts fully in
    its own bin and in the two beside it by its place within its own.
    """
    x0, y0, z0 = position
    r00, r01, _, r10, r11, _, r20, r21, _ = rotation
    lift_x, lift_y = z0 * r20, z0 * r21  # the robot's own height, seen through its tilt
    hypot, atan2, per_radian = math.hypot, math.atan2, BINS / (2 * math.pi)
    lidars = []
    for start, stop in itertools.pairwise(starts):
        bins = [0.0] * BINS
        for x, y in points[start:stop]:
            dx, dy = x - x0, y - y0
            ego_x, ego_y = dx * r00 + dy * r10 - lift_x, dx * r01 + dy * r11 - lift_y
            value = 1.0 - hypot(ego_x, ego_y) / reach
            if value <= 0.0:
                continue
            angle = atan2(ego_y, ego_x) * per_radian
            cell = math.floor(angle)
            after = (angle - cell) * value
            before = value - after
            cell %= BINS
            if value > bins[cell]:
                bins[cell] = value
            if before > bins[cell - 1]:
                bins[cell - 1] = before
            cell = cell + 1 if cell < BINS - 1 else 0
            if after > bins[cell]:
                bins[cell] = after
        lidars += bins
    return lidars


def lidar_at(points: np.ndarray, poses: np.ndarray, reach: float = LIDAR_RANGE) -> np.ndarray:
    """Return `lidar` of one kind of object for many poses of a level robot, (N, BINS)."""
    offset = points[None] - poses[:, None, :2]
    cosine, sine = np.cos(poses[:, 2:]), np.sin(poses[:, 2:])
    ahead = offset[..., 0] * cosine + offset[..., 1] * sine
    left = -offset[..., 0] * sine + offset[..., 1] * cosine
    value = np.maximum(1.0 - np.hypot(ahead, left) / reach, 0.0)
    angle = np.arctan2(left, ahead) * (BINS / (2 * math.pi))
    cell = np.floor(angle)
    after = (angle - cell) * value
    bins = np.zeros((len(poses), BINS))
    rows = np.broadcast_to(np.arange(len(poses))[:, None], cell.shape)
    for shift, part in ((0, value), (-1, value - after), (1, after)):
        np.maximum.at(bins, (rows, (cell.astype(int) + shift) % BINS), part)
    return bins


def rotation_matrix(w: float, x: float, y: float, z: float) -> tuple[float, ...]:
    """Return the rotation matrix of a unit quaternion, row by row."""
    return (
        w * w + x * x - y * y - z * z,
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        w * w - x * x + y * y - z * z,
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        w * w - x * x - y * y + z * z,
    )
