"""Files: a frame as PNG, frames as GIF or MP4, and a whole episode as a film."""

import io
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from safecritic import files
from safecritic.tasks.repeat import single_steps


def save_png(frame: np.ndarray, path: str | Path) -> None:
    """Write one frame."""
    image = io.BytesIO()
    Image.fromarray(_check_frame(frame)).save(image, format="png", optimize=True)
    files.write_bytes(_target(path), image.getvalue())


def save_animation(frames: Iterable[np.ndarray], path: str | Path, fps: float = 20.0) -> None:
    """Write the frames as a looping .gif, or as .mp4 (needs `pip install imageio-ffmpeg`)."""
    path = Path(path)
    images = [_check_frame(frame) for frame in frames]
    if not images:
        raise ValueError(f"no frames to write to {path}: pass at least one")
    shapes = sorted({image.shape for image in images})
    if len(shapes) > 1:
        raise ValueError(f"all frames of an animation must have the same shape, got {shapes}")
    if not fps > 0:
        raise ValueError(f"fps must be > 0, got {fps}")
    if path.suffix == ".gif":
        _save_gif(images, _target(path), fps)
    elif path.suffix == ".mp4":
        _save_mp4(images, path, fps)
    else:
        raise ValueError(f"the path of an animation must end in .gif or .mp4, got {path.name!r}")


def _save_gif(images: list[np.ndarray], path: Path, fps: float) -> None:
    palette = _palette(images[:: max(1, len(images) // 8)][:8] + images[-1:])
    pages = [
        Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)
        for image in images
    ]
    # a frame lasts a whole number of hundredths of a second, and viewers slow down below two
    duration = max(20, 10 * round(100 / fps))
    film = io.BytesIO()
    options: Any = {"save_all": True, "append_images": pages[1:], "duration": duration, "loop": 0}
    pages[0].save(film, format="gif", **options)
    files.write_bytes(path, film.getvalue())


def _palette(images: list[np.ndarray], exact: int = 96, blended: int = 128) -> Image.Image:
    """Return the commonest colours as they are, and shades for the smooth edges between them."""
    pixels = np.concatenate([image.reshape(-1, 3) for image in images]).astype(np.uint32)
    packed, count = np.unique(
        pixels @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32), return_counts=True
    )
    packed = packed[np.argsort(-count, kind="stable")]
    colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1).astype(np.uint8)
    flat = colours[:exact].tobytes()
    if len(colours) > exact:
        # each colour once, or the few pixels of a car would not get a shade of their own
        edges = Image.fromarray(colours[None, exact:]).quantize(blended)
        flat += bytes(edges.getpalette() or ())[: 3 * blended]
    palette = Image.new("P", (1, 1))
    palette.putpalette(flat)
    return palette


def _save_mp4(images: list[np.ndarray], path: Path, fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise ImportError(
            "writing .mp4 needs imageio-ffmpeg: pip install imageio-ffmpeg, or write a .gif"
        ) from error
    height, width = (n - n % 2 for n in images[0].shape[:2])  # the codec takes even sizes
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}"]
    command += ["-i", "-", "-an", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "20"]
    frames = b"".join(image[:height, :width].tobytes() for image in images)
    # not the package's own writer, which forks: with JAX's threads that warns of deadlocks
    with files.replacing(_target(path)) as target:
        done = subprocess.run(
            [*command, str(target)], input=frames, capture_output=True, check=False
        )
        if done.returncode:
            text = files.printable(done.stderr.decode(errors="replace")).strip()
            raise RuntimeError(f"ffmpeg could not write {path}: {text[-300:]}")


def _check_frame(frame: np.ndarray) -> np.ndarray:
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(
            f"a frame must be uint8 of shape (height, width, 3), got {frame.dtype} of {frame.shape}"
        )
    return frame


