"""Files: a frame as PNG, frames as GIF or MP4. `evaluate.films` films a whole episode."""

import io
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from safecritic.tasks.drawing.canvas import BLUE, GREEN, INK, ORANGE, PINK, RED, SKY, YELLOW

KEPT = (INK, GREEN, BLUE, SKY, ORANGE, RED, PINK, YELLOW)  # however few pixels have them
GIF_BYTES = 1_500_000  # a film above it shows fewer frames


def save_png(frame: np.ndarray, path: str | Path) -> None:
    """Write one frame."""
    image = io.BytesIO()
    Image.fromarray(_check_frame(frame)).save(image, format="png", optimize=True)
    _write(path, image.getvalue())


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
        _save_gif(images, path, fps)
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
    for skip in (1, 2, 3, 4, 6, 8, 12, 16):  # fewer frames, each longer, until the file is small
        shown = [*pages[:-1:skip], pages[-1]]
        # a frame lasts a whole number of hundredths of a second; viewers slow down below two
        duration = max(20, 10 * round(100 * skip / fps))
        film = io.BytesIO()
        options: Any = {"append_images": shown[1:], "duration": duration, "loop": 0}
        shown[0].save(film, format="gif", save_all=True, **options)
        if film.tell() <= GIF_BYTES:
            break
    _write(path, film.getvalue())


def _palette(images: list[np.ndarray], exact: int = 64, blended: int = 96) -> Image.Image:
    """Return the commonest colours as they are, and shades for the smooth edges between them."""
    pixels = np.concatenate([image.reshape(-1, 3) for image in images]).astype(np.uint32)
    packed, count = np.unique(
        pixels @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32), return_counts=True
    )
    packed = packed[np.argsort(-count, kind="stable")]
    colours = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1).astype(np.uint8)
    flat = bytes(number for colour in KEPT for number in colour) + colours[:exact].tobytes()
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
    with _replacing(path) as part:
        done = subprocess.run([*command, str(part)], input=frames, capture_output=True, check=False)
        if done.returncode:
            text = repr(done.stderr.decode(errors="replace").strip()[-300:])
            raise RuntimeError(f"ffmpeg could not write {path}: {text}")


def _check_frame(frame: np.ndarray) -> np.ndarray:
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(
            f"a frame must be uint8 of shape (height, width, 3), got {frame.dtype} of {frame.shape}"
        )
    return frame


def _write(path: str | Path, content: bytes) -> None:
    with _replacing(path) as part:
        part.write_bytes(content)


@contextmanager
def _replacing(path: str | Path) -> Iterator[Path]:
    """Lend a new file that takes this place when it is whole; a link there is replaced."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        yield Path(folder) / path.name
        (Path(folder) / path.name).replace(path)


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


def real_time(env: gymnasium.Env, every: int) -> float:
    """Return the frames per second of a film with every n-th step, in real time."""
    return env.metadata.get("render_fps", 25) / every


def save_film(frames: Sequence[np.ndarray], path: str | Path, fps: float) -> None:
    """Write the frames as .gif or .mp4, or the last one as .png."""
    if Path(path).suffix == ".png":
        save_png(frames[-1], path)
    else:
        save_animation(frames, path, fps)
