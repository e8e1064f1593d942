"""What the tasks share: order of calls, checkpoints, bad input, divergence."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from helpers.rollouts import actions_for, rollout
from helpers.tasks import PAPER, VARIANTS, all_tasks
from safecritic.tasks import make
from safecritic.tasks.common import check_action, rng_from_array, rng_to_array

single_scene = pytest.mark.parametrize(  # no layout to place
    "name", ["FetchReach", "HalfCheetah", "SafetySwimmerVelocity-v1"]
)


def checkpoint_cases():
    """The paper's tasks in the original variant are for the slow round."""
    for name, variant in VARIANTS:
        slow = variant == "original" and name in PAPER
        yield pytest.param(name, variant, marks=[pytest.mark.slow] if slow else [])


def assert_same(env, before):
    """Assert that the environment's checkpoint equals an earlier one."""
    for key, value in env.get_checkpoint().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


# ---------------------------------------------------------------- order of calls


@all_tasks
def test_step_before_reset(name):
    env = make(name)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        env.step(np.zeros(env.action_space.shape))
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))


@all_tasks
def test_same_seed_same_trajectory_whatever_else_runs(name):
    alone = make(name, horizon=60)
    actions = actions_for(alone, 150)
    alone.reset(seed=5)
    expected = rollout(alone, actions)
    again, other = make(name, horizon=60), make(name, horizon=60)
    again.reset(seed=5)
    other.reset(seed=6)
    interleaved = []
    for action in actions:
        interleaved.append(rollout(again, [action]))
        rollout(other, [-action])
    np.testing.assert_array_equal(np.concatenate(interleaved), expected)
    other.reset(seed=6)
    assert np.abs(rollout(other, actions[:1])[0] - expected[0]).max() > 1e-3


@all_tasks
def test_changing_a_returned_observation_changes_nothing(name):
    env, twin = make(name), make(name)
    obs, _ = env.reset(seed=2)
    twin.reset(seed=2)
    obs[:] = 7.0
    for action in actions_for(env, 3):
        ours, theirs = env.step(action), twin.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[4] == theirs[4]
        ours[0][:] = 7.0


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("name", "variant"), [*checkpoint_cases()])
def test_checkpoint_continues_to_the_bit(name, variant, tmp_path):
    """In the same and in a fresh object, across ends of episodes, through a file."""
    env = make(name, variant=variant, horizon=120)
    first, later = np.split(actions_for(env, 180), [97])
    env.reset(seed=8)
    rollout(env, first)
    np.savez(tmp_path / "env.npz", **env.get_checkpoint())
    picture = env.draw()
    expected = rollout(env, later)
    fresh = make(name, variant=variant, horizon=120)
    with np.load(tmp_path / "env.npz", allow_pickle=False) as file:
        saved = dict(file)
    for again in (fresh, env):
        again.set_checkpoint(saved)
        np.testing.assert_array_equal(again.draw(), picture)
        np.testing.assert_array_equal(rollout(again, later), expected)


@single_scene
def test_checkpoint_of_an_ended_or_unused_environment(name):
    env = make(name, horizon=1)
    unused = env.get_checkpoint()
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))
    fresh = make(name, horizon=1)
    fresh.set_checkpoint(env.get_checkpoint())
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        fresh.step(np.zeros(env.action_space.shape))
    np.testing.assert_array_equal(fresh.reset()[0], env.reset()[0])
    fresh.set_checkpoint(unused)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        fresh.step(np.zeros(env.action_space.shape))


@all_tasks
def test_a_wrong_checkpoint_is_refused_and_nothing_changes(name):
    env = make(name)
    env.reset(seed=0)
    rollout(env, actions_for(env, 40))  # long enough for gremlins to park
    good = env.get_checkpoint()
    other = make(name, horizon=7)
    other.reset(seed=1)
    for wrong, message in [
        (other.get_checkpoint(), "checkpoint belongs to .*horizon 7"),
        ({key: value for key, value in good.items() if key != "rng"}, r"lacks .*rng"),
        (
            {**good, "physics": good["physics"][:-1]},
            "install the MuJoCo version it was written with",
        ),
        ({**good, "rng": np.array("{}")}, "rng must be the state of a PCG64 generator"),
    ]:
        with pytest.raises(ValueError, match=message):
            env.set_checkpoint(wrong)
        assert_same(env, good)


# ---------------------------------------------------------------- bad input


