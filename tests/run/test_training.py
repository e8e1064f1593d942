"""The loop: what is learned from, what is logged, what stops it, and exact resuming."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import SMALL, KeptPoint, Point
from safecritic import methods
from safecritic.evaluation.critic_quality import episode_critic_quality
from safecritic.networks import EnvSpec
from safecritic.run import checkpoint
from safecritic.run.callbacks import BaseCallback
from safecritic.run.compiled import pack, unpack
from safecritic.run.episode import Episode, episode_row
from safecritic.run.folder import RunFolder, read_table
from safecritic.run.loop import Intervals, NotFiniteError
from safecritic.run.off_policy import Training
from safecritic.tasks import TASKS, make

SPEC = EnvSpec(obs_dim=2, action_dim=1, cost_max=0.5)
EVERY = Intervals(log_every=50, figures_every=100, checkpoint_every=10_000)


class FakeState(NamedTuple):
    key: jax.Array
    noise: jax.Array
    seen: jax.Array
    updates: jax.Array
    multiplier: jax.Array


class Fake:
    """An agent whose every number is known: it acts 0.5 and its one loss is the update's number."""

    def __init__(self, bad_update: int = 0, bad_action: int = 0):
        self.bad_update, self.bad_action = bad_update, bad_action

    def init(self, key: Any, spec: Any, config: Any) -> FakeState:
        self.action_dim = spec.action_dim
        # separate buffers: a donated call may not be given one of them twice
        return FakeState(key, *(jnp.full((), x, jnp.float32) for x in (0, 0, 0, 1)))

    def act(self, state: FakeState, obs: Any, config: Any, explore: bool) -> Any:
        bad = (state.updates == self.bad_action) & (self.bad_action > 0)
        action = jnp.where(bad, jnp.nan, jnp.full(self.action_dim, 0.5, jnp.float32))
        small = {"key": state.key, "noise": state.noise + 1}
        return action, small, {"q_cost": obs[0], "screened": 1.0, "changed": 0.0}

    def observe(self, state: FakeState, obs: Any) -> FakeState:
        return state._replace(seen=state.seen + 1)

    def update(self, state: FakeState, batch: Any, config: Any) -> Any:
        updates = state.updates + 1
        bad = (updates == self.bad_update) & (self.bad_update > 0)
        loss = jnp.where(bad, jnp.inf, updates)
        return state._replace(updates=updates), {"b/loss": loss, "a/one": jnp.ones(())}

    def end_episode(self, state: FakeState, episode_cost: Any, config: Any) -> Any:
        return state._replace(multiplier=state.multiplier + episode_cost), {}

    def values(self, state: FakeState, obs: Any, action: Any, config: Any) -> Any:
        return {}


CONFIG = methods.make_config("ddpg", None, **SMALL)


def fake(env: Any = None, **bad: int) -> Training:
    agent = Fake(**bad)
    return Training(env or KeptPoint(), agent, CONFIG, SPEC, 0, episode_critic_quality)


def real(name: str, env: Any = None, seed: int = 0) -> Training:
    tiny = {"refine_top": 4, "refine_block": 32, "safety_n_step": 3, "safety_critics": 1}
    config = methods.make_config(name, None, **SMALL, **(tiny if name == "usc" else {}))
    return Training(env or KeptPoint(), methods.get(name).agent, config, SPEC, seed)


# ---------------------------------------------------------------- what is learned from


def test_a_transition_goes_to_the_device_as_it_is() -> None:
    row = pack([1.0, 2.0], [0.5], 3.0, 0.25, [4.0, 5.0], (True, False))
    transition = unpack(jnp.asarray(row), SPEC)
    assert transition.obs.tolist() == [1.0, 2.0]
    assert transition.action.tolist() == [0.5]
    assert (float(transition.reward), float(transition.cost)) == (3.0, 0.25)
    assert transition.next_obs.tolist() == [4.0, 5.0]
    assert (bool(transition.terminated), bool(transition.truncated)) == (True, False)


