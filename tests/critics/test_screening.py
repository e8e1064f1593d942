"""The screen: its tolerance, its candidates, its choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import costly_replay, row, settings, start
from safecritic.agents import safety_critic
from safecritic.critics import screening
from safecritic.critics.screening import Screen
from safecritic.methods import make_config


def tolerance(spent, explore=False, **changes):
    config = settings("sc", units="measured", **changes)
    state = start("sc", config)
    for number in range(20):
        state = safety_critic.observe(state, row(costly_replay(), number), config)
    size = jnp.float32(2.0)
    return float(safety_critic.screen_tolerance(state, jnp.float32(spent), size, config, explore))


def test_a_budget_tolerance_is_a_share_of_what_is_left():
    budget = {"tolerance_in": "budget", "tolerance": 0.5, "cost_limit": 8.0, "tolerance_least": 0.1}
    assert tolerance(0.0, **budget) == pytest.approx(0.5 * 8.0 / 2.0)
    assert tolerance(6.0, **budget) == pytest.approx(0.5 * 2.0 / 2.0)
    assert tolerance(8.0, **budget) == pytest.approx(0.1)  # in typical costs
    assert tolerance(50.0, **budget) == pytest.approx(0.1)
    assert tolerance(0.0, **(budget | {"cost_limit": 0.0})) == pytest.approx(0.1)


def test_in_training_the_tolerance_is_another():
    budget = {"tolerance_in": "budget", "tolerance": 0.2, "cost_limit": 8.0, "tolerance_least": 0.3}
    budget |= {"training_tolerance": 1.0, "training_least": 0.1}
    assert tolerance(0.0, **budget) == pytest.approx(0.2 * 8.0 / 2.0)
    assert tolerance(0.0, True, **budget) == pytest.approx(8.0 / 2.0)
    assert tolerance(9.0, **budget) == pytest.approx(0.3)
    assert tolerance(9.0, True, **budget) == pytest.approx(0.1)
    printed = make_config("sc", paper_defaults=True).screen
    assert printed.training_tolerance == printed.tolerance == 0.3


def test_the_printed_tolerance_does_not_depend_on_what_was_spent():
    printed = {"tolerance_in": "cost", "tolerance": 0.3}
    assert tolerance(0.0, **printed) == tolerance(100.0, **printed) == pytest.approx(0.15)


def test_nothing_is_screened_before_the_first_cost():
    config = settings("sc", units="measured", tolerance_in="budget")
    spent, size = jnp.float32(0.0), jnp.float32(1.0)
    for explore in (False, True):
        found = safety_critic.screen_tolerance(start("sc", config), spent, size, config, explore)
        assert found == np.inf


@pytest.mark.parametrize(("dim", "number", "fixed"), [(2, 16, 9), (4, 16, 16), (6, 16, 1)])
def test_a_grid_has_the_largest_lattice_that_fits_and_the_rest_fills_the_box(dim, number, fixed):
    drawn = screening.candidates(jax.random.key(0), jnp.zeros(dim), number, "grid", 0.2)
    assert drawn.shape == (number, dim)
    assert np.isin(drawn[:fixed], [-1.0, 0.0, 1.0]).all()
    assert len(np.unique(drawn[:fixed], axis=0)) == fixed
    assert not np.isin(drawn[fixed:], [-1.0, 0.0, 1.0]).any()
    assert np.abs(screening.grid(dim, 500).mean(axis=0)).max() < 0.05
    assert np.abs(screening.grid(dim, 500).std(axis=0) - 0.58).max() < 0.08


COST = jnp.array([0.9, 0.3, 0.2, 0.7], jnp.float32)
REWARD = jnp.array([9.0, 1.0, 2.0, 5.0], jnp.float32)


@pytest.mark.parametrize(
    ("limit", "choice", "price", "place"),
    [
        (0.8, "reward", 1.0, 3),  # the best Q_R of the three within
        (0.4, "reward", 1.0, 2),
        (0.1, "reward", 1.0, 0),  # none is within: the best Q_R - price Q_C, here 9 - 0.9
        (0.1, "reward", 20.0, 2),  # 2 - 20 x 0.2
        (0.1, "cost", 1.0, 2),
        (0.8, "cost", 1.0, 2),
    ],
)
@pytest.mark.parametrize("own", [-5.0, 8.5])
def test_the_choice_among_candidates(limit, choice, price, place, own):
    part = Screen(screen_choice=choice, screen_from="grid", screen_candidates=4)
    others = screening.grid(2, 4)
    proposed = jnp.full(2, 0.5, jnp.float32)
    cost = {1: jnp.ones(1, jnp.float32), 4: COST}
    reward = {5: jnp.append(jnp.float32(own), REWARD)}

    chosen = screening.screen(
        jax.random.key(0),
        proposed,
        lambda actions: cost[len(actions)],
        lambda actions: reward[len(actions)],
        part,
        limit,
        price,
    )
    np.testing.assert_array_equal(chosen.action, others[place])
    assert float(chosen.q_cost) == float(COST[place])
    assert float(chosen.screened) == float(chosen.changed) == 1.0


def test_the_action_is_kept_where_nothing_is_better():
    part = Screen(screen_candidates=4)
    action = jnp.full(2, 0.5, jnp.float32)

    def cost(actions):
        return jnp.full(len(actions), 2.0, jnp.float32)

    def reward(actions):
        return -jnp.sum((actions - 0.5) ** 2, axis=-1)

    def worse(actions):
        return -reward(actions)

    for value, keep in ((reward, False), (worse, True)):
        chosen = screening.screen(jax.random.key(0), action, cost, value, part, 1.0, 3.0, keep)
        np.testing.assert_array_equal(chosen.action, action)
        assert (float(chosen.screened), float(chosen.changed)) == (1.0, 0.0)


def test_an_action_within_the_tolerance_is_kept():
    def refuse(actions):
        return jnp.zeros(len(actions), jnp.float32)

    action = jnp.array([0.3, -0.2], jnp.float32)
    part = Screen(screen_choice="reward")
    chosen = screening.screen(jax.random.key(0), action, refuse, refuse, part, 0.1)
    np.testing.assert_array_equal(chosen.action, action)
    assert float(chosen.screened) == float(chosen.changed) == 0.0
