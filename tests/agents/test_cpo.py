"""CPO: advantages, its step on a real policy, its rollouts, and the run as a whole."""

import dataclasses
import os
import signal
from functools import cache, partial

import gymnasium
import jax
import numpy as np
import pytest

import helpers.agents
from helpers.quick import jit
from probes import KeptPoint, Point
from safecritic import CPO
from safecritic.agents import cpo, methods
from safecritic.core import scaling
from safecritic.core.interface import EnvSpec
from safecritic.core.trust_region import BOUNDARY, FEASIBLE, RECOVERY
from safecritic.run import checkpoint
from safecritic.run.callbacks import BaseCallback
from safecritic.run.failure import NotFiniteError
from safecritic.run.on_policy import OnPolicyTraining, numpy_policy
from safecritic.run.workers import Streams, WorkerError, Workers
from safecritic.tasks.checks import EnvError

SPEC = EnvSpec(obs_dim=3, action_dim=2)
SMALL = {"hidden": (16,), "rollout_steps": 400, "rollout_envs": 4, "value_epochs": 2}
SMALL |= {"batch_size": 40}
POINT = "probes:KeptPoint-v0"


init = jit(cpo.init, static_argnums=(1, 2))
outputs, divergence = jit(cpo.outputs), jit(cpo.divergence)
scaler_update_many = jit(scaling.scaler_update_many)


def config(**changes):
    return methods.make_config("cpo", None, **(SMALL | changes))


# ---------------------------------------------------------------- equations


def test_advantages_equal_a_plain_loop():
    rng = np.random.default_rng(0)
    shape = (3, 40)
    signal, value, then = (rng.normal(size=shape) for _ in range(3))
    terminated = rng.random(shape) < 0.1
    truncated = (rng.random(shape) < 0.1) & ~terminated
    found = jit(cpo.advantages)(signal, value, then, terminated, truncated, 0.9, 0.8)
    expected = np.zeros(shape)
    for e in range(3):
        ahead = 0.0
        for t in reversed(range(40)):
            bootstrap = 0.0 if terminated[e, t] else then[e, t]
            delta = signal[e, t] + 0.9 * bootstrap - value[e, t]
            ended = terminated[e, t] or truncated[e, t]
            ahead = delta + (0.0 if ended else 0.9 * 0.8 * ahead)
            expected[e, t] = ahead
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_density_and_divergence_are_the_gaussians():
    from scipy import stats

    rng = np.random.default_rng(1)
    log_density = jit(cpo.log_density)
    old, new = (rng.normal(size=(5, 4)) for _ in range(2))
    action = rng.normal(size=(5, 2))
    expected = stats.norm.logpdf(action, old[:, :2], np.exp(old[:, 2:])).sum(-1)
    constant = 2 * 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(np.asarray(log_density(old, action)) - constant, expected, rtol=1e-5)
    draws = old[:, None, :2] + np.exp(old)[:, None, 2:] * rng.normal(size=(5, 200_000, 2))
    here, there = (np.asarray(log_density(out[:, None], draws)) for out in (old, new))
    np.testing.assert_allclose(divergence(old, new), (here - there).mean(), rtol=0.02)