class Recorded(KeptPoint):
    """Keeps what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = []

    def reset(self, **settings: Any) -> Any:
        self.at, info = super().reset(**settings)
        return self.at, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self.rows.append((self.at, action, reward, info["cost"], obs, terminated, truncated))
        self.at = obs
        return obs, reward, terminated, truncated, info


def test_every_transition_is_learned_from_once_and_one_step_late() -> None:
    env = Recorded()
    training = fake(env)
    training.run(200, BaseCallback())
    replay = training.device.replay
    assert int(replay.size) == 199
    assert float(training.device.agent.updates) == 200 - SMALL["learning_starts"]
    assert float(training.device.agent.seen) == 199
    for at, name in enumerate(replay._fields[:7]):
        expected = np.array([row[at] for row in env.rows[:199]], np.float32)
        got = np.asarray(getattr(replay, name)[:199], np.float32)
        np.testing.assert_array_equal(got, expected.reshape(got.shape), err_msg=name)
    assert {tuple(row[5:]) for row in env.rows} == {(False, False), (True, False), (False, True)}


def test_warm_up_acts_at_random_then_the_agent_acts() -> None:
    env = Recorded()
    fake(env).run(100, BaseCallback())
    actions = np.array([row[1][0] for row in env.rows])
    expected = np.random.default_rng(0).uniform(-1, 1, 60).astype(np.float32)
    np.testing.assert_array_equal(actions[:60], expected)
    assert set(actions[60:].tolist()) == {0.5}


def test_each_function_compiles_once_over_several_runs() -> None:
    training = real("ddpg")
    training.run(150, BaseCallback())
    again = real("ddpg")
    again.restore(*training.state())
    again.run(250, BaseCallback())
    assert again.compiled is training.compiled
    compiled = training.compiled
    assert [compiled.learn._cache_size(), compiled.act._cache_size()] == [1, 1]
    assert [compiled.store._cache_size(), compiled.end_episode._cache_size()] == [1, 1]


# ---------------------------------------------------------------- what is logged


class Log(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []
        self.metrics: list[dict[str, float]] = []

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def _on_log(self, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)


def test_metrics_are_means_over_the_interval_and_none_before_learning() -> None:
    log = Log()
    training = fake()
    training.run(200, log, every=EVERY)
    # 60 warm-up steps; the update of step 61 is number 1: 40 updates by step 100, then 50 each
    assert [m["b/loss"] for m in log.metrics] == [20.5, 65.5, 115.5]
    assert [m["a/one"] for m in log.metrics] == [1.0, 1.0, 1.0]
    assert ["figures/auc" in m for m in log.metrics] == [True, False, True]


def test_an_episode_row_by_hand() -> None:
    steps = [
        # reward, cost, success, hazard, q_cost, screened, changed
        (1.0, 0.0, 0.0, 0.9, np.nan, np.nan, np.nan),
        (2.0, 0.5, 0.0, 0.1, 0.3, 1.0, 0.0),
        (3.0, 1.0, 1.0, 0.5, 0.5, 0.0, 0.0),
    ]
    row = episode_row(Episode(list(steps), terminated=True), 0.5, Point())
    assert row == {
        "length": 3,
        "reward": 6.0,
        "cost": 1.5,
        "contacts": 3.0,
        "discounted_cost": 0.5 * 0.5 + 0.25 * 1.0,
        "success": 1.0,
        "hazard_distance_mean": 0.5,
        "hazard_distance_min": 0.1,
        "q_cost": 0.4,
        "screened": 0.5,
        "screen_changed": 0.0,
        "terminated": 1.0,
    }


def test_the_multiplier_of_a_row_is_the_one_after_its_episode() -> None:
    log = Log()
    fake().run(300, log)
    costs = np.cumsum([row["cost"] for row in log.rows])
    np.testing.assert_allclose([row["multiplier"] for row in log.rows], 1 + costs)
    assert [row["episode"] for row in log.rows] == list(range(1, len(log.rows) + 1))
    assert costs[-1] > 0


# ---------------------------------------------------------------- what stops it


def test_a_bad_loss_stops_the_run_and_names_it(tmp_path: Path) -> None:
    training = fake(bad_update=25)
    folder = RunFolder(tmp_path, training.compiled.metrics)
    with pytest.raises(NotFiniteError) as caught:
        training.run(200, BaseCallback(), folder, EVERY)
    # update 25 takes in the transition of step 60 + 24, and is noticed at the next log
    assert (caught.value.quantity, caught.value.step) == ("b/loss", 84)
    assert training.step == 100
    assert str(tmp_path / "failed") in str(caught.value)
    assert checkpoint.load(tmp_path / "failed")[1]["step"] == 100
    assert not checkpoint.exists(tmp_path / "checkpoint")


def test_a_bad_loss_never_enters_a_checkpoint(tmp_path: Path) -> None:
    training = fake(bad_update=25)
    folder = RunFolder(tmp_path, training.compiled.metrics)
    with pytest.raises(NotFiniteError):
        training.run(120, BaseCallback(), folder, Intervals(500, 500, checkpoint_every=80))
    assert checkpoint.load(tmp_path / "checkpoint")[1]["step"] == 80


def test_a_bad_action_stops_the_run_before_the_environment_sees_it() -> None:
    env = Recorded()
    with pytest.raises(NotFiniteError, match="action was not finite at step 70"):
        # the action of step 70 is chosen on the parameters after 9 updates
        fake(env, bad_action=9).run(200, BaseCallback())
    assert len(env.rows) == 69


def test_a_bad_reward_stops_the_run() -> None:
    with pytest.raises(NotFiniteError, match="reward was not finite at step 33"):
        fake(Point(bad_step=33)).run(200, BaseCallback())


def test_intervals_are_checked() -> None:
    with pytest.raises(ValueError, match=r"log_every must be >= 1, got 0 \(--log-every\)"):
        Intervals(log_every=0)
    with pytest.raises(ValueError, match="figures_every must be a multiple of log_every 1000"):
        Intervals(figures_every=1500)


# ---------------------------------------------------------------- resuming


def same(one: Training, other: Training) -> None:
    (a, m), (b, n) = one.state(), other.state()
    assert m == n
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].tobytes() == b[name].tobytes(), name


def table(path: Path) -> dict[str, list[str]]:
    """The cells of updates.csv as written, without the clock's."""
    header, *lines = [line.split(",") for line in path.read_text().splitlines()]
    columns = dict(zip(header, zip(*lines, strict=True), strict=True))
    columns.pop("time/steps_per_second")
    return {name: list(cells) for name, cells in columns.items()}


