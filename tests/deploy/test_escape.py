"""A policy that pays where nothing changes tries something else, and only there."""

import numpy as np
import pytest

from deploy import ready
from safecritic import USC
from safecritic.runtime import escape
from safecritic.runtime.escape import LENGTH, Rule
from safecritic.runtime.memory import AFTER, Row

AHEAD = np.array([0.5, 1.0], np.float32)
RULE = Rule(5.0, np.zeros(4), np.ones(4))  # a limit of 5
Answers = list[tuple[float, ...] | None]


def answers(
    costs: list[float],
    start: float = 10.0,
    moved: float = 0.0,
    rule: Rule = RULE,
    row: Row | None = None,
) -> Answers:
    """Return what is done in place of AHEAD while decisions cost this and each moves so far."""
    row = Row.first(4, np.zeros(2, np.float32), np.zeros(2)) if row is None else row
    found: Answers = []
    row.spent, paid, obs = start, 0.0, np.zeros(4)
    for cost in costs:
        way = escape.answer(rule, row, obs, AHEAD, AHEAD, paid)
        found.append(None if way is AHEAD else tuple(way.tolist()))
        row.spent, paid, obs = row.spent + cost, cost, obs + moved
    return found


def test_the_opposite_first_and_then_corners_in_turn() -> None:
    # the costs of six decisions are known at the seventh
    found = answers([1.0] * 50)
    opposite = (-1.0, -1.0)
    assert found[: AFTER + LENGTH] == [None] * AFTER + [opposite] * LENGTH
    ways = [way for way in found[AFTER:] if way is not None][::LENGTH]
    assert ways[:4] == [opposite, (-1.0, -1.0), opposite, (-1.0, 1.0)]
    assert found[AFTER:].count(None) >= 4  # the policy has its turn between them


@pytest.mark.parametrize(
    ("costs", "start", "moved"),
    [
        ([1.0] * 5 + [0.0], 10.0, 0.0),  # free now and then
        ([1.0], 10.0, 0.3),  # it moves: 1.5 between six decisions, squared above 1
        ([0.1], 0.0, 0.0),  # within the budget of 5
        ([0.0], 10.0, 0.0),
    ],
)
def test_what_is_not_stuck(costs: list[float], start: float, moved: float) -> None:
    repeated = (costs * 36)[:36]
    assert answers(repeated, start, moved) == [None] * 36
    assert any(answers([1.0] * 36))


def test_a_policy_on_its_way_out_is_let_go() -> None:
    fading = [9.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003]
    assert answers(fading + [0.0] * 11) == [None] * 19


def test_the_scale_of_costs_does_not_matter() -> None:
    costs = [1.0, 1.0, 0.5, 1.0, 1.0, 1.0] * 6
    large = RULE._replace(limit=1024 * RULE.limit)
    assert answers(costs) == answers([1024 * x for x in costs], 10 * 1024.0, rule=large)
    assert any(answers(costs))


def test_a_way_out_that_costs_more_than_staying_is_the_last() -> None:
    stays = [1.0] * AFTER
    found = answers([*stays, 1.5, 1.0, 0.6] + [1.0] * 40)
    assert [way is not None for way in found] == ([False] * AFTER + [True] * LENGTH + [False] * 40)
    found = answers([*stays, 1.5, 1.0, 0.5] + [1.0] * 40)  # as much as staying
    assert any(found[AFTER + LENGTH :])
    again = answers(
        [1.0] * 20, row=Row.first(4, np.zeros(2, np.float32), np.zeros(2))
    )  # the next episode begins anew
    assert any(again)


OWN = np.array([1.0, -1.0], np.float32)


def given_way(changed: list[bool], moved: float = 0.0, cost: float = 0.0) -> list[bool | None]:
    """Return at each decision whether the policy's own action is done; None: another is."""
    row, obs = Row.first(4, np.zeros(2, np.float32), np.zeros(2)), np.zeros(4)
    found: list[bool | None] = []
    for number, each in enumerate(changed):
        row.spent = cost * number
        action = AHEAD if each else OWN + np.float32(1e-5)
        way = escape.answer(RULE, row, obs, action, OWN, cost if number else 0.0)
        found.append(False if way is action else (True if way is OWN else None))
        assert row.gives_way == (way is OWN)
        obs = obs + moved
    return found


def test_a_screen_that_leads_nowhere_gives_way() -> None:
    # after six decisions in a row the policy has three
    wait, own = [False] * (AFTER - 1), [True] * LENGTH
    assert given_way([True] * 9) == [*wait, *own, False]
    assert given_way(([True] * 5 + [False]) * 3) == [False] * 18  # not in a row
    assert given_way([True] * 18, moved=0.3) == [False] * 18  # it moves
    assert given_way([False] * 18) == [False] * 18
    # the next time for twice as long
    found = given_way([True] * 30)
    assert found[: AFTER - 1 + LENGTH] == [*wait, *own]
    second = found.index(True, AFTER - 1 + LENGTH)
    assert found[second : second + 2 * LENGTH] == [True] * (2 * LENGTH)


def test_a_screen_gives_way_while_decisions_cost_something() -> None:
    # from the second decision on it is known that the one before cost something
    assert given_way([True, True, False, True], moved=0.6, cost=0.1) == [False, True, False, True]
    # beyond the budget the way out of a place where it is stuck goes before
    assert None in given_way([True] * 16, cost=10.0)
    assert None not in given_way([True] * 16, cost=10.0, moved=0.6)


def test_a_policy_escapes_and_one_without_a_screen_does_not() -> None:
    agent = ready.point(USC)
    obs = np.array([0.5, 0.0], np.float32)
    stuck, plain = agent.policy(), agent.policy(screen=False)
    for policy in (stuck, plain):
        for _ in range(60):
            policy(obs)
            policy.spend(1.0)
    assert stuck.counts["escapes"] > 5
    assert stuck.counts["gave way"] == 0 or stuck.counts["screened"] > 0
    assert plain.counts["escapes"] == plain.counts["gave way"] == 0
    assert (stuck.last.fault, plain.last.fault) == (None, None)
