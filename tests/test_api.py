"""The Python classes: Stable-Baselines3's conventions, saving, loading, evaluation, refusals."""

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import safecritic
from own_envs import Hall
from probes import SMALL, KeptPoint, Point, Wide
from safecritic import CPO, DDPG, RCPO, USC, adapt
from safecritic.agent_classes import agent_class
from safecritic.agents.methods import METHODS
from safecritic.api import Agent
from safecritic.run.callbacks import BaseCallback, Progress
from safecritic.run.folder import write_json
from safecritic.run.watch import RunWarning

pytestmark = pytest.mark.usefixtures("quick_runs")

TINY = SMALL | {"refinement": {"top": 4}, "safety": {"steps": 3}}


@pytest.fixture(scope="module")
def trained() -> DDPG:
    return DDPG(KeptPoint(), cost_limit=1.0, seed=0, **SMALL).learn(300)


def test_there_is_a_class_for_every_method() -> None:
    for method in METHODS.values():
        kind = getattr(safecritic, method.class_name)
        assert (kind.__name__, kind.method) == (method.class_name, method.name)
        assert kind is agent_class(method.name)
        assert method.class_name in safecritic.__all__
        assert method.class_name in dir(safecritic)


def test_predict_gives_the_actors_action(trained: DDPG) -> None:
    obs = np.array([0.1, -0.2], np.float32)
    action, state = trained.predict(obs)
    agent = METHODS["ddpg"].load_agent()
    expected = agent.policy(trained.training.device.agent, obs[None], trained.config)[0]
    np.testing.assert_allclose(action, expected, rtol=1e-6)
    assert len(state) == 1
    batch, _ = trained.predict(np.stack([obs, 2 * obs]))
    assert batch.shape == (2, 1)
    np.testing.assert_array_equal(batch[0], action)
    noisy = [trained.predict(obs, deterministic=False)[0].item() for _ in range(3)]
    assert len(set(noisy)) == 3
    with pytest.raises(ValueError, match=r"observation must have 2 numbers, got shape \(3,\)"):
        trained.predict(np.zeros(3))


def test_predict_follows_further_learning() -> None:
    agent = DDPG(KeptPoint(), seed=1, **SMALL)
    obs = np.array([0.3, 0.0], np.float32)
    agent.learn(100)
    before = agent.predict(obs)[0]
    kept = agent.policy()
    agent.learn(200)
    np.testing.assert_array_equal(kept(obs), before)
    assert np.abs(agent.predict(obs)[0] - before).max() > 1e-4


@pytest.mark.slow
def test_any_environment_in_its_own_form() -> None:
    agent = DDPG(Wide(), **SMALL).learn(80)
    obs, _ = Wide().reset(seed=0)
    action, _ = agent.predict(obs)
    assert Wide.action_space.contains(action)
    policy = agent.policy()
    np.testing.assert_array_equal(policy(obs), action)
    unit = policy.last.unit_action
    np.testing.assert_allclose(action, [1.0 + unit[0], 4.0 * unit[1]], rtol=1e-6)
    rows = agent.recent_episodes
    assert [row["length"] for row in rows] == [10] * 8
    assert all(row["cost"] > 0 for row in rows)


@pytest.mark.parametrize("kind", [DDPG, pytest.param(USC, marks=pytest.mark.slow)])
def test_a_loaded_agent_resumes_as_if_it_had_not_stopped(kind: Any, tmp_path: Path) -> None:
    settings = TINY if kind is USC else SMALL
    whole = kind(KeptPoint(), seed=3, **settings).learn(150).learn(150)
    half = kind(KeptPoint(), seed=3, **settings).learn(150)
    half.save(tmp_path / "agent")
    again = kind.load(tmp_path / "agent", env=KeptPoint()).learn(150)
    (a, m), (b, n) = whole.training.state(), again.training.state()
    assert m == n
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name
    assert again.config == whole.config
    np.testing.assert_equal(again.recent_episodes, whole.recent_episodes)


