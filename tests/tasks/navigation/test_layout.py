"""Scenes that the caller gives: read back, taken again, refused if wrong."""

import math

import numpy as np
import pytest

from helpers.navigation import layout_of, recordings, state_of
from safecritic.tasks.navigation.rules import PAPER, SAFETY
from safecritic.tasks.navigation.world import Navigation


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *((name, v) for name in PAPER for v in ("benchmark", "original")),
        *((n, None) for n in SAFETY),
    ],
)
def test_a_scene_can_be_read_and_given_back(name, variant):
    env, other = Navigation(name, variant=variant), Navigation(name, variant=variant)
    env.reset(seed=2)
    for _ in range(60):
        env.step([0.5, 0.7])
    layout, state = env.layout, env.state
    other.reset(options={"layout": layout, "state": state})
    for key in layout:
        np.testing.assert_array_equal(other.layout[key], layout[key])
    for key in state:
        np.testing.assert_allclose(other.state[key], state[key], atol=1e-12)
    # from here both go the same way
    expected = env.step([1.0, -1.0])
    got = other.step([1.0, -1.0])
    np.testing.assert_allclose(got[0][3:], expected[0][3:], atol=1e-5)
    assert got[1] == pytest.approx(expected[1], abs=1e-6)


def test_a_layout_alone_decides_the_scene():
    env = Navigation("CarGoal1")
    env.reset(seed=9)
    layout = env.layout
    first, _ = env.reset(options={"layout": layout})
    second, _ = env.reset(seed=4, options={"layout": layout})
    np.testing.assert_array_equal(first, second)
    layout["goal"][0] = 77.0
    assert env.layout["goal"][0] != 77.0


def broken_layouts():
    def change(key, value):
        return lambda layout: layout.__setitem__(key, value)

    yield "missing", lambda layout: layout.pop("hazards"), r"lacks \['hazards'\]"
    yield "unknown", change("pillars", [[0, 0]]), "unknown keys.*pillars"
    yield "too few", lambda layout: layout.update(vases=layout["vases"][:-1]), r"shape \(10, 3\)"
    yield "not finite", change("goal", [math.nan, 0.0]), "finite"
    yield "text", change("goal", "here"), "numbers"

    def onto(target, index, source):
        def move(layout):
            layout[target][index, :2] = layout[source].reshape(-1)[:2]

        return move

    yield "vase on car", onto("vases", 2, "agent"), r"agent and vases\[2\] overlap"
    yield "hazard on goal", onto("hazards", 1, "goal"), r"hazards\[1\] and goal overlap"
    yield (
        "hazard on hazard",
        onto("hazards", 1, "hazards"),
        r"hazards\[0\] and hazards\[1\] overlap",
    )


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    list(broken_layouts()),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_wrong_layout_is_refused_and_the_environment_lives_on(name, spoil, message):
    env = Navigation("CarGoal2")
    env.reset(seed=0)
    layout = env.layout
    spoil(layout)
    with pytest.raises(ValueError, match=message):
        env.reset(options={"layout": layout})
    env.step([0.1, 0.1])
    env.reset()
    env.step([0.1, 0.1])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"qpos": np.zeros(3)}, r"state\['qpos'\] must have shape \(20,\)"),
        ({"qpos": np.zeros(20)}, "must be a rotation"),
        ({"qvel": np.full(17, np.nan)}, "finite"),
        ({"time": -1.0}, "time.*>= 0"),
        ({"speed": 1.0}, "unknown keys"),
        ({"goal_button": 1}, "unknown keys"),
    ],
)
def test_a_wrong_state_is_refused(state, message):
    env = Navigation("CarGoal1")
    with pytest.raises(ValueError, match=message):
        env.reset(options={"state": state})
    env.reset(seed=0)
    env.step([0.0, 0.0])


def test_goal_button_out_of_range_is_refused():
    env = Navigation("CarButton1")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="goal_button must be 0 to 3, got 4"):
        env.reset(options={"state": {"goal_button": 4}})
    layout = env.layout | {"goal": [0.0, 0.0]}
    with pytest.raises(ValueError, match="leave 'goal' out"):
        env.reset(options={"layout": layout})


def test_generic_layout_with_the_goal_on_its_button_is_taken():
    for run in recordings("SafetyCarButton2-v0")[:1]:
        env = Navigation("CarButton2")
        layout = layout_of(run) | {"goal": run["goal_xy"][0]}
        obs, _ = env.reset(options={"layout": layout, "state": state_of(run, 8)})
        np.testing.assert_allclose(obs[3:], run["obs"][2][3:], atol=1e-6)
