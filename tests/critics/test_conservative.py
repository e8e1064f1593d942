"""The conservative term on a case with known costs, and its sampled gradient.

A chain of four states, each action leads on to the next, the policy always takes -0.5. The cost of
an action is 0.1 s - 0.3 a below 0 and 0.1 s above; the data holds actions in [-1, 0] only. Within
the data the cost falls towards 0, so a critic left alone extrapolates it to be ever cheaper above.
"""

from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import helpers.agents
from helpers.quick import jit
from safecritic import networks, replay
from safecritic.agents import safety_critic
from safecritic.agents.cost_critic import critic_inputs
from safecritic.agents.interface import EnvSpec
from safecritic.critics import conservative
from safecritic.critics.conservative import Form
from safecritic.fast import estimators
from safecritic.fast.activations import forward_members

STATES, GAMMA, COST_MAX = 4, 0.9, 0.6
BOUND = COST_MAX / (1 - GAMMA)
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


SMALL = {
    "hidden": (64,),
    "gamma": GAMMA,
    "safety_tau": 0.02,
    "alternatives": 4,
    "safety_critics": 1,
    "sharpening": 1.0,
    "observation_scaling": "none",
}


def settings(name="usc-nr", **changes):
    return helpers.agents.settings(name, SMALL, **changes)


def start(config):
    state = safety_critic.init(jax.random.key(0), EnvSpec(STATES, 1, COST_MAX), config)
    zero = jax.tree.map(jnp.zeros_like, state.actor)
    constant = (*zero[:-1], {**zero[-1], "b": zero[-1]["b"] + jnp.arctanh(jnp.float32(-0.5))})
    return state._replace(actor=constant, target_actor=constant)


@partial(jax.jit, static_argnames=("config", "updates"))
def trained(config, updates):
    """Return Q_C on the grid after some updates of the safety critic alone, and their losses."""

    def update(state, step):
        batch = draw(jax.random.fold_in(jax.random.key(1), step))
        critic_obs = critic_inputs(state, batch.obs, config)
        learned, metrics = safety_critic.update_safety(state, batch, critic_obs, config)
        target = networks.update_target(state.target_safety, learned.safety, config.safety_tau)
        state = state._replace(
            safety=learned.safety,
            safety_opt=learned.safety_opt,
            curvature=learned.curvature,
            target_safety=target,
            key=learned.key,
        )
        return state, metrics["safety/loss"]

    state, losses = jax.lax.scan(update, start(config), jnp.arange(updates))
    obs = jnp.repeat(jnp.eye(STATES, dtype=jnp.float32), len(GRID), axis=0)
    action = jnp.tile(jnp.asarray(GRID, jnp.float32), STATES)[:, None]
    return safety_critic.values(state, obs, action, config)["q_cost"], losses


def errors(config, updates):
    """Return Q_C minus truth on the grid, (STATES, 9), and the losses."""
    q, losses = trained(config, updates)
    return np.asarray(q).reshape(TRUTH.shape) - TRUTH, np.asarray(losses)


def test_without_the_term_unseen_actions_look_too_cheap():
    error, _ = errors(settings("sc"), 4000)
    assert np.abs(error[:, SEEN]).max() < 0.03
    assert error[:, UNSEEN].mean() < -0.03
    assert error[:, UNSEEN].min() < -0.1


@pytest.mark.slow
def test_default_overestimates_unseen_actions_and_leaves_seen_ones():
    """Seen actions within 0.06, 0.02 in the mean, of values up to 1.1; every unseen one above."""
    error, losses = errors(settings(), 4000)
    assert error[:, UNSEEN].min() > 0.1
    assert error[:, UNSEEN].max() < 1.5
    assert np.abs(error[:, SEEN]).max() < 0.06
    assert -0.01 < error[:, SEEN].mean() < 0.02
    assert np.abs(losses[-1000:]).max() < 0.05


@pytest.mark.slow
def test_default_stays_bounded_for_100_000_updates():
    error, losses = errors(settings(), 100_000)
    assert error[:, UNSEEN].min() > 0.1
    assert error[:, UNSEEN].max() < 1.5
    assert np.abs(error[:, SEEN]).max() < 0.06
    assert np.abs(losses[1000:]).max() < 0.1


