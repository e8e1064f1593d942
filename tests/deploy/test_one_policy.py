"""The README's loop, `evaluate`, the exported file and `predict` are one policy, to the bit."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from helpers.tasks import PAPER
from safecritic.agents.methods import METHODS
from safecritic.run.rollout import Rollout
from safecritic.runtime import Memory, Policy, load
from safecritic.tasks import TASKS, adapt, make

pytestmark = pytest.mark.usefixtures("quick_runs")

DECISIONS = 60  # of the episodes compared
# episodes in which the robots come upon something that costs
SEEDS = {"CarGoal1": 11, "CarGoal2": 9, "CarButton1": 8, "CarButton2": 9}
CLOSE = 1e-5


class Episode:
    """Reward, cost and action of every step."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.costs: list[float] = []
        self.actions: list[np.ndarray] = []

    def add(self, reward: float, cost: float, action: np.ndarray) -> None:
        self.rewards.append(float(reward))
        self.costs.append(float(cost))
        self.actions.append(np.array(action))

    def held(self, repeat: int) -> "Episode":
        """Return the episode by decisions: what a held action brought is summed, in order."""
        whole = Episode()
        for start in range(0, len(self.rewards), repeat):
            steps = slice(start, start + repeat)
            whole.add(sum(self.rewards[steps]), sum(self.costs[steps]), self.actions[start])
        return whole


def assert_same(first: Episode, second: Episode) -> None:
    assert first.rewards == second.rewards
    assert first.costs == second.costs
    np.testing.assert_array_equal(np.stack(first.actions), np.stack(second.actions))


def short(task: str, repeat: int) -> Any:
    """Return the task with an episode of few decisions."""
    return make(task, horizon=DECISIONS * repeat)


def loop(policy: Policy, env: Any, seed: int) -> Episode:
    """The README's loop."""
    episode = Episode()
    obs, _ = env.reset(seed=seed)
    policy.reset()
    done = False
    while not done:
        action = policy(obs)
        obs, reward, terminated, truncated, info = env.step(action)
        policy.spend(info["cost"])
        episode.add(reward, info["cost"], action)
        done = terminated or truncated
    return episode


