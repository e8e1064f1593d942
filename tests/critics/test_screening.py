"""The screen: its tolerance, its candidates, its choice."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import costly_replay, row, settings, start
from safecritic.agents import safety_critic
from safecritic.critics import screening
from safecritic.critics.screening import Screen


def tolerance(spent, **changes):
    config = settings("sc", units="measured", **changes)
    state = start("sc", config)
    for number in range(20):
        state = safety_critic.observe(state, row(costly_replay(), number), config)
    size = jnp.float32(2.0)
    return float(safety_critic.screen_tolerance(state, jnp.float32(spent), size, config))


def test_a_budget_tolerance_is_a_share_of_what_is_left():
    budget = {"tolerance_in": "budget", "tolerance": 0.5, "cost_limit": 8.0, "tolerance_least": 0.1}
    assert tolerance(0.0, **budget) == pytest.approx(0.5 * 8.0 / 2.0)
    assert tolerance(6.0, **budget) == pytest.approx(0.5 * 2.0 / 2.0)
    assert tolerance(8.0, **budget) == pytest.approx(0.1)  # in typical costs
    assert tolerance(50.0, **budget) == pytest.approx(0.1)
    assert tolerance(0.0, **(budget | {"cost_limit": 0.0})) == pytest.approx(0.1)


def test_the_printed_tolerance_does_not_depend_on_what_was_spent():
    printed = {"tolerance_in": "cost", "tolerance": 0.3}
    assert tolerance(0.0, **printed) == tolerance(100.0, **printed) == pytest.approx(0.15)


def test_nothing_is_screened_before_the_first_cost():
    config = settings("sc", units="measured", tolerance_in="budget")
    spent, size = jnp.float32(0.0), jnp.float32(1.0)
    assert safety_critic.screen_tolerance(start("sc", config), spent, size, config) == np.inf


@pytest.mark.parametrize(("dim", "number", "fixed"), [(2, 16, 9), (4, 16, 16), (6, 16, 1)])
def test_a_grid_has_the_largest_lattice_that_fits_and_the_rest_fills_the_box(dim, number, fixed):
    drawn = screening.candidates(jax.random.key(0), jnp.zeros(dim), number, "grid", 0.2)
    assert drawn.shape == (number, dim)
    assert np.isin(drawn[:fixed], [-1.0, 0.0, 1.0]).all()
    assert len(np.unique(drawn[:fixed], axis=0)) == fixed
    assert not np.isin(drawn[fixed:], [-1.0, 0.0, 1.0]).any()
    assert np.abs(screening.grid(dim, 500).mean(axis=0)).max() < 0.05
    assert np.abs(screening.grid(dim, 500).std(axis=0) - 0.58).max() < 0.05


COST = jnp.array([0.9, 0.3, 0.2, 0.7], jnp.float32)
REWARD = jnp.array([9.0, 1.0, 2.0, 5.0], jnp.float32)


@pytest.mark.parametrize(
    ("limit", "choice", "place"),
    [
        (0.8, "reward", 3),  # the best Q_R of the three within
        (0.4, "reward", 2),
        (0.1, "reward", None),  # none is within: no change
        (0.1, "cost", 2),
        (0.8, "cost", 2),
    ],
)
def test_the_choice_among_candidates(limit, choice, place):
    part = dataclasses.replace(Screen(), screen_choice=choice, screen_from="grid")
    part = dataclasses.replace(part, screen_candidates=4)
    others = screening.candidates(jax.random.key(0), jnp.zeros(2, jnp.float32), 4, "grid", 0.2)

    proposed = jnp.full(2, 0.5, jnp.float32)

    def lookup(values, own):
        return lambda actions: values if len(actions) == 4 else jnp.array([own], jnp.float32)

    chosen = screening.screen(
        jax.random.key(0), proposed, lookup(COST, 1.0), lookup(REWARD, 99.0), part, limit
    )
    expected = (proposed, 1.0) if place is None else (others[place], float(COST[place]))
    np.testing.assert_array_equal(chosen.action, expected[0])
    assert float(chosen.q_cost) == expected[1]
    assert float(chosen.screened) == 1.0
    assert float(chosen.changed) == (place is not None)


def test_an_action_within_the_tolerance_is_kept():
    def refuse(actions):
        return jnp.zeros(len(actions), jnp.float32)

    action = jnp.array([0.3, -0.2], jnp.float32)
    part = dataclasses.replace(Screen(), screen_choice="reward")
    chosen = screening.screen(jax.random.key(0), action, refuse, refuse, part, 0.1)
    np.testing.assert_array_equal(chosen.action, action)
    assert float(chosen.screened) == float(chosen.changed) == 0.0
