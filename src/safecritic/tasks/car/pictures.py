"""Pictures of a car task: its scene for the drawing, and what MuJoCo's renderer must add to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from safecritic.tasks.car.layout import HAZARD_RADIUS
from safecritic.tasks.car.model import CAR_NQ, GREMLIN_COLOUR
from safecritic.tasks.drawing import Scene

if TYPE_CHECKING:
    from safecritic.tasks.car.env import CarTask

HAZARD_RGBA = (0.0, 0.45, 0.7, 0.45)
GOAL_RGBA = (0.0, 0.62, 0.45, 0.45)


def scene_now(env: CarTask, trail: Any, trail_cost: Any, caption: str) -> Scene:
    """Return the scene as it is now, for `draw_scene`."""
    poses = {kind: _box_poses(env) for kind in ("vases", "gremlins") if kind in env.kinds}
    return Scene(
        extent=env.arena.extent,
        agent=(*env._position[:2], env.heading),
        goal=None if env.arena.buttons else env._points[env._goal_row],
        hazards=env._points[env._hazards],
        vases=poses.get("vases", ()),
        buttons=env._layout.get("buttons", ()),
        goal_button=env._goal_button if env.arena.buttons else None,
        gremlins=poses.get("gremlins", ()),
        gremlin_centres=None if env._gremlins is None else env._gremlins.centres[:, :2],
        trail=trail,
        trail_cost=trail_cost,
        caption=caption,
    )


def _box_poses(env: CarTask) -> np.ndarray:
    """Return x, y and rotation about z of each vase or gremlin."""
    boxes = env.state["qpos"][CAR_NQ:].reshape(-1, 7)
    w, x, y, z = boxes[:, 3:].T
    turn = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.column_stack([boxes[:, :2], turn])


def add_geoms(env: CarTask, scene: mujoco.MjvScene) -> None:
    """Add what is not in the model, or not where the model has it: goal, hazards, gremlins."""
    cylinder, box = mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_BOX
    for x, y in env._points[env._hazards]:
        _add_geom(scene, cylinder, (HAZARD_RADIUS, 0.01, 0.0), (x, y, 0.02), HAZARD_RGBA)
    size, height = ((0.2, 0.1, 0.0), 0.11) if env.arena.buttons else ((0.3, 0.15, 0.0), 0.16)
    _add_geom(scene, cylinder, size, (*env._points[env._goal_row], height), GOAL_RGBA)
    if env._gremlins is not None:
        qpos, _ = env._gremlins.poses()
        colour = tuple(float(v) for v in GREMLIN_COLOUR.split())
        for pose in qpos[env._gremlins.parked]:
            matrix = np.empty(9)
            mujoco.mju_quat2Mat(matrix, pose[3:])
            _add_geom(scene, box, (0.1, 0.1, 0.1), pose[:3], colour, matrix)


def _add_geom(
    scene: mujoco.MjvScene, kind: Any, size: Any, position: Any, colour: Any, matrix: Any = None
) -> None:
    if scene.ngeom >= scene.maxgeom:
        return
    matrix = np.eye(3).ravel() if matrix is None else matrix
    mujoco.mjv_initGeom(
        scene.geoms[scene.ngeom],
        int(kind),
        np.array(size, dtype=float),
        np.array(position, dtype=float),
        matrix,
        np.array(colour, dtype=np.float32),
    )
    scene.ngeom += 1
