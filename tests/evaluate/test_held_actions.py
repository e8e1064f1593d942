"""A policy that decides every few steps: trained, evaluated, mapped and filmed as one policy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes import SMALL, KeptPoint, Wide
from safecritic import DDPG, SC, cli
from safecritic.agents import methods
from safecritic.api import Agent
from safecritic.evaluate import cost_map, films
from safecritic.evaluate.critic_figure import draw_critic
from safecritic.evaluate.films import record_episode
from safecritic.run.episode import Episode, discounted_sums
from safecritic.run.rollout import UNKNOWN, FunctionPolicy, Transition
from safecritic.study import grid
from safecritic.tasks import TASKS, make
from safecritic.tasks.adapter import make_env
from safecritic.tasks.navigation.world import Navigation
from safecritic.tasks.registry import method_defaults
from safecritic.tasks.repeat import RepeatAction
from safecritic.tasks.velocity import HalfCheetah

pytestmark = pytest.mark.usefixtures("quick_runs")

TINY: dict[str, Any] = SMALL | {"hidden": (8,), "learning_starts": 40}


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let CarGoal1 declare that an action is held for four steps."""
    monkeypatch.setitem(TASKS, "CarGoal1", replace(TASKS["CarGoal1"], action_repeat=4))


# ---------------------------------------------------------------- where the number comes from


def test_the_task_decides_unless_told_otherwise() -> None:
    repeats = {name: task.action_repeat for name, task in TASKS.items()}
    assert repeats["CarGoal1"] == 4
    assert repeats["HalfCheetah"] == 1
    for name in methods.METHODS:
        assert methods.make_config(name, method_defaults("CarGoal1")).action_repeat == 4
        assert (
            methods.make_config(name, method_defaults("CarGoal1"), action_repeat=2).action_repeat
            == 2
        )
        assert (
            methods.make_config(
                name, method_defaults("CarGoal1"), paper_defaults=True
            ).action_repeat
            == 1
        )
        assert methods.make_config(name, None).action_repeat == 1
    both = methods.make_config(
        "usc", method_defaults("CarButton1"), paper_defaults=True, action_repeat=3
    )
    assert (both.action_repeat, both.cost_limit) == (3, 5.0)
    with pytest.raises(ValueError, match=r"action_repeat must be > 0, got 0 \(--action-repeat\)"):
        methods.make_config("usc", method_defaults("CarGoal1"), action_repeat=0)


def test_a_study_has_it_among_its_settings() -> None:
    jobs = grid.jobs_of({"methods": ["sc"], "tasks": ["CarGoal1", "HalfCheetah"], "seeds": [0]})
    assert [job.settings["action_repeat"] for job in jobs] == [4, 1]


def test_the_agents_environment_holds_the_action() -> None:
    agent = SC("CarGoal1", **TINY)
    assert (type(agent.env), agent.env.action_repeat) == (Navigation, 4)
    step = make("CarGoal1").unwrapped.cost_max
    assert agent.training.spec.cost_max == 4 * step
    assert SC("CarGoal1", action_repeat=None, **TINY).config.action_repeat == 4
    paper = SC("CarGoal1", paper_defaults=True, **TINY)
    assert (paper.env.action_repeat, paper.training.spec.cost_max) == (1, step)


def test_an_environment_of_the_users_own_form() -> None:
    """Dictionaries and other bounds: the adapter is between the environment and the repeat."""
    agent = DDPG(Wide(), action_repeat=3, **TINY).learn(60)
    assert isinstance(agent.env, RepeatAction)
    assert [row["length"] for row in agent.recent_episodes] == [10.0] * agent.training.episodes
    obs = {"a": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)}
    action, _ = agent.predict(obs)
    assert Wide.action_space.contains(action)


# ---------------------------------------------------------------- evaluation


@pytest.fixture(scope="module")
def agent() -> SC:
    return SC("CarGoal1", seed=0, action_repeat=4, **TINY).learn(120)