def loop_of_predict(agent: Any, env: Any, seed: int, folder: Path) -> list[Episode]:
    """Two episodes with `predict`, whose state is saved and loaded in the middle of the first."""
    episodes, state = [], None
    for number in range(2):
        episode, done, start = Episode(), False, True
        obs, _ = env.reset(seed=seed)
        while not done:
            action, state = agent.predict(obs, state, episode_start=start)
            obs, reward, terminated, truncated, info = env.step(action)
            state.spend(info["cost"])
            episode.add(reward, info["cost"], action)
            if (number, len(episode.costs)) == (0, DECISIONS // 2 + 1):
                np.savez(folder / "state.npz", **state.to_arrays())
                with np.load(folder / "state.npz", allow_pickle=False) as arrays:
                    state = Memory.from_arrays(arrays)
            start, done = False, terminated or truncated
        episodes.append(episode)
    return episodes


def by_decisions(policy: Policy, env: Any, seed: int) -> Episode:
    """An environment that holds the actions itself, as `evaluate` steps it."""
    rollout, episode = Rollout(adapt(env)), Episode()
    rollout.reset(seed=seed)
    for step in rollout.play(policy):
        episode.add(step.reward, step.cost, policy.last.action)
    return episode


PRINTED = [name for name, method in METHODS.items() if method.printed]
# every method on the paper's tasks, and one after another on the others
ORIGINALS = [name for name in TASKS if name not in PAPER]
PAIRS = [(method, task) for task in PAPER for method in METHODS]
PAIRS += zip(cycle(METHODS), ORIGINALS)


@pytest.mark.parametrize(("method", "task"), PAIRS)
def test_one_policy(method: str, task: str, tmp_path: Path) -> None:
    agent = ready.make(method, task, cost_limit=1.0)  # of a size that the screen has work to do
    expected, counts = compare_episodes(agent, task, tmp_path)
    if task in PAPER and "screen" in METHODS[method].parts:
        assert 0 < counts["screened"] <= counts["decisions"]
        assert counts["changed"] > 0
        assert any(expected.costs) == (task != "HalfCheetah")


@pytest.mark.parametrize("method", PRINTED)
def test_one_policy_with_the_papers_defaults(method: str, tmp_path: Path) -> None:
    has_screen = "screen" in METHODS[method].parts
    settings = {"tolerance": 0.5} if has_screen else {}
    agent = ready.make(method, "CarGoal1", paper_defaults=True, cost_limit=1.0, **settings)
    _, counts = compare_episodes(agent, "CarGoal1", tmp_path)
    assert (counts["changed"] > 0) == has_screen


def compare_episodes(agent: Any, task: str, folder: Path) -> tuple[Episode, Any]:
    """Compare all ways to drive a policy; return an episode of it, and its counts."""
    repeat = agent.config.action_repeat
    policy = agent.policy()
    seed = SEEDS.get(task, 7)
    expected = loop(policy, short(task, repeat), seed)
    counts = policy.counts.copy()
    assert counts["calls"] == len(expected.costs)

    # evaluate
    holding = short(task, repeat)
    holding.unwrapped.action_repeat = repeat
    decided = by_decisions(agent.policy(), holding, seed)
    assert_same(decided, expected.held(repeat))
    (trace,) = agent.evaluate(1, seed, env=short(task, repeat)).traces
    assert trace.column("reward").tolist() == decided.rewards
    assert trace.column("cost").tolist() == decided.costs

    # the file
    path = agent.export(folder / "policy.safecritic")
    read = load(path, clock=None)
    assert_same(loop(read, short(task, repeat), seed), expected)
    assert read.counts == counts

    # predict
    for predicted in loop_of_predict(agent, short(task, repeat), seed, folder):
        assert_same(predicted, expected)

    compare_engines(agent, path, ready.observations(task, 400))
    return expected, counts


def compare_engines(agent: Any, path: Path, obs: np.ndarray) -> None:
    """Single decisions of NumPy and ONNX Runtime, with more and less of the budget left."""
    share = np.random.default_rng(2).uniform(-0.2, 1.0, len(obs))
    remaining = (agent.config.cost_limit * share).astype(np.float32)
    mine, theirs = (load(path, engine=e, clock=None)._engine(obs, remaining)
                    for e in ("numpy", "onnx"))  # fmt: skip
    np.testing.assert_allclose(theirs.proposed, mine.proposed, atol=CLOSE)
    np.testing.assert_allclose(theirs.q_proposed, mine.q_proposed, rtol=1e-4, atol=CLOSE)
    apart = np.abs(theirs.action - mine.action).max(axis=1) > CLOSE
    assert apart.mean() <= 0.01  # ties
    for name in ("q_cost", "influence"):
        first, second = (getattr(x, name)[~apart] for x in (mine, theirs))
        np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-4, err_msg=name)


def test_rows_in_lockstep_are_policies_by_themselves(tmp_path: Path) -> None:
    agent = ready.make("usc", "CarGoal1", cost_limit=0.2)
    envs = [make("CarGoal1", horizon=80) for _ in range(3)]
    together, alone = agent.policy(), [agent.policy() for _ in envs]
    together.reset(rows=3)
    rows = np.stack([env.reset(seed=at)[0] for at, env in enumerate(envs)])
    for step in range(120):
        actions = together(rows)
        ended = []
        costs = []
        for at, env in enumerate(envs):
            np.testing.assert_array_equal(actions[at], alone[at](rows[at]))
            rows[at], _, terminated, truncated, info = env.step(actions[at])
            costs.append(info["cost"])
            alone[at].spend(info["cost"])
            ended.append(terminated or truncated)
        together.spend(costs)
        for at in np.flatnonzero(ended):
            rows[at] = envs[at].reset(seed=100 * step + int(at))[0]
            alone[at].reset()
        together.reset(rows=ended)
        np.testing.assert_array_equal(together.remaining, [one.remaining for one in alone])
    assert sum(one.counts["changed"] for one in alone) > 0
    with pytest.raises(ValueError, match=r"observations must have shape \(3, 72\)"):
        together(rows[:2])


