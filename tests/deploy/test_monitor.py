"""The monitor: a rolling view, lines, a log, and thresholds that call the fallback."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from deploy import ready
from safecritic.runtime import Decision, Monitor, Policy, Threshold, load

OBS = ready.observations("HalfCheetah", 400)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    agent = ready.make("usc", "HalfCheetah", action_repeat=2)
    return agent.export(tmp_path_factory.mktemp("deploy") / "policy.safecritic", onnx=False)


@pytest.fixture
def policy(path: Path) -> Policy:
    return load(path, clock=None, on_fault=lambda *_: None)


class Clock:
    """Time that moves 1 ms with every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_a_line_per_second_and_json_for_others(policy: Policy, tmp_path: Path) -> None:
    stream, log = io.StringIO(), tmp_path / "operation.jsonl"
    monitor = Monitor(policy, stream=stream, log=log, clock=Clock(), every=0.1)
    for obs in OBS[:200]:
        monitor(obs)
        monitor.spend(0.001)
    monitor.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == len(stream.getvalue().splitlines()) == 5
    last = lines[-1]
    assert (last["calls"], last["decisions"], last["faults"]) == (200, 100, 0)
    assert last["cost"] == pytest.approx(0.2)
    assert last["remaining"] == pytest.approx(policy.limit - 0.2)
    assert last["latency_p50"] == pytest.approx(0.001)
    policy.reset()
    made: list[Decision] = []
    policy.veto = lambda decision: made.append(decision) or ""  # type: ignore[func-returns-value]
    for obs in OBS[:200]:
        policy(obs)
        policy.spend(0.001)
    assert last["screened"] == np.mean([decision.screened for decision in made])
    assert last["q_cost_mean"] == pytest.approx(np.mean([decision.q_cost for decision in made]))
    assert "cost 0.20 of 0.1" in stream.getvalue().splitlines()[-1]


def test_what_was_not_seen_in_training_is_said(policy: Policy) -> None:
    stream = io.StringIO()
    monitor = Monitor(policy, stream=stream, clock=Clock())
    known = policy.contract["training"]["influence"]
    assert monitor.unfamiliar(known["values"][4]) == pytest.approx(0.5)
    assert monitor.unfamiliar(1.0) == 1.0
    assert np.isnan(monitor.unfamiliar(np.nan))
    known["values"] = [0.0] * len(known["values"])
    monitor(OBS[0])
    monitor.write()
    assert "I have not seen this" in stream.getvalue()


@pytest.mark.parametrize("name", ["q_cost", "influence", "cost"])
def test_a_threshold_calls_the_fallback(policy: Policy, name: str) -> None:
    policy.fallback = "hold"
    free = Monitor(policy, stream=None)
    kept = free(OBS[0])
    policy.spend(0.5)
    limited = Monitor(policy, stream=None, threshold=Threshold(**{name: -1.0}))
    policy.memory.rows[0].held = 0
    np.testing.assert_array_equal(limited(OBS[100]), kept)  # not the action that was refused
    assert policy.counts["threshold"] == 1
    assert policy.last.fault == "threshold"
    assert limited.view()["faults"] == 1


def test_a_view_of_nothing_is_valid_json(policy: Policy) -> None:
    view = Monitor(policy, stream=None).view()
    assert view["q_cost"] is None
    json.dumps(view, allow_nan=False)
