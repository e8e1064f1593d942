"""The multipliers, against plain NumPy loops: the relative rule and the PID controller."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.agents import settings
from helpers.quick import jit
from safecritic.agents import methods, pid_lag
from safecritic.core import multiplier
from safecritic.core.interface import EnvSpec
from safecritic.core.multiplier import (
    LEAST,
    Gains,
    constraint_init,
    constraint_update,
    is_noise_free,
    multiplier_step,
    pid_init,
    pid_step,
    relative_excess,
)

LIMIT = 1.5
COSTS = np.random.default_rng(0).exponential(2.0, size=60)


@partial(jit, static_argnames=("start", "delay"))
def scan(costs, gains, start, delay):
    def step(pid, cost):
        lam, pid = pid_step(pid, cost, LIMIT, gains, 1.0)
        return pid, lam

    return jax.lax.scan(step, pid_init(start, delay), costs)


def run(costs, gains, start=0.0, delay=10):
    pid, found = scan(np.asarray(costs, np.float32), gains, start, delay)
    return np.asarray(found), pid


def only(p=0.0, i=0.0, d=0.0, p_smoothing=0.0, d_smoothing=0.0, integral_max=100.0):
    return Gains(p, i, d, p_smoothing, d_smoothing, integral_max)


def test_pid_with_only_the_integral_is_the_gradient_dual():
    found, _ = run(COSTS, only(i=0.2), start=0.3)
    lam, expected = 0.3, []
    for cost in COSTS:
        lam = max(0.0, lam + 0.2 * (cost - LIMIT))  # Eq. 7
        expected.append(float(lam))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert min(expected) == 0.0  # the clamp at 0 is part of what is compared
    assert max(expected) > 0.3


@pytest.mark.parametrize("delay", [1, 4])
def test_pid_equals_a_plain_loop(delay):
    """Algorithm 2 of Stooke et al. with its authors' smoothing, written out."""
    gains = Gains(p=0.3, i=0.02, d=0.5, p_smoothing=0.9, d_smoothing=0.8, integral_max=0.4)
    found, _ = run(COSTS, gains, start=0.1, delay=delay)
    integral, smooth, cost_smooth, history, expected = 0.1, None, None, [], []
    for cost in COSTS:
        delta = cost - LIMIT
        integral = min(max(integral + 0.02 * delta, 0.0), 0.4)
        smooth = delta if smooth is None else 0.9 * smooth + 0.1 * delta
        cost_smooth = cost if cost_smooth is None else 0.8 * cost_smooth + 0.2 * cost
        history.append(cost_smooth)
        before = history[max(len(history) - 1 - delay, 0)]
        rise = max(0.0, cost_smooth - before)
        expected.append(max(0.0, 0.3 * smooth + integral + 0.5 * rise))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_multiplier_is_never_negative_and_the_integral_is_clamped():
    found, pid = run(np.zeros(50), only(p=1.0, i=0.1, d=1.0), start=1.0)
    assert (found >= 0).all()
    assert float(pid.integral) == 0.0
    # an integral without its clamp at 0 would have to climb back from -7.5
    again, _ = jit(pid_step)(pid, np.float32(LIMIT + 1.0), LIMIT, only(i=0.1), 1.0)
    np.testing.assert_allclose(again, 0.1, rtol=1e-6)
    found, pid = run(np.full(50, 10.0), only(i=1.0, integral_max=2.0))
    assert found[-1] == 2.0


def test_derivative_acts_on_rising_cost_alone():
    rising, _ = run(np.arange(10.0), only(d=0.5), delay=1)
    np.testing.assert_allclose(rising[1:], 0.5, rtol=1e-6)
    falling, _ = run(np.arange(10.0)[::-1], only(d=0.5), delay=1)
    np.testing.assert_array_equal(falling, 0.0)


# The relative rule


@pytest.fixture(autouse=True)
def plain_rule(monkeypatch):
    """Aim at the limit itself, without the gain, unless a test says otherwise."""
    monkeypatch.setattr(multiplier, "GAIN", 0.0)
    monkeypatch.setattr(multiplier, "AIM", 1.0)


def moved(costs, lengths, lam=0.5, limit=LIMIT, **changes):
    """The multiplier after episodes of these costs and lengths, one number for each."""
    part = {"start": lam, "lr": 1e-4, "largest": 100.0, "noise_free_every": 0} | changes
    config = settings("rcpo", cost_limit=limit, multiplier=part)
    step = jit(partial(multiplier_step, config=config))
    lam, past, along = jnp.float32(lam), constraint_init(), []
    for cost, length in zip(costs, lengths, strict=True):
        lam, past = step(lam, past, jnp.float32(cost), jnp.float32(length))
        along.append(float(lam))
    return along