@pytest.mark.slow  # Eq. 3 in test_equations.py is quick
def test_printed_sign_makes_unseen_actions_cheaper_still():
    """The printed sign drives them far below zero, where no cost can be."""
    printed = {"conservative_form": "printed", "push_data": True, "safety_output": "linear"}
    error, _ = errors(settings("csc", alternatives_from="uniform", **printed), 4000)
    assert error[:, UNSEEN].max() < -10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "output", "low", "high"),
    [
        ("printed", "softplus", 0.0, 0.05),  # to nothing
        ("mirrored", "softplus", 100.0, np.inf),  # the largest possible value is 6
        ("flipped", "linear", 20.0, np.inf),
        ("hinge", "softplus", 2 * BOUND, np.inf),
        ("hinge", "bounded", 0.9 * BOUND, BOUND + 1e-5),
        ("band", "bounded", 0.5, 2.0),
    ],
)
def test_where_the_other_forms_take_the_costliest_unseen_action(form, output, low, high):
    config = settings(conservative_form=form, push_data=form != "band", safety_output=output)
    error, _ = errors(config, 10_000)
    highest = (error + TRUTH)[:, UNSEEN].max()
    assert low <= highest <= high


@pytest.mark.parametrize("form", get_args(Form))
def test_one_drawn_alternative_has_the_exact_gradient_in_expectation(form):
    rng = np.random.default_rng(0)
    z_data = rng.normal(size=3).astype(np.float32)
    z_alt = (rng.normal(size=(3, 4)) + np.array([[0], [4], [-2]])).astype(np.float32)
    top = z_data.max()
    exact = jit(jax.grad(lambda z: conservative.margin(z_data, z, form, top).sum()))(z_alt)
    assert np.abs(exact).max() > 0.1

    def sampled(uniform):
        drawn = estimators.draw_alternative(uniform, z_data, z_alt, form, top)

        def total(z):
            z_drawn = jnp.take_along_axis(z, drawn.place[:, None], axis=1)[:, 0]
            margin = estimators.sampled_margin(z_data, z_alt, z_drawn, drawn.slope, form, top)
            return margin.sum()

        return jax.grad(total)(z_alt)

    uniform = rng.random((40_000, 3)).astype(np.float32)
    draws = np.asarray(jit(jax.vmap(sampled))(uniform), np.float64)
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=0.02)


CAUTION = np.array([0.3, 0.0, 1.2, 0.4, 0.1, 0.7], np.float32)


@partial(jit, static_argnames="config")
def term_and_gradients(params, batch, keys, config):
    """Return the conservative term and its gradient (K, P) for each of K keys."""
    actions = conservative.sample_actions(jax.random.key(5), batch.action, 4, "uniform", 0.2)

    def gradient(key):
        drawn = safety_critic.sample_alternatives(key, key, batch.action, CAUTION, config)
        drawn = drawn._replace(actions=actions[drawn.states])

        def total(params):
            inputs = (params, batch.obs, batch.action, drawn, jnp.float32(BOUND), config)
            if config.conservative.conservative_gradient == "exact":
                _, margin = safety_critic.alternatives_margin(*inputs)
            else:
                passes = forward_members(params, batch.obs, batch.action)
                _, margin = estimators.alternatives_margin(*inputs, passes)
            return (drawn.caution * margin).mean()

        value, slope = jax.value_and_grad(total)(params)
        return value, jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slope)])

    return jax.vmap(gradient)(keys)


@pytest.mark.parametrize("share", [1.0, 0.5, pytest.param(0.25, marks=pytest.mark.slow)])
def test_sampled_and_exact_loss_agree_through_the_network(share):
    """Value and mean gradient by the parameters of two critics, within 5 standard errors.

    With a share the states are drawn too, by cautions of which one is 0.
    """
    changes = {"push_data": True, "safety_critics": 2, "hidden": (8,)}
    config = settings(conservative_share=share, **changes)
    exact = settings(conservative_gradient="exact", conservative_share=1.0, **changes)
    params = networks.init_members(jax.random.key(3), (STATES + 1, 8, 1), 2, final=2.0)
    batch = draw(jax.random.key(4), 6)
    keys = jax.random.split(jax.random.key(6), 30_000)
    (value, (expected,)), (values, sampled) = (
        (np.asarray(part, np.float64) for part in term_and_gradients(params, batch, of, config))
        for of, config in ((keys[:1], exact), (keys, config))
    )
    if share == 1.0:
        np.testing.assert_allclose(values, np.full_like(values, value), rtol=1e-4)
    for many, one in ((values[:, None], value), (sampled, expected)):
        error = many.std(axis=0) / np.sqrt(len(keys))
        rounding = 1e-4 * float(np.abs(one).max())  # of means in float32
        np.testing.assert_array_less(np.abs(many.mean(axis=0) - one), 5 * error + rounding)
    assert np.abs(expected).max() > 0.1


