"""What `describe` says of an environment: true numbers, in words."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from own_envs import Brittle, Endless, Hall, Harmless
from probes import Point, Wide
from safecritic.tasks import adapt, describe, make


def text_of(*args, **keywords) -> str:
    """Return a description as one line, its words a space apart."""
    return " ".join(repr(describe(*args, **keywords)).split())


def test_the_numbers_are_those_of_the_random_policy() -> None:
    described = describe(Hall(), cost_key="damage", steps=250, seed=3)
    env = Hall()
    rng = np.random.default_rng(3)
    obs, _ = env.reset(seed=3)
    seen, rewards, costs = [obs["lidar"]], [], []
    for step in range(250):
        action = 2.0 * rng.uniform(-1.0, 1.0, 1).astype(np.float32)
        obs, reward, _, truncated, info = env.step(action)
        seen.append(obs["lidar"])
        rewards.append(reward)
        costs.append(info["damage"])
        if truncated:
            assert (step + 1) % 20 == 0
            seen.append(env.reset()[0]["lidar"])
    random = described.random
    assert random.costs == costs
    assert random.rewards == pytest.approx(rewards, rel=1e-6)
    whole = np.reshape(costs[:240], (12, 20)).sum(1)
    assert random.sums(random.costs) == pytest.approx(whole)
    assert (random.episodes[-1], random.terminated) == (slice(220, 240), 0)
    text = " ".join(repr(described).split())
    assert "cost 0 to 1 per step, above 0 in " in text
    assert f"above 0 in {100 * np.mean(costs):.3g}% of the steps; {np.mean(whole):.3g} per" in text
    lidar, speed = described.observation
    assert (lidar.name, lidar.start, lidar.stop, lidar.low, lidar.high) == ("lidar", 0, 2, 0, 1)
    assert lidar.seen == (np.min(seen), np.max(seen))
    assert (speed.name, speed.start, speed.stop) == ("speed", 2, 3)
    assert f"costs {np.mean(whole):.3g} per episode; `safecritic limits" in text


def test_a_task_of_ours() -> None:
    text = text_of("CarGoal1", steps=50)
    assert text.startswith("CarGoal1: drive to the goal past 8 hazards and 1 vase observation 72")
    assert "0-23 unbounded, seen" in text
    assert "24-71 in [0, 1], seen" in text
    assert "proximity 24-71, declared" in text
    assert "action 2 numbers in [-1, 1], as the methods act" in text
    assert "cost info['cost'] success info['success'] in 50 random steps (seed 0):" in text
    assert text.endswith("limit 1 per episode, the task's (--cost-limit for another)")
    assert "success none: the task has no goal" in text_of("HalfCheetah", steps=5)


def test_an_environment_without_a_cost_is_described_all_the_same() -> None:
    text = text_of("Pendulum-v1")
    assert "0-1 in [-1, 1], seen -1 to 1 2 in [-8, 8], seen" in text
    assert "action 1 number in [-2, 2]; the methods act in [-1, 1], which is scaled" in text
    assert "cost none found: info has no keys" in text
    assert "5 ended after 200 steps: 0 by themselves (terminated), 5 cut off (truncated)" in text
    assert "limit none without a cost: name its key with --cost-key NAME (cost_key=...)" in text
    assert "none found: info has 'damage', 'note'" in text_of(Hall(), steps=20)
    assert "none found: info has 'damage', 'note'" in text_of(Hall(), steps=20, cost_key="harm")
    assert "cost none, as declared: 0 at every step" in text_of(Hall(), steps=20, no_cost=True)


def test_where_the_cost_comes_from() -> None:
    assert "cost info['damage']" in text_of(Hall(), steps=20, cost_key="damage")
    computed = adapt("Pendulum-v1", cost=lambda obs, action, info: 1.0)
    assert "cost computed by the function given (<lambda>)" in text_of(computed, steps=20)
    from safecritic.tasks import SixValues

    assert "cost the third of the six values of step" in text_of(SixValues(Point()), steps=20)


def test_what_may_be_a_proximity_is_asked_and_not_assumed() -> None:
    described = describe(Hall(), cost_key="damage", steps=20)
    assert (described.proximity, described.unit_bounds) == ((), [0, 1])
    question = 'declare it: --proximity 0-1 (proximity="0-1")'
    assert question in " ".join(repr(described).split())
    text = text_of(Hall(), cost_key="damage", proximity="lidar", steps=20)
    assert "proximity 0-1, declared" in text
    assert "declare it" not in text


def test_success_and_its_key() -> None:
    class Sometimes(Point):
        """Reports success in no step but a successful one."""

        def step(self, action):
            *values, info = super().step(action)
            del info["success"]
            return *values, info | ({"is_success": True} if self.x > 0.3 else {})

    described = describe(Sometimes())
    assert described.success_key == "is_success"
    text = " ".join(repr(described).split())
    episodes = len(described.random.episodes)
    silent = episodes - sum(described.random.told)
    assert 0 < silent < episodes
    assert f"{silent} of {episodes} episodes had no info['is_success']; if its absence" in text
    declared = text_of(Sometimes(), success_key="is_success")
    assert "success info['is_success']" in declared
    assert "episodes had no" not in declared
    assert "info['won'], declared as success, never appeared" in text_of(
        Point(), steps=20, success_key="won"
    )
    assert "success unknown: info has none of success, is_success, goal_met" in text_of(
        Wide(), steps=20
    )


def test_what_to_look_at() -> None:
    text = text_of(Endless(), cost_key="damage", steps=100)
    assert "episodes none ended" in text
    assert "give the environment a time limit" in text
    assert "in 100 steps, and no episode ended; `safecritic" in text
    assert "no cost appeared: if it should have, is info['cost'] the right one?" in text_of(
        Harmless(), steps=100
    )
    assert "no cost appeared" not in text_of("HalfCheetah", steps=20)


def test_steps_stop_when_the_time_is_over() -> None:
    described = describe(Hall(), cost_key="damage", seconds=0.05, steps=10**9)
    assert 0 < len(described.random.costs) < 10**6
    assert "stopped after 0.05 s; 1,000,000,000 steps were planned" in repr(described)


def test_numbers_that_would_stop_a_training_are_named() -> None:
    text = text_of(Point(bad_step=30), steps=100)
    assert "rewards were not finite: training would stop" in text


def test_many_different_bounds_are_one_line() -> None:
    high = np.arange(1.0, 21.0, dtype=np.float32)

    class Many(Wide):
        observation_space = Box(-high, high)

    described = describe(Many(), steps=20)
    (one,) = described.observation
    assert (one.low, one.high, one.stop) == (-20.0, 20.0, 20)
    assert "0-19 in [-20, 20] or less" in " ".join(repr(described).split())


def test_it_is_repeatable_and_adapt_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    env = adapt(Hall(), cost_key="damage", verbose=True)
    printed = capsys.readouterr().out
    assert printed == f"{describe(env)}\n" == f"{describe(Hall(), cost_key='damage')}\n"
    adapt(make("CarGoal1"))
    assert capsys.readouterr().out == ""


def test_the_documentation_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-environment.md").read_text()
    code = page.partition('```python title="my_robot.py"\n')[2].partition("```")[0]
    (tmp_path / "my_robot.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    described = describe("my_robot:Delivery-v0", proximity="near", seconds=60.0)
    assert f"```\n{described}\n```" in page


def test_what_adapt_refuses_is_refused() -> None:
    with pytest.raises(TypeError, match="must be continuous"):
        describe("CartPole-v1")
    with pytest.raises(TypeError, match="must not be images"):
        describe("own_envs:Camera-v0")
    with pytest.raises(ValueError, match="unknown task 'Pendulm'"):
        describe("Pendulm")
    with pytest.raises(gymnasium.error.Error):
        describe("own_envs:Nothing-v0")


def test_ends_without_success_are_called_failures() -> None:
    for goal in (None, False):
        described = describe(Brittle(goal), cost_key="damage", steps=100)
        assert (described.random.terminated, described.random.failures) == (20, 20)
        assert "20 of 20 that ended by themselves reported no success" in text_of(
            Brittle(goal), cost_key="damage", steps=100
        )
    assert describe(Brittle(goal=True), cost_key="damage", steps=100).random.failures == 0
    assert "failures" not in text_of(Brittle(goal=True), cost_key="damage", steps=100)
