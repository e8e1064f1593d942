"""Files of frames that open again, and whole episodes."""

import builtins
import dataclasses

import gymnasium
import numpy as np
import pytest
from PIL import Image

from helpers.frames import differs
from safecritic.evaluate.films import make_caption, record_episode
from safecritic.tasks import TASKS, make
from safecritic.tasks.drawing import (
    Scene,
    Shade,
    beside,
    draw_scene,
    save_animation,
    save_png,
    saving,
)
from safecritic.tasks.drawing.canvas import BLUE, GREEN
from safecritic.tasks.fetch import FetchReach
from safecritic.tasks.velocity import HalfCheetah

EMPTY = Scene(extent=1.5, agent=(0.0, 0.0, 0.0))


def test_png_holds_the_frame(tmp_path):
    frame = draw_scene(EMPTY, 200)
    save_png(frame, tmp_path / "new" / "scene.png")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "new" / "scene.png")), frame)


def film(count):
    scene = Scene(
        extent=1.8,
        agent=(0, 0, 0),
        hazards=np.random.default_rng(0).uniform(-1.6, 1.6, (8, 2)),
        buttons=[(1, 1), (-1, 1), (1, -1)],
        goal_button=0,
    )
    for t in range(count):
        at = 0.01 * t
        trail = [(0.01 * k - 1, 0.5) for k in range(t + 1)]
        gremlins = [(np.sin(4 * at), np.cos(4 * at), 0.0)]
        yield draw_scene(
            dataclasses.replace(
                scene,
                agent=(at - 1, 0.5, at),
                gremlins=gremlins,
                trail=trail,
                trail_cost=[k % 2 for k in range(t + 1)],
                caption=make_caption(t, at, at),
            )
        )


@pytest.mark.slow
def test_gif_is_small_and_true_to_the_frames(tmp_path):
    frames = list(film(100))
    save_animation(frames, tmp_path / "film.gif", fps=25)
    assert (tmp_path / "film.gif").stat().st_size < 1_000_000
    gif = Image.open(tmp_path / "film.gif")
    assert gif.n_frames == 100
    assert gif.info["duration"] == 40
    for index in (0, 57, 99):
        gif.seek(index)
        shown = np.asarray(gif.convert("RGB")).astype(int)
        error = np.abs(shown - frames[index].astype(int)).max(axis=-1)
        assert error.mean() < 1.5
        assert np.quantile(error, 0.999) < 40


def test_a_gif_too_large_shows_fewer_frames_in_the_same_time(tmp_path, monkeypatch):
    frames = list(film(41))
    save_animation(frames, tmp_path / "all.gif", fps=25)
    size = (tmp_path / "all.gif").stat().st_size
    monkeypatch.setattr(saving, "GIF_BYTES", size // 3)
    save_animation(frames, tmp_path / "few.gif", fps=25)
    assert (tmp_path / "few.gif").stat().st_size <= size // 3
    few = Image.open(tmp_path / "few.gif")
    assert few.n_frames < 15
    assert few.n_frames * few.info["duration"] == pytest.approx(41 * 40, abs=few.info["duration"])
    few.seek(few.n_frames - 1)
    assert differs(np.asarray(few.convert("RGB")), frames[-1]).mean() < 0.001


def test_a_film_over_a_map_is_small(tmp_path):
    """Smooth shades that change in every frame, as Q_C does, for 100 frames."""
    frames = []
    for t in range(100):
        y, x = np.meshgrid(*[np.linspace(0, 3, 40) - 0.01 * t] * 2, indexing="ij")
        scene = dataclasses.replace(EMPTY, shade=Shade(np.sin(x) ** 2 * np.cos(y) ** 2, 1.0))
        frames.append(draw_scene(scene, 320))
    save_animation(frames, tmp_path / "map.gif", fps=12.5)
    assert (tmp_path / "map.gif").stat().st_size < 800_000


def test_a_film_replaces_a_link_and_does_not_follow_it(tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "film.gif").symlink_to(tmp_path / "kept")
    save_animation(film(2), tmp_path / "film.gif", fps=10)
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "film.gif").is_symlink()


