"""Pictures and films of the tasks without OpenGL: NumPy arrays drawn with Pillow.

    frame = env.unwrapped.draw()                        # any task, now
    save_png(frame, "now.png")
    save_animation(frames, "frames.gif")                # or .mp4

A step with cost leaves a red trail. `safecritic.evaluate.films` films a whole episode.
"""

from safecritic.tasks.drawing.canvas import Panel
from safecritic.tasks.drawing.robots import (
    Scene,
    Shade,
    View,
    draw_fetch,
    draw_robot,
    draw_runner,
    draw_scene,
    robot_shapes,
)
from safecritic.tasks.drawing.saving import (
    beside,
    real_time,
    save_animation,
    save_film,
    save_png,
)

__all__ = [
    "Panel",
    "Scene",
    "Shade",
    "View",
    "beside",
    "draw_fetch",
    "draw_robot",
    "draw_runner",
    "draw_scene",
    "real_time",
    "robot_shapes",
    "save_animation",
    "save_film",
    "save_png",
]