def test_states_are_drawn_by_their_caution():
    caution = jnp.array([0.0, 3.0, 1.0, 0.0, 2.0, 2.0], jnp.float32)
    draw_states = jit(jax.vmap(lambda u: estimators.draw_states(u, caution, 4)))
    marks = (np.arange(1000) + 0.5) / 1000
    places, weights = draw_states(marks.astype(np.float32))
    drawn = np.bincount(np.asarray(places).ravel(), minlength=6) / 1000
    np.testing.assert_allclose(drawn, np.asarray(caution) * 4 / 8, atol=2e-3)
    np.testing.assert_allclose(weights, 8 / 6, rtol=1e-6)  # the mean caution


def test_equal_cautions_draw_every_other_state_and_none_at_all_is_no_error():
    draw_states = jit(partial(estimators.draw_states, number=4))
    places, _ = draw_states(np.float32(0.3), np.ones(8, np.float32))
    np.testing.assert_array_equal(places, [0, 2, 4, 6])
    places, weights = jax.device_get(draw_states(np.float32(0.3), np.zeros(8, np.float32)))
    assert ((places >= 0) & (places < 8)).all()
    np.testing.assert_array_equal(weights, 0.0)


def test_alternatives_come_from_the_box_or_the_policy():
    policy = np.full((500, 2), 0.9, np.float32)

    @partial(jit, static_argnames="source")
    def sample(source):
        return conservative.sample_actions(jax.random.key(0), policy, 8, source, 0.1)

    uniform, near = np.asarray(sample("uniform")), np.asarray(sample("policy"))
    assert uniform.shape == (500, 8, 2)
    assert abs(float(uniform.mean())) < 0.02
    assert abs(float(uniform.std()) - 3**-0.5) < 0.01
    assert float(near.max()) == 1.0
    assert float(near.min()) > 0.4


def test_mu_and_sigma_carry_no_gradient():
    scale = jit(jax.jacobian(lambda q: jnp.stack(conservative.batch_scale(q, 0.01))))
    moved = scale(np.array([0.1, 0.4, 0.3]))
    np.testing.assert_array_equal(moved, 0.0)


def test_the_term_has_the_share_of_the_bellman_gradient_that_is_set():
    combine = jit(partial(conservative.combine, share=0.5))
    one, other = jnp.array([3.0, 4.0], jnp.float32), jnp.array([0.0, 2e-3], jnp.float32)
    total, norms, share = combine(one, other, jnp.zeros(2, jnp.float32))
    np.testing.assert_allclose(norms, [5.0, 2e-3], rtol=1e-6)
    np.testing.assert_allclose(total, [3.0, 4.0 + 2.5], rtol=1e-6)
    np.testing.assert_allclose(share, 0.5, rtol=1e-6)
    # a hundred times the usual gradient still has no more than the share
    _, _, share = combine(one, 100 * other, norms)
    np.testing.assert_allclose(share, 0.5, rtol=1e-6)
    # a tenth of the usual gradient has about a tenth of it
    _, _, share = combine(one, 0.1 * other, norms)
    np.testing.assert_allclose(share, 0.05, rtol=0.02)
    # none at all adds nothing, now and from the start
    for start in (norms, jnp.zeros(2, jnp.float32)):
        total, _, share = combine(one, 0.0 * other, start)
        np.testing.assert_array_equal(total, one)
        assert float(share) == 0.0


@pytest.mark.parametrize("gradient", ["sampled", "exact"])
def test_a_weight_in_gradients_does_not_depend_on_the_size_of_the_loss(gradient):
    """Two ways to the same step: a share of the gradient, and the weight in the loss it means."""
    changes = {"hidden": (8,), "conservative_gradient": gradient}
    by_share = settings(conservative_weight=0.3, conservative_weight_in="gradient", **changes)
    spec = EnvSpec(STATES, 1, cost_max=COST_MAX)
    state = safety_critic.init(jax.random.key(0), spec, by_share)
    batch = draw(jax.random.key(4), 64)

    @partial(jit, static_argnames="config")
    def step(state, config):
        obs = critic_inputs(state, batch.obs, config)
        return safety_critic.update_safety(state, batch, obs, config)

    new, metrics = step(state, by_share)
    np.testing.assert_allclose(metrics["safety/conservative_share"], 0.3, rtol=1e-5)
    weight = 0.3 * float(new.norms[0] / new.norms[1])
    plain = settings(conservative_weight=weight, **changes)
    same, _ = step(state._replace(norms=None), plain)
    for a, b in zip(jax.tree.leaves(new.safety), jax.tree.leaves(same.safety), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