def test_evaluation_is_the_policy_with_its_actions_held(agent: SC) -> None:
    evaluation = agent.evaluate(episodes=1, seed=50)
    policy, env = agent.policy(), make("CarGoal1")
    for number, row in enumerate(evaluation.episodes):
        obs, _ = env.reset(seed=50 + number)
        policy.reset()
        rewards, costs, done = [], [], False
        nearest = np.inf
        while not done:
            obs, reward, terminated, truncated, info = env.step(policy(obs))
            policy.spend(info["cost"])
            rewards.append(reward)
            costs.append(info["cost"])
            nearest = min(nearest, info["hazard_distance"])
            done = terminated or truncated
        decisions = [sum(costs[at : at + 4]) for at in range(0, len(costs), 4)]
        assert row["length"] == len(rewards)
        assert row["reward"] == pytest.approx(sum(rewards), abs=1e-9)
        assert row["cost"] == pytest.approx(sum(costs), abs=1e-9)
        assert row["hazard_distance_min"] == nearest
        gamma = agent.config.gamma
        expected = discounted_sums(np.array(decisions), gamma)[0]
        assert row["discounted_cost"] == pytest.approx(expected, abs=1e-9)
        assert len(evaluation.traces[number].steps) == len(decisions)
    assert len(evaluation.observations) == sum(len(trace.steps) for trace in evaluation.traces)


def test_a_saved_agent_still_holds_its_actions(agent: SC, tmp_path: Path) -> None:
    agent.save(tmp_path / "agent")
    loaded = SC.load(tmp_path / "agent")
    assert (loaded.config.action_repeat, loaded.env.action_repeat, loaded.notes) == (4, 4, [])
    assert loaded.num_timesteps == agent.num_timesteps
    other = SC.load(tmp_path / "agent", env=make("CarGoal1"))
    assert isinstance(other.env, RepeatAction)
    short = make("CarGoal1", horizon=61)
    means = [one.evaluate(1, seed=5, env=short).means for one in (agent, loaded, other)]
    np.testing.assert_equal(means[1:], [means[0]] * 2)
    assert means[0]["length"] == 61


@pytest.mark.slow
def test_learning_continues_after_evaluation_on_the_agents_own_environment() -> None:
    watched, plain = (DDPG(KeptPoint(), action_repeat=3, **TINY) for _ in range(2))
    for _ in range(3):
        watched.learn(50)
        watched.evaluate(episodes=1)
        assert watched.notes == []
    while plain.num_timesteps < watched.num_timesteps:
        plain.training.advance()
    arrays = [one.training.state()[0] for one in (watched, plain)]
    assert all(arrays[0][name].tobytes() == arrays[1][name].tobytes() for name in arrays[0])


