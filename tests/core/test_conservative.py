"""The conservative term on a case with known costs.

A chain of four states, each action leads on to the next, the policy always takes -0.5. The cost of
an action is 0.1 s - 0.3 a below 0 and 0.1 s above; the data holds actions in [-1, 0] only. Within
the data the cost falls towards 0, so a critic left alone extrapolates it to be ever cheaper above.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
from helpers.quick import jit
from safecritic.agents import paper, usc
from safecritic.core import conservative, replay
from safecritic.core.interface import EnvSpec

STATES, GAMMA = 4, 0.9
GRID = np.linspace(-1, 1, 9)
SEEN, UNSEEN = slice(0, 5), slice(5, 9)


def cost(state, action):
    return 0.1 * state + 0.3 * np.maximum(-action, 0)


def true_values():
    """Q_C (STATES, 9) on the grid of actions, by the recursion over the chain."""
    table, ahead = np.zeros((STATES, len(GRID))), 0.0
    for s in reversed(range(STATES)):
        table[s] = cost(s, GRID) + GAMMA * ahead
        ahead = cost(s, -0.5) + GAMMA * ahead
    return table


TRUTH = true_values()


# by `jax.jit`: many updates, whose time is that of running them
@partial(jax.jit, static_argnames="n")
def draw(key, n=32):
    key_state, key_action = jax.random.split(key)
    state = jax.random.randint(key_state, (n,), 0, STATES)
    action = jax.random.uniform(key_action, (n,), jnp.float32, minval=-1.0, maxval=0.0)
    paid = (0.1 * state - 0.3 * action).astype(jnp.float32)
    discount = jnp.where(state == STATES - 1, 0.0, GAMMA).astype(jnp.float32)
    return replay.Batch(
        obs=jax.nn.one_hot(state, STATES, dtype=jnp.float32),
        action=action[:, None],
        reward=paid,
        cost=paid,
        next_obs=jax.nn.one_hot(state + 1, STATES, dtype=jnp.float32),
        discount=discount,
        cost_next_obs=None,
        cost_discount=discount,
        index=state,
        neighbours=None,
    )


# no multiplier and a still policy: the actor's own updates have no part in it
SMALL = {"hidden": (64,), "gamma": GAMMA, "tau": 0.02, "actor_lr": 1e-12}
settings = partial(helpers.agents.settings, small=SMALL)


@partial(jax.jit, static_argnames=("agent", "config", "updates"))
def trained(agent, config, updates):
    """Return Q_C on the grid after some updates, and the losses of the safety critic."""

    def update(state, step):
        batch = draw(jax.random.fold_in(jax.random.key(1), step))
        state, metrics = agent.update(state, batch, config)
        return state, metrics["safety/loss"]

    state = agent.init(jax.random.key(0), EnvSpec(STATES, 1), config)
    zero = jax.tree.map(jnp.zeros_like, state.actor)
    constant = (*zero[:-1], {**zero[-1], "b": zero[-1]["b"] + jnp.arctanh(jnp.float32(-0.5))})
    state = state._replace(actor=constant, target_actor=constant)
    state, losses = jax.lax.scan(update, state, jnp.arange(updates))
    obs = jnp.repeat(jnp.eye(STATES, dtype=jnp.float32), len(GRID), axis=0)
    action = jnp.tile(jnp.asarray(GRID, jnp.float32), STATES)[:, None]
    return agent.values(state, obs, action, config)["q_cost"], losses


def errors(agent, config, updates=4000):
    """Return Q_C minus truth on the grid, (STATES, 9), and the losses."""
    q, losses = trained(agent, config, updates)
    return np.asarray(q).reshape(TRUTH.shape) - TRUTH, np.asarray(losses)


@pytest.mark.slow
def test_without_the_term_unseen_actions_look_too_cheap():
    error, _ = errors(usc, settings("sc"))
    assert np.abs(error[:, SEEN]).max() < 0.03
    assert error[:, UNSEEN].mean() < -0.03
    assert error[:, UNSEEN].min() < -0.1


@pytest.mark.slow
def test_as_used_unseen_actions_are_overestimated_and_seen_ones_left():
    """Seen actions within 0.06, 0.02 in the mean, of values up to 1.1."""
    error, losses = errors(usc, settings("usc-nr"), 8000)
    assert error[:, UNSEEN].mean() > 0.1
    assert error[:, UNSEEN].min() > 0.0
    assert error[:, UNSEEN].max() < 1.5
    assert np.abs(error[:, SEEN]).max() < 0.06
    assert -0.01 < error[:, SEEN].mean() < 0.02
    assert np.abs(losses[1000:]).max() < 0.1


@pytest.mark.slow
def test_as_printed_unseen_actions_become_cheaper_still():
    """The printed sign drives them far below zero, where no cost can be."""
    changes = {"near_policy": False, "conservative_weight": 5e-3, "actor_lr": 1e-12}
    error, _ = errors(paper, settings("csc", paper_defaults=True, **changes))
    assert error[:, UNSEEN].mean() < -5
    assert error[:, UNSEEN].max() < -2


def test_alternatives_come_from_the_box_or_the_policy(monkeypatch):
    monkeypatch.setattr(conservative, "ALTERNATIVES", 8)
    policy = np.full((500, 2), 0.9, np.float32)
    sample = jit(conservative.sample_actions, static_argnums=2)
    uniform, near = (np.asarray(sample(jax.random.key(0), policy, near)) for near in (False, True))
    assert uniform.shape == (500, 8, 2)
    assert abs(float(uniform.mean())) < 0.02
    assert abs(float(uniform.std()) - 3**-0.5) < 0.01
    assert float(near.max()) == 1.0
    assert abs(near[near < 1.0].mean() - 0.76) < 0.05


def plain_margins(q, q_others, form, epsilon):
    """The margin of each sample, from Q_C (B,) and the alternatives' (B, m), by a plain loop."""
    mu, sigma = np.mean(q), np.std(q) + epsilon
    z, z_others, found = (q - mu) / sigma, (q_others - mu) / sigma, []
    for own, others in zip(z, z_others, strict=True):
        if form == "printed":
            found.append(np.log(sum(np.exp(others))) - own)
        else:
            safer = max(0.0, np.log(np.mean(np.exp(-others))) + own)
            found.append(safer + max(0.0, np.log(np.mean(np.exp(others))) - max(z)))
    return np.array(found)


