"""Altered policy files and hostile calls: refused, or the same policy; and always an action."""

import json
import os
import resource
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from helpers.alterations import assert_clear, repeat
from helpers.policies import certificate_of, members_of, rewritten
from helpers.policy_attacks import attacked, bad_graphs, every_field
from safecritic.deploy.export import prepare, write
from safecritic.runtime import FaultWarning, Monitor, Policy, PolicyFileError, load
from safecritic.runtime import certificate as certificates
from safecritic.runtime.network import Graph

pytestmark = pytest.mark.slow
GOOD = np.linspace(-0.3, 0.3, 17)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with a graph and a certificate, whose episodes need not be run to be read."""
    made = prepare(ready.make("usc", "HalfCheetah", action_repeat=2))
    certificate = certificate_of(made.contract, [0.02 * (at * 7 % 9) for at in range(9)])
    return write(tmp_path_factory.mktemp("policy") / "policy.safecritic", made, certificate)


def use(path: Path, expected: Policy, done: str) -> str:
    """Load and call a policy; it is refused, or does what the whole one does under its hash."""
    start = time.monotonic()
    try:
        policy = load(path, clock=None, on_fault=lambda *_: None)
    except PolicyFileError as error:
        assert_clear(str(error), done)
        return "refused"
    finally:
        assert time.monotonic() - start < 5, done
    action = policy(GOOD)
    assert action.shape == (6,), done
    assert (np.abs(action) <= 1.0).all(), done
    policy(None)
    policy(GOOD * np.nan)
    if policy.contract["policy_sha256"] == expected.contract["policy_sha256"]:
        np.testing.assert_array_equal(action, load(expected_path, clock=None)(GOOD), err_msg=done)
        if policy.certificate is not None:
            assert certificates.wrong(policy.certificate) == "", done
            assert policy.certificate["cost_limit"] == expected.limit, done
            assert policy.certificate["method"] == "usc", done
    return "another hash"


expected_path = Path()


def test_every_field_of_every_member_with_checksums_that_fit(path: Path, tmp_path: Path) -> None:
    global expected_path
    expected_path = path
    whole = load(path, clock=None)
    outcomes = [use(file, whole, done) for done, file in every_field(path, tmp_path / "x")]
    assert len(outcomes) > 250
    assert outcomes.count("refused") > 0.8 * len(outcomes)


def test_altered_members_headers_graphs_and_directories(path: Path, tmp_path: Path) -> None:
    global expected_path
    expected_path = path
    whole, before = load(path, clock=None), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graphs = list(bad_graphs(17).values())
    outcomes: list[str] = []

    def attack(number: int) -> None:
        done = attacked(path, tmp_path / "x", number, graphs)
        outcomes.append(use(tmp_path / "x", whole, f"{number}: {done}"))

    repeat(attack, 200)
    assert outcomes.count("refused") > 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_a_graph_drives_only_if_it_is_the_network(path: Path, tmp_path: Path) -> None:
    other = ready.make("usc", "HalfCheetah", seed=1, action_repeat=2)
    graphs = bad_graphs(17) | {
        "another seed": members_of(other.export(tmp_path / "other"))["policy.onnx"]
    }
    for name, graph in graphs.items():
        file = rewritten(path, tmp_path / "x", {"policy.onnx": graph})
        assert load(file).contract["policy_sha256"] != load(path).contract["policy_sha256"], name
        assert load(file).certificate is None
        with pytest.raises(PolicyFileError, match="ONNX") as caught:
            load(file, engine="onnx")
        assert_clear(str(caught.value), name)
    swapped = rewritten(path, tmp_path / "x", {"policy.onnx": graphs["another seed"]}, fits=False)
    with pytest.raises(PolicyFileError, match="its parameters or its graph are not those"):
        load(swapped)


@pytest.mark.parametrize("answer", [1e9, -1.5, np.nan, np.inf, "three", "none", "text", "raise"])
def test_no_command_is_out_of_bounds_whatever_the_engine_says(path: Path, answer: Any) -> None:
    policy = load(path, clock=None, on_fault=lambda *_: None)
    whole = policy._engine

    def engine(*arguments: Any) -> Any:
        if answer == "raise":
            raise RuntimeError
        sizes = {"three": 3, "none": 0, "text": 6}
        made = np.full((1, sizes.get(answer, 6)), 0.5 if isinstance(answer, str) else answer)
        made = made.astype(str) if answer == "text" else made.astype(np.float32)
        return whole(*arguments)._replace(action=made, unit_action=made, proposed=made)

    policy._engine = engine
    np.testing.assert_array_equal(policy(GOOD), np.zeros(6))
    assert policy.counts["engine failed"] == 1
    policy.decide(GOOD)
    assert policy.last.fault == "engine failed"


class Raises:
    """An observation whose every use raises."""

    shape = property(lambda self: 1 / 0)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


STRANGE: dict[str, Any] = {
    "raises": Raises(),
    "shape": np.zeros((1, 17, 1)),
    "masked": np.ma.masked_array(GOOD, mask=[True] * 17),
    "complex": GOOD.astype(complex),
    "text": np.array(["0"] * 17),
    "objects": np.array([None] * 17),
    "large": [10**400] * 17,
    "deep": [[[[0.0]]]],
    "dict": {"left": GOOD},
    "tuple": (GOOD, GOOD),
    "bytes": b"observation",
    "class": Raises,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_observation_gets_the_fallback(path: Path, kind: str) -> None:
    policy = load(path, clock=None, fallback=[0.25] * 6, on_fault=lambda *_: None)
    np.testing.assert_array_equal(policy(STRANGE[kind]), np.full(6, 0.25, np.float32))
    assert policy.last.fault == "wrong shape"
    policy.reset(rows=3)
    assert policy(STRANGE[kind]).shape == (3, 6)


def boom(*_: Any) -> Any:
    raise RuntimeError("somebody's function")


def test_nothing_that_is_given_to_it_makes_it_raise(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = load(path, fallback=boom, on_fault=boom, clock=boom)
        np.testing.assert_array_equal(policy(None), np.zeros(6))
        np.testing.assert_array_equal(policy(GOOD), np.zeros(6))  # nobody knows whether it is late
        policy = load(path, clock=None)
        assert policy(None).shape == (6,)  # its warning is an error
        policy.veto = boom
        policy(GOOD)
        assert policy.last.fault == "engine failed"
        for cost in (10**400, Raises(), np.ma.masked, [1, 2], "x", None, 1e308, 1e308):
            policy.reset()
            policy.spend(cost)
            assert policy(GOOD).shape == (6,)
            assert policy.remaining <= 0.0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_monitor_on_a_full_disk_lets_it_act(path: Path) -> None:
    policy = load(path, clock=None)
    monitor = Monitor(policy, every=0.0, stream=None, log="/dev/full", clock=time.monotonic)
    with pytest.warns(FaultWarning, match="the monitor failed"):
        action = monitor(GOOD)
    assert action.shape == monitor(GOOD).shape == (6,)
    assert policy.counts["monitor failed"] == 2
    monitor.close()


def test_threads_get_their_own_answers_and_are_told(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 0.2 * rng.standard_normal((400, 17))
    policy = load(path, clock=None, screen=False, on_fault=lambda *_: None)
    policy.action_repeat = 1
    single = [policy(row) for row in rows]
    wrong: list[int] = []

    def call(start: int) -> None:
        for at in [*range(start, 400, 4)] * 3:
            if not np.array_equal(policy(rows[at]), single[at]):
                wrong.append(at)

    threads = [threading.Thread(target=call, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    with policy._lock:  # somebody is inside
        told: list[str] = []
        policy.on_fault = lambda fault, _: told.append(fault)
        waiting = threading.Thread(target=policy, args=(GOOD,))
        waiting.start()
        time.sleep(0.1)
    waiting.join()
    assert policy.counts["shared"] >= 1


@pytest.mark.parametrize("kind", ["zero", "pipe", "folder", "nothing", "large"])
def test_what_is_no_regular_file_is_not_read(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.safecritic"
    if kind == "zero":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "large":
        with open(file, "wb") as sparse:
            sparse.truncate(2**33)
    start = time.monotonic()
    with pytest.raises(FileNotFoundError if kind == "nothing" else PolicyFileError):
        load(file)
    assert time.monotonic() - start < 1.0


def test_a_certificate_that_says_something_else_is_refused(path: Path, tmp_path: Path) -> None:
    for key, value in (("bound", 0.0), ("above", 0), ("rate_bound", 0.001), ("p_trend", 0.001)):
        content = json.loads(members_of(path)["certificate.json"])
        content["screen_on"][key] = value
        changed = {"certificate.json": json.dumps(content).encode()}
        with pytest.raises(PolicyFileError, match=f"certificate.json in .* was altered.*{key}"):
            load(rewritten(path, tmp_path / "x", changed))


def test_a_decision_is_checked_before_it_is_known_as_a_graph() -> None:
    with pytest.raises(PolicyFileError, match="no ONNX graph"):
        Graph(None, ready.make("ddpg", "HalfCheetah").policy().network)