def test_a_loaded_agent_predicts_without_its_environment(trained: DDPG, tmp_path: Path) -> None:
    trained.save(tmp_path / "agent")
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {
        ".json",
        ".safetensors",
    }
    loaded = DDPG.load(tmp_path / "agent")
    assert type(Agent.load(tmp_path / "agent")) is DDPG
    obs = np.array([0.1, -0.2], np.float32)
    np.testing.assert_array_equal(loaded.predict(obs)[0], trained.predict(obs)[0])
    with pytest.raises(ValueError, match=r"learn needs the environment.*DDPG\.load"):
        loaded.learn(10)
    with pytest.raises(ValueError, match=r"holds an agent of ddpg: use DDPG\.load"):
        USC.load(tmp_path / "agent")
    with pytest.raises(ValueError, match="was trained on KeptPoint with obs_dim 2, Wide has 3"):
        DDPG.load(tmp_path / "agent", env=Wide())


def test_saving_refuses_a_folder_that_is_not_an_agents(trained: DDPG, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RuntimeError, match="not a run folder"):
        trained.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_versions_that_changed_are_named(trained: DDPG, tmp_path: Path) -> None:
    trained.save(tmp_path / "agent")
    path = tmp_path / "agent" / "config.json"
    content = json.loads(path.read_text())
    content["versions"]["jax"] = "0.0.1"
    write_json(path, content)
    with pytest.warns(RunWarning, match="saved with jax"):
        (note,) = DDPG.load(tmp_path / "agent", env=KeptPoint()).notes
    assert note.startswith("saved with jax 0.0.1 (now ")


# ---------------------------------------------------------------- evaluation


@pytest.mark.slow
def test_evaluation_is_the_deployed_policy_on_its_own_seeds() -> None:
    agent = USC(KeptPoint(), seed=0, **TINY).learn(300)
    before = agent.training.state()
    evaluation = agent.evaluate(episodes=3, seed=50)
    after = agent.training.state()
    assert before[1] == after[1]
    assert all(before[0][name].tobytes() == after[0][name].tobytes() for name in before[0])

    policy = agent.policy()
    for number, row in enumerate(evaluation.episodes):
        env: Any = KeptPoint()
        obs, _ = env.reset(seed=50 + number)
        policy.reset()
        reward = cost = 0.0
        length, done = 0, False
        while not done:
            obs, r, terminated, truncated, info = env.step(policy(obs))
            policy.spend(info["cost"])
            reward, cost, length = reward + r, cost + info["cost"], length + 1
            done = terminated or truncated
        assert row["reward"] == pytest.approx(reward, abs=1e-9)
        assert (row["cost"], row["length"]) == (cost, length)
        assert row["contacts"] == cost / 0.5
    assert evaluation.means["reward"] == pytest.approx(
        np.mean([r["reward"] for r in evaluation.episodes])
    )
    assert evaluation.critic["steps"] > 0
    assert evaluation.critic["q_mean"] == pytest.approx(_mean_q(agent, 3, 50), rel=1e-5)
    assert -1 <= evaluation.critic["influence_error_correlation"] <= 1


def _mean_q(agent: USC, episodes: int, seed: int) -> float:
    """Mean Q_C of the steps taken, from the critic itself; without a truncated one's last 20."""
    from safecritic.evaluate.episodes import run_episode

    policy, values = agent.policy(), []
    for number in range(episodes):
        episode, obs, action = run_episode(KeptPoint(), policy, seed + number)
        q = agent.values(obs, action)["q_cost"]
        values.append(q if episode.terminated else q[:-20])
    return float(np.concatenate(values).mean())


def test_evaluation_on_an_environment_without_checkpoints_says_what_it_did() -> None:
    agent = DDPG(Point(), **SMALL).learn(75)
    agent.evaluate(episodes=1)
    assert ["episode (25 steps) was dropped" in note for note in agent.notes] == [True]