def evaluate_policy(model: Any, env: Any, episodes: int) -> tuple[list[float], list[int]]:
    """The loop of Stable-Baselines3's `evaluate_policy`, over a vector environment."""
    n_envs = env.num_envs
    rewards, lengths = [], []
    counts = np.zeros(n_envs, dtype="int")
    targets = np.array([(episodes + i) // n_envs for i in range(n_envs)], dtype="int")
    current_rewards, current_lengths = np.zeros(n_envs), np.zeros(n_envs, dtype="int")
    observations = env.reset()
    states = None
    episode_starts = np.ones((n_envs,), dtype=bool)
    while (counts < targets).any():
        actions, states = model.predict(
            observations, state=states, episode_start=episode_starts, deterministic=True
        )
        new_observations, step_rewards, dones, _ = env.step(actions)
        current_rewards += step_rewards
        current_lengths += 1
        for i in range(n_envs):
            if counts[i] < targets[i]:
                episode_starts[i] = dones[i]
                if dones[i]:
                    rewards.append(current_rewards[i])
                    lengths.append(current_lengths[i])
                    counts[i] += 1
                    current_rewards[i] = 0
                    current_lengths[i] = 0
        observations = new_observations
    return rewards, lengths


class Several:
    """Environments in lockstep, in the form of Stable-Baselines3's `VecEnv`."""

    def __init__(self, envs: list[Any]):
        self.envs, self.num_envs, self.started = envs, len(envs), 0

    def _begin(self, env: Any) -> np.ndarray:
        self.started += 1
        return env.reset(seed=self.started)[0]

    def reset(self) -> np.ndarray:
        return np.stack([self._begin(env) for env in self.envs])

    def step(self, actions: np.ndarray) -> Any:
        rows, rewards, dones, infos = [], [], [], []
        for env, action in zip(self.envs, actions, strict=True):
            obs, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            rows.append(self._begin(env) if done else obs)
            rewards.append(reward)
            dones.append(done)
            infos.append(info)
        return np.stack(rows), np.array(rewards), np.array(dones), infos


def test_stable_baselines3_can_evaluate_it() -> None:
    """Nobody tells it costs there, so the budget stays whole; actions are held all the same."""
    agent = ready.make("usc", "FetchReach", action_repeat=2)
    rewards, lengths = evaluate_policy(agent, Several([short("FetchReach", 1) for _ in "ab"]), 4)
    expected = []
    for seed in (1, 2, 3, 4):
        env, policy, total, done = short("FetchReach", 1), agent.policy(), 0.0, False
        obs, _ = env.reset(seed=seed)
        while not done:
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            total += reward
            done = terminated or truncated
        expected.append(total)
    assert sorted(rewards) == sorted(expected)
    assert len(lengths) == 4


def test_without_a_state_each_call_is_the_first_decision() -> None:
    agent = ready.make("usc", "CarGoal1", cost_limit=0.2)
    first, second = ready.observations("CarGoal1", 400)[[0, 300]]
    policy = agent.policy()
    expected = policy(first)
    np.testing.assert_array_equal(agent.predict(first)[0], expected)
    _, state = agent.predict(second)
    np.testing.assert_array_equal(agent.predict(first)[0], expected)
    # with its state the action before is held; at the start of an episode it is not
    held, same = agent.predict(first, state)
    np.testing.assert_array_equal(held, agent.predict(second)[0])
    assert np.abs(held - expected).max() > 0.0
    np.testing.assert_array_equal(agent.predict(first, state, episode_start=True)[0], expected)
    np.testing.assert_array_equal(agent.predict(first, state)[0], held)  # it was not changed
    state.spend(0.5)
    assert (state.rows[0].cost, same.rows[0].cost) == (0.5, 0.0)
    with pytest.raises(ValueError, match=r"a cost must be finite and >= 0"):
        state.spend(np.nan)
    with pytest.raises(ValueError, match="the state is of 1 rows, got 2 observations"):
        agent.predict(np.stack([first, second]), state)