def test_gif_keeps_colours_apart(tmp_path):
    frame = np.zeros((60, 60, 3), np.uint8)
    frame[:30], frame[30:] = BLUE, GREEN
    save_animation([frame, frame[::-1]], tmp_path / "two.gif", fps=10)
    gif = Image.open(tmp_path / "two.gif")
    np.testing.assert_array_equal(np.asarray(gif.convert("RGB")), frame)


def test_mp4_opens_again(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    frames = list(film(10))
    save_animation(frames, tmp_path / "film.mp4", fps=10)
    reader = ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    meta = next(reader)
    assert meta["size"] == (frames[0].shape[1], frames[0].shape[0])
    read = [np.frombuffer(data, np.uint8).reshape(frames[0].shape) for data in reader]
    assert len(read) == 10
    assert np.abs(read[5].astype(int) - frames[5].astype(int)).mean() < 6


def test_mp4_without_its_package_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install imageio-ffmpeg"):
        save_animation(film(1), tmp_path / "film.mp4")
    assert list(tmp_path.iterdir()) == []


def test_bad_films_are_refused(tmp_path):
    frames = list(film(2))
    for given, name, fps, message in [
        ([], "a.gif", 10, "no frames"),
        (frames, "a.avi", 10, "end in .gif or .mp4"),
        (frames, "a.gif", 0, "fps must be > 0"),
        ([frames[0], frames[1][:-2]], "a.gif", 10, "same shape"),
        ([frames[0].astype(float)], "a.gif", 10, "must be uint8"),
    ]:
        with pytest.raises(ValueError, match=message):
            save_animation(given, tmp_path / name, fps)


# ---------------------------------------------------------------- an episode


def test_captions():
    assert make_caption(12, 1.234, 0.4, True) == "step 12   reward 1.23   cost 0.40   reached"
    assert make_caption(0, 0.0, 0.0) == "step 0   reward 0.00   cost 0.00"


def test_an_episode_is_recorded(tmp_path):
    env = gymnasium.wrappers.TimeLimit(FetchReach(), 500)

    def policy(obs):
        return np.clip((obs[6:] - obs[:3]) * 4, -1, 1)

    frames = record_episode(env, policy, tmp_path / "reach.gif", seed=0)
    obs, _ = env.reset(seed=0)
    steps, done = 0, False
    while not done:
        obs, _, done, _, _ = env.step(policy(obs))
        steps += 1
    assert len(frames) == steps + 1
    assert Image.open(tmp_path / "reach.gif").info["duration"] == 40
    last = env.unwrapped.draw()
    # the same pose as the last frame, which also has the trail and the caption
    assert 0 < differs(frames[-1], last)[28:].mean() < 0.01


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_can_be_recorded(name):
    frames = record_episode(make(name), seed=0, max_steps=3, size=200)
    assert len(frames) == 4
    assert frames[0].shape == frames[-1].shape
    assert 0 < differs(frames[0], frames[-1]).mean() < 0.5


def test_random_actions_and_thinned_frames(tmp_path):
    env = HalfCheetah(horizon=10)
    first = record_episode(env, seed=3, every=4)
    again = record_episode(env, seed=3, every=4)
    assert len(first) == 4
    np.testing.assert_array_equal(first, again)
    assert len(record_episode(env, path=tmp_path / "end.png", seed=3)) == 2
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "end.png")), first[-1])
    assert len(record_episode(env, seed=3, max_steps=2)) == 3


def test_what_cannot_be_recorded_is_refused():
    with pytest.raises(TypeError, match="PendulumEnv has no draw method"):
        record_episode(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="path must end in"):
        record_episode(HalfCheetah(), path="film.avi")
    with pytest.raises(ValueError, match="every must be >= 1"):
        record_episode(HalfCheetah(), every=0)


def test_films_stand_side_by_side_and_wait_for_each_other():
    short, long = (
        [np.full((4, 6, 3), shade, np.uint8) for shade in film] for film in ([1], [2, 3])
    )
    first, last = beside([short, long])
    assert first.shape == last.shape == (4, 12, 3)
    assert [first[0, 0, 0], first[0, -1, 0], last[0, 0, 0], last[0, -1, 0]] == [1, 2, 1, 3]
