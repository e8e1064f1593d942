"""The runtime: light, checked input, the budget, held actions, fallbacks, refused files."""

import json
import math
import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import safecritic.runtime
from deploy import ready
from helpers.policies import rewritten
from safecritic.runtime import FaultWarning, Policy, PolicyFileError, decide, load
from safecritic.runtime.network import array_module

GOOD = np.zeros(17)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of HalfCheetah, whose decisions are held for 2 steps."""
    agent = ready.make("usc", "HalfCheetah", action_repeat=2)
    return agent.export(tmp_path_factory.mktemp("deploy") / "policy.safecritic")


@pytest.fixture
def policy(path: Path) -> Policy:
    return load(path, clock=None, on_fault=lambda *_: None)


LIGHT = """
import sys
assert "numpy" not in sys.modules
from {module} import load
policy = load(sys.argv[1])
action = policy([0.0] * 17)
assert action.shape == (6,) and (abs(action) <= 1.0).all()
import os
assert os.environ["OPENBLAS_NUM_THREADS"] == "1"  # before NumPy was imported
heavy = ("jax", "gymnasium", "mujoco", "scipy", "onnx", "onnxruntime", "safetensors", "matplotlib")
print([name for name in heavy if name in sys.modules])
"""


def test_nothing_heavy_is_imported(path: Path) -> None:
    script = LIGHT.format(module="safecritic.runtime")
    run = [sys.executable, "-c", script, str(path)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_folder_alone_runs_a_policy(path: Path, tmp_path: Path) -> None:
    """Copied to a machine that has NumPy and nothing of this package."""
    shutil.copytree(Path(safecritic.runtime.__file__).parent, tmp_path / "robot_policy")
    run = [sys.executable, "-c", LIGHT.format(module="robot_policy"), str(path)]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    out = subprocess.run(run, capture_output=True, text=True, check=True, env=environ)
    assert out.stdout == "[]\n"


def test_numpy_1_decides_the_same(policy: Policy) -> None:
    new = ("astype", "concat", "matrix_transpose", "vecdot")
    old = array_module(SimpleNamespace(**{k: v for k, v in vars(np).items() if k not in new}))
    assert array_module(np) is np
    assert old is not np
    obs = np.random.default_rng(0).standard_normal((64, 17)).astype(np.float32)
    left = np.linspace(-0.1, policy.limit, 64, dtype=np.float32)
    here, there = (decide.decide(xp, policy.network.parts, obs, left) for xp in (np, old))
    assert here.changed.any()
    assert here.influence is not None
    for ours, theirs in zip(here, there, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_decision_is_held_and_counted(path: Path) -> None:
    # the screen would take the same candidate in different states
    policy = load(path, clock=None, screen=False)
    assert policy.action_repeat == 2
    rng = np.random.default_rng(0)
    rows = 0.1 * rng.standard_normal((6, 17))
    actions = [policy(row) for row in rows]
    for first, second in ((0, 1), (2, 3), (4, 5)):
        np.testing.assert_array_equal(actions[first], actions[second])
    assert np.abs(actions[0] - actions[2]).max() > 1e-4
    assert [policy.counts[name] for name in ("calls", "decisions", "held")] == [6, 3, 3]
    made = policy.network.decide(rows[::2].astype(np.float32), np.ones(3, np.float32))
    np.testing.assert_allclose(made.proposed, actions[::2], atol=1e-6)


def test_the_budget_is_kept(policy: Policy) -> None:
    policy.spend(0.04)
    policy.spend(0.05)
    assert policy.remaining == pytest.approx(0.01)
    policy.reset()
    assert (policy.spent, policy.remaining) == (0.0, policy.limit)
    for bad in (math.nan, math.inf, -1.0, "much"):
        policy.reset()
        policy.spend(bad)
        assert policy.remaining == 0.0
    assert policy.counts["bad cost"] == 4


@pytest.mark.parametrize("limit", [0.5, 0.0])
def test_the_remaining_budget_decides_what_is_let_through(limit: float) -> None:
    agent = ready.make("usc", "HalfCheetah", cost_limit=limit)
    obs = ready.observations("HalfCheetah", 400)
    network = agent.policy().network
    tolerance = 0.3 * float(network.parts.cost_unit)
    whole, half, spent, beyond = (
        network.decide(obs, np.full(len(obs), share * limit - debt, np.float32))
        for share, debt in ((1.0, 0.0), (0.5, 0.0), (0.0, 1e-6), (0.0, 1.0))
    )
    np.testing.assert_array_equal(whole.screened, whole.q_proposed > np.float32(tolerance))
    if limit:
        between = np.float32(0.75 * tolerance)
        np.testing.assert_array_equal(half.screened, whole.q_proposed > between)
    for left in (spent, beyond):
        np.testing.assert_array_equal(left.screened, whole.q_proposed > np.float32(tolerance / 2))
    assert whole.screened.sum() < spent.screened.sum()


BAD: dict[str, Any] = {
    "no observation": None,
    "wrong shape": np.zeros(16),
    "not finite": np.array([*[0.0] * 16, np.nan]),
    "out of range": np.array([*[0.0] * 16, 1e9]),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_observation_is_answered_by_the_fallback(path: Path, reason: str) -> None:
    told: list[tuple[str, str]] = []

    def tell(fault: str, detail: str) -> None:
        told.append((fault, detail))

    held = load(path, clock=None, on_fault=tell)
    before = held(GOOD)
    np.testing.assert_array_equal(held(BAD[reason]), before)
    assert held.last.fault == reason
    assert held.counts[reason] == held.counts["faults"] == 1
    assert [fault for fault, _ in told] == [reason]
    zero = load(path, clock=None, fallback="zero", on_fault=tell)
    zero(GOOD)
    np.testing.assert_array_equal(zero(BAD[reason]), np.zeros(6))
    given = load(path, clock=None, fallback=[0.5] * 6, on_fault=tell)
    np.testing.assert_array_equal(given(BAD[reason]), np.full(6, 0.5, np.float32))
    made = load(path, clock=None, fallback=lambda p, fault: [len(fault)] * 6, on_fault=tell)
    np.testing.assert_array_equal(made(BAD[reason]), np.ones(6))  # within the bounds


def test_infinity_and_a_word_are_no_observations(policy: Policy) -> None:
    for bad in (np.full(17, np.inf), [np.inf, -np.inf, *[0.0] * 15], "left", {"speed": 1.0}, 3.0):
        assert np.isfinite(policy(bad)).all()
    assert policy.counts["not finite"] == 2
    assert policy.counts["wrong shape"] == 3


def test_holding_ends(policy: Policy) -> None:
    before = policy(GOOD)
    most = policy.contract["on_bad_input"]["hold_at_most"]
    assert most == 10
    actions = [policy(None) for _ in range(most + 2)]
    assert all((action == before).all() for action in actions[:most])
    assert not np.abs(actions[most:]).any()


@pytest.mark.parametrize("answer", [[np.nan] * 6, [1.0], "now", None])
def test_a_fallback_that_fails_is_zero(path: Path, answer: Any) -> None:
    policy = load(path, clock=None, fallback=lambda *_: answer, on_fault=lambda *_: None)
    np.testing.assert_array_equal(policy(None), np.zeros(6))
    assert policy.counts["fallback failed"] == 1


def test_a_fallback_that_is_none_is_refused_at_once(path: Path) -> None:
    for bad in ("stop", [1.0], [np.nan] * 6):
        with pytest.raises(ValueError, match="fallback"):
            load(path, fallback=bad)


def test_a_late_call_is_answered_by_the_fallback(path: Path) -> None:
    now = [0.0]
    policy = load(path, clock=lambda: now[0], fallback="zero", on_fault=lambda *_: None)
    period = policy.contract["period"]
    assert period == pytest.approx(0.05)
    for wait, late in ((0.0, 0), (period, 0), (1.9 * period, 0), (2.1 * period, 1), (period, 1)):
        now[0] += wait
        action = policy(GOOD)
        assert policy.counts["late"] == late
        assert np.any(action) != (policy.last.fault == "late")
    now[0] += 100.0
    policy.reset()
    policy(GOOD)
    assert policy.counts["late"] == 1


def test_the_first_fault_of_a_reason_is_a_warning(path: Path) -> None:
    policy = load(path, clock=None)
    with pytest.warns(FaultWarning, match=r"not finite: ffoot velocity \(number 16\) is nan"):
        policy(BAD["not finite"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy(BAD["not finite"])


def test_bad_rows_of_a_batch_get_the_fallback(policy: Policy) -> None:
    policy.reset(rows=4)
    actions = policy(np.stack([GOOD, BAD["not finite"], BAD["out of range"], GOOD]))
    faults = [decision.fault for decision in policy.last]
    assert faults == [None, "not finite", "out of range", None]
    np.testing.assert_array_equal(actions[0], actions[3])
    np.testing.assert_array_equal(actions[1:3], np.zeros((2, 6)))
    for wrong in (GOOD, np.zeros((4, 16)), {"speed": 1.0}):  # no batch of 4: the fallback for all
        assert policy(wrong).shape == (4, 6)
        assert [decision.fault for decision in policy.last] == ["wrong shape"] * 4


def test_an_engine_that_fails_is_a_fault(policy: Policy) -> None:
    policy._engine = lambda *_: 1 / 0
    np.testing.assert_array_equal(policy(GOOD), np.zeros(6))
    assert policy.counts["engine failed"] == 1


def single(policy: Policy, obs: np.ndarray) -> dict[str, np.ndarray]:
    """Return single decisions, each the first of an episode."""
    made = []
    for row in obs:
        policy.reset()
        made.append(policy.decide(row))
    return {name: np.array([getattr(x, name) for x in made]) for name in made[0]._fields[:-1]}


@pytest.mark.parametrize("engine", ["numpy", "onnx"])
def test_the_screen_can_be_switched_off(path: Path, engine: str) -> None:
    obs = ready.observations("HalfCheetah", 40)
    on, off = (load(path, engine=engine, clock=None, screen=x) for x in (True, False))
    before = single(on, obs)
    assert before["changed"].any()
    without = single(off, obs)
    assert not without["screened"].any()
    np.testing.assert_allclose(without["unit_action"], before["proposed"], atol=1e-6)
    after = single(on, obs)  # in other policies it stays on
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])


@pytest.mark.parametrize("engine", ["numpy", "onnx"])
def test_single_rows_equal_those_of_a_batch(path: Path, engine: str) -> None:
    obs = ready.observations("HalfCheetah", 40)
    policy = load(path, engine=engine, clock=None)
    made = policy._engine(obs, np.full(len(obs), policy.limit, np.float32))
    for name, rows in single(policy, obs).items():
        np.testing.assert_allclose(rows, getattr(made, name), atol=1e-4, err_msg=name)


# ---------------------------------------------------------------- files


def test_a_damaged_file_is_refused(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = tmp_path / "damaged.safecritic"
    refused = 0
    for place in rng.integers(0, len(data), 200):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(changed)
        try:
            policy = load(damaged, clock=None)
        except PolicyFileError:
            refused += 1
        else:  # a bit of the zip that means nothing, such as a date
            np.testing.assert_array_equal(policy(GOOD), load(path)(GOOD))
    assert refused > 150


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path: Path, share: float, tmp_path: Path) -> None:
    data = path.read_bytes()
    short = tmp_path / "short.safecritic"
    short.write_bytes(data[: int(share * len(data))])
    with pytest.raises(PolicyFileError, match="is not a policy file, or is damaged"):
        load(short)


def test_foreign_files_are_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("data.pkl", b"cos\nsystem\n(S'touch /tmp/run'\ntR.")
    with pytest.raises(PolicyFileError, match=r"no policy file: expected .*contract\.json"):
        load(other)
    with pytest.raises(PolicyFileError, match="does not hold the members"):
        load(rewritten(path, tmp_path / "more.safecritic", {"setup.py": b"print(1)"}))
    contract = load(path).contract
    contract["action_repeat"] = 3
    changed = {"contract.json": json.dumps(contract).encode()}
    other = rewritten(path, tmp_path / "other.safecritic", changed, fits=False)
    with pytest.raises(PolicyFileError, match="was altered"):
        load(other)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.safecritic")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"observation": 16}, "expected 16 entries, got 17"),
        ({"actor": {"layers": 9, "activation": "relu", "squash": "tanh"}}, "there is no array"),
        ({"actor": {"layers": 2, "activation": "relu", "squash": "tanh"}}, "does not fit"),
        ({"screen": {}}, "describes no policy that this version can run"),
        ({"screen": None, "reward": None}, "arrays that it does not have: candidates"),
        ({"cost_unit": math.nan}, "expected a finite number"),
        ({"names": ["left"]}, "expected no other keys"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    path: Path, change: Any, reason: str, tmp_path: Path
) -> None:
    contract = load(path).contract
    contract["network"].update(change)
    target = rewritten(
        path, tmp_path / "x.safecritic", {"contract.json": json.dumps(contract).encode()}
    )
    with pytest.raises(PolicyFileError, match=reason):
        load(target)


def test_the_same_policy_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    again = ready.make("usc", "HalfCheetah", action_repeat=2).export(tmp_path / "again.safecritic")
    assert again.read_bytes() == path.read_bytes()


def test_the_contract_says_what_goes_in_and_out(path: Path) -> None:
    contract = load(path).contract
    observation, action = contract["observation"], contract["action"]
    assert len(observation["names"]) == len(set(observation["names"])) == 17
    assert (observation["names"][8], observation["units"][8]) == ("torso velocity x", "m/s")
    assert (action["names"][0], action["units"][0]) == ("bthigh torque", "120 N m")
    assert (action["low"], action["high"]) == ([-1.0] * 6, [1.0] * 6)
    assert (contract["period"], contract["action_repeat"], contract["cost_limit"]) == (0.05, 2, 0.1)
    assert contract["versions"]["safecritic"]
    assert contract["training"]["influence"]["shares"][-1] == 1.0


@pytest.mark.parametrize(
    "task",
    ["CarGoal1", "CarButton1", "FetchReach", "SafetyPointPush2-v0", "SafetyCarCircle1-v0"],
)
def test_every_number_of_our_tasks_has_a_name(task: str) -> None:
    from safecritic.deploy.names import names_of
    from safecritic.tasks import make

    env = make(task)
    observation, action = names_of(env, env)
    for found, space in ((observation, env.observation_space), (action, env.action_space)):
        assert len(set(found["names"])) == len(found["units"]) == space.shape[0]


def test_an_environment_of_its_own_form(tmp_path: Path) -> None:
    """Observations in a dict, actions in a box of its own, float64."""
    from probes import Wide
    from safecritic import DDPG

    env = Wide()
    agent = DDPG(env, hidden=(8,), batch_size=8, learning_starts=5, buffer_size=50)
    path = agent.export(tmp_path / "wide.safecritic", onnx=False, fallback=[1.0, 2.0])
    policy = load(path, clock=None, on_fault=lambda *_: None)
    obs, _ = env.reset(seed=0)
    action = policy(obs)
    assert Wide.action_space.contains(action)
    np.testing.assert_allclose(action, agent.predict(obs)[0], atol=1e-5)
    assert policy.contract["observation"]["names"] == ["a[0]", "a[1]", "b"]
    policy.reset(rows=2)
    several = {name: np.stack([part, part]) for name, part in obs.items()}
    np.testing.assert_array_equal(policy(several), np.stack([action, action]))
    np.testing.assert_array_equal(agent.predict(several)[0], np.stack([action, action]))
    policy.reset()
    np.testing.assert_array_equal(policy(None), [1.0, 2.0])
    with pytest.raises(PolicyFileError, match="no ONNX graph"):
        load(path, engine="onnx")
    with pytest.raises(ValueError, match=r"'hold', 'zero' or 2 finite numbers .* got 'stop'"):
        agent.export(path, fallback="stop")
    with pytest.raises(ValueError, match="has no screen here"):
        agent.export(path, tolerance=0.5)