@pytest.mark.parametrize(("name", "stop"), [("ddpg", 37), ("ddpg", 233), ("usc", 233)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, name: str, stop: int) -> None:
    whole = real(name)
    folder = RunFolder(tmp_path / "whole", whole.compiled.metrics)
    whole.run(450, BaseCallback(), folder, EVERY)

    first = real(name)
    folder = RunFolder(tmp_path / "parts", first.compiled.metrics)
    first.run(stop, BaseCallback(), folder, EVERY)
    first.run(stop + 61, BaseCallback(), None, EVERY)  # lost: it was not saved
    folder.write_episode(dict.fromkeys(first.window[-1], 1.0) if first.window else _row())
    folder.close()

    second = real(name)
    arrays, numbers = checkpoint.load(tmp_path / "parts" / "checkpoint")
    assert second.restore(arrays, numbers) == []
    folder = RunFolder(tmp_path / "parts", second.compiled.metrics)
    folder.cut_back(numbers["tables"])
    second.run(450, BaseCallback(), folder, EVERY)

    same(whole, second)
    episodes = [(tmp_path / part / "episodes.csv").read_text() for part in ("whole", "parts")]
    assert episodes[0] == episodes[1]
    assert len(episodes[0].splitlines()) > 9
    updates = [table(tmp_path / part / "updates.csv") for part in ("whole", "parts")]
    assert updates[0] == updates[1]
    assert updates[0]["step"] == ["100", "150", "200", "250", "300", "350", "400", "450"]


def _row() -> dict[str, float]:
    from safecritic.run.folder import EPISODE_COLUMNS

    return dict.fromkeys(EPISODE_COLUMNS, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_ours_resumes_exactly(task: str) -> None:
    def new() -> Training:
        env = make(task)
        (obs_dim,), (action_dim,) = env.observation_space.shape, env.action_space.shape
        return Training(env, Fake(), CONFIG, EnvSpec(obs_dim, action_dim), seed=0)

    whole, first, second = new(), new(), new()
    whole.run(1090, BaseCallback())
    first.run(77, BaseCallback())
    assert second.restore(*first.state()) == []
    second.run(1090, BaseCallback())
    same(whole, second)
    assert whole.episodes > 0


def test_same_seed_same_run_and_another_seed_another() -> None:
    runs = []
    for seed in (5, 5, 6):
        training = real("ddpg", seed=seed)
        training.run(150, BaseCallback())
        runs.append(training)
    same(runs[0], runs[1])
    weights = [np.asarray(run.device.agent.actor[0]["w"]) for run in runs]
    assert np.abs(weights[0] - weights[2]).max() > 1e-3


DIGEST = """
import hashlib, os, sys
if sys.argv[1] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from probes import KeptPoint
from safecritic import USC
arrays, _ = USC(KeptPoint(), seed=0, learning_starts=60).learn(170).training.state()
print(hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen")
def test_the_number_of_cores_changes_nothing() -> None:
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    digests = [
        subprocess.run(
            [sys.executable, "-c", DIGEST, cores],
            env={k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
            | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for cores in ("one", "all")
    ]
    assert digests[0] == digests[1]


def test_saving_and_evaluating_do_not_disturb_the_run() -> None:
    plain, watched = real("ddpg"), real("ddpg")
    plain.run(200, BaseCallback())
    for step in range(10, 201, 10):
        watched.run(step, BaseCallback())
        watched.state()
        put_back = watched.lend_env()
        watched.env.reset(seed=99)
        watched.env.step(np.ones(1))
        assert put_back() == []
    same(plain, watched)


def test_an_environment_without_checkpoints_restarts_its_episode_and_says_so() -> None:
    first = fake(Point())
    first.run(75, BaseCallback())
    arrays, numbers = first.state()
    assert numbers["lengths"][-1] == 25
    second = fake(Point())
    (note,) = second.restore(arrays, numbers)
    assert "the open episode (25 steps) is dropped" in note
    assert second.pending is not None
    assert second.pending[-2:].tolist() == [0.0, 1.0]  # truncated: no window runs across it
    second.run(130, BaseCallback())
    assert bool(second.device.replay.truncated[74])
    assert second.window[-1]["step"] <= 125


def test_a_checkpoint_of_other_settings_is_refused() -> None:
    training = real("ddpg")
    arrays, numbers = training.state()
    wider = methods.make_config("ddpg", None, **(SMALL | {"hidden": (8, 16)}))
    other = Training(KeptPoint(), methods.get("ddpg").agent, wider, SPEC, 0)
    with pytest.raises(checkpoint.CheckpointError, match=r"float32 \(16,\).*expected.*\(8,\)"):
        other.restore(arrays, numbers)
    del arrays["device/agent/actor/0/w"]
    with pytest.raises(checkpoint.CheckpointError, match="has no device/agent/actor/0/w"):
        training.restore(arrays, numbers)


def test_only_filled_rows_of_the_replay_are_saved() -> None:
    training = fake()
    training.run(31, BaseCallback())
    arrays, _ = training.state()
    assert arrays["device/replay/obs"].shape == (30, 2)
    training.run(600, BaseCallback())
    assert training.state()[0]["device/replay/obs"].shape == (400, 2)


# ---------------------------------------------------------------- tables


def test_tables_shorter_than_the_checkpoint_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_episode(_row())
    positions = folder.positions()
    folder.close()
    path = tmp_path / "episodes.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    folder = RunFolder(tmp_path, ("a/one",))
    with pytest.raises(checkpoint.CheckpointError, match="lines were removed"):
        folder.cut_back(positions)


def test_tables_hold_every_digit_and_empty_cells_for_the_unknown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_episode(_row() | {"reward": 1 / 3, "success": np.nan})
    folder.write_update(50, {"a/one": 0.1, "time/steps_per_second": 2.0})
    read = read_table(tmp_path / "episodes.csv")
    assert read["reward"] == [1 / 3]
    assert np.isnan(read["success"][0])
    lines = (tmp_path / "updates.csv").read_text().splitlines()
    assert lines[1] == "50,2.0,0.1,,,,,,"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, ())
    with pytest.raises(RuntimeError, match="in use by another process"):
        RunFolder(tmp_path, ())
    folder.close()
    RunFolder(tmp_path, ()).close()


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 (the format's other half)

    folder = RunFolder(tmp_path, ("a/one",))
    folder.write_update(50, {"a/one": 0.25})
    folder.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    data, events = path.read_bytes(), []
    while data:  # length, its checksum, the event, its checksum
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert events[-1].step == 50
    assert [(v.tag, v.simple_value) for v in events[-1].summary.value] == [("a/one", 0.25)]
