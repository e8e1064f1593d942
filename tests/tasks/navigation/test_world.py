"""The navigation tasks themselves: rules of both variants, checkpoints, divergence, statistics."""

import math

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from helpers.navigation import CARS, RECORDED, put, recordings
from helpers.rollouts import actions_for, rollout
from safecritic.tasks.navigation.rules import PAPER
from safecritic.tasks.navigation.world import Navigation

# ---------------------------------------------------------------- rules


@pytest.mark.parametrize("task", CARS)
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_benchmark_reward_and_cost_follow_from_the_recorded_scene(task, stride):
    """Cost 0.2 per hazard, box and wrong button; reward 3 per metre and 3 for arriving."""
    env = Navigation(CARS[task])
    env.reset(seed=0)
    geoms = [env.model.geom(i).name for i in range(env.model.ngeom)]
    mine = {"agent", "back_bumper", "back_connector", "front_bumper", "front_connector"}
    mine |= {"left", "right", "rear"}
    ends = costs = 0
    for run in recordings(task):
        steps = range(5, len(run["action"]), stride)
        for i in sorted({*steps, *np.flatnonzero(run["goal_met"])}):
            put(env, run, i)
            if "button_timer" in run and run["button_timer"][i]:
                continue
            before = math.dist(run["qpos"][i, :2], run["goal_xy"][i])
            _, reward, terminated, truncated, info = env.step(run["action"][i])
            # what happened, from the simulation's own state, by the rule's words
            position = env.data.qpos[:2]
            after = math.dist(position, run["goal_xy"][i])
            inside = (np.hypot(*(run["hazards0"] - position).T) <= 0.2).sum()
            pairs = {(geoms[a], geoms[b]) for a, b in env.data.contact.geom}
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
@pytest.mark.parametrize("name", PAPER)
def test_parts_add_up_and_distance_is_told(name, variant):
    env = Navigation(name, variant=variant)
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


def test_original_continues_after_the_goal_and_draws_a_new_one():
    run = next(r for r in recordings("SafetyCarGoal1-v0") if r["goal_met"].any())
    step = int(np.flatnonzero(run["goal_met"])[0])
    env = Navigation("CarGoal1", variant="original")
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
    run = next(r for r in recordings("SafetyCarButton1-v0") if r["goal_met"].any())
    step = int(np.flatnonzero(run["goal_met"])[0])
    env = Navigation("CarButton1", variant="original")
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
    obs, _ = Navigation("CarButton1", variant="original", button_timer=10).reset(seed=1)
    assert (obs[24:40] == 0).all()
    obs, _ = Navigation("CarButton1", variant="original").reset(seed=1)
    assert (obs[24:40] > 0).any()


@pytest.mark.parametrize("horizon", [1, 7])
def test_horizon_truncates(horizon):
    env = Navigation("CarGoal1", horizon=horizon)
    env.reset(seed=0)
    ends = [env.step([0.0, 0.0])[3] for _ in range(horizon)]
    assert ends == [False] * (horizon - 1) + [True]
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        env.step([0.0, 0.0])


# ---------------------------------------------------------------- checkpoints and divergence


@pytest.mark.parametrize("task", RECORDED)
def test_checkpoint_amid_contacts(task):
    """Saved at every kind of moment of a recorded drive: pushing, in gremlins, gliding, at rest."""
    env, fresh = Navigation(task), Navigation(task)
    for run in recordings(task)[-2:]:
        put(env, run, 0)
        saved, actions = env.get_checkpoint(), []
        for i, action in enumerate(run["action"], 1):
            actions.append(action)
            expected = env.step(action)
            if i % 15 == 0:
                fresh.set_checkpoint(saved)
                for action in actions:
                    got = fresh.step(action)
                np.testing.assert_array_equal(got[0], expected[0])
                assert got[1:] == expected[1:]
                np.testing.assert_array_equal(fresh.data.qpos, env.data.qpos)
                np.testing.assert_array_equal(fresh.data.qvel, env.data.qvel)
                saved, actions = env.get_checkpoint(), []


@pytest.mark.parametrize("name", [*PAPER, "SafetyPointPush1-v0", "SafetyPointRun0-v0"])
def test_a_diverging_simulation_ends_the_episode(name, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = Navigation(name)
    env.reset(seed=0)
    qvel = np.zeros(env.model.nv)
    qvel[:3] = 3e8
    qvel[env.robot.nv - 5 : env.robot.nv - 3] = 1e9  # the car's wheels
    if env.robot.free:
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
    twin, _ = Navigation(name).reset(seed=0)
    np.testing.assert_array_equal(obs, twin)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match=r"task must be one of .* got 'CarGoal3'"):
        Navigation("CarGoal3")
    with pytest.raises(ValueError, match=r"variant must be one of \['original'\], got 'benchmark'"):
        Navigation("SafetyCarGoal1-v0", variant="benchmark")
    with pytest.raises(ValueError, match="placement must be one of"):
        Navigation("CarGoal1", placement="batch")
    with pytest.raises(ValueError, match="extent must be > 0, got 0"):
        Navigation("CarGoal1", extent=0)


# ---------------------------------------------------------------- statistics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reward", "reward_spread", "cost", "cost_spread"),
    [
        ("CarGoal1", -1.55, 1.25, 69, 67),
        ("CarGoal2", -1.66, 1.32, 129, 141),
        ("CarButton1", -1.38, 1.25, 104, 73),
        ("CarButton2", -0.93, 1.85, 123, 76),
        ("CarPush1", -2.01, 0.79, 24, 52),
        ("CarPush2", -1.95, 1.19, 32, 67),
        ("CarCircle1", 0.42, 1.15, 77, 141),
        ("CarCircle2", 0.23, 1.33, 155, 147),
        ("CarRun0", -11.8, 65.6, 177, 174),
        ("PointGoal1", 0.08, 0.62, 27, 68),
        ("PointGoal2", -0.09, 0.53, 57, 90),
        ("PointButton1", -0.11, 0.57, 25, 46),
        ("PointButton2", 0.10, 0.66, 70, 120),
        ("PointPush1", -0.27, 0.50, 15, 57),
        ("PointPush2", -0.35, 0.52, 18, 52),
        ("PointCircle1", -0.18, 1.04, 41, 103),
        ("PointCircle2", 0.09, 1.33, 74, 134),
        ("PointRun0", 4.6, 25.1, 120, 152),
    ],
)
def test_random_driving_has_the_originals_statistics(
    name, reward, reward_spread, cost, cost_spread
):
    """20 episodes of random steps, the original's seeds; its means and standard deviations."""
    env = Navigation(f"Safety{name}-v0")
    returns, costs = [], []
    for seed in range(20):
        env.reset(seed=seed)
        *_, rewards, paid, _, _ = rollout(env, actions_for(env, env.horizon, seed)).T
        returns.append(rewards.sum())
        costs.append(paid.sum())
    for own, mean, spread in ((returns, reward, reward_spread), (costs, cost, cost_spread)):
        assert abs(np.mean(own) - mean) < 3 * math.hypot(np.std(own), spread) / math.sqrt(20)