@all_tasks
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: np.append(a, 0.0), r"shape \(\d+,\), got shape \(\d+,\)"),
        (lambda a: a[None], "vector environment"),
        (lambda a: 0.0, r"got shape \(\)"),
        (lambda a: a * np.nan, "finite"),
        (lambda a: np.append(a[1:], np.inf), "finite"),
        (lambda a: "left", "action must be numbers .* pass one vector per step"),
        (lambda a: None, "action must"),
    ],
)
def test_a_bad_action_is_refused_and_nothing_changes(name, change, message):
    env = make(name)
    env.reset(seed=0)
    before = env.get_checkpoint()
    with pytest.raises(ValueError, match=message):
        env.step(change(np.zeros(env.action_space.shape)))
    assert_same(env, before)
    assert np.isfinite(env.step(np.zeros(env.action_space.shape))[0]).all()


@single_scene
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stat": {}}, "known keys: layout, state"),
        ({"state": {"position": 0}}, "known keys: qpos, qvel, time"),
        ({"layout": {"hazards": []}}, "unknown keys"),
        ({"state": [1, 2]}, "must be a dict"),
        ({"state": np.zeros(2)}, "must be a dict"),
        ({"state": {"qpos": np.zeros(3)}}, r"'qpos'\] must have shape \(\d+,\), got shape \(3,\)"),
        ({"state": {"time": np.inf}}, r"'time'\] must be finite"),
        ({"state": {"time": "late"}}, r"'time'\] must be numbers"),
    ],
)
def test_bad_reset_options_are_refused_and_the_episode_continues(name, options, message):
    env = make(name)
    env.reset(seed=0)
    before = env.get_checkpoint()
    with pytest.raises(ValueError, match=message):
        env.reset(seed=1, options=options)
    assert_same(env, before)


@all_tasks
def test_bad_settings_are_refused(name):
    with pytest.raises(ValueError, match=r"variant must be one of \[.*'original'\]"):
        make(name, variant="orginal")
    with pytest.raises(ValueError, match="render_mode"):
        make(name, render_mode="human")
    for horizon in (0, 2.5):
        with pytest.raises(ValueError, match="horizon"):
            make(name, horizon=horizon)


@single_scene
def test_a_given_state_does_not_change_the_random_stream(name):
    a, b = make(name), make(name)
    a.reset(seed=4)
    b.reset(seed=4, options={"state": {"qpos": a.state["qpos"] * 0}})
    np.testing.assert_array_equal(a.reset()[0], b.reset()[0])


@single_scene
def test_a_diverged_simulation_ends_the_episode(name, tmp_path, monkeypatch):
    # MuJoCo writes its warning to a file in the working directory
    monkeypatch.chdir(tmp_path)
    env = make(name)
    expected, _ = env.reset(seed=9)
    start = env.state
    start["qvel"] = np.full_like(start["qvel"], 1e8)
    last, _ = env.reset(options={"state": start})
    for _ in range(20):
        obs, reward, terminated, truncated, info = env.step(np.ones(env.action_space.shape))
        assert np.isfinite(obs).all()
        assert all(np.isfinite(float(value)) for value in info.values())
        if info["diverged"]:
            break
        last = obs
    assert info["diverged"] is True
    assert (terminated, truncated, reward, info["cost"]) == (False, True, 0.0, 0.0)
    np.testing.assert_array_equal(obs, last)
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        env.step(np.zeros(env.action_space.shape))
    np.testing.assert_array_equal(env.reset(seed=9)[0], expected)
    assert env.step(np.zeros(env.action_space.shape))[4]["diverged"] is False


# ---------------------------------------------------------------- functions


def test_check_action_takes_what_is_a_vector_of_numbers():
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    for action in ([1, -1], (1.0, -1.0), np.array([1, -1]), [1e200, 1e308]):
        np.testing.assert_array_equal(check_action(action, space), action)
        assert check_action(action, space).dtype == np.float64
    for action in (np.array([0.1, -1], np.float32), np.array([0.1, -1], np.float64)):
        assert check_action(action, space) is action
    # the sum is infinite, the numbers are not
    np.testing.assert_array_equal(check_action([1.5e308, 1.5e308], space), [1.5e308, 1.5e308])


def test_random_generator_survives_as_numbers():
    rng = np.random.default_rng(3)
    rng.integers(10, size=3, dtype=np.uint32)
    copy = rng_from_array(rng_to_array(rng))
    for draw in ("random", "standard_normal"):
        assert getattr(copy, draw)() == getattr(rng, draw)()
    assert copy.integers(1000, dtype=np.uint32) == rng.integers(1000, dtype=np.uint32)
    for broken in ("{}", "[", '{"bit_generator": "PCG64", "state": 1}'):
        with pytest.raises(ValueError, match="PCG64"):
            rng_from_array(np.array(broken))


def test_render_without_a_mode_says_what_is_needed():
    env = make("HalfCheetah")
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="rgb_array"):
        assert env.render() is None
