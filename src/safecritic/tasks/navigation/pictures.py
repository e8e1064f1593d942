"""The scene of a navigation task, for its drawing and for the explorer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from safecritic.tasks.drawing import Scene, Shade
from safecritic.tasks.navigation.lidar import rotation_matrix
from safecritic.tasks.navigation.model import build_model
from safecritic.tasks.navigation.robots import Robot

if TYPE_CHECKING:
    from safecritic.tasks.navigation.world import Navigation

SETTLED = 8.0  # s until a robot that was put on the floor is at rest


def scene_now(
    env: Navigation, trail: Any, trail_cost: Any, caption: str, shade: Shade | None
) -> Scene:
    """Return the scene as it is now, for `draw_scene`."""
    arena = env.arena
    poses = {arena.boxes: _box_poses(env)} if arena.boxes else {}
    box = poses.get("push_box")
    return Scene(
        extent=arena.extent,
        agent=(*env._here[:2], env.heading),
        goal=env._points[env._goal_row] if env.has_goal and not arena.buttons else None,
        hazards=env._points[env._hazards],
        vases=poses.get("vases", ()),
        buttons=env._layout.get("buttons", ()),
        goal_button=env._goal_button if arena.buttons else None,
        gremlins=poses.get("gremlins", ()),
        gremlin_centres=() if env._gremlins is None else env._gremlins.centres[:, :2],
        pillars=env._layout.get("pillars", ()),
        push_box=None if box is None else box[0],
        push_half=arena.box,
        circle=arena.circle,
        walls=arena.walls,
        hazard_radius=arena.hazard_radius,
        robot=env.robot.name,
        bounded=arena.start is None,
        follows=not arena.kinds,
        trail=trail,
        trail_cost=trail_cost,
        caption=caption,
        shade=shade,
    )


def pose_now(env: Navigation) -> tuple[list[float], list[float]]:
    """Return position and rotation matrix, row by row, from which the robot's lidars see."""
    return list(env._here), list(env._turned)


def buttons_are_seen(env: Navigation) -> bool:
    """Return whether the lidar of the buttons sees them: not in the dead time after a press."""
    return not (env._timer and env.arena.buttons)


def robot_at_rest(robot: Robot) -> np.ndarray:
    """Return qpos of a robot that has settled on an empty floor, at the origin with heading 0."""
    model = build_model(robot)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, round(SETTLED / robot.timestep))
    qpos = data.qpos.copy()
    if robot.free:
        heading = math.atan2(data.xmat[1, 3], data.xmat[1, 0])
        back = np.array([math.cos(heading / 2), 0.0, 0.0, -math.sin(heading / 2)])
        mujoco.mju_mulQuat(qpos[3:7], back, qpos[3:7].copy())
        qpos[:2] = 0.0
    return qpos


def sensed_at_rest(robot: Robot) -> tuple[np.ndarray, list[float], list[float]]:
    """Return what a settled robot senses before its lidars, its position and rotation matrix."""
    model = build_model(robot)
    data = mujoco.MjData(model)
    data.qpos[:] = robot_at_rest(robot)
    mujoco.mj_forward(model, data)
    balls = [rotation_matrix(*data.qpos[start : start + 4].tolist()) for start in robot.balls]
    readings = data.sensordata[: 3 * len(robot.readings)]
    return np.concatenate([readings, *balls]), data.xpos[1].tolist(), data.xmat[1].tolist()


def _box_poses(env: Navigation) -> np.ndarray:
    """Return x, y and rotation about z of each vase, gremlin or push box."""
    boxes = env.state["qpos"][env.robot.nq :].reshape(-1, 7)
    w, x, y, z = boxes[:, 3:].T
    turn = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.column_stack([boxes[:, :2], turn])