def test_evaluation_as_json(trained: DDPG, tmp_path: Path) -> None:
    evaluation = trained.evaluate(episodes=2)
    evaluation.save(tmp_path / "evaluation.json")
    content = json.loads((tmp_path / "evaluation.json").read_text())
    assert content["policy"] == "deployed: no exploration noise"  # DDPG has no screen to mention
    assert len(content["episodes"]) == 2
    assert content["episodes"][0]["q_cost"] is None  # and no safety critic
    assert content["safety_critic"] == {}
    with pytest.raises(ValueError, match=r"episodes must be >= 1, got 0 \(--episodes\)"):
        trained.evaluate(episodes=0)


# ---------------------------------------------------------------- callbacks


class StopAt(BaseCallback):
    def __init__(self, step: int):
        super().__init__()
        self.stop, self.calls = step, []

    def _on_training_start(self) -> None:
        self.calls.append("start")

    def _on_step(self) -> bool:
        return self.num_timesteps < self.stop

    def _on_training_end(self) -> None:
        self.calls.append("end")


def test_a_callback_that_says_false_stops_the_run() -> None:
    agent = DDPG(KeptPoint(), **SMALL)
    stop = StopAt(42)
    seen = []

    def watch(local: dict[str, Any], _: dict[str, Any]) -> None:
        seen.append((local["cost"], local["reward"]))

    assert agent.learn(100, callback=[stop, watch]) is agent
    assert agent.num_timesteps == 42
    assert (stop.n_calls, stop.calls, len(seen)) == (42, ["start", "end"], 42)
    agent.learn(100, callback=lambda local, _: agent.num_timesteps < 50)
    assert agent.num_timesteps == 50
    with pytest.raises(TypeError, match="callback must be a BaseCallback, a function"):
        agent.learn(100, callback=3)


def test_progress_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    agent = DDPG(KeptPoint(), **SMALL)
    agent.learn(200, progress_bar=True, callback=Progress(200, seconds_between_lines=0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("step 200/200  ")
    for word in ("steps/s", "0:00 left", "reward ", "cost ", "success "):
        assert word in lines[-1]
    assert "multiplier" not in lines[-1]  # DDPG has none


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost_limit": -1.0}, r"cost_limit must be >= 0, got -1\.0 \(--cost-limit\)"),
        ({"batch_size": 500}, "batch_size 500 exceeds buffer_size 400"),
        ({"cost_limt": 1.0}, "unknown setting 'cost_limt' of usc: did you mean cost_limit"),
        ({"gamma": 1.0}, r"gamma must be in \[0, 1\)"),
    ],
)
def test_bad_settings_fail_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        USC(KeptPoint(), **(TINY | settings))


def test_steps_that_never_learn_are_refused() -> None:
    agent = DDPG(KeptPoint(), **SMALL)
    with pytest.raises(ValueError, match="no update would run: warm-up 60 >= steps 60"):
        agent.learn(60)
    with pytest.raises(ValueError, match="total_timesteps must be >= 1, got 0"):
        agent.learn(0)
    assert agent.num_timesteps == 0


def test_environments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match="actions must be continuous"):
        USC(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"unknown task 'CarGaol1'; did you mean.*CarGoal1"):
        USC("CarGaol1")
    with pytest.raises(ValueError, match="reports no cost"):
        USC("Pendulum-v1")


@pytest.mark.usefixtures("no_curves")
def test_a_run_folder_is_not_written_over(tmp_path: Path) -> None:
    out = tmp_path / "run"
    DDPG(KeptPoint(), **SMALL).learn(100, out=out)
    first = (out / "episodes.csv").read_text()
    with pytest.raises(RuntimeError, match="already holds a run"):
        DDPG(KeptPoint(), **SMALL).learn(100, out=out)
    assert (out / "episodes.csv").read_text() == first
    DDPG(KeptPoint(), **SMALL).learn(120, out=out, overwrite=True)
    content = json.loads((out / "config.json").read_text())
    assert (content["method"], content["seed"], content["steps"]) == ("ddpg", 0, 120)
    assert content["config"]["hidden"] == [16, 16]
    assert content["versions"]["safecritic"] == safecritic.__version__
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    with pytest.raises(RuntimeError, match="is not a run folder"):
        DDPG(KeptPoint(), **SMALL).learn(100, out=tmp_path / "else", overwrite=True)


