"""Warnings of a run: when they come, that they come once, and that they outlive a checkpoint."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes import row_of_ones
from own_envs import Endless, Harmful, Harmless
from probes import SMALL, KeptPoint
from safecritic import CPO, DDPG, RCPO
from safecritic.run import loop, watch
from safecritic.run.watch import RunWarning, Watch, changed_share

pytestmark = pytest.mark.usefixtures("quick_runs")

LAST = 10_000


def rows(number: int, **values: Any) -> list[dict[str, float]]:
    """Return rows of episodes of 10 steps; a list of values gives each its own."""
    table = []
    for at in range(number):
        row = row_of_ones() | {"length": 10.0, "screen_changed": math.nan, "multiplier": math.nan}
        row |= {k: float(x[at]) if isinstance(x, list) else float(x) for k, x in values.items()}
        table.append(row)
    return table


def watched(table: list[dict[str, float]], limit: float = 1.0) -> Watch:
    """Return a watch that has seen these episodes."""
    one = Watch(limit)
    for row in table:
        one.add(row)
    return one


def kinds(one: Watch, table: list[dict[str, float]], step: int, until: int = LAST) -> list[str]:
    """Return the kinds of all warnings after a look at this step."""
    one.look(table[-100:], step, until)
    return list(one.messages)


@pytest.mark.parametrize(
    ("screened", "length", "fired"),
    [
        ([0.51] * 100, 10, True),
        ([0.5] * 100, 10, False),
        ([0.9] * 99, 10, False),  # too few episodes
        ([math.nan] + [0.9] * 99, 10, False),  # one from the warm-up
        ([1.0] * 20 + [0.0] * 80, [100] * 20 + [10] * 80, True),  # 2,000 of 2,800 steps
        ([1.0] * 80 + [0.0] * 20, [10] * 80 + [100] * 20, False),
    ],
)
def test_a_screen_that_fires_most_of_the_time(screened: Any, length: Any, fired: bool) -> None:
    table = rows(len(screened), screen_changed=screened, length=length)
    assert (changed_share(table) > 0.5) == fired
    assert (kinds(watched(table), table, 1) == ["screen"]) == fired


RISING = [0.1 * n for n in range(60)]


@pytest.mark.parametrize(
    ("multiplier", "cost", "fired"),
    [
        (RISING, 2.0, True),
        (RISING[:49], 2.0, False),  # too few episodes
        (RISING, 1.0, False),  # at the limit
        (RISING, [2.0] * 54 + [0.5] * 6, False),  # kept in the end
        (RISING[:50] + [4.0 - 0.1 * n for n in range(10)], 2.0, False),  # falls in the end
        ([5.0] * 30 + RISING[:30], 2.0, True),  # only the last half counts
        ([1.0] * 60, 2.0, False),  # never moved
        ([x + (0.15 if n % 2 else 0) for n, x in enumerate(RISING)], 2.0, True),  # noisy, rising
        ([math.nan] * 60, 2.0, False),  # a method without one
    ],
)
def test_a_multiplier_that_only_rises(multiplier: list[float], cost: Any, fired: bool) -> None:
    table = rows(len(multiplier), multiplier=multiplier, cost=cost)
    one = watched(table)
    assert one.only_rises() == fired
    assert (kinds(one, table, LAST) == ["multiplier"]) == fired
    if fired:
        early = watched(table)
        assert kinds(early, table, LAST // 2 - 1) == []  # it has time to fall
        assert "over the last 30 episodes, and their cost (mean 2)" in one.messages["multiplier"]


def test_only_the_last_episodes_are_kept_of_a_long_run() -> None:
    table = rows(3000, multiplier=[float(n) for n in range(3000)], cost=2.0)
    one = watched(table)
    assert (len(one.course), len(one.last_half()[0])) == (500, 500)
    assert one.only_rises()


def test_a_cost_that_never_appears() -> None:
    table = rows(1000, cost=0.0)
    assert kinds(watched(table[:999]), table, 9_990) == []
    one = watched(table)
    assert kinds(one, table, 10_000) == ["no cost"]
    assert "in 10,000 steps: is the cost key right?" in one.messages["no cost"]
    table[500]["cost"] = 0.1
    assert kinds(watched(table), table, 10_000) == []
    free = watched(rows(1000, cost=0.0))
    free.expects_cost = False
    assert kinds(free, table, 10_000) == []


def test_episodes_that_never_end() -> None:
    assert kinds(Watch(1.0), [], 9_999) == []
    assert kinds(Watch(1.0), [], 10_000) == ["endless"]


def test_each_is_given_once_and_outlives_a_checkpoint() -> None:
    table = rows(100, screen_changed=0.9)
    one = watched(table)
    assert len(one.look(table, 1, LAST)) == 1
    assert one.look(table, 2, LAST) == []
    again = Watch(1.0)
    again.restore(json.loads(json.dumps(one.state())))
    assert again.look(table, 3, LAST) == []
    assert (again.messages, again.episodes) == (one.messages, 100)
    assert json.dumps(again.state()) == json.dumps(one.state())


# In runs


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_is_named_at_the_line_that_learns(tmp_path: Path) -> None:
    agent = RCPO(Harmful(), cost_key="damage", cost_limit=5.0, **SMALL)
    with pytest.warns(RunWarning, match="the multiplier only rose over the last") as given:
        agent.learn(1200, out=tmp_path / "run")
    (warning,) = (one for one in given if one.category is RunWarning)
    assert warning.filename == __file__
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["warnings"] == [str(warning.message)]
    resumed = RCPO.load(tmp_path / "run", env=Harmful())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said twice
        resumed.learn(100)
    assert resumed.summary()["warnings"] == summary["warnings"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 200 steps count as many."""
    monkeypatch.setattr(watch, "STEPS", 200)
    monkeypatch.setattr(loop, "STEPS", 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        (Harmless(), {}, "no cost has appeared in 200 steps"),
        (Endless(), {"cost_key": "damage"}, "no episode has ended in 200 steps"),
    ],
)
def test_runs_without_costs_or_ends(
    env: Any, settings: dict[str, Any], message: str, soon: None
) -> None:
    with pytest.warns(RunWarning, match=message) as given:
        DDPG(env, **SMALL, **settings).learn(400)
    assert sum(one.category is RunWarning for one in given) == 1  # another library may warn too


def test_rollouts_are_watched_too(soon: None) -> None:
    settings = {"hidden": (8, 8), "rollout_steps": 200, "cost_limit": 1.0}
    with pytest.warns(RunWarning, match="no cost has appeared in 200 steps") as given:
        CPO(Harmless(), **settings).learn(400)
    assert sum(one.category is RunWarning for one in given) == 1  # another library may warn too


@pytest.mark.slow
def test_an_ordinary_run_and_one_without_cost_warn_of_nothing(soon: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = DDPG(KeptPoint(), **SMALL).learn(400)
        DDPG(Harmless(), no_cost=True, **SMALL).learn(400)
    assert agent.summary()["warnings"] == []
