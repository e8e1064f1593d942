"""What the benchmarks count and measure."""

import importlib
import math
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from probes import SMALL, KeptPoint
from safecritic import CSC, USC
from safecritic.fast.compilation import compiler_options
from safecritic.run.callbacks import BaseCallback
from safecritic.study import table as study_table
from studies import write_outcomes

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_products_of_a_compiled_program_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    speed = importlib.import_module("speed")
    x, w, v = (jnp.ones(shape, jnp.float32) for shape in ((48, 40), (40, 56), (48, 24)))

    def both(x, w, v):
        return x @ w, x.T @ v

    call = jax.jit(both, compiler_options=compiler_options())
    found = speed.matrix_products(call.lower(x, w, v).compile().as_text())
    assert sorted(2 * m * n * k for m, n, k in found) == sorted(
        [2 * 48 * 56 * 40, 2 * 40 * 24 * 48]
    )


@pytest.mark.slow
def test_fewer_states_make_a_noisier_step(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    measure = importlib.import_module("conservative").measure
    agent = CSC(KeptPoint(), seed=0, **SMALL | {"learning_starts": 120})
    agent.training.run(120, BaseCallback())  # rows alone: an update would take longer to compile
    (half, eighth), caution = measure(agent, (0.5, 0.125), batches=6, draws=6)
    assert 0 < half < eighth
    assert caution == 1.0


MECHANISMS = ["conservative", "influence", "refinement", "screen", "sensitivity"]


@pytest.fixture
def mechanisms(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("mechanisms")


@pytest.fixture(scope="module")
def usc():
    small = SMALL | {"learning_starts": 120, "refine_block": 32, "refine_top": 4}
    agent = USC(KeptPoint(), seed=0, cost_limit=1.0, **small)
    agent.training.run(120, BaseCallback())
    return agent


@pytest.mark.slow
def test_every_mechanism_has_its_figures(mechanisms, usc, capsys):
    figures = mechanisms.measure(usc, episodes=3, batches=4, states=4, seed=0)
    assert list(figures) == MECHANISMS
    values = {name: {f.name: f.plain() for f in lines} for name, lines in figures.items()}
    assert all(len(values[name]) == len(figures[name]) for name in figures)  # no name twice
    assert values["conservative"]["gradient"] > 0
    assert -1 <= values["conservative"]["cosine"] <= 1
    assert 0 < values["refinement"]["same stretch"] <= 1
    assert 0 <= values["screen"]["changes"] <= values["screen"]["fires"] <= 1
    mechanisms.print_figures(figures)
    printed = capsys.readouterr().out
    assert all(name in printed for name in MECHANISMS)


def test_a_state_put_back_costs_what_it_did(mechanisms, usc):
    env, policy = KeptPoint(), usc.policy(seed=0)
    fresh = mechanisms.deploy(env, policy, usc.config.gamma, 2, seed=0)
    assert len(fresh.states) == len(fresh.realised)
    assert fresh.transitions.truncated.sum() + fresh.transitions.terminated.sum() == 2
    for at in (0, 7, 31):
        same = mechanisms.held_cost(
            env, policy, fresh, at, fresh.transitions.action[at], usc.config.gamma
        )
        assert same == pytest.approx(fresh.realised[at], abs=1e-6)


def test_actions_are_ranked_by_what_followed_on_them(mechanisms, usc):
    actions = importlib.import_module("actions")
    env, policy, gamma = KeptPoint(), usc.policy(seed=0), usc.config.gamma
    fresh = mechanisms.deploy(env, policy, gamma, 3, seed=0)
    rng = np.random.default_rng(0)
    states = actions.states_of(fresh, rng)
    assert len(set(fresh.number[states])) == len(states)
    some = rng.uniform(-1, 1, (len(states), 4, fresh.transitions.action.shape[1]))
    some = some.astype(np.float32)
    tried = actions.follow(env, policy, fresh, states, some, horizon=60)
    truth = (gamma ** np.arange(60) * tried.costs).sum(axis=2)
    for row, column in ((0, 0), (len(states) - 1, 3)):
        same = mechanisms.held_cost(env, policy, fresh, states[row], some[row, column], gamma)
        assert truth[row, column] == pytest.approx(same, abs=1e-6)
    differ = np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0], [2.0, 1.0, 5.0]])
    assert actions.rank(differ, differ).value == pytest.approx(1.0)
    assert actions.rank(-differ, differ).value == pytest.approx(-1.0)
    assert actions.rank(0 * differ, differ).value == 0.0


def test_agreement_is_of_actions_and_its_interval_of_episodes(mechanisms):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 8)) + 10 * rng.normal(size=(40, 1))
    states = np.repeat(rng.normal(size=(40, 1)), 8, axis=1)  # knows states, nothing of actions
    number = np.repeat(np.arange(10), 4)
    assert mechanisms.agreement(states, truth, number).value == 0.0
    assert mechanisms.agreement(3 * truth + states, truth, number).value == pytest.approx(1.0)
    assert mechanisms.agreement(-truth, truth, number).high == pytest.approx(-1.0)
    partly = truth + 2 * rng.normal(size=truth.shape)
    ten = mechanisms.agreement(partly, truth, number)
    assert 0.0 < ten.low < ten.value < ten.high < 1.0
    one = mechanisms.agreement(partly, truth, np.zeros(len(truth)))  # all of one episode
    assert one.low == one.high == pytest.approx(ten.value)