@pytest.mark.slow
def test_a_second_learn_continues_the_same_folder(tmp_path: Path) -> None:
    agent = DDPG(KeptPoint(), **SMALL)
    agent.learn(150, out=tmp_path / "two").learn(150, out=tmp_path / "two")
    DDPG(KeptPoint(), **SMALL).learn(300, out=tmp_path / "one")
    tables = [(tmp_path / name / "episodes.csv").read_text() for name in ("one", "two")]
    assert tables[0] == tables[1]
    assert (tmp_path / "two" / "curves.png").read_bytes()[:4] == b"\x89PNG"


# ---------------------------------------------------------------- at a glance


def test_an_agent_says_how_it_stands(trained: DDPG) -> None:
    first, second = repr(trained).splitlines()
    summary = trained.summary()
    episodes = summary["episodes"]
    assert first == f"<DDPG on KeptPoint, seed 0: 300 steps, {episodes} episodes"
    assert second == (
        f" last {episodes} episodes: reward {summary['reward']:.2f}, "
        f"cost {summary['cost']:.2f} (limit 1), success {summary['success']:.0%}>"
    )


def test_an_agent_without_episodes_shows_no_means() -> None:
    agent = DDPG(KeptPoint(), seed=4, **SMALL)
    assert repr(agent) == "<DDPG on KeptPoint, seed 4: 0 steps, 0 episodes>"
    assert repr(DDPG.__new__(DDPG)).startswith("<safecritic.agent_classes.DDPG object at")


# ---------------------------------------------------------------- environments of the user's own


def test_a_default_limit_is_a_warning_at_the_line_that_makes_the_agent() -> None:
    with pytest.warns(RunWarning, match="no cost limit is known for KeptPoint: 1 per") as given:
        RCPO(KeptPoint(), **SMALL)
    (warning,) = given
    assert warning.filename == __file__
    assert "safecritic.limits(env)" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RCPO(KeptPoint(), cost_limit=1.0, **SMALL)  # given
        RCPO("CarGoal1", **SMALL)  # the task's
        DDPG(KeptPoint(), **SMALL)  # keeps none


@pytest.mark.slow
def test_declarations_are_saved_and_apply_to_an_environment_that_is_passed(tmp_path: Path) -> None:
    agent = DDPG(Hall(), cost_key="damage", proximity=slice(0, 2), **SMALL).learn(100)
    assert agent.environment["declared"] == {"cost_key": "damage", "proximity": [0, 1]}
    assert agent.training.spec.proximity == (0, 1)
    agent.save(tmp_path / "agent")
    again = DDPG.load(tmp_path / "agent", env=Hall())
    assert again.environment["declared"] == agent.environment["declared"]
    assert again.training.spec.proximity == (0, 1)
    assert again.evaluate(2, env=Hall()).means["cost"] == agent.evaluate(2).means["cost"]

    computed = DDPG(adapt(Hall(), cost=lambda *_: 1.0), **SMALL).learn(100)
    computed.save(tmp_path / "computed")
    with pytest.raises(ValueError, match="a cost function, which no file holds"):
        DDPG.load(tmp_path / "computed", env=Hall())
    passed = DDPG.load(tmp_path / "computed", env=adapt(Hall(), cost=lambda *_: 1.0))
    assert passed.evaluate(1).means["cost"] == 20.0


def test_a_method_that_learns_from_costs_refuses_to_go_without() -> None:
    for env in (adapt(Hall(), no_cost=True), "own_envs:Hall-v0"):
        declared = {"no_cost": True} if isinstance(env, str) else {}
        with pytest.raises(ValueError, match=r"rcpo learns to keep costs .* use ddpg"):
            RCPO(env, cost_limit=1.0, **SMALL, **declared)
        assert DDPG(env, **SMALL, **declared).learn(80).summary()["cost"] == 0.0


