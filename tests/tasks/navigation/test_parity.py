"""The navigation tasks against recorded stretches of Safety Gymnasium 1.0.0 (tests/golden).

Sharp where nothing is touched: the engine of today (MuJoCo 3) gives the original's numbers (2.3.3)
to rounding. Wider where the robot touches something, whose contact points the engine finds in
another way now. All of it runs with the cheap model on: sleeping bodies, parked gremlins, a Point
that glides without the engine.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import pytest

from helpers.navigation import EVERY, RECORDED, layout_of, put, recordings, state_of, touching
from safecritic.tasks.navigation.rules import SAFETY, parts_of
from safecritic.tasks.navigation.world import Navigation

# m, m/s and rad/s, and of the reward, one step from a state; for what MuJoCo 3 computes in another
# way: contacts of a cylinder with a box, and the number of points at which a gremlin is touched
WORST = {"xy": 2e-4, "velocity": 0.02, "turning": 0.2, "reward": 2e-4}


@pytest.fixture(params=RECORDED)
def task(request) -> str:
    return request.param


@pytest.fixture
def env(task: str) -> Navigation:
    env = Navigation(task)
    env.reset(seed=0)
    return env


def test_there_is_enough_to_compare():
    assert sum(len(run["action"]) for task in RECORDED for run in recordings(task)) >= 13_000


def test_scene_from_seed_is_the_originals(task, env):
    for run in recordings(task):
        obs, _ = env.reset(seed=int(run["seed"]))
        layout = env.layout
        for name, expected in layout_of(run).items():
            np.testing.assert_allclose(layout[name], expected, rtol=0, atol=1e-14, err_msg=name)
        if run["first"] == 0:
            start = state_of(run, 0)["qpos"]
            np.testing.assert_allclose(env.state["qpos"], start, rtol=0, atol=2e-7)
            np.testing.assert_allclose(obs[3:], run["obs"][0, 3:], rtol=0, atol=1e-6)


def test_goals_after_success_are_the_originals(task, env):
    """Later goals come from the same random stream."""
    seen = 0
    for run in recordings(task):
        env.reset(seed=int(run["seed"]))
        for number, step in enumerate(run.get("met_at", ())):
            # what the original's stream has been read for, then the step that reaches the goal
            env._steps = int(step)
            if "met_boxes" in run:
                env._points[env._boxes] = run["met_boxes"][number].tolist()
                env._measure = lambda: None  # type: ignore[method-assign]
            env._here[:2] = run["met_robot"][number].tolist()
            assert env._next_goal({})
            goal = env.state["goal"]
            np.testing.assert_allclose(goal, run["met_goal"][number], rtol=0, atol=1e-9)
            seen += 1
        env.__dict__.pop("_measure", None)
    assert seen or not env.has_goal


def plain_layout(task: str, draw: np.random.RandomState) -> dict[str, Any]:
    """Place a scene number by number, as the original does."""
    robot, form, _ = parts_of(task)
    arena, uniform = form.arena, draw.uniform
    if arena.start is not None:
        x, y = (uniform(*side) for side in arena.start)
        for _ in range(2 * arena.fixed):
            uniform(-1e-9, 1e-9)
        turns = [uniform(0, 2 * math.pi) for _ in range(1 + arena.fixed)]
        return {"agent": [x, y, turns[0]]}
    order = arena.placement_order()
    keep = {kind: arena.keepout(kind) for kind in order}
    if arena.push_box:
        keep["push_box"] = robot.push_box[0]

    def free(kind: str, placed: list, tries: int) -> tuple[float, float] | None:
        side = arena.extent - keep[kind]
        for _ in range(tries):
            x, y = uniform(-side, side), uniform(-side, side)
            if all(math.hypot(x - a, y - b) >= keep[k] + keep[kind] for k, a, b in placed):
                return x, y
        return None

    while True:
        placed: list = []
        for kind in order:
            place = free(kind, placed, 100)
            if place is None:
                break
            placed.append((kind, *place))
        else:
            break
    turns = [uniform(0, 2 * math.pi) for _ in order]
    layout: dict[str, Any] = {kind: [] for kind in order}
    for (kind, *place), turn in zip(placed, turns, strict=True):
        turning = kind in ("agent", "vases", "gremlins", "push_box")
        layout[kind].append([*place, turn] if turning else place)
    layout["agent"] = layout["agent"][0]
    if arena.buttons:
        del layout["goal"]
        return layout | {"goal_button": draw.choice(arena.buttons)}
    return layout | {"goal": free("goal", [p for p in placed if p[0] != "goal"], 10_000)}


@pytest.mark.parametrize("name", SAFETY)
def test_scenes_of_later_episodes_continue_the_stream(name):
    """Three resets, the second and third without a seed, and a number of it for every step."""
    env, draw = Navigation(name), np.random.RandomState(17)
    env.reset(seed=17)
    for steps in (3, 7, 0):
        expected, layout = plain_layout(name, draw), env.layout
        assert layout.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(layout[key], value, rtol=0, atol=1e-13, err_msg=key)
        for _ in range(steps):
            env.step([0.0, 0.0])
            draw.binomial(10, 1.0)
        env.reset()


def test_observation_and_contacts_at_stored_states(task, env):
    accelerometer = []
    for run in recordings(task):
        touched = touching(run)
        kinds = [k for k in ("vases", "gremlins", "buttons", "pillars") if f"contacts_{k}" in run]
        for i in range(0, len(run["qpos"]), EVERY):
            obs = put(env, run, i)
            np.testing.assert_allclose(obs[3:], run["obs"][i // EVERY, 3:], rtol=1e-7, atol=1e-6)
            if i and not touched[i]:
                # the recorded accelerometer was read with the last action on
                env.data.ctrl[:] = run["action"][i - 1]
                mujoco.mj_forward(env.model, env.data)
                env._read()
                accelerometer.append(np.abs(env._observe()[:3] - run["accelerometer"][i]).max())
            contacts = env._touched()
            for kind in kinds:
                flags = [False] * len(run[f"contacts_{kind}"][i])
                if contacts is not None:
                    flags = (contacts[env._geoms[kind]] > 0).tolist()
                assert flags == run[f"contacts_{kind}"][i].astype(bool).tolist(), (kind, i)
    assert np.mean(np.array(accelerometer) < 1e-2) >= 0.95


def test_one_step_from_every_stored_state(task, env):
    """Events and costs always, numbers to 1e-6 but for the contacts named above."""
    worst, off = dict.fromkeys(WORST, 0.0), []
    first = 5 if env.robot.free else 0  # the car starts with its wheels exactly at the floor
    for run in recordings(task):
        parts = [k for k in run if k.startswith("cost_") and not k.endswith("_active")]
        for i, action in enumerate(run["action"]):
            put(env, run, i)
            obs, reward, terminated, truncated, info = env.step(action)
            met = bool(run["goal_met"][i]) if "goal_met" in run else False
            assert (terminated, truncated, info["success"]) == (False, False, met)
            assert info.get("goal_met", False) == met
            assert info["cost"] == info["cost_sum"] == run["cost"][i], i
            assert [info.get(part, 0.0) for part in parts] == [run[part][i] for part in parts], i
            if "cost_buttons_active" in run:
                assert ("cost_buttons" in info) == bool(run["cost_buttons_active"][i])
            if run["first"] + i < first:
                continue
            expected = state_of(run, i + 1)
            q, v = env.robot.nq, env.robot.nv
            moved = env.state["qpos"][:q] - expected["qpos"][:q]
            faster = env.state["qvel"][:v] - expected["qvel"][:v]
            errors = {
                "xy": np.abs(moved[:2]).max(),
                "velocity": np.abs(faster[:2]).max(),
                "turning": np.abs(faster[-1 if v == 3 else 5]),
                "reward": abs(reward - run["reward"][i]),
            }
            worst = {k: max(worst[k], error) for k, error in errors.items()}
            error = max(np.abs(moved).max(), np.abs(faster).max(), errors["reward"])
            if (i + 1) % EVERY == 0 and not met:  # the new goal is of another place of the stream
                seen = run["obs"][(i + 1) // EVERY]
                error = max(error, np.abs(obs[3:] - seen[3:]).max())
            acceleration = run["accelerometer"][i + 1]  # float32, up to 60 m/s2
            off.append(max(error, np.abs(obs[:3] - acceleration).max() / 10))
    assert {k: e for k, e in worst.items() if e > WORST[k]} == {}
    assert np.mean(np.array(off) < 1e-6) >= (0.95 if env.arena.boxes else 1.0)
    assert np.median(off) < 1e-6


def test_whole_stretches(task, env):
    """Open loop until something is touched; the Point's servo is chaotic, its way is not."""
    car, lengths = env.robot.free, []
    limit = (1e-5 if env.arena.boxes else 1e-8) if car else 0.05
    for run in recordings(task):
        start = max(0, 5 - int(run["first"])) if car else 0
        over = np.flatnonzero(touching(run)[start:]) - 1  # a touch may come within the step before
        steps = min(
            [
                *np.maximum(over, 0),
                *np.flatnonzero(run.get("goal_met", [])[start:]),
                len(run["action"]) - start,
            ]
        )
        put(env, run, start)
        for i in range(start, start + steps):
            env.step(run["action"][i])
        off = np.abs(env.state["qpos"][:3] - state_of(run, start + steps)["qpos"][:3])
        assert off[:2].max() < limit, (steps, off)
        if not car:
            assert off[2] < 0.05, (steps, off)
        lengths.append(steps)
    assert max(lengths) >= 50
