"""Pictures of the tasks: the right things at the right places."""

import dataclasses

import numpy as np
import pytest

from helpers.frames import differs
from safecritic.tasks.drawing import Scene, Shade, draw_scene
from safecritic.tasks.drawing.canvas import (
    GREEN,
    ORANGE,
    PINK,
    RED,
    SHADE,
    SKY,
    VIOLET,
    YELLOW,
    strip_height,
)
from safecritic.tasks.drawing.robots import BODY, BROWN, GREY
from safecritic.tasks.fetch import FetchReach
from safecritic.tasks.velocity import HalfCheetah

EMPTY = Scene(extent=1.5, agent=(0.0, 0.0, 0.0))


def pixel(frame, x, y, extent=1.5, size=480):
    """The colour at a place in the arena; the strip of the caption is on top."""
    scale = size / 2 / (1.12 * extent)
    return frame[strip_height(size) + round(size / 2 - y * scale), round(size / 2 + x * scale)]


def near(colour, target, tolerance=6):
    return np.abs(np.asarray(colour, float) - target).max() <= tolerance


def blend(colour, alpha):
    return np.array(colour) * alpha / 255 + 255 * (1 - alpha / 255)


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
        (-1.1, 1.1, blend(RED, 70)),
        (-1.23, 1.03, blend(RED, 70)),
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
    legend = differs(plain, draw_scene(dataclasses.replace(EMPTY, hazards=[(9.0, 9.0)])))
    assert np.argwhere(legend)[:, 0].min() > 500


# ---------------------------------------------------------------- cheetah and arm


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


@pytest.mark.parametrize("task", [HalfCheetah, FetchReach])
def test_drawing_does_not_touch_the_simulation(task):
    watched, plain = task(), task()
    watched.reset(seed=0)
    plain.reset(seed=0)
    for action in np.random.default_rng(0).uniform(-1, 1, (5, *plain.action_space.shape)):
        watched.draw(trail=np.array([watched.position]), trail_cost=np.zeros(1))
        np.testing.assert_array_equal(watched.step(action)[0], plain.step(action)[0])


def test_a_map_lies_under_the_scene_with_its_first_row_at_the_bottom():
    values = np.zeros((4, 4))
    values[0, 3] = 7.0  # below, to the right
    frame = draw_scene(dataclasses.replace(EMPTY, shade=Shade(values, 7.0)))
    full = blend(VIOLET, SHADE * 255)
    assert near(pixel(frame, 1.15, -1.15), full, 30)
    bar = frame[-strip_height(480) :]
    assert (np.abs(bar.astype(float) - full).max(axis=2) < 3).sum() > 50  # the bar's last level
    for x, y in ((-1.15, -1.15), (1.15, 1.15), (-1.15, 1.15)):
        assert near(pixel(frame, x, y), 255)


@pytest.mark.parametrize("rotation", [0.0, np.pi / 2, -2.0])
def test_the_front_of_the_point_is_its_plus_x(rotation):
    frame = draw_scene(dataclasses.replace(EMPTY, robot="Point", agent=(0.3, 0.25, rotation)))
    ahead = np.array([np.cos(rotation), np.sin(rotation)])
    assert near(pixel(frame, *((0.3, 0.25) + 0.13 * ahead)), YELLOW)
    assert near(pixel(frame, *((0.3, 0.25) - 0.07 * ahead)), BODY)


def test_push_box_pillars_circle_and_walls_are_where_they_belong():
    frame = draw_scene(
        dataclasses.replace(
            EMPTY, agent=(0.0, 0.0, 0.0), push_box=(0.9, 0.9, np.pi / 4), pillars=[(-0.9, 0.9)],
            walls=(1.4,), circle=True, hazards=[(-0.9, -0.9)], hazard_radius=0.3,
        )
    )  # fmt: skip
    assert near(pixel(frame, 0.9, 0.9), BROWN)
    assert near(pixel(frame, 0.9 + 0.39, 0.9), BROWN)  # a corner post
    assert near(pixel(frame, 0.9 + 0.22, 0.9 + 0.22), (255, 255, 255))  # beside a side
    assert near(pixel(frame, -0.9, 0.9), GREY)
    assert near(pixel(frame, -0.9, -0.65), blend(RED, 70))
    assert near(pixel(frame, 0.0, 1.5), GREEN, 60)
    assert near(pixel(frame, 1.4, 0.2), ORANGE)
    assert not near(pixel(frame, 1.47, 0.2), (255, 255, 255))  # beyond the wall


def test_the_view_of_a_lane_goes_with_the_robot():
    scene = dataclasses.replace(EMPTY, bounded=False, follows=True, walls=(0.5,), extent=2.0)
    near_by, far = (
        draw_scene(dataclasses.replace(scene, agent=(0.0, y, 0.0))) for y in (0.0, 12.0)
    )
    size = near_by.shape[1]
    assert (near_by[: size // 2] == far[: size // 2]).mean() > 0.99
