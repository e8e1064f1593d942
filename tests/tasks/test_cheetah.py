"""HalfCheetah against recordings of the original, and what it shares with FetchReach."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from golden_data import golden_files, load_golden
from safecritic.tasks.cheetah import SPEED_LIMIT, HalfCheetah
from safecritic.tasks.common import check_action, rng_from_array, rng_to_array
from safecritic.tasks.fetch import FetchReach

TASKS = [HalfCheetah, FetchReach]


@pytest.fixture(scope="module")
def recordings():
    return [load_golden(path) for path in golden_files("halfcheetah_*.npz")]


def actions_for(env, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *env.action_space.shape))


def run(env, actions):
    """Every number of these steps, with a reset where an episode ends."""
    numbers = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        numbers.append(np.concatenate([obs, [reward, info["cost"], terminated, truncated]]))
        if terminated or truncated:
            obs, _ = env.reset()
            numbers.append(np.concatenate([obs, np.zeros(4)]))
    return np.array(numbers)


# ------------------------------------------------------------------------ parity


def test_reset_with_the_recorded_seed_gives_the_recorded_start(recordings):
    env = HalfCheetah(variant="original")
    for golden in recordings:
        obs, info = env.reset(seed=int(golden["seed"]))
        np.testing.assert_allclose(obs, golden["obs"][0], rtol=0, atol=1e-15)
        assert info["x_position"] == golden["qpos"][0, 0]


def test_one_step_from_every_recorded_state(recordings):
    env = HalfCheetah(variant="original")
    assert float(recordings[0]["threshold"]) == SPEED_LIMIT
    errors, costs = [], 0
    for golden in recordings:
        for t, action in enumerate(golden["action"]):
            state = {"qpos": golden["qpos"][t], "qvel": golden["qvel"][t]}
            env.reset(options={"state": state})
            obs, reward, terminated, truncated, info = env.step(action)
            errors.append(np.abs(obs - golden["obs"][t + 1]).max())
            assert reward == pytest.approx(golden["reward"][t], abs=1e-6)
            assert info["x_velocity"] == pytest.approx(golden["x_velocity"][t], abs=1e-6)
            assert info["reward_forward"] == pytest.approx(golden["reward_run"][t], abs=1e-6)
            assert info["reward_ctrl"] == pytest.approx(golden["reward_ctrl"][t], abs=1e-6)
            if abs(info["x_velocity"] - SPEED_LIMIT) > 1e-5:
                assert info["cost"] == golden["cost"][t]
                costs += info["cost"]
            assert not terminated
            assert not truncated
    assert max(errors) < 1e-5
    assert np.median(errors) < 1e-12
    assert costs > 20


def test_open_loop_follows_the_recording(recordings):
    env = HalfCheetah(variant="original")
    for golden in recordings:
        env.reset(seed=int(golden["seed"]))
        steps = [env.step(action)[0] for action in golden["action"][:50]]
        errors = np.abs(np.array(steps) - golden["obs"][1:51]).max(axis=1)
        assert errors[:10].max() < 1e-9
        assert errors.max() < 1e-3


def test_original_is_gymnasiums_half_cheetah_to_the_bit():
    ours = HalfCheetah(variant="original")
    theirs = gymnasium.make("HalfCheetah-v5")
    for seed in (3, None):
        a, b = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        np.testing.assert_array_equal(a, b)
        for action in actions_for(ours, 200):
            a, reward, _, _, info = ours.step(action)
            b, their_reward, _, _, their_info = theirs.step(action)
            np.testing.assert_array_equal(a, b)
            assert reward == pytest.approx(their_reward, abs=1e-14)
            assert info["x_velocity"] == their_info["x_velocity"]


# ------------------------------------------------------------------------ reward and cost


@pytest.mark.parametrize(
    ("variant", "speed", "cost"),
    [
        ("benchmark", 4.0, 1.0),
        ("benchmark", -4.0, 1.0),
        ("benchmark", 0.0, 0.0),
        ("original", 4.0, 1.0),
        ("original", -4.0, 0.0),
    ],
)
def test_speed_costs(variant, speed, cost):
    env = HalfCheetah(variant=variant)
    qpos, qvel = np.zeros(9), np.zeros(9)
    # in the air, so that the floor does not slow it down
    qpos[1], qvel[0] = 1.0, speed
    env.reset(options={"state": {"qpos": qpos, "qvel": qvel}})
    *_, info = env.step(np.zeros(6))
    assert info["x_velocity"] == pytest.approx(speed, abs=0.2)
    assert info["cost"] == info["cost_velocity"] == cost


def test_benchmark_reward_is_the_distance_travelled():
    env = HalfCheetah()
    _, info = env.reset(seed=0)
    x, total = info["x_position"], 0.0
    for action in actions_for(env, 100):
        _, reward, _, _, info = env.step(action)
        assert reward == info["reward_forward"] + info["reward_ctrl"]
        assert reward == pytest.approx(info["x_velocity"] * 0.05, abs=1e-15)
        assert info["reward_ctrl"] == 0.0
        assert info["success"] is False
        total += reward
    assert total == pytest.approx(info["x_position"] - x, abs=1e-12)


def test_original_reward_takes_the_control_cost_off():
    env = HalfCheetah(variant="original")
    env.reset(seed=0)
    action = np.array([1.0, -0.5, 0.0, 0.25, 0.0, 1.0])
    _, reward, _, _, info = env.step(action)
    assert info["reward_ctrl"] == pytest.approx(-0.1 * (1 + 0.25 + 0.0625 + 1))
    assert reward == info["x_velocity"] + info["reward_ctrl"]


@pytest.mark.parametrize(("variant", "steps"), [("benchmark", 500), ("original", 1000)])
def test_cheetah_episode_length(variant, steps):
    env = HalfCheetah(variant=variant)
    env.reset(seed=0)
    ends = [env.step(np.zeros(6))[2:4] for _ in range(steps)]
    assert ends[:-1] == [(False, False)] * (steps - 1)
    assert ends[-1] == (False, True)
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        env.step(np.zeros(6))


def test_cheetah_state_comes_back():
    env = HalfCheetah()
    assert env.layout == {}
    qpos, qvel = np.linspace(0, 0.4, 9), np.linspace(-1, 1, 9)
    obs, _ = env.reset(options={"state": {"qpos": qpos, "qvel": qvel, "time": 2.5}})
    np.testing.assert_array_equal(env.state["qpos"], qpos)
    np.testing.assert_array_equal(env.state["qvel"], qvel)
    assert env.state["time"] == 2.5
    np.testing.assert_array_equal(obs, np.concatenate([qpos[1:], qvel]))
    env.step(np.zeros(6))
    assert env.state["time"] == pytest.approx(2.55)


# ------------------------------------------------------------------------ both tasks


@pytest.mark.parametrize("make", TASKS)
@pytest.mark.parametrize("variant", ["benchmark", "original"])
def test_gymnasium_checker_finds_nothing(make, variant, recwarn):
    check_env(make(variant=variant), skip_render_check=True)
    # the observation is unbounded on purpose
    expected = ("minimum value is -infinity", "maximum value is infinity")
    warnings = [str(w.message) for w in recwarn]
    assert [w for w in warnings if not any(text in w for text in expected)] == []


@pytest.mark.parametrize("make", TASKS)
def test_same_seed_same_trajectory_whatever_else_runs(make):
    alone = make(horizon=20)
    actions = actions_for(alone, 50)
    alone.reset(seed=5)
    expected = run(alone, actions)
    again, other = make(horizon=20), make(horizon=20)
    again.reset(seed=5)
    other.reset(seed=6)
    got = []
    for action in actions:
        got.append(run(again, [action]))
        run(other, [-action])
    np.testing.assert_array_equal(np.concatenate(got), expected)
    other.reset(seed=6)
    assert np.abs(run(other, actions[:1])[0] - expected[0]).max() > 1e-3


@pytest.mark.parametrize("make", TASKS)
def test_checkpoint_continues_to_the_bit_in_a_fresh_environment(make, tmp_path):
    env = make(horizon=30)
    actions = actions_for(env, 100)
    env.reset(seed=1)
    run(env, actions[:40])
    np.savez(tmp_path / "env.npz", **env.get_checkpoint())
    picture = env.draw()
    expected = run(env, actions[40:])
    fresh = make(horizon=30)
    with np.load(tmp_path / "env.npz", allow_pickle=False) as stored:
        fresh.set_checkpoint(dict(stored))
    np.testing.assert_array_equal(fresh.draw(), picture)
    np.testing.assert_array_equal(run(fresh, actions[40:]), expected)


@pytest.mark.parametrize("make", TASKS)
def test_checkpoint_of_an_ended_or_unused_environment(make):
    env = make(horizon=1)
    unused = env.get_checkpoint()
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))
    fresh = make(horizon=1)
    fresh.set_checkpoint(env.get_checkpoint())
    with pytest.raises(ResetNeeded, match="after the episode ended"):
        fresh.step(np.zeros(env.action_space.shape))
    np.testing.assert_array_equal(fresh.reset()[0], env.reset()[0])
    fresh.set_checkpoint(unused)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        fresh.step(np.zeros(env.action_space.shape))


@pytest.mark.parametrize("make", TASKS)
def test_a_wrong_checkpoint_is_refused_and_nothing_changes(make):
    env = make()
    env.reset(seed=0)
    good = env.get_checkpoint()
    with pytest.raises(ValueError, match="variant original"):
        make(variant="original").set_checkpoint(good)
    with pytest.raises(ValueError, match=r"lacks .*rng"):
        env.set_checkpoint({key: value for key, value in good.items() if key != "rng"})
    with pytest.raises(ValueError, match="another MuJoCo version"):
        env.set_checkpoint({**good, "physics": good["physics"][:-1]})
    with pytest.raises(ValueError, match="six uint64"):
        env.set_checkpoint({**good, "rng": np.zeros(6)})
    for key, value in env.get_checkpoint().items():
        np.testing.assert_array_equal(value, good[key])


@pytest.mark.parametrize("make", TASKS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: np.append(a, 0.0), r"shape \(\d,\), got shape \(\d,\)"),
        (lambda a: a[None], "vector environment"),
        (lambda a: 0.0, r"got shape \(\)"),
        (lambda a: a * np.nan, "finite"),
        (lambda a: np.append(a[1:], np.inf), "finite"),
        (lambda a: "left", "pass a float array"),
        (lambda a: None, "action must"),
    ],
)
def test_a_bad_action_is_refused_and_nothing_changes(make, change, message):
    env = make()
    env.reset(seed=0)
    before = env.get_checkpoint()
    with pytest.raises(ValueError, match=message):
        env.step(change(np.zeros(env.action_space.shape)))
    for key, value in env.get_checkpoint().items():
        np.testing.assert_array_equal(value, before[key])
    assert np.isfinite(env.step(np.zeros(env.action_space.shape))[0]).all()


@pytest.mark.parametrize("make", TASKS)
def test_step_before_reset(make):
    env = make()
    with pytest.raises(ResetNeeded, match="before the first reset"):
        env.step(np.zeros(env.action_space.shape))
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))


@pytest.mark.parametrize("make", TASKS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stat": {}}, "known keys: layout, state"),
        ({"state": {"position": 0}}, "known keys: qpos, qvel, time"),
        ({"layout": {"hazards": []}}, "unknown keys"),
        ({"state": [1, 2]}, "must be a dict"),
        ({"state": np.zeros(2)}, "must be a dict"),
        ({"state": {"qpos": np.zeros(3)}}, r"qpos must have shape \(\d+,\), got \(3,\)"),
        ({"state": {"time": np.inf}}, "time must be finite"),
        ({"state": {"time": "late"}}, "time must be numbers"),
    ],
)
def test_bad_reset_options_are_refused_and_the_episode_goes_on(make, options, message):
    env = make()
    env.reset(seed=0)
    before = env.get_checkpoint()
    with pytest.raises(ValueError, match=message):
        env.reset(seed=1, options=options)
    for key, value in env.get_checkpoint().items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.parametrize("make", TASKS)
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match=r"variant must be one of \['benchmark', 'original'\]"):
        make(variant="orginal")
    with pytest.raises(ValueError, match="render_mode"):
        make(render_mode="human")
    for horizon in (0, 2.5):
        with pytest.raises(ValueError, match="horizon"):
            make(horizon=horizon)


@pytest.mark.parametrize("make", TASKS)
def test_a_given_state_does_not_change_the_random_stream(make):
    a, b = make(), make()
    a.reset(seed=4)
    b.reset(seed=4, options={"state": {"qpos": a.state["qpos"] * 0}})
    np.testing.assert_array_equal(a.reset()[0], b.reset()[0])


@pytest.mark.parametrize("make", TASKS)
def test_a_diverged_simulation_ends_the_episode(make, tmp_path, monkeypatch):
    # MuJoCo writes its warning to a file in the working directory
    monkeypatch.chdir(tmp_path)
    env = make()
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


@pytest.mark.parametrize("make", TASKS)
@pytest.mark.parametrize("vector", [SyncVectorEnv, partial(AsyncVectorEnv, context="spawn")])
def test_vector_environments_give_the_single_ones(make, vector):
    single = [make(horizon=8) for _ in range(2)]
    actions = np.stack([actions_for(single[0], 12, seed) for seed in (0, 1)], axis=1)
    actions = actions.astype(np.float32)
    envs = vector([lambda: make(horizon=8)] * 2)
    try:
        obs, _ = envs.reset(seed=[10, 11])
        expected = [env.reset(seed=seed)[0] for env, seed in zip(single, (10, 11), strict=True)]
        np.testing.assert_array_equal(obs, expected)
        ended = [False, False]
        for batch in actions:
            obs, reward, terminated, truncated, info = envs.step(batch)
            for i, env in enumerate(single):
                if ended[i]:
                    np.testing.assert_array_equal(obs[i], env.reset()[0])
                    ended[i] = False
                    continue
                one = env.step(batch[i])
                np.testing.assert_array_equal(obs[i], one[0])
                assert (reward[i], terminated[i], truncated[i]) == one[1:4]
                assert info["cost"][i] == one[4]["cost"]
                ended[i] = one[2] or one[3]
    finally:
        envs.close()


@pytest.mark.parametrize("make", TASKS)
def test_changing_a_returned_observation_changes_nothing(make):
    env, twin = make(), make()
    obs, _ = env.reset(seed=2)
    twin.reset(seed=2)
    obs[:] = 7.0
    for action in actions_for(env, 3):
        ours, theirs = env.step(action), twin.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[4] == theirs[4]
        ours[0][:] = 7.0


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
    with pytest.raises(ValueError, match="PCG64"):
        rng_to_array(np.random.Generator(np.random.MT19937(0)))
