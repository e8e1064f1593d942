"""Pictures and films of the tasks without OpenGL: NumPy arrays drawn with Pillow.

    frame = env.unwrapped.draw()                        # any task, now
    save_png(frame, "now.png")
    record_episode(env, policy, "episode.gif", seed=0)  # or .mp4, or .png for the last frame

A step with cost leaves a red trail.
"""

from safecritic.tasks.drawing.canvas import Panel
from safecritic.tasks.drawing.robots import Scene, draw_car, draw_cheetah, draw_fetch, draw_scene
from safecritic.tasks.drawing.saving import (
    beside,
    make_caption,
    real_time,
    record_episode,
    save_animation,
    save_film,
    save_png,
)

__all__ = [
    "Panel",
    "Scene",
    "beside",
    "draw_car",
    "draw_cheetah",
    "draw_fetch",
    "draw_scene",
    "make_caption",
    "real_time",
    "record_episode",
    "save_animation",
    "save_film",
    "save_png",
]
