"""Holding an action for k steps is k single steps: in every task, to the last bit."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from helpers.rollouts import actions_for
from helpers.tasks import PAPER, all_tasks, all_variants
from probes import KeptPoint, Point
from safecritic.tasks import adapt, make
from safecritic.tasks.adapter import make_env
from safecritic.tasks.navigation.robots import CAR
from safecritic.tasks.navigation.world import Navigation
from safecritic.tasks.repeat import RepeatAction, join_infos, repeat_action, single_steps

SUMS = ("cost", "reward")


def single(env: Any, action: np.ndarray, times: int) -> tuple[Any, ...]:
    """Take up to `times` single steps; return what one held step should, worked out plainly."""
    infos: list[dict[str, Any]] = []
    rewards = []
    ended = False
    while len(infos) < times and not ended:
        obs, reward, terminated, truncated, info = env.step(action)
        assert "steps" not in info
        ended = terminated or truncated
        infos.append(info)
        rewards.append(reward)
    expected: dict[str, Any] = {"steps": len(infos)}
    for info in infos:
        for key, value in info.items():
            if key.startswith(SUMS):
                expected[key] = expected.get(key, 0.0) + value
            elif key == "hazard_distance":
                expected[key] = min(expected.get(key, np.inf), value)
            elif key == "success":
                expected[key] = expected.get(key, False) or value
            else:
                expected[key] = value
    return obs, sum(rewards), terminated, truncated, expected


def assert_held(held: Any, bare: Any, action: np.ndarray) -> tuple[bool, dict[str, Any]]:
    """Assert that one held step and single ones give the same in everything; return the end."""
    ours, theirs = held.step(action), single(bare, action, held.action_repeat)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]
    checkpoint = bare.get_checkpoint()
    for key, value in held.get_checkpoint().items():
        np.testing.assert_array_equal(value, checkpoint[key], err_msg=key)
    return ours[2] or ours[3], ours[4]


def way_to_the_goal(env: Any, action: np.ndarray) -> dict[str, Any]:
    """Return reset options from where this action leads to the goal in a dozen steps.

    The cars start in a hazard, or drive to a button.
    """
    env.reset(seed=1)
    state = env.state
    if not isinstance(env, Navigation):
        return {"state": state | {"goal": env.position + 12 * 0.05 * action}}
    env.reset(seed=1, options={"layout": env.layout, "state": state | place(state, 50.0, 50.0)})
    for _ in range(24):
        env.step(action)
    way = env.position - 50.0
    if env.arena.buttons:
        start, goal = env.layout["buttons"][env.layout["goal_button"]] - way, state["goal"]
    else:
        start = env.layout["hazards"][0]
        goal = start + 1.5 * way
    return {"layout": env.layout, "state": state | place(state, *start) | {"goal": goal}}


def place(state: dict[str, Any], x: float, y: float) -> dict[str, Any]:
    """Return the place of a car at rest there."""
    return {"qpos": np.concatenate([CAR.pose(x, y, 0.0), state["qpos"][7:]])}


@all_variants
def test_held_steps_are_single_steps(name: str, variant: str) -> None:
    """Over several episodes; the horizon is not a multiple of the repeat, and some fall early."""
    held = make(name, variant=variant, horizon=46, action_repeat=4)
    bare = make(name, variant=variant, horizon=46)
    obs = [env.reset(seed=3)[0] for env in (held, bare)]
    np.testing.assert_array_equal(*obs)
    taken: list[list[int]] = [[]]
    for action in actions_for(bare, 30):
        ended, info = assert_held(held, bare, action)
        taken[-1].append(info["steps"])
        if ended:
            np.testing.assert_array_equal(held.reset()[0], bare.reset()[0])
            taken.append([])
    assert len(taken) > 2
    falls = any(robot in name for robot in ("Hopper", "Walker2d", "Humanoid", "Ant"))
    assert taken[0] == [4] * 11 + [2] or falls


@pytest.mark.parametrize("name", [name for name in PAPER if name != "HalfCheetah"])
@pytest.mark.parametrize("variant", ["benchmark", "original"])
def test_an_end_at_the_goal_may_come_amid_a_held_action(name: str, variant: str) -> None:
    """And there is cost on the way; the original car tasks set a new goal and go on."""
    bare = make(name, variant=variant)
    action = np.array([1.0, 1.0]) if name.startswith("Car") else np.array([0.0, 0.4, 0.0])
    options = way_to_the_goal(bare, action)
    bare.reset(seed=1, options=options)
    steps = 1
    while not bare.step(action)[4]["success"]:
        steps += 1
    assert steps > 5
    times = next(times for times in (4, 3, 5) if steps > times and steps % times)
    held = make(name, variant=variant, action_repeat=times)
    for env in (held, bare):
        env.reset(seed=1, options=options)
    infos = []
    for _ in range(-(-steps // times) + 2):
        ended, info = assert_held(held, bare, action)
        infos.append(info)
        if ended:
            break
    assert [info["success"] for info in infos].index(True) == steps // times
    if variant == "benchmark":
        assert infos[-1]["steps"] == steps % times
    if name in ("CarGoal1", "CarGoal2", "FetchReach"):
        assert max(info["cost"] for info in infos) > 0.2


@pytest.mark.parametrize("name", ["CarGoal2", "CarButton1"])
def test_divergence_amid_a_held_action_ends_at_the_last_finite_step(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, bare = make(name, action_repeat=4), make(name)
    for env in (held, bare):
        env.reset(seed=0)
        # the third step of the second decision
        answers = iter([True] * 6 + [False])
        monkeypatch.setattr(env, "_sane", lambda answers=answers: next(answers))
    action = np.array([1.0, 0.5])
    assert assert_held(held, bare, action)[0] is False
    ended, info = assert_held(held, bare, action)
    assert ended
    assert (info["steps"], info["diverged"]) == (3, True)


@pytest.mark.parametrize("name", ["FetchReach", "HalfCheetah"])
def test_divergence_of_a_single_scene(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warning to a file there
    held, bare = make(name, action_repeat=3), make(name)
    for env in (held, bare):
        env.reset(seed=9)
        start = env.state
        start["qvel"] = np.full_like(start["qvel"], 1e8)
        env.reset(seed=9, options={"state": start})
    ended = False
    while not ended:
        ended, info = assert_held(held, bare, np.ones(held.action_space.shape))
    assert info["diverged"] is True


def test_a_car_observes_at_decisions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make("CarGoal1", action_repeat=5)
    env.reset(seed=0)
    calls = []
    observe = env._seen
    monkeypatch.setattr(env, "_seen", lambda *view: calls.append(view) or observe(*view))
    for action in actions_for(env, 6):
        assert env.step(action)[4]["steps"] == 5
    assert len(calls) == 6


@all_tasks
def test_a_checkpoint_does_not_depend_on_the_repeat(name: str) -> None:
    held, bare = make(name, action_repeat=3), make(name)
    held.reset(seed=5)
    first, *later = actions_for(held, 4)
    held.step(first)
    bare.set_checkpoint(held.get_checkpoint())
    for action in later:
        if assert_held(held, bare, action)[0]:
            break


@all_tasks
def test_gymnasiums_checker_complains_of_nothing(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(make(name, action_repeat=3), skip_render_check=True)
    expected = ("minimum value is -infinity", "maximum value is infinity")
    texts = [str(warning.message) for warning in caught]
    assert [text for text in texts if not any(known in text for known in expected)] == []


@pytest.mark.parametrize("name", ["CarButton2", "FetchReach", "HalfCheetah"])
def test_bad_repeats_are_refused(name: str) -> None:
    for repeat in (0, 2.5):
        with pytest.raises(ValueError, match="action_repeat must be a whole number >= 1"):
            make(name, action_repeat=repeat)


# ---------------------------------------------------------------- any environment


@pytest.mark.parametrize("name", ["CarGoal2", "FetchReach"])
def test_the_wrapper_gives_what_the_task_itself_gives(name: str) -> None:
    own = make(name, action_repeat=4, horizon=22)
    wrapped = RepeatAction(make(name, horizon=22), 4)
    for env in (own, wrapped):
        env.reset(seed=2)
    for action in actions_for(own, 6):
        ours, theirs = own.step(action), wrapped.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
    assert ours[3] is True
    assert ours[4]["steps"] == 2


def test_the_wrapper_on_another_environment() -> None:
    env, bare = RepeatAction(Point(), 3), Point()
    env.reset(seed=0)
    bare.reset(seed=0)
    for _ in range(20):
        ours, theirs = env.step(np.ones(1)), single(bare, np.ones(1), 3)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
        if ours[2]:
            break
    assert ours[4]["success"] is True
    with pytest.raises(ValueError, match="action_repeat must be >= 1, got 0"):
        RepeatAction(Point(), 0)


def test_joined_infos() -> None:
    before = {"cost": 1.0, "cost_of": "hazards", "reward_goal": 0.5, "goal_met": True, "seen": 1}
    now = {"cost": 2.0, "cost_of": "vases", "reward_goal": 0.25, "cost_late": 3.0, "seen": 2}
    assert join_infos(before, now) == {
        "cost": 3.0,
        "cost_of": "vases",
        "reward_goal": 0.75,
        "cost_late": 3.0,
        "goal_met": True,
        "seen": 2,
    }


def test_a_task_made_by_name_holds_its_actions_itself() -> None:
    env, name = make_env("CarGoal1", 4)
    assert (type(env), env.action_repeat, name) == (Navigation, 4, "CarGoal1")
    assert make_env("CarGoal1")[0].action_repeat == 1


def test_a_users_environment_is_wrapped_and_left_as_it_is() -> None:
    own: Any = make("CarGoal1")
    env, _ = make_env(own, 4)
    assert isinstance(env, RepeatAction)
    assert (env.times, env.unwrapped, own.action_repeat) == (4, own, 1)
    limited = gymnasium.wrappers.TimeLimit(make("HalfCheetah"), 10)
    env, _ = make_env(limited, 4)
    env.reset(seed=0)
    ends = [env.step(np.zeros(6))[3:] for _ in range(3)]
    assert [(ended, info["steps"]) for ended, info in ends] == [(False, 4), (False, 4), (True, 2)]
    made, _ = make_env("probes:KeptPoint-v0", 2)
    assert isinstance(made, RepeatAction)
    point = KeptPoint()
    assert make_env(point)[0] is adapt(point)


def test_an_environment_that_repeats_already() -> None:
    env = make("CarGoal1", action_repeat=2)
    assert repeat_action(env, 2, made_here=False) is env
    with pytest.raises(ValueError, match="holds an action for 2 steps, the method for 4"):
        make_env(env, 4)


def test_single_steps_of_an_environment_and_its_repeat() -> None:
    env: Any = make("HalfCheetah", action_repeat=3)
    with single_steps(RepeatAction(env, 2)) as (bare, times):
        assert (bare, bare.action_repeat, times) == (env, 1, 6)
    assert env.action_repeat == 3