def plain_losses(q, q_others, y, weight, form, epsilon):
    margins = plain_margins(q, q_others, form, epsilon)
    return 0.5 * (q - y) ** 2 + 0.3 * 0.5 * weight * margins


B, M = 5, 3


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    q_others = rng.normal(size=(B, M)) + np.array([0, 3, -3, 0, 1])[:, None]
    return rng.normal(size=B), q_others, rng.random(B), rng.random(B)


@pytest.mark.parametrize("form", ["printed", "used"])
def test_eq_3(form, numbers):
    """The whole of Eq. 3, and its gradient by the alternatives by differences."""
    function = {"printed": paper.safety_loss_printed, "used": paper.safety_loss_used}[form]
    epsilon = {"printed": 1e-6, "used": 1e-2}[form]
    q, q_others, y, weight = numbers
    slope = jit(jax.value_and_grad(function, argnums=(0, 1)))
    value, (by_data, by_others) = slope(*numbers, 0.3)
    np.testing.assert_allclose(value, plain_losses(*numbers, form, epsilon).mean(), rtol=1e-5)
    for place in np.ndindex(B, M):
        moved = [q_others.copy(), q_others.copy()]
        moved[0][place] += 1e-5
        moved[1][place] -= 1e-5
        up, down = (plain_losses(q, x, y, weight, form, epsilon).mean() for x in moved)
        np.testing.assert_allclose(by_others[place], (up - down) / 2e-5, rtol=1e-3, atol=1e-5)
    # mu and sigma carry none; as used the data's own value is left where it is
    pushed = 0.3 * 0.5 * weight / (q.std() + epsilon) if form == "printed" else 0.0
    np.testing.assert_allclose(by_data, (q - y - pushed) / B, rtol=1e-4, atol=1e-6)


def test_the_loss_of_usc_is_that_of_the_paper_as_used(numbers):
    q, q_others, y, weight = numbers
    margin = jit(conservative.margin)(q[None], q_others[None])
    value, metrics = jit(conservative.loss)(q[None], y, weight, margin, 0.3)
    np.testing.assert_allclose(value, paper.safety_loss_used(*numbers, 0.3), rtol=1e-5)
    parts = metrics["safety/bellman_loss"] + metrics["safety/conservative_loss"]
    np.testing.assert_allclose(parts, value, rtol=1e-5)
    every_other = jit(conservative.margin, static_argnums=2)(q[None], q_others[None, ::2], 2)
    np.testing.assert_allclose(every_other, margin[:, ::2], rtol=1e-5)
