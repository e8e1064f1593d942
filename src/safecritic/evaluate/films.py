"""A film of an episode, drawn by the tasks themselves.

record_episode(env, policy, "episode.gif", seed=0)  # or .mp4, or .png for the last frame
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from safecritic.run.rollout import FunctionPolicy, Rollout
from safecritic.tasks.drawing import Shade, real_time, save_film
from safecritic.tasks.repeat import single_steps


def record_episode(
    env: gymnasium.Env,
    policy: Any = None,
    path: str | Path | None = None,
    seed: int | None = None,
    *,
    max_steps: int | None = None,
    every: int = 1,
    size: int = 480,
    action_repeat: int | None = None,
    title: str = "",
    shade: Callable[[Any], Shade] | None = None,
) -> list[np.ndarray]:
    """Run one episode from a reset and return its frames; with `path`, also save them.

    Args:
        env: a task of this package, wrapped or not: anything whose `unwrapped` has `draw`.
        policy: a deployed policy, or a function from observation to action in [-1, 1]; None
            samples random actions.
        path: .gif or .mp4 for the film, .png for its last frame with the whole trail.
        seed: for the reset, and for the actions of the random policy.
        max_steps: stop after this many steps even if the episode has not ended.
        every: draw every n-th step (the first and the last are always drawn), also where the policy
            decides less often.
        size: width of a frame in pixels (the arm's is wider).
        action_repeat: steps for which each action is held; by default as the environment does.
        title: stands before the caption.
        shade: for a navigation task, function from the task to a map to draw it over.
    """
    task: Any = env.unwrapped
    if not hasattr(task, "draw"):
        raise TypeError(
            f"{type(task).__name__} has no draw method: use a task of safecritic, or record the "
            "frames of env.render() with save_animation"
        )
    suffix = Path(path).suffix if path is not None else ".gif"
    if suffix not in (".gif", ".mp4", ".png"):
        raise ValueError(f"path must end in .gif, .mp4 or .png, got {str(path)!r}")
    for name, value in (("every", every), ("action_repeat", action_repeat)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    if policy is None:
        env.action_space.seed(seed)
        policy = FunctionPolicy(lambda obs: env.action_space.sample())
    elif not hasattr(policy, "decide"):
        policy = FunctionPolicy(policy)
    points: list[np.ndarray] = []
    costs, frames = [0.0], []
    reward, step, success = 0.0, 0, False

    def draw() -> None:
        caption = title + make_caption(step, reward, sum(costs), success)
        more = {} if shade is None else {"shade": shade(task)}
        trail = {"trail": np.array(points), "trail_cost": np.array(costs)}
        frames.append(task.draw(**trail, caption=caption, size=size, **more))

    with single_steps(env) as (bare, own):
        rollout = Rollout(bare)
        rollout.reset(seed=seed)
        points.append(task.position)
        draw()
        for made in rollout.play(policy, action_repeat or own):
            before, step = step, step + made.steps
            reward += made.reward
            costs.append(made.cost)
            points.append(task.position)
            success = made.success
            over = made.ended or (max_steps is not None and step >= max_steps)
            if over or (suffix != ".png" and step // every > before // every):
                draw()
            if over:
                break
    if path is not None:
        save_film(frames, path, real_time(env, every))
    return frames


def make_caption(step: int, reward: float, cost: float, success: bool = False) -> str:
    """Return the line above a picture: step, and reward and cost summed since the reset."""
    text = f"step {step}   reward {reward:.2f}   cost {cost:.2f}"
    return text + "   reached" if success else text
