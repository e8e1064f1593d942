"""A policy that pays where nothing changes tries something else, and only there."""

from typing import Any

import numpy as np
import pytest

from deploy import ready
from safecritic import USC
from safecritic.deploy.certificate import run_episode
from safecritic.deploy.export import prepare
from safecritic.runtime.escape import Escape, Rule
from safecritic.runtime.policy import Policy
from safecritic.tasks.repeat import single_steps

AHEAD = np.array([0.5, 1.0], np.float32)


def rule(**changes: Any) -> Rule:
    plain = Rule(3, 2, 1.0, 5.0, np.zeros(4), np.ones(4), 10.0)
    return plain._replace(**changes)


def answers(
    escape: Escape, costs: list[float], start: float = 10.0, moved: float = 0.0
) -> list[tuple[float, ...] | None]:
    """Return what is done in place of AHEAD while decisions cost this and each moves so far."""
    found: list[tuple[float, ...] | None] = []
    spent, obs = start, np.zeros(4)
    for cost in costs:
        way = escape(obs, AHEAD, spent, AHEAD)
        found.append(None if way is None else tuple(way.tolist()))
        spent, obs = spent + cost, obs + moved
    return found


def test_the_opposite_first_and_then_corners_in_turn() -> None:
    # three costly decisions are known at the fourth; a way out lasts for two
    found = answers(Escape(rule()), [1.0] * 19)
    opposite = (-1.0, -1.0)
    free: list[Any] = [None] * 3
    assert found[:5] == [*free, opposite, opposite]
    rest = found[5:]
    ways = [way for way in rest if way is not None][::2]
    assert ways[:4] == [(-1.0, -1.0), opposite, (-1.0, 1.0), opposite]
    assert rest.count(None) >= 4  # the policy has its turn between them


@pytest.mark.parametrize(
    ("changes", "costs", "start", "moved"),
    [
        ({}, [1.0, 1.0, 0.0] * 6, 10.0, 0.0),  # free now and then
        ({}, [1.0] * 18, 10.0, 0.6),  # it moves: 1.2 between three decisions, squared above 1
        ({}, [0.2] * 18, 0.0, 0.0),  # within the budget of 5
        ({}, [0.0] * 18, 10.0, 0.0),
        ({"near": 1e-9}, [1.0] * 18, 10.0, 0.01),
        ({}, [9.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01] + [0.0] * 11, 10.0, 0.0),  # on its way out
    ],
)
def test_what_is_not_stuck(changes: Any, costs: list[float], start: float, moved: float) -> None:
    assert answers(Escape(rule(**changes)), costs, start, moved) == [None] * 18


def test_an_episode_begins_without_a_past() -> None:
    escape = Escape(rule())
    answers(escape, [1.0] * 4)
    escape.reset()
    assert answers(escape, [1.0] * 3) == [None] * 3


def test_the_scale_of_costs_does_not_matter() -> None:
    costs = [1.0, 1.0, 0.5, 1.0, 1.0, 1.0] * 4
    small = answers(Escape(rule()), costs)
    large = answers(Escape(rule(limit=5 * 1024.0)), [1024 * x for x in costs], 10 * 1024.0)
    assert small == large
    assert any(small)


def test_a_way_out_that_costs_more_than_staying_is_the_last() -> None:
    stays, leaves = [1.0] * 3, [1.5, 0.6]
    found = answers(Escape(rule()), stays + leaves + [1.0] * 20)
    assert [way is not None for way in found] == [False] * 3 + [True] * 2 + [False] * 20
    leaves = [1.5, 0.5]  # as much as staying
    found = answers(Escape(rule()), stays + leaves + [1.0] * 20)
    assert any(found[5:])
    escape = Escape(rule())
    answers(escape, stays + [9.0, 9.0] + [1.0] * 5)
    escape.reset()  # the next episode begins anew
    assert any(answers(escape, stays + [1.0] * 2))


OWN = np.array([1.0, -1.0], np.float32)


def given_way(changed: list[bool], moved: float = 0.0, spent: float = 0.0) -> list[bool | None]:
    """Return at each decision whether the policy's own action is done; None: another is."""
    escape, obs = Escape(rule()), np.zeros(4)
    found: list[bool | None] = []
    for number, each in enumerate(changed):
        way = escape(obs, AHEAD if each else OWN + np.float32(1e-5), spent * number, OWN)
        found.append(False if way is None else (True if way.tolist() == OWN.tolist() else None))
        obs = obs + moved
    return found


def test_a_screen_that_leads_nowhere_gives_way() -> None:
    # after three decisions in a row the policy has two
    assert given_way([True] * 6) == [False, False, True, True, False, True]
    assert given_way([True, True, False, True, True, False]) == [False] * 6  # not in a row
    assert given_way([True] * 6, moved=0.6) == [False] * 6  # it moves
    assert given_way([False] * 6) == [False] * 6
    # the second time for twice as long, and then again at once: all would have been changed
    assert given_way([True] * 20) == [False, False, True, True, False, *[True] * 15]
    assert given_way([True] * 6 + [False] * 4)[5:] == [True, True, True, True, False]


def test_a_screen_gives_way_while_decisions_cost_something() -> None:
    # from the second decision on it is known that the one before cost something
    assert given_way([True, True, False, True], moved=0.6, spent=0.1) == [False, True, False, True]
    # beyond the budget the way out of a place where it is stuck goes before
    assert None in given_way([True] * 8, spent=10.0)
    assert None not in given_way([True] * 8, spent=10.0, moved=0.6)


@pytest.mark.slow
def test_the_runtime_escapes_as_the_agent_does() -> None:
    """Closed loop: every second costly decision counts as stuck, so that there is much of it."""
    changes = {"escape_after": 2, "escape_near": 1e6, "escape_for": 2}
    agent = ready.point(USC, action_repeat=2, **changes)
    expected = agent.evaluate(episodes=20, seed=50).episodes
    exported = prepare(agent, tolerance=None, onnx=False)
    policy = Policy(exported.contents(), clock=None)
    plain = Policy(exported.contents(), clock=None, screen=False)
    with agent.lent_env("this") as (env, _), single_steps(env) as (bare, _):
        made = [run_episode(policy, bare, 50 + number) for number in range(20)]
        run_episode(plain, bare, 50)
    np.testing.assert_allclose([cost for cost, _ in made], [row["cost"] for row in expected])
    assert policy.counts["escapes"] > 20
    assert plain.counts["escapes"] == 0
    # rows by themselves have no past
    first = agent.predict(np.array([0.9, 0.0], np.float32))[0]
    again = [agent.predict(np.array([0.9, 0.0], np.float32))[0] for _ in range(8)]
    np.testing.assert_array_equal(again, np.broadcast_to(first, (8, *first.shape)))