def test_relative_rule_equals_a_plain_loop(monkeypatch):
    monkeypatch.setattr(multiplier, "GAIN", 0.3)
    monkeypatch.setattr(multiplier, "AIM", 0.8)
    lengths = np.random.default_rng(1).integers(1, 700, size=60)
    along = moved(COSTS, lengths, lr=2e-3, largest=0.7)
    integral, weights, expected, aim = 0.0, [], [], 0.8 * LIMIT
    for number, length in enumerate(lengths):
        kept = max(np.exp(-length / multiplier.MEMORY), multiplier.LEAST_KEPT)
        weights = [weight * kept for weight in weights] + [1.0]
        average = np.average(COSTS[: number + 1], weights=weights)
        excess = min(max((average - aim) / aim, -1.0), 1.0)
        integral = integral + 2e-3 * length * excess
        integral = min(max(integral, np.log(LEAST / 0.5)), np.log(0.7 / 0.5))
        expected.append(min(max(0.5 * np.exp(integral + 0.3 * excess), LEAST), 0.7))
    np.testing.assert_allclose(along, expected, rtol=1e-4)
    assert max(expected) == 0.7  # the bound is part of what is compared
    assert min(along) < 0.7


def test_the_gain_presses_and_lets_go_at_once(monkeypatch):
    """Where costs fall from far above the limit to 0, the multiplier falls with them."""
    costs = [10 * LIMIT] * 10 + [0.0] * 120
    slow = moved(costs, [200] * 130)
    monkeypatch.setattr(multiplier, "GAIN", 1.0)
    quick = moved(costs, [200] * 130)
    np.testing.assert_allclose(quick[9] / slow[9], np.exp(1.0), rtol=1e-4)
    np.testing.assert_allclose(quick[-1] / slow[-1], np.exp(-1.0), rtol=1e-3)


@pytest.mark.parametrize("cost", [0.4, 2.0, 50.0])
def test_it_moves_by_decisions_and_not_by_episodes(cost):
    """One episode of 1,000 decisions moves it as far as ten of 100 that cost as much each."""
    one, ten = moved([cost], [1_000]), moved([cost] * 10, [100] * 10)
    np.testing.assert_allclose(one[-1], ten[-1], rtol=1e-5)
    assert (one[-1] > 0.5) == (cost > LIMIT)


def test_it_moves_towards_the_limit_within_its_bounds():
    assert moved([LIMIT], [1_000]) == [0.5]
    twice, most = moved([2 * LIMIT], [100]), moved([100 * LIMIT], [100])
    assert twice == most  # no episode counts for more than the limit once over
    np.testing.assert_allclose(most[0], 0.5 * np.exp(1e-4 * 100), rtol=1e-6)
    np.testing.assert_allclose(moved([1e-6], [100])[0], 0.5 * np.exp(-1e-4 * 100), rtol=1e-5)
    assert moved([0.0], [100]) == [0.5]  # nothing to let go of before the first cost
    assert moved([100.0], [10**7], largest=3.0) == [3.0]
    low = moved([1e-6, 1e4], [10**7, 10**4])
    np.testing.assert_allclose(low[0], LEAST, rtol=1e-6)
    np.testing.assert_allclose(low[1], LEAST * np.exp(1.0), rtol=1e-5)  # and comes back from there


def test_a_limit_of_0_is_a_hundredth_of_what_an_episode_costs():
    """The excess is relative to E[C^2] / E[C], so the unit of cost makes no difference."""
    past = constraint_init()
    assert float(relative_excess(past, 0.0)) == 0.0
    past = constraint_update(past, jnp.float32(0.0), 0.0)
    assert float(relative_excess(past, 0.0)) == 0.0
    costs = [4.0, 0.0, 8.0, *[0.0] * 9]
    for cost in costs:
        past = constraint_update(past, jnp.float32(cost), 0.5)
    average = np.average([0.0, *costs], weights=0.5 ** np.arange(len(costs), -1.0, -1.0))
    typical = (16 + 64) / (4 + 8)
    expected = average / (0.01 * typical)
    assert 0 < expected < 1
    np.testing.assert_allclose(relative_excess(past, 0.0), expected, rtol=1e-6)
    free = moved([0.0] * 5, [100] * 5, limit=0.0)
    assert free == [0.5] * 5
    few = moved(costs, [50] * 12, limit=0.0)
    assert all(lam > 0.5 for lam in few)
    assert few == moved(np.array(costs) / 1024, [50] * 12, limit=0.0)
    assert few != moved(np.array(costs) / 1024, [50] * 12)