def _target(path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def beside(films: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Put films side by side; one that is over stays at its last frame."""
    longest = max(len(film) for film in films)
    height = max(film[0].shape[0] for film in films)

    def frame(film: Sequence[np.ndarray], number: int) -> np.ndarray:
        one = film[min(number, len(film) - 1)]
        below = np.repeat(one[-1:], height - one.shape[0], axis=0)
        return np.concatenate([one, below])

    return [
        np.concatenate([frame(film, number) for film in films], axis=1) for number in range(longest)
    ]


def make_caption(step: int, reward: float, cost: float, success: bool = False) -> str:
    """Return the line above a picture: step, and reward and cost summed since the reset."""
    text = f"step {step}   reward {reward:.2f}   cost {cost:.2f}"
    return text + "   reached" if success else text


def record_episode(
    env: gymnasium.Env,
    policy: Callable[[np.ndarray], Any] | None = None,
    path: str | Path | None = None,
    seed: int | None = None,
    *,
    options: dict[str, Any] | None = None,
    max_steps: int | None = None,
    every: int = 1,
    fps: float | None = None,
    size: int = 480,
    action_repeat: int | None = None,
    title: str = "",
    shade: Callable[[Any], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Run one episode from a reset and return its frames; with `path`, also save them.

    Every step can be drawn, also where the policy decides less often.

    Args:
        env: a task of this package, wrapped or not: anything whose `unwrapped` has `draw`.
        policy: function from observation to action; None samples random actions.
        path: .gif or .mp4 for the film, .png for its last frame with the whole trail.
        seed: for the reset, and for the actions of the random policy.
        options: for the reset.
        max_steps: stop after this many steps even if the episode has not ended.
        every: draw every n-th step (the first and the last are always drawn).
        fps: frames per second of the film; real time by default.
        size: width of a frame in pixels (the arm's is wider).
        action_repeat: steps for which each action is held; by default as the environment does.
        title: stands before the caption.
        shade: for a car task, function from the task to a map of values in [0, 1] to draw it over.
    """
    task: Any = env.unwrapped
    if not hasattr(task, "draw"):
        raise TypeError(
            f"{type(task).__name__} has no draw method: use a task of safecritic, or record the "
            "frames of env.render() with save_animation"
        )
    if path is not None and Path(path).suffix not in (".gif", ".mp4", ".png"):
        raise ValueError(f"path must end in .gif, .mp4 or .png, got {str(path)!r}")
    if every < 1:
        raise ValueError(f"every must be >= 1, got {every}")
    if action_repeat is not None and action_repeat < 1:
        raise ValueError(f"action_repeat must be >= 1, got {action_repeat}")
    if policy is None and seed is not None:
        env.action_space.seed(seed)
    film_only = path is None or Path(path).suffix != ".png"
    with single_steps(env) as (bare, own):
        frames = list(
            _frames(
                bare,
                policy or (lambda obs: env.action_space.sample()),
                bare.reset(seed=seed, options=options)[0],
                action_repeat or own,
                max_steps,
                every if film_only else None,
                size,
                title,
                shade,
            )
        )
    if path is not None:
        save_film(frames, path, fps or real_time(env, every))
    return frames


def real_time(env: gymnasium.Env, every: int) -> float:
    """Return the frames per second of a film with every n-th step, in real time."""
    return env.metadata.get("render_fps", 25) / every


def save_film(frames: Sequence[np.ndarray], path: str | Path, fps: float) -> None:
    """Write the frames as .gif or .mp4, or the last one as .png."""
    if Path(path).suffix == ".png":
        save_png(frames[-1], path)
    else:
        save_animation(frames, path, fps)


def _frames(
    env: gymnasium.Env,
    policy: Callable[[np.ndarray], Any],
    obs: np.ndarray,
    action_repeat: int,
    max_steps: int | None,
    every: int | None,
    size: int,
    title: str,
    shade: Callable[[Any], np.ndarray] | None,
) -> Iterator[np.ndarray]:
    """Yield the first frame of an episode that begins at `obs`, every n-th and the last."""
    task: Any = env.unwrapped
    points, costs = [task.position], [0.0]
    total, step, done, success = 0.0, 0, False, False

    def frame() -> np.ndarray:
        caption = title + make_caption(step, total, sum(costs), success)
        more = {} if shade is None else {"shade": shade(task)}
        trail = {"trail": np.array(points), "trail_cost": np.array(costs)}
        return task.draw(**trail, caption=caption, size=size, **more)

    yield frame()
    held = 0
    if hasattr(policy, "reset"):
        policy.reset()
    while not done:
        if held == 0:
            if hasattr(policy, "spent"):
                policy.spent = sum(costs)
            action = policy(obs)
        obs, reward, terminated, truncated, info = env.step(action)
        held = (held + 1) % action_repeat
        before, step = step, step + int(info.get("steps", 1))
        total += float(reward)
        costs.append(float(info["cost"]))
        points.append(task.position)
        success = bool(info.get("success", False))
        done = terminated or truncated or (max_steps is not None and step >= max_steps)
        if done or (every is not None and step // every > before // every):
            yield frame()