def test_a_network_is_told_what_followed(mechanisms, usc):
    actions = importlib.import_module("actions")
    env, policy = KeptPoint(), usc.policy(seed=0)
    with pytest.raises(ValueError, match="no episode is longer than 3000 decisions"):
        actions.outcomes(env, policy, 0.999, 40)
    seen = actions.outcomes(env, policy, 0.5, 400)
    assert 200 < len(seen.obs) == len(seen.realised) < 400  # not those before the time limit
    seen = seen._replace(realised=seen.action[:, 0] + 2.0)  # an outcome that can be learned
    network, r2 = actions.taught(usc, seen, 200)
    assert r2 > 0.9
    np.testing.assert_allclose(
        network(seen.obs, seen.action).mean(), seen.realised.mean(), atol=0.1
    )


@pytest.mark.parametrize("has_goal", [True, False])
def test_a_task_is_solved_by_the_first_good_window(monkeypatch, has_goal):
    """A run that is done and a run that is watched are solved at the same episode."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    solved = importlib.import_module("solved")
    failures, dear = set(range(20)), {30, 31}
    rows = [
        {
            "step": 100.0 * (number + 1),
            "success": float(number not in failures) if has_goal else math.nan,
            "reward": 0.0 if has_goal else 30.0 * (number not in failures),
            "cost": 26.0 if number in dear else 0.0,
        }
        for number in range(120)
    ]
    watch = solved.Solved(limit=1.0, has_goal=has_goal)
    seen = []
    for row in rows:
        watch._on_episode_end(row)
        seen.append(watch.solved)
    first = seen.index(True)
    task = "CarGoal1" if has_goal else "HalfCheetah"
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    run = types.SimpleNamespace(episodes=columns, task=task, limit=1.0, rate=50.0)
    steps, minutes = solved.solved_in(run)
    assert steps == rows[first]["step"]
    assert minutes == steps / 50 / 60
    # the two dear episodes leave the window of 50 one by one: with one of them, 26 / 50 is within 1
    window = rows[first - 49 : first + 1]
    assert sum(row["cost"] for row in window) == 26.0
    columns["cost"] = [2.0] * len(rows)
    assert solved.solved_in(run) is None
    assert solved.cells([(900.0, 2.0), None, (700.0, 1.0)]) == (
        *("2 of 3", "900", "2.0"),
        "900, –, 700",
    )


def test_training_is_cut_where_the_task_is_learned(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    cut = importlib.import_module("phases")
    success = np.r_[np.zeros(10), np.ones(70)]
    assert cut.learned(success) == 58  # two failures among the last fifty
    assert cut.learned(np.zeros(80)) == 80
    assert cut.learned(np.ones(20)) == 20
    cost = np.r_[np.full(58, 5.0), np.full(22, 2.0)]
    episodes = {"step": np.arange(1, 81) * 100.0, "success": success, "cost": cost}
    assert cut.phases(types.SimpleNamespace(episodes=episodes)) == [5800, 5, 2, 100, 20]
    never = {"step": np.arange(1, 81) * 100.0, "success": np.zeros(80), "cost": cost}
    found = cut.phases(types.SimpleNamespace(episodes=never))
    assert found[0] == 8000
    assert np.isnan(found[2:]).all()


def test_a_part_is_worth_what_the_whole_does_better_than_the_rest(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    parts = importlib.import_module("parts")
    outcomes = {  # cost, success, reward of each seed
        "usc": [(1.0, 1.0, 6.0), (1.4, 1.0, 5.0), (1.2, 1.0, 6.0)],
        "sc": [(3.0, 1.0, 6.5), (3.4, 1.0, 4.5), (3.2, 1.0, 6.0)],
        "csc": [(3.0, 1.0, 6.5)],
    }
    study = study_table.read(write_outcomes(tmp_path / "study", outcomes))
    first, second = (dict(zip(parts.HEADER, row, strict=True)) for row in parts.rows_of(study))
    assert (first["method"], first["seeds"]) == ("sc", "3, 3")
    assert first["success %"] == "+0.0 [+0.0, +0.0]"
    assert first["cost"] == "**+2.00 [+1.55, +2.45]**"  # t(4) = 2.776, times 0.2 sqrt(2 / 3)
    assert not first["reward"].startswith("**")
    assert (second["seeds"], second["cost"]) == ("1, 3", "+1.80")
    backwards = parts.rows_of(study, whole="sc")
    assert backwards[-1][parts.HEADER.index("cost")] == "**-2.00 [-2.45, -1.55]**"
    dear = {"usc": [(2.0, 1.0, 6.0), (2.4, 1.0, 5.0)], "sc": [(9.0, 1.0, 6.5)]}
    other = study_table.read(write_outcomes(tmp_path / "other", dear))
    first, second = parts.rows_of(study, base_of=other)
    seeds, cost = (parts.HEADER.index(name) for name in ("seeds", "cost"))
    assert first[seeds] == "3, 2"
    assert first[cost].startswith("+1.00 [")
    assert (second[seeds], second[cost]) == ("1, 2", "+0.80")
    assert parts.difference(np.array([-0.001]), np.zeros(1), 2) == "+0.00"
    steps = {"steps/influence": np.array([0.9, 0.1, 0.3, 0.5, 0.7])}
    steps |= {"steps/q_cost": np.arange(5.0), "steps/realised": np.array([4.0, 1.5, 2, 3, 4])}
    found = parts.errors(types.SimpleNamespace(arrays=steps))
    assert found == {"error_low": 0.5, "error_high": 4.0}
    own, whole = np.array([1.0, 4.0, 2.0, math.nan]), np.array([2.0, 2.5, 2.25, 2.6, 2.4])
    same = stats.ttest_ind(own[:3], whole, equal_var=False).confidence_interval()
    text = parts.difference(own, whole, 3)
    assert text == f"{own[:3].mean() - whole.mean():+.3f} [{same.low:+.3f}, {same.high:+.3f}]"
