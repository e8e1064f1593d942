"""The car tasks themselves: rules of both variants, checkpoints, divergence, statistics."""

import math

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from helpers.cars import RECORDED, put, recordings
from helpers.rollouts import actions_for, rollout
from safecritic.tasks.car.env import CarTask
from safecritic.tasks.car.rules import ARENAS

# ---------------------------------------------------------------- rules


@pytest.mark.parametrize("task", RECORDED)
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_benchmark_reward_and_cost_follow_from_the_recorded_scene(task, stride):
    """Cost 0.2 per hazard, box and wrong button; reward 3 per metre and 3 for arriving."""
    env = CarTask(RECORDED[task])
    env.reset(seed=0)
    geoms = [env.model.geom(i).name for i in range(env.model.ngeom)]
    mine = {"agent", "back_bumper", "back_connector", "front_bumper", "front_connector"}
    mine |= {"left", "right", "rear"}
    ends = costs = 0
    for run in recordings(task):
        for i in sorted({*range(5, 200, stride), *np.flatnonzero(run["goal_met"])}):
            put(env, run, i)
            if task.startswith("button") and run["button_timer"][i]:
                continue
            before = math.dist(run["agent_pos"][i, :2], run["goal_xy"][i])
            _, reward, terminated, truncated, info = env.step(run["action"][i])
            # what happened, from the simulation's own state, by the rule's words
            position = env.data.qpos[:2]
            after = math.dist(position, run["goal_xy"][i])
            inside = (np.hypot(*(run["hazards_pos0"][:, :2] - position).T) <= 0.2).sum()
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
@pytest.mark.parametrize("name", ARENAS)
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


def test_original_continues_after_the_goal_and_draws_a_new_one():
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


# ---------------------------------------------------------------- checkpoints and divergence


@pytest.mark.parametrize(
    "task",
    [
        "goal2",
        "button2",
        pytest.param("goal1", marks=pytest.mark.slow),
        pytest.param("button1", marks=pytest.mark.slow),
    ],
)
def test_checkpoint_amid_contacts(task):
    """Saved at every kind of moment of a recorded drive: pushing vases, in gremlins, at rest."""
    for run in recordings(task)[4:7]:
        env, fresh = (CarTask(RECORDED[task], variant="original") for _ in range(2))
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


@pytest.mark.parametrize("name", ARENAS)
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


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match=r"task must be one of .* got 'CarGoal3'"):
        CarTask("CarGoal3")
    with pytest.raises(ValueError, match="placement must be one of"):
        CarTask("CarGoal1", placement="batch")
    with pytest.raises(ValueError, match="extent must be > 0, got 0"):
        CarTask("CarGoal1", extent=0)


# ---------------------------------------------------------------- statistics


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
    """20 episodes of 1,000 random steps, the original's seeds, its means and standard errors."""
    env = CarTask(name, variant="original")
    returns, costs = [], []
    for seed in range(20):
        env.reset(seed=seed)
        *_, rewards, paid, _, _ = rollout(env, actions_for(env, 1000, seed)).T
        returns.append(rewards.sum())
        costs.append(paid.sum())
    spread = math.hypot(np.std(returns) / math.sqrt(20), 0.4)
    assert abs(np.mean(returns) - reward) < 3 * spread
    assert abs(np.mean(costs) - cost) < 3 * math.hypot(cost_error, np.std(costs) / math.sqrt(20))
