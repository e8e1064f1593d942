"""The pictures of the tasks in docs/images: `python docs/pictures.py`."""

from pathlib import Path

import numpy as np
from PIL import Image

import safecritic
from safecritic.tasks import TASKS

HERE = Path(__file__).parent / "images"


def frame(name: str, size: int) -> np.ndarray:
    """A task from above (or the side), after a few steps."""
    env = safecritic.make(name)
    env.reset(seed=3)
    trail, trail_cost = [], []
    for step in range(30):
        action = np.full(env.action_space.shape, 0.02)
        action[0] += 0.02 * np.sin(step / 8)
        _, _, terminated, _, info = env.step(action)
        trail.append(env.unwrapped.position)
        trail_cost.append(info["cost"])
        if terminated:
            break
    return env.unwrapped.draw(trail, trail_cost, caption=name, size=size)


def picture(file: str, rows: list[list[str]], size: int) -> None:
    """Write rows of tasks as one picture."""
    drawn = [_beside([frame(name, size) for name in row]) for row in rows]
    width = max(row.shape[1] for row in drawn)
    whole = np.concatenate([_padded(row, row.shape[0], width) for row in drawn])
    small = Image.fromarray(whole).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(HERE / file, optimize=True)


def _beside(frames: list[np.ndarray]) -> np.ndarray:
    height = max(f.shape[0] for f in frames)
    return np.concatenate([_padded(f, height, f.shape[1] + 8) for f in frames], axis=1)


def _padded(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    cell = np.full((height, width, 3), frame[0, 0], dtype=np.uint8)
    left = (width - frame.shape[1]) // 2
    cell[: frame.shape[0], left : left + frame.shape[1]] = frame
    return cell


if __name__ == "__main__":
    paper = [name for name in TASKS if not name.startswith("Safety")]
    picture("tasks.png", [paper[:4], paper[4:]], 360)
    forms = ("Goal2", "Button1", "Push2", "Circle2", "Run0")
    rows = [[f"Safety{robot}{form}-v0" for form in forms] for robot in ("Point", "Car")]
    runners = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")
    rows.append([f"Safety{robot}Velocity-v1" for robot in runners])
    picture("safety-gymnasium.png", rows, 300)