@pytest.mark.slow
def test_rollouts_step_the_environment_as_it_was_declared() -> None:
    settings = {"hidden": (8, 8), "rollout_steps": 80, "rollout_envs": 4, "batch_size": 40}
    for workers in (1, 2):
        declared = {"cost_key": "damage", "cost_limit": 1.0, "rollout_workers": workers}
        agent = CPO("own_envs:Harmful-v0", **declared, **settings).learn(80)
        assert all(row["cost"] >= 20.0 for row in agent.recent_episodes)
        assert len(agent.recent_episodes) == 4


@pytest.mark.slow
def test_an_environment_without_a_largest_cost_is_saved_and_loaded(tmp_path: Path) -> None:
    """Its bound of Q_C is unknown, which must not look like a number gone wrong."""
    agent = USC("FetchReach", seed=0, **TINY).learn(120)
    agent.save(tmp_path / "agent")
    again = USC.load(tmp_path / "agent")
    assert again.num_timesteps == agent.num_timesteps
    np.testing.assert_equal(again.evaluate(1).means, agent.evaluate(1).means)


def test_a_cost_function_is_a_keyword_of_the_agent(tmp_path: Path) -> None:
    def far(obs: Any, action: Any, info: Any) -> float:
        return float(abs(obs[0]) > 0.3)

    agent = DDPG("probes:Point-v0", cost=far, cost_limit=9.0, **SMALL).learn(200)
    assert {row["cost"] % 1 for row in agent.recent_episodes} == {0.0}
    assert agent.environment["declared"]["cost"] == "far"
    costs = [row["cost"] for row in agent.evaluate(episodes=2).episodes]
    assert max(costs) > 0
    agent.save(tmp_path)
    again = DDPG.load(tmp_path, env=adapt("probes:Point-v0", cost=far))
    assert [row["cost"] for row in again.evaluate(episodes=2).episodes] == costs
    with pytest.raises(ValueError, match="needs the environment this agent was trained on"):
        DDPG.load(tmp_path).learn(10)


def test_cpo_learns_from_a_cost_function() -> None:
    def one(obs: Any, action: Any, info: Any) -> float:
        return 1.0

    sizes = {"hidden": (8,), "rollout_steps": 104, "batch_size": 8, "value_epochs": 1}
    agent = CPO("probes:Point-v0", cost=one, cost_limit=9.0, **sizes).learn(104)
    assert [row["cost"] for row in agent.recent_episodes] == [
        row["length"] for row in agent.recent_episodes
    ]


def test_a_folder_is_loaded_whatever_its_method(trained: DDPG, tmp_path: Path) -> None:
    trained.save(tmp_path)
    agent = safecritic.load(tmp_path, env=KeptPoint())
    assert (type(agent), agent.num_timesteps) == (DDPG, 300)
    assert agent.get_env() is agent.env


def test_it_learns_on_in_another_environment() -> None:
    agent = DDPG(KeptPoint(), cost_limit=1.0, seed=0, **SMALL).learn(130)
    other = KeptPoint()
    agent.set_env(other)
    assert agent.get_env() is other
    agent.learn(130)
    assert agent.num_timesteps == 260
    assert other.total - 1 == 130  # it was tried for one step
    with pytest.raises(ValueError, match="the agent was trained on KeptPoint with obs_dim 2"):
        agent.set_env(Wide())


@pytest.mark.parametrize(
    ("keyword", "ours"),
    [
        ({"learning_rate": 1e-3}, "actor_lr and critic_lr"),
        ({"tensorboard_log": "logs"}, r"learn\(..., out=FOLDER\)"),
        ({"policy_kwargs": {"net_arch": [64]}}, r"hidden=\(64, 64\)"),
        ({"device": "cuda"}, "JAX_PLATFORMS=cuda"),
    ],
)
def test_names_of_stable_baselines_are_answered_with_ours(
    keyword: dict[str, Any], ours: str
) -> None:
    with pytest.raises(ValueError, match=ours):
        DDPG(KeptPoint(), **keyword)
    known: dict[str, Any] = {"verbose": 1, "device": "auto"}
    assert DDPG(KeptPoint(), cost_limit=1.0, **known, **SMALL).num_timesteps == 0
