"""Drawings: the right things at the right places, in files that open."""

import builtins
import dataclasses
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from PIL import Image

from safecritic.tasks import TASKS, make
from safecritic.tasks.cheetah import HalfCheetah
from safecritic.tasks.drawing import (
    Panel,
    Scene,
    draw_scene,
    make_caption,
    record_episode,
    save_animation,
    save_png,
)
from safecritic.tasks.drawing.canvas import BLUE, GREEN, ORANGE, PINK, RED, SKY, YELLOW
from safecritic.tasks.fetch import FetchReach

EMPTY = Scene(extent=1.5, agent=(0.0, 0.0, 0.0))


def pixel(frame, x, y, extent=1.5, size=480):
    """The colour at a place in the arena; the strip of the caption is on top."""
    scale = size / 2 / (1.12 * extent)
    top = frame.shape[0] - size - (frame.shape[0] - size) // 2
    return frame[top + round(size / 2 - y * scale), round(size / 2 + x * scale)]


def near(colour, target, tolerance=6):
    return np.abs(np.asarray(colour, float) - target).max() <= tolerance


def blend(colour, alpha):
    return np.array(colour) * alpha / 255 + 255 * (1 - alpha / 255)


def differs(a, b):
    """Where two frames differ by more than a shade, as a mask."""
    return np.abs(a.astype(int) - b.astype(int)).max(axis=-1) > 30


@pytest.mark.parametrize("size", [120, 480, 641])
def test_frame_has_the_asked_width_and_even_sides(size):
    frame = draw_scene(EMPTY, size=size)
    assert frame.dtype == np.uint8
    assert frame.shape[2] == 3
    assert abs(frame.shape[1] - size) <= 1
    assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0


def test_each_object_is_where_it_belongs():
    scene = Scene(
        extent=1.5,
        agent=(0.0, 0.0, 0.0),
        goal=(1.1, 1.1),
        hazards=[(-1.1, 1.1)],
        vases=[(-1.1, -1.1, 0.3)],
        buttons=[(1.1, -1.1), (0.3, -1.1)],
        goal_button=1,
        gremlins=[(-0.3, -1.1, 0.0)],
        gremlin_centres=[(-0.3, -1.45)],
    )
    frame = draw_scene(scene)
    for x, y, colour in [
        (1.1, 1.1, GREEN),
        (1.25, 1.25, blend(GREEN, 80)),
        (-1.1, 1.1, blend(BLUE, 70)),
        (-1.23, 1.03, blend(BLUE, 70)),
        (-1.1, -1.1, SKY),
        (1.1, -1.1, ORANGE),
        (0.3, -1.1, GREEN),
        (-0.3, -1.1, PINK),
    ]:
        assert near(pixel(frame, x, y), colour), (x, y)
    # just outside hazard, vase and button
    for x, y in [(-1.33, 1.1), (-1.1, -1.25), (1.23, -1.1)]:
        assert near(pixel(frame, x, y), (255, 255, 255)), (x, y)


@pytest.mark.parametrize("rotation", [0.0, np.pi / 2, np.pi, -0.7])
def test_the_front_of_the_car_is_its_minus_y(rotation):
    frame = draw_scene(dataclasses.replace(EMPTY, agent=(0.3, 0.25, rotation)))
    forward = np.array([np.sin(rotation), -np.cos(rotation)])
    front = (0.3, 0.25) + 0.13 * forward
    back = (0.3, 0.25) - 0.2 * forward
    assert near(pixel(frame, *front), YELLOW)
    assert near(pixel(frame, *back), (255, 255, 255))


def test_vases_turn_with_their_rotation():
    straight = draw_scene(dataclasses.replace(EMPTY, vases=[(1.0, 0.0, 0.0)]))
    turned = draw_scene(dataclasses.replace(EMPTY, vases=[(1.0, 0.0, np.pi / 4)]))
    assert near(pixel(straight, 1.08, 0.08), SKY)
    assert near(pixel(turned, 1.08, 0.08), (255, 255, 255))
    assert near(pixel(turned, 1.12, 0.0), SKY)


def test_trail_is_red_where_the_step_cost_something():
    trail = [(-1.2, 0.7), (-0.4, 0.7), (0.4, 0.7), (1.2, 0.7)]
    frame = draw_scene(dataclasses.replace(EMPTY, trail=trail, trail_cost=[0, 0, 0.2, 0]))
    assert near(pixel(frame, 0.1, 0.7), RED)
    for x in (-0.8, 0.8):
        grey = pixel(frame, x, 0.7).astype(int)
        assert np.ptp(grey) < 20
        assert grey.max() < 200


def test_a_car_outside_the_arena_is_still_in_the_picture():
    # nothing else is as dark a yellow, and the legend's car is drawn in both
    inside = draw_scene(EMPTY)
    outside = draw_scene(dataclasses.replace(EMPTY, agent=(4.0, 0.0, 0.0)))
    yellow = (np.abs(outside.astype(int) - YELLOW).max(axis=-1) < 20)[:500]
    assert yellow.sum() > 5
    assert np.argwhere(yellow)[:, 1].min() > 400
    assert outside.shape == inside.shape