def test_the_figure_of_a_critic_is_drawn_over_environment_steps(
    agent: SC, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt

    evaluation = agent.evaluate(episodes=1, seed=50, env=make("CarGoal1", horizon=102))
    figures: list[Any] = []
    monkeypatch.setattr(plt, "close", figures.append)
    draw_critic(evaluation, agent.config.gamma, "", tmp_path / "critic.png")
    steps = figures[0].axes[1].lines[0].get_xdata()
    assert steps[:3].tolist() == [0, 4, 8]
    assert (len(steps), steps[-1]) == (26, 100)


def test_decisions_of_a_record_begin_where_the_last_one_ended() -> None:
    episode = Episode()
    for steps in (4, 4, 1):
        zero = np.zeros(1)
        episode.add(Transition(zero, zero, 0.0, 0.0, zero, False, False, {}, steps), UNKNOWN)
    assert episode.starts.tolist() == [0, 4, 8]
    assert episode.length == 9


# ---------------------------------------------------------------- maps


def test_the_rolled_truth_of_a_car_that_stays_counts_decisions() -> None:
    env, _ = make_env("CarGoal1", 4)
    env.reset(seed=0)
    gamma, size = 0.5, 6
    standing = cost_map.instant_map(env.unwrapped, size, (0.0,))
    rolled = cost_map.rolled_map(FunctionPolicy(lambda obs: np.zeros(2)), env, gamma, size, 0.0)
    places = cost_map.poses(env.arena.extent, size, 0.0)[:, :2]
    away = [np.linalg.norm(places - env.layout[k], axis=1) for k in ("goal",)]
    away.append(np.linalg.norm(places - env.layout["vases"][0, :2], axis=1))
    free = (np.min(away, axis=0) > 0.5).reshape(size, size)
    expected = 4 * standing * (1 - gamma**6) / (1 - gamma)  # 3 / (1 - gamma) decisions
    assert (expected[free] > 0).any()
    np.testing.assert_allclose(rolled[free], expected[free])


def test_maps_are_made_with_the_agents_repeat(agent: SC, monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[Any] = []
    monkeypatch.setattr(cost_map, "SIZE", 2)
    monkeypatch.setattr(cost_map, "ROLLED_SIZE", 2)
    monkeypatch.setattr(cost_map, "SCENES", (20_000,))
    plain = cost_map.rolled_map

    def kept(policy: Any, env: Any, *rest: Any) -> np.ndarray:
        rolled.append(env.action_repeat)
        return plain(policy, env, *rest)

    monkeypatch.setattr(cost_map, "rolled_map", kept)
    from safecritic.evaluate.critic import Critic

    maps = cost_map.make_maps(agent, Critic.of(agent))
    assert rolled == [4]
    assert maps["rolled_truth"].shape == (1, 2, 2)


# ---------------------------------------------------------------- films


def towards(obs: np.ndarray) -> np.ndarray:
    return np.clip((obs[6:] - obs[:3]) * 4, -1, 1)


def test_a_film_shows_every_step_of_a_held_action(monkeypatch: pytest.MonkeyPatch) -> None:
    captions: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        films, "make_caption", lambda *values: captions.append(values) or f"{values}"
    )
    seen = []

    def policy(obs: np.ndarray) -> np.ndarray:
        seen.append(obs)
        return towards(obs)

    held: Any = make("FetchReach", action_repeat=3)
    made = [
        record_episode(held, policy, seed=0, size=160),
        record_episode(make("FetchReach"), policy, seed=0, size=160, action_repeat=3),
        record_episode(RepeatAction(make("FetchReach"), 3), policy, seed=0, size=160),
    ]
    assert held.action_repeat == 3
    for film in made[1:]:
        np.testing.assert_array_equal(film, made[0])
    number, steps = len(seen) // 3, len(made[0]) - 1
    assert [caption[0] for caption in captions[: steps + 1]] == list(range(steps + 1))
    obs, _ = held.reset(seed=0)
    reward = cost = 0.0
    done, taken = False, 0
    for decision in range(number):
        obs = obs.astype(np.float32)
        np.testing.assert_array_equal(obs, seen[decision])
        obs, r, done, _, info = held.step(towards(obs))
        reward, cost, taken = reward + r, cost + info["cost"], taken + info["steps"]
        step, shown_reward, shown_cost, reached = captions[taken]
        assert (step, reached) == (taken, done)
        assert (shown_reward, shown_cost) == pytest.approx((reward, cost))
    assert (done, taken) == (True, steps)
    assert steps % 3  # it ended while the action was held


def test_a_film_of_fewer_frames() -> None:
    env = HalfCheetah(horizon=10, action_repeat=4)
    assert len(record_episode(env, seed=3, size=160)) == 11
    assert len(record_episode(env, seed=3, size=160, every=4)) == 4  # 0, 4, 8 and the last
    assert len(record_episode(env, seed=3, size=160, max_steps=3)) == 4
    with pytest.raises(ValueError, match="action_repeat must be >= 1, got 0"):
        record_episode(env, action_repeat=0)


@pytest.mark.slow
def test_the_command_line_trains_evaluates_and_films_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--hidden", "8", "--batch-size", "16", "--buffer-size", "400", "--log-every", "100"]
    flags += ["--learning-starts", "60", "--critic-every", "100", "--action-repeat", "3"]
    assert cli.main(["train", "ddpg", "HalfCheetah", *flags, "--steps", "502", "--out", "r"]) == 0
    assert json.loads(Path("r/config.json").read_text())["config"]["action_repeat"] == 3
    # an episode of 500 steps is 167 decisions; one more passes step 502
    assert json.loads(Path("r/summary.json").read_text())["steps"] == 503
    assert Path("r/episodes.csv").read_text().splitlines()[1].startswith("1,500,500,")
    assert cli.main(["evaluate", "r", "--episodes", "1"]) == 0
    evaluation = json.loads(Path("r/evaluation.json").read_text())
    assert evaluation["episodes"][0]["length"] == 500
    assert cli.main(["show", "r", "--format", "png"]) == 0
    capsys.readouterr()
    agent = Agent.load("r")
    frames = record_episode(agent.env, agent.policy(), seed=10_000, every=500)
    from PIL import Image

    np.testing.assert_array_equal(np.asarray(Image.open("r/episode-0.png")), frames[-1])