def test_a_tighter_limit_never_presses_less():
    """Of what a task that is learned costs: 0 was once the laxest limit of all."""
    costs = [20.0, 12.0, *[3.0, 0.0, 1.0, 2.0] * 5]
    last = [moved(costs, [50] * len(costs), limit=x)[-1] for x in (0.0, 0.25, 0.5, 1.0, 5.0)]
    assert last == sorted(last, reverse=True)
    assert last[0] > last[-1]


def test_average_cost_weighs_older_episodes_less():
    past, costs = constraint_init(), [8.0, 0.0, 1.0, 3.0]
    for number, cost in enumerate(costs, start=1):
        past = constraint_update(past, jnp.float32(cost), 0.9)
        weights = 0.9 ** np.arange(number - 1, -1, -1.0)
        np.testing.assert_allclose(past.cost, np.average(costs[:number], weights=weights), 1e-6)
    np.testing.assert_allclose(past.weight, weights.sum(), rtol=1e-6)


def test_pid_of_the_agent():
    """Costs count in limits, cut at two of them, and the integral grows by decisions."""
    part = {"ki": 1e-2, "kp": 0.1, "kd": 0.0, "noise_free_every": 0}
    config = settings("pid-lag", cost_limit=LIMIT, multiplier=part)
    state = pid_lag.init(jax.random.key(0), EnvSpec(3, 1), config)
    integral, smooth = config.multiplier.start, None
    for cost, length in ((4.0, 30), (100.0, 20), (0.0, 50)):
        state, _ = pid_lag.end_episode(state, jnp.float32(cost), jnp.float32(length), config)
        excess = min(cost / LIMIT, 2.0) - 1.0
        integral = min(max(integral + 1e-2 * length * excess, 0.0), pid_lag.INTEGRAL_MAX)
        smooth = excess if smooth is None else 0.95 * smooth + 0.05 * excess
        expected = max(0.0, 0.1 * smooth + integral)
        np.testing.assert_allclose(state.multiplier, expected, rtol=1e-4)


# Episodes without noise


def test_near_the_limit_every_third_episode_has_no_noise_and_counts_for_three():
    """Episodes with noise in between do not move it; far from the limit every one does."""

    def turn(past, number, every=3):
        return bool(is_noise_free(past._replace(episodes=jnp.float32(number)), LIMIT, every))

    past = constraint_init()
    assert not turn(past, 2)  # no cost is known yet
    past = constraint_update(past, jnp.float32(2 * LIMIT), 0.0)
    assert [turn(past, n) for n in range(6)] == [False, False, True, False, False, True]
    assert not turn(constraint_update(past, jnp.float32(10 * LIMIT), 0.0), 2)
    assert not turn(past, 2, every=0)

    config = settings("rcpo", cost_limit=LIMIT, multiplier={"noise_free_every": 3})
    step = jit(multiplier_step, static_argnames="config")
    lam = jnp.float32(0.5)
    fresh = start = past._replace(integral=jnp.log(lam / config.multiplier.start))
    for number, cost in enumerate((9.0, 9.0, 0.0)):
        noisy, after = step(lam, start, jnp.float32(cost), jnp.float32(100), config=config)
        assert float(after.episodes) == number + 1
        assert (float(noisy) == float(lam)) == (number < 2)
        if number < 2:
            assert float(after.cost) == float(start.cost)
        start = after
    alone = settings("rcpo", cost_limit=LIMIT, multiplier={"noise_free_every": 0})
    thrice, _ = step(lam, fresh, jnp.float32(0.0), jnp.float32(300), config=alone)
    np.testing.assert_allclose(noisy, thrice, rtol=1e-6)


@pytest.mark.parametrize("method", ["rcpo", "pid-lag", "usc"])
def test_an_episode_without_noise_has_none(method):
    config = settings(method, cost_limit=LIMIT, **{"multiplier.noise_free_every": 2})
    agent = methods.get(method).load_agent()
    state = jit(agent.init, static_argnums=(1, 2))(jax.random.key(0), EnvSpec(3, 1), config)
    state = state._replace(actor=state.target_actor)
    past = constraint_update(state.past, jnp.float32(LIMIT), 0.0)
    act = jit(agent.act, static_argnames=("config", "explore"))
    obs, spent = jnp.ones(3), jnp.float32(0.0)
    loud, quiet = (state._replace(past=past._replace(episodes=jnp.float32(n))) for n in (0, 1))
    plain = act(state, obs, spent, config=config, explore=False)[0]
    np.testing.assert_allclose(act(quiet, obs, spent, config=config, explore=True)[0], plain)
    assert not np.allclose(act(loud, obs, spent, config=config, explore=True)[0], plain)