def test_caption_and_legend_are_written():
    plain, said = (draw_scene(dataclasses.replace(EMPTY, caption=c)) for c in ("", "cost 1.00"))
    changed = np.argwhere(differs(plain, said))
    assert len(changed) > 50
    assert changed[:, 0].max() < 28
    assert make_caption(12, 1.234, 0.4, True) == "step 12   reward 1.23   cost 0.40   reached"
    assert make_caption(0, 0.0, 0.0) == "step 0   reward 0.00   cost 0.00"
    legend = differs(plain, draw_scene(dataclasses.replace(EMPTY, hazards=[(9.0, 9.0)])))
    assert np.argwhere(legend)[:, 0].min() > 500


def test_panel_puts_metres_where_they_belong():
    panel = Panel(100, 50, (2.0, 1.0), 10.0)
    assert panel.edges == (-3.0, 7.0, -1.5, 3.5)
    assert panel.pixels((2.0, 1.0)) == [(150.0, 75.0)]
    assert panel.pixels((3.0, 2.0)) == [(180.0, 45.0)]


# ------------------------------------------------------------------------ cheetah and arm


def test_cheetah_follows_the_runner_and_shows_its_speed():
    env = HalfCheetah()
    env.reset(seed=0)
    calm = env.draw()
    assert calm.shape == (316, 480, 3)
    state = env.state
    state["qpos"][0] += 1.0
    env.reset(options={"state": state})
    # one metre on is the same picture but for the numbers on the floor
    moved = differs(calm, env.draw())
    assert np.argwhere(moved)[:, 0].min() > 250
    assert moved.sum() < 400
    state["qpos"][1], state["qvel"] = 0.5, np.array([5.0] + [0.0] * 8)
    env.reset(options={"state": state})
    env.step(np.zeros(6))
    bar = env.draw()[40:60, 330:470]
    assert (np.abs(bar.astype(int) - RED).max(axis=-1) < 10).sum() > 500


def test_fetch_shows_hand_target_and_trail_in_both_views():
    env = FetchReach()
    env.reset(seed=0, options={"layout": {"goal": [1.45, 0.6, 0.75]}})
    points = np.array([[1.3, 0.5, 0.9], [1.5, 0.5, 0.9], [1.6, 0.5, 0.9]])
    frame = env.draw(trail=points, trail_cost=np.array([0.0, 1.0, 0.0]))
    assert frame.shape == (440, 768, 3)
    scale, strip = 384 / 1.25, 28
    for left, axes, centre in ((0, [0, 1], (1.1, 0.75)), (384, [0, 2], (1.1, 0.62))):

        def at(point, left=left, axes=axes, centre=centre):
            u, v = (np.asarray(point)[axes] - centre) * scale
            return frame[strip + round(192 - v), left + round(192 + u)]

        assert near(at([1.45, 0.6, 0.75]), GREEN, 12)
        assert near(at(env.position), YELLOW, 12)
        assert near(at([1.4, 0.5, 0.9]), RED, 12)
        assert np.ptp(at([1.55, 0.5, 0.9]).astype(int)) < 40


@pytest.mark.parametrize("make", [HalfCheetah, FetchReach])
def test_drawing_does_not_touch_the_simulation(make):
    watched, plain = make(), make()
    watched.reset(seed=0)
    plain.reset(seed=0)
    for action in np.random.default_rng(0).uniform(-1, 1, (5, *plain.action_space.shape)):
        watched.draw(trail=np.array([watched.position]), trail_cost=np.zeros(1))
        np.testing.assert_array_equal(watched.step(action)[0], plain.step(action)[0])


RENDER = """
import numpy as np
from safecritic.tasks.{module} import {name} as Task
env, twin = Task(render_mode="rgb_array"), Task()
env.reset(seed=0)
twin.reset(seed=0)
for action in np.linspace(-1, 1, 3):
    frame = env.render()
    drawn = (frame == env.draw()).all() if frame.shape == env.draw().shape else False
    print("drawing" if drawn else "picture", frame.std() > 5)
    steps = [e.step(np.full(e.action_space.shape, action))[0] for e in (env, twin)]
    assert (steps[0] == steps[1]).all()
env.close()
env.close()
"""


@pytest.mark.parametrize("task", [HalfCheetah, FetchReach])
@pytest.mark.parametrize("backend", ["glfw", "egl", "off"])
def test_render_gives_a_picture_or_says_how_to_get_one(task, backend):
    """In a process of its own: MuJoCo chooses its OpenGL at import, and may abort without one."""
    code = RENDER.format(module=task.__module__.rsplit(".", 1)[1], name=task.__name__)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MUJOCO_GL": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:3]
    assert len(set(lines)) == 1
    assert lines[0] in (["drawing True"] if backend == "off" else ["drawing True", "picture True"])
    # a drawing instead of a picture comes with the reason and the remedy, once
    told = done.stderr.count("install EGL")
    assert told == lines[0].startswith("drawing")


def test_render_without_a_mode_says_what_is_needed():
    env = HalfCheetah()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="rgb_array"):
        assert env.render() is None


# ------------------------------------------------------------------------ files


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
    with pytest.raises(ImportError, match=r"pip install 'safecritic\[video\]'"):
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


# ------------------------------------------------------------------------ an episode


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