def test_scale_of_many_is_the_scale_of_one_after_another():
    rows = np.random.default_rng(2).normal(2.0, 3.0, size=(50, 3)).astype(np.float32)
    one = many = scaling.scaler_init(SPEC)
    update = jit(scaling.scaler_update)
    for row in rows:
        one = update(one, row)
    for part in (rows[:20], rows[20:]):
        many = scaler_update_many(many, part)
    np.testing.assert_allclose(many.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(many.var, rows.var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(many.var, one.var, rtol=1e-4)


# ---------------------------------------------------------------- the step of a real policy


@cache
def problem(seed=0, n=2_000):
    """Return actions of a policy; action 0 earns, the same action costs."""
    chosen = config(max_kl=0.01)
    state = init(jax.random.key(seed), SPEC, chosen)
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(n, 3)).astype(np.float32)
    out = np.asarray(outputs(state.policy, obs))
    action = out[:, :2] + np.exp(out[:, 2:]) * rng.normal(size=(n, 2)).astype(np.float32)
    return chosen, state, obs, action


@partial(jit, static_argnames="config")
def take_step(policy, obs, action, gain, cost_gain, over, config):
    return cpo.policy_step(policy, obs, action, gain, cost_gain, over, config)


@pytest.mark.parametrize(("over", "case"), [(-1.0, FEASIBLE), (-0.01, BOUNDARY), (1.0, RECOVERY)])
def test_policy_step(over, case):
    chosen, state, obs, action = problem()
    gain, cost_gain = action[:, 0], action[:, 0] + 0.5 * action[:, 1]
    policy, metrics = take_step(
        state.policy, obs, action, gain, cost_gain, np.float32(over), config=chosen
    )
    assert int(metrics["policy/case"]) == case
    assert float(metrics["policy/share"]) > 0
    old, new = (np.asarray(outputs(p, obs)) for p in (state.policy, policy))
    kl = divergence(old, new)
    np.testing.assert_allclose(kl, metrics["policy/kl"], rtol=1e-4)
    assert 0 < float(kl) <= chosen.max_kl
    before, after = (out[:, :2].mean(axis=0) for out in (old, new))
    reward = float(after[0] - before[0])
    cost = float(after[0] + 0.5 * after[1] - before[0] - 0.5 * before[1])
    if case == RECOVERY:
        assert cost < -0.03
    else:
        assert reward > 0.005
    if case == FEASIBLE:
        assert reward > 0.05
        assert cost > 0.05
    if case == BOUNDARY:
        assert float(metrics["policy/cost_gain"] - cost_gain.mean()) <= 0.01 + 1e-6
        assert cost < 0.02


def test_line_search_refuses_a_step_the_model_gets_wrong():
    """Costs that the gradient cannot see: the surrogate of any step is not finite."""
    chosen, state, obs, action = problem()
    cost_gain = np.full(len(obs), np.inf, np.float32)
    policy, metrics = take_step(
        state.policy, obs, action, action[:, 0], cost_gain, np.float32(-1.0), config=chosen
    )
    assert float(metrics["policy/share"]) == 0.0
    for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves(state.policy), strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- rollouts


@cache
def policy_of(chosen):
    return numpy_policy(init(jax.random.key(0), EnvSpec(2, 1), chosen))


LIDAR = EnvSpec(obs_dim=3, action_dim=2, proximity=(0, 2))


@pytest.mark.parametrize("spec", [SPEC, LIDAR], ids=["plain", "proximity declared"])
def test_workers_draw_what_the_agent_draws(spec):
    """The NumPy policy has the agent's means."""
    chosen = config()
    state = init(jax.random.key(3), spec, chosen)
    rows = np.random.default_rng(0).normal(0.5, 0.6, size=(30, 3)).astype(np.float32)
    state = state._replace(scaler=scaler_update_many(state.scaler, rows))
    still = dataclasses.replace(numpy_policy(state), std=np.zeros(2, np.float32))
    found = [still.draw(row, np.random.default_rng(0)) for row in rows]
    expected = jit(cpo.policy, static_argnums=2)(state, rows, chosen)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def same_rolls(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one[:9], other[:9], strict=True):
            np.testing.assert_array_equal(a, b)
        assert [x.at for x in one.episodes] == [x.at for x in other.episodes]
        assert one.open == other.open


@pytest.mark.slow
def test_processes_do_not_change_what_is_rolled():
    policy = policy_of(config())
    here = Streams([KeptPoint() for _ in range(3)], 5, range(3))
    there = Workers(POINT, 5, streams=3, processes=2, making={})
    try:
        first = here.roll(policy, 60, 0.9)
        same_rolls(first, there.roll(policy, 60, 0.9))
        assert first[0].obs[0, 0] != first[1].obs[0, 0]
        assert sum(len(one.episodes) for one in first) >= 3
        kept = there.states()
        second = there.roll(policy, 70, 0.9)
        same_rolls(here.roll(policy, 70, 0.9), second)
        there.restore(kept)
        same_rolls(there.roll(policy, 70, 0.9), second)
    finally:
        there.close()


@pytest.mark.slow
def test_a_killed_worker_is_reported():
    workers = Workers(POINT, 0, streams=2, processes=2, making={})
    os.kill(workers.processes[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="was killed"):
        workers.roll(policy_of(config()), 1_000, 0.9)
    assert workers.processes == []


def test_a_worker_that_cannot_make_the_environment_says_so():
    with pytest.raises(WorkerError, match="NoSuchThing"):
        Workers("probes:NoSuchThing-v0", 0, streams=2, processes=2, making={})


def test_what_is_not_finite_is_named():
    with pytest.raises(EnvError, match="reward of Point must be finite"):
        Streams([Point(bad_step=7)], 0, [0]).roll(policy_of(config()), 10, 0.9)


@pytest.mark.slow
def test_a_run_stopped_by_a_worker_is_saved_for_inspection(tmp_path):
    agent = CPO("probes:BadPoint-v0", seed=0, rollout_workers=2, **SMALL)
    with pytest.raises(NotFiniteError, match=r"reward was not finite.*its state is in"):
        agent.learn(2_000, out=tmp_path / "run")
    arrays, numbers = checkpoint.load(tmp_path / "run" / "failed")
    assert numbers["step"] == 400  # of the first rollout, in which no stream had 150 steps
    assert "device/agent/policy/log_std" in arrays


def test_no_bootstrap_over_a_reset():
    """What follows a step is the state it led to, not the first one of the next episode."""
    (rolled,) = Streams([KeptPoint()], 0, [0]).roll(policy_of(config()), 120, 0.9)
    ended = rolled.terminated | rolled.truncated
    assert ended.any()
    np.testing.assert_array_equal(rolled.next_obs[:-1][~ended[:-1]], rolled.obs[1:][~ended[:-1]])
    assert (np.abs(rolled.obs[1:][ended[:-1], 0]) <= 0.2).all()


# ---------------------------------------------------------------- the run


def agent_on(env=POINT, **changes):
    return CPO(env, seed=1, **(SMALL | {"rollout_workers": 1} | changes))


def assert_same(ours, theirs):
    helpers.agents.assert_same(ours.training.device.agent, theirs.training.device.agent)


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_a_run_is_repeatable_and_resumes_exactly(tmp_path):
    whole = agent_on().learn(1_600, out=tmp_path / "whole")
    assert whole.num_timesteps == 1_600
    assert_same(agent_on().learn(1_600), whole)
    part = agent_on().learn(800, out=tmp_path / "part")
    resumed = CPO.load(tmp_path / "part", trust_env=True)
    assert resumed.notes == []
    resumed.learn(800, out=tmp_path / "part")
    assert_same(resumed, whole)
    for table in ("episodes.csv",):
        assert (tmp_path / "part" / table).read_text() == (tmp_path / "whole" / table).read_text()
    part.learn(800)  # and going on in the same process is the same again
    assert_same(part, whole)
    obs = np.array([0.1, 0.0], np.float32)
    np.testing.assert_array_equal(part.predict(obs)[0], whole.predict(obs)[0])


def test_steps_are_rounded_up_to_whole_rollouts_and_callbacks_can_stop():
    agent = agent_on().learn(450)
    assert agent.num_timesteps == 800

    class Stop(BaseCallback):
        def _on_step(self):
            return False

    agent = agent_on().learn(4_000, callback=Stop())
    assert agent.num_timesteps == 400


def test_an_environment_object_is_stepped_alone():
    agent = agent_on(KeptPoint()).learn(400)
    assert agent.training.device.agent.step == 1
    assert agent.training.pool.streams[0].env is agent.env
    before = agent.training.pool.streams[0].env.x
    agent.evaluate(episodes=1)
    assert agent.training.pool.streams[0].env.x == before


def test_an_environment_registered_here_alone_is_stepped_here():
    gymnasium.register("OnlyHere-v0", KeptPoint)
    try:
        agent = agent_on("OnlyHere-v0", rollout_workers=2).learn(400)
        assert isinstance(agent.training.pool, Streams)
        assert len(agent.training.pool.streams) == 4
    finally:
        del gymnasium.registry["OnlyHere-v0"]


def test_no_episode_has_ended_yet():
    training = OnPolicyTraining(None, cpo, config(), EnvSpec(2, 1), 0, POINT)
    rolled = Streams([KeptPoint() for _ in range(2)], 0, range(2)).roll(
        policy_of(config()), 20, 0.9
    )
    cost, length = training._episode_means([one._replace(episodes=[]) for one in rolled])
    assert length == 20
    assert cost == pytest.approx(np.mean([one.cost.sum() for one in rolled]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_steps": 401}, "must be a multiple of rollout_envs"),
        ({"batch_size": 401}, "exceeds rollout_steps"),
        ({"gae_lambda": 1.5}, "gae_lambda must be between 0 and 1"),
        ({"max_kl": 0.0}, "max_kl must be > 0"),
        ({"cost_limit": -1.0}, "cost_limit must be >= 0"),
        ({"tau": 0.1}, "unknown setting 'tau' of cpo"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)
