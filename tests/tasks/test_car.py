"""The car tasks themselves: rules of both variants, scenes, checkpoints, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st
from test_car_parity import TASKS, layout_of, put, recordings, state_of

import safecritic
from safecritic.tasks.car.env import CarTask
from safecritic.tasks.car.gremlins import _course, course_at, offset_at
from safecritic.tasks.car.lidar import lidar
from safecritic.tasks.car.placement import PlacementError, RandomStream, sample_layouts

NAMES = list(TASKS.values())


def drive(env: CarTask, seed: int, steps: int) -> list[tuple]:
    rng = np.random.default_rng(seed)
    rows = []
    for action in rng.uniform(-1, 1, (steps, 2)):
        obs, reward, terminated, truncated, info = env.step(action)
        rows.append((obs, reward, info["cost"], terminated, truncated))
        if terminated or truncated:
            obs, _ = env.reset()
            rows.append((obs, 0.0, 0.0, False, False))
    return rows


def same(a: list[tuple], b: list[tuple]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x[0], y[0])
        assert x[1:] == y[1:]


# ------------------------------------------------------------------------------ rules


@pytest.mark.parametrize("task", TASKS)
def test_benchmark_reward_and_cost_follow_from_the_recorded_scene(task):
    """Cost 0.2 per hazard, box and wrong button; reward 3 per metre and 3 for arriving."""
    env = CarTask(TASKS[task])
    env.reset(seed=0)
    ends = costs = 0
    for run in recordings(task):
        for i in sorted({*range(5, 200, 3), *np.flatnonzero(run["goal_met"])}):
            put(env, run, i)
            if task.startswith("button") and run["button_timer"][i]:
                continue
            before = math.dist(run["agent_pos"][i, :2], run["goal_xy"][i])
            _, reward, terminated, truncated, info = env.step(run["action"][i])
            # what happened, from the simulation's own state, by the rule's words
            position = env.data.qpos[:2]
            after = math.dist(position, run["goal_xy"][i])
            inside = (np.hypot(*(run["hazards_pos0"][:, :2] - position).T) <= 0.2).sum()
            pairs = {
                (env.model.geom(a).name, env.model.geom(b).name) for a, b in env.data.contact.geom
            }
            mine = {"agent", "back_bumper", "back_connector", "front_bumper", "front_connector"}
            mine |= {"left", "right", "rear"}
            touched = {b for a, b in pairs if a in mine} | {a for a, b in pairs if b in mine}
            touched -= mine | {"floor"}
            goal = f"button{run['goal_button'][i]}" if "goal_button" in run else None
            met = goal in touched if goal else after <= 0.3
            expected = 0.2 * (inside + len(touched - {goal}))
            assert info["cost"] == pytest.approx(expected, abs=1e-12)
            assert reward == pytest.approx(3 * (before - after) + 3 * met, abs=1e-9)
            assert (terminated, truncated, info["success"]) == (met, False, met)
            costs += expected > 0
            ends += met
    assert ends >= 2
    assert costs >= 20


@pytest.mark.parametrize("variant", ["benchmark", "original"])
@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_and_distance_is_told(name, variant):
    env = CarTask(name, variant=variant)
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(300):
        _, reward, terminated, _, info = env.step(rng.uniform(-1, 1, 2))
        parts = [v for k, v in info.items() if k.startswith("cost_")]
        total = sum(parts) if variant == "benchmark" else float(any(parts))
        assert info["cost"] == pytest.approx(total)
        assert reward == pytest.approx(info["reward_distance"] + info["reward_goal"])
        nearest = np.hypot(*(env.layout["hazards"] - env.data.qpos[:2]).T).min()
        assert info["hazard_distance"] == pytest.approx(nearest - 0.2)
        if terminated:
            env.reset()


def test_original_goes_on_after_the_goal_and_draws_a_new_one():
    run = next(r for r in recordings("goal1") if r["goal_met"].any())
    step = int(np.flatnonzero(run["goal_met"])[0])
    env = CarTask("CarGoal1", variant="original")
    put(env, run, step)
    old = env.state["goal"]
    _, reward, terminated, _, info = env.step(run["action"][step])
    assert info["success"]
    assert not terminated
    assert reward == pytest.approx(run["reward"][step], abs=1e-6)
    new = env.state["goal"]
    assert math.dist(old, new) > 0
    assert math.dist(new, env.data.qpos[:2]) >= 0.705


def test_dead_time_hides_and_frees_the_buttons():
    run = next(r for r in recordings("button1") if r["goal_met"].any())
    step = int(np.flatnonzero(run["goal_met"])[0])
    env = CarTask("CarButton1", variant="original")
    put(env, run, step)
    obs, _, _, _, info = env.step(run["action"][step])
    assert info["success"]
    assert "cost_buttons" in info
    for left in range(10, 0, -1):
        assert env.state["button_timer"] == left
        assert (obs[24:40] == 0).all()
        obs, _, _, _, info = env.step([0.0, 0.0])
        assert "cost_buttons" not in info or info["success"]
        if info["success"]:
            return  # pressed again at once, which starts the dead time anew
    assert (obs[24:40] > 0).any()
    assert "cost_buttons" in env.step([0.0, 0.0])[4]


def test_dead_time_at_reset_is_a_switch():
    obs, _ = CarTask("CarButton1", variant="original", button_timer=10).reset(seed=1)
    assert (obs[24:40] == 0).all()
    obs, _ = CarTask("CarButton1", variant="original").reset(seed=1)
    assert (obs[24:40] > 0).any()


@pytest.mark.parametrize("horizon", [1, 7])
def test_horizon_truncates(horizon):
    env = CarTask("CarGoal1", horizon=horizon)
    env.reset(seed=0)
    ends = [env.step([0.0, 0.0])[3] for _ in range(horizon)]
    assert ends == [False] * (horizon - 1) + [True]
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        env.step([0.0, 0.0])


# ------------------------------------------------------------------------------ lidar


def plain_lidar(objects: np.ndarray) -> np.ndarray:
    bins = np.zeros(16)
    for x, y in objects:
        distance, width = math.hypot(x, y), 2 * math.pi / 16
        angle = math.atan2(y, x) % (2 * math.pi)
        own = int(angle / width) % 16
        share, value = angle / width - int(angle / width), max(0.0, 3 - distance) / 3
        bins[own] = max(bins[own], value)
        bins[(own + 1) % 16] = max(bins[(own + 1) % 16], share * value)
        bins[own - 1] = max(bins[own - 1], (1 - share) * value)
    return bins


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-4, 4)] * 2), min_size=1, max_size=8), st.integers(0, 7))
def test_lidar_equals_the_rule(objects, cut):
    objects = [(x + 0.0, y + 0.0) for x, y in objects]  # -0.0 has an angle, but no meaning
    cut = min(cut, len(objects))
    flat = [1.0, 0, 0, 0, 1.0, 0, 0, 0, 1.0]
    out = lidar(objects, [0, cut, len(objects)], [0.0, 0.0, 0.1], flat)
    expected = np.concatenate([plain_lidar(g) for g in (objects[:cut], objects[cut:])])
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_lidar_bins_go_counter_clockwise_from_the_cars_x_axis():
    turned = [0.0, -1.0, 0, 1.0, 0.0, 0, 0, 0, 1.0]  # the car looks along world +y
    bins = lidar([(0.0, 1.5)], [0, 1], [0.0, 0.0, 0.0], turned)
    assert bins[0] == pytest.approx(0.5)  # straight along its +x
    assert bins[15] == pytest.approx(0.5)  # and the border counts fully for the bin before
    assert sum(bins) == pytest.approx(1.0)


# ------------------------------------------------------------------------------ gremlins


def test_course_settles_into_the_recorded_circle():
    offset, _ = _course()
    recorded = {
        1: (0.0020, 0.1163, 0.0331),
        5: (0.0411, 0.3144, 0.0903),
        25: (0.2755, 0.2141, 0.0996),
    }
    for step, place in recorded.items():
        np.testing.assert_allclose(offset[10 * step], place, atol=2e-3)
    for time in (0.4, 2.0, 4.0, 4.004, 17.3, 39.96):
        place, _ = course_at(time)
        assert offset_at(time) == pytest.approx(tuple(place[:2]), abs=1e-12)
    place, _ = course_at(12.0)
    assert math.hypot(*place[:2]) == pytest.approx(0.34884, abs=1e-5)
    lag = (12.0 - math.atan2(place[0], place[1])) % (2 * math.pi)
    assert lag == pytest.approx(0.08982, abs=1e-4)
    assert course_at(0.0121) is None


@pytest.mark.parametrize("name", ["CarButton1", "CarButton2"])
def test_parked_gremlins_change_nothing(name):
    """The same drive with and without parking, through gremlins: same car, same gremlins."""
    parked, full = CarTask(name), CarTask(name, park_gremlins=False)
    worst, asleep = 0.0, 0
    for seed in range(4):
        parked.reset(seed=seed)
        full.reset(seed=seed)
        rng = np.random.default_rng(seed)
        action = np.zeros(2)
        for step in range(120):
            if step % 10 == 0:
                action = rng.uniform(-0.2, 1, 2)
            obs, _, over, _, info = parked.step(action)
            expected, _, _, _, expected_info = full.step(action)
            asleep += int(parked._gremlins.parked.sum())
            # an encounter with a light box amplifies any last bit, so look until the first
            if expected_info["cost_gremlins"] or over:
                break
            worst = max(worst, np.abs(obs[3:] - expected[3:]).max())
            assert info == pytest.approx(expected_info, abs=1e-5)
    assert asleep > 200
    assert worst < 1e-4


def test_a_woken_gremlin_is_where_it_would_have_been():
    env = CarTask("CarButton1")
    env.reset(seed=5)
    for _ in range(40):
        env.step([0.0, 0.0])
    assert env._gremlins.parked.all()
    before = env.state
    env._gremlins._wake(np.arange(4))
    np.testing.assert_allclose(env.data.qpos[13:], before["qpos"][13:], atol=1e-12)
    env._gremlins.may_park = False
    env.step([0.0, 0.0])
    offset, velocity = course_at(env.data.time)
    boxes = env.data.qpos[13:].reshape(4, 7)
    np.testing.assert_allclose(
        boxes[:, :3] - env._gremlins.centres, np.tile(offset, (4, 1)), atol=1e-9
    )
    np.testing.assert_allclose(
        env.data.qvel[11:].reshape(4, 6)[:, :3], np.tile(velocity, (4, 1)), atol=1e-7
    )


# ------------------------------------------------------------------------------ scenes


@pytest.mark.parametrize("variant", ["benchmark", "original"])
@pytest.mark.parametrize("name", NAMES)
def test_a_scene_can_be_read_and_given_back(name, variant):
    env, other = CarTask(name, variant=variant), CarTask(name, variant=variant)
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
    env = CarTask("CarGoal1")
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
    env = CarTask("CarGoal2")
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
    env = CarTask("CarGoal1")
    with pytest.raises(ValueError, match=message):
        env.reset(options={"state": state})
    env.reset(seed=0)
    env.step([0.0, 0.0])


def test_goal_button_out_of_range_is_refused():
    env = CarTask("CarButton1")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="goal_button must be 0 to 3, got 4"):
        env.reset(options={"state": {"goal_button": 4}})
    layout = env.layout | {"goal": [0.0, 0.0]}
    with pytest.raises(ValueError, match="leave 'goal' out"):
        env.reset(options={"layout": layout})


def test_generic_layout_with_the_goal_on_its_button_is_taken():
    for run in recordings("button2")[:1]:
        env = CarTask("CarButton2")
        layout = layout_of(run) | {"goal": run["goal_xy"][0]}
        obs, _ = env.reset(options={"layout": layout, "state": state_of(run, 7)})
        np.testing.assert_allclose(obs[3:], run["obs"][7][3:], atol=1e-10)


@pytest.mark.parametrize(
    ("name", "extent"), [("CarGoal2", 0.8), ("CarButton1", 1.0), ("CarGoal1", 0.3)]
)
def test_an_arena_too_small_is_an_error_not_a_loop(name, extent):
    env = CarTask(name, extent=extent)
    with pytest.raises(PlacementError, match=r"arena of .*larger"):
        env.reset(seed=0)


def test_batch_and_stream_placement_have_one_distribution():
    """Means of place and of nearest distance agree within their standard errors."""
    env = CarTask("CarButton1", placement="stream", variant="original")
    stream = []
    env.reset(seed=0)
    for _ in range(150):
        env.reset()
        stream.append(env.layout)
    batch, generator = [], np.random.default_rng(0)
    while len(batch) < 150:
        batch += sample_layouts(env.arena, generator)

    def figures(layouts):
        for layout in layouts:
            car = layout["agent"][:2]
            yield (
                np.abs(car).max(),
                np.abs(layout["gremlins"][:, :2]).mean(),
                np.abs(layout["buttons"]).mean(),
                np.hypot(*(layout["gremlins"][:, :2] - car).T).min(),
                np.hypot(*(layout["hazards"] - car).T).min(),
            )

    a, b = np.array(list(figures(stream))), np.array(list(figures(batch)))
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    assert (np.abs(a.mean(0) - b.mean(0)) < 4 * error).all()


def test_block_reading_is_the_scalar_stream():
    stream, plain = RandomStream(11), np.random.RandomState(11)
    for round_ in range(5):
        for _ in range(100 * round_ + 3):
            assert stream.uniform(-1, 2) == plain.uniform(-1, 2)
        assert stream.choice(4) == plain.choice(4)
        stream.advance(1)  # what the original's binomial(10, 1.0) uses up
        plain.binomial(10, 1.0)
    copy = RandomStream(0)
    copy.set_state(stream.get_state())
    assert [copy.uniform(0, 1) for _ in range(5)] == [plain.uniform(0, 1) for _ in range(5)]


# ------------------------------------------------------------------------------ order and faults


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_trajectory_and_no_interference(name):
    first, second = CarTask(name), CarTask(name)
    first.reset(seed=6)
    alone = drive(first, 0, 150)
    first.reset(seed=6)
    second.reset(seed=7)
    rng, interleaved = np.random.default_rng(0), []
    for action in rng.uniform(-1, 1, (150, 2)):
        obs, reward, terminated, truncated, info = first.step(action)
        interleaved.append((obs, reward, info["cost"], terminated, truncated))
        _, _, over, _, _ = second.step(-action)
        if over:
            second.reset()
        if terminated:
            obs, _ = first.reset()
            interleaved.append((obs, 0.0, 0.0, False, False))
    same(alone, interleaved)


@pytest.mark.parametrize("variant", ["benchmark", "original"])
@pytest.mark.parametrize("name", NAMES)
def test_checkpoint_continues_bit_for_bit(name, variant):
    """Also in a fresh object, with vases knocked about, gremlins awake and parked, and resets."""
    env = CarTask(name, variant=variant, horizon=150)
    env.reset(seed=8)
    drive(env, 1, 97)
    saved = env.get_checkpoint()
    expected = drive(env, 2, 260)
    fresh = CarTask(name, variant=variant, horizon=150)
    fresh.set_checkpoint(saved)
    same(expected, drive(fresh, 2, 260))
    env.set_checkpoint(saved)
    same(expected, drive(env, 2, 260))
    assert all(isinstance(v, np.ndarray) for v in saved.values())
    with pytest.raises(ValueError, match="checkpoint belongs to"):
        CarTask(name, variant=variant).set_checkpoint(saved)


@pytest.mark.parametrize("task", TASKS)
def test_checkpoint_amid_contacts(task):
    """Saved at every kind of moment of a recorded drive: pushing vases, in gremlins, at rest."""
    for run in recordings(task)[4:7]:
        env, fresh = (CarTask(TASKS[task], variant="original") for _ in range(2))
        env.reset(seed=int(run["seed"]))
        for i in range(200):
            env.step(run["action"][i])
            if i % 40 == 20:
                saved = env.get_checkpoint()
                saved_at = i
            if i % 40 == 35:
                fresh.set_checkpoint(saved)
                for j in range(saved_at + 1, i + 1):
                    fresh.step(run["action"][j])
                np.testing.assert_array_equal(fresh.state["qpos"], env.state["qpos"])
                np.testing.assert_array_equal(fresh.state["qvel"], env.state["qvel"])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([math.nan, 0.0], "finite"),
        ([math.inf, 0.0], "finite"),
        ([0.0], r"shape \(2,\)"),
        ([[0.0, 0.0]], "vector environment"),
        ("left", "numbers"),
        (None, "shape|numbers|finite"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(action, message):
    env, twin = CarTask("CarGoal1"), CarTask("CarGoal1")
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.step([0.3, 0.2])[0], twin.step([0.3, 0.2])[0])


def test_step_before_reset_is_refused():
    with pytest.raises(ResetNeeded, match="before the first reset"):
        CarTask("CarGoal1").step([0.0, 0.0])


@pytest.mark.parametrize("name", NAMES)
def test_a_diverging_simulation_ends_the_episode(name, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = CarTask(name)
    env.reset(seed=0)
    qvel = np.zeros(env.model.nv)
    qvel[:3] = 3e8
    qvel[6:8] = 1e9
    env.reset(options={"state": {"qvel": qvel * 1e-4}})
    env.data.qvel[:] = qvel  # beyond what reset accepts
    for _ in range(20):
        obs, reward, terminated, truncated, info = env.step([1.0, 1.0])
        assert np.isfinite(obs).all()
        assert math.isfinite(reward)
        if terminated or truncated:
            break
    assert info["diverged"] is True
    assert (terminated, truncated) == (False, True)
    obs, _ = env.reset(seed=0)
    assert np.isfinite(obs).all()
    twin, _ = CarTask(name).reset(seed=0)
    np.testing.assert_array_equal(obs, twin)


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(ValueError, match=r"unknown task 'CarGaol1'; did you mean .*CarGoal1"):
        safecritic.make("CarGaol1")
    with pytest.raises(ValueError, match="variant must be one of"):
        CarTask("CarGoal1", variant="orignal")
    with pytest.raises(ValueError, match="placement must be one of"):
        CarTask("CarGoal1", placement="batch")


# ------------------------------------------------------------------------------ statistics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reward", "cost", "cost_error"),
    [
        ("CarGoal1", -1.55, 69, 15),
        ("CarGoal2", -1.66, 129, 32),
        ("CarButton1", -1.38, 104, 16),
        ("CarButton2", -0.93, 123, 17),
    ],
)
def test_random_driving_has_the_recorded_statistics(name, reward, cost, cost_error):
    """20 episodes of 1,000 random steps, the original's seeds; its figures and standard errors."""
    env = CarTask(name, variant="original")
    returns, costs = [], []
    for seed in range(20):
        env.reset(seed=seed)
        rows = drive(env, seed, 1000)
        returns.append(sum(r[1] for r in rows))
        costs.append(sum(r[2] for r in rows))
    spread = math.hypot(np.std(returns) / math.sqrt(20), 0.4)
    assert abs(np.mean(returns) - reward) < 3 * spread
    assert abs(np.mean(costs) - cost) < 3 * math.hypot(cost_error, np.std(costs) / math.sqrt(20))
