"""The scene of a navigation task, for its drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from safecritic.tasks.drawing import Scene

if TYPE_CHECKING:
    from safecritic.tasks.navigation.world import Navigation


def scene_now(
    env: Navigation, trail: Any, trail_cost: Any, caption: str, shade: np.ndarray | None
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


def _box_poses(env: Navigation) -> np.ndarray:
    """Return x, y and rotation about z of each vase, gremlin or push box."""
    boxes = env.state["qpos"][env.robot.nq :].reshape(-1, 7)
    w, x, y, z = boxes[:, 3:].T
    turn = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.column_stack([boxes[:, :2], turn])
