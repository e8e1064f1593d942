"""ONNX, NumPy and JAX decide the same; the paper's agent too. What is not the agent is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from safecritic.deploy import export
from safecritic.runtime import load

pytestmark = pytest.mark.usefixtures("quick_runs")

CLOSE = 1e-5
METHODS = ("ddpg", "pid-lag", "cpo", "usc")


def rows(task: str) -> np.ndarray:
    """Return observations of episodes, and random ones far from them."""
    seen = ready.observations(task, 400)
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((200, seen.shape[1]))
    return np.concatenate([seen, seen.mean(axis=0) + 4.0 * (seen.std(axis=0) + 0.1) * drawn])


def decisions(agent: Any, obs: np.ndarray, spent: np.ndarray, path: Path) -> dict[str, Any]:
    """Return the decisions of both engines."""
    remaining = (np.float32(agent.config.cost_limit) - spent).astype(np.float32)
    return {e: load(path, engine=e, clock=None)._engine(obs, remaining) for e in ("numpy", "onnx")}


@pytest.mark.parametrize("task", ["CarGoal1", "FetchReach"])
@pytest.mark.parametrize("method", METHODS)
def test_onnx_numpy_and_jax_decide_the_same(method: str, task: str, tmp_path: Path) -> None:
    agent = ready.make(method, task, cost_limit=1.0)
    obs = rows(task).astype(np.float32)
    spent = np.random.default_rng(2).uniform(0.0, 1.2, len(obs)).astype(np.float32)
    path = agent.export(tmp_path / "policy.safecritic")
    action, screened = export.agent_decisions(agent, obs, spent)
    for name, made in decisions(agent, obs, spent, path).items():
        apart = np.abs(made.unit_action - action).max(axis=1) > CLOSE
        apart |= made.screened != screened
        # ties: mostly where the actor saturates in a corner of the box, which is a candidate too
        assert apart.mean() <= 0.02, name
        low, high = (np.ravel(agent.environment[end]) for end in ("action_low", "action_high"))
        own = low + (action.astype(float) + 1.0) / 2.0 * (high - low)
        np.testing.assert_allclose(made.action[~apart], own[~apart], atol=4 * CLOSE)
        values = agent.values(obs, made.unit_action)
        for key in ("q_cost", "influence"):
            if key in values:
                np.testing.assert_allclose(getattr(made, key), values[key], rtol=1e-4, atol=1e-4)
            else:
                assert np.isnan(getattr(made, key)).all()
    assert (0.02 < screened.mean() < 0.98) == (method == "usc")


@pytest.mark.parametrize("as_used", [False, True])
def test_the_agent_of_the_paper(as_used: bool, tmp_path: Path) -> None:
    """Its candidates, drawn anew at every decision in training, become a fixed set."""
    agent = ready.make("usc", "HalfCheetah", paper_defaults=True, as_used=as_used, tolerance=0.5)
    obs = rows("HalfCheetah").astype(np.float32)
    path = agent.export(tmp_path / "policy.safecritic")
    nothing = np.zeros(len(obs), np.float32)
    for made in decisions(agent, obs, nothing, path).values():
        q = agent.values(obs, made.unit_action)["q_cost"]
        np.testing.assert_allclose(made.q_cost, q, rtol=1e-4, atol=1e-4)
        proposed = agent.values(obs, made.proposed)["q_cost"]
        near = np.abs(proposed - 0.5) < 1e-4
        np.testing.assert_array_equal(made.screened[~near], (proposed > 0.5)[~near])
        assert made.changed.any()
        assert (q < proposed + 1e-5)[made.changed].all()
        assert np.isnan(made.influence).all()
    # the budget plays no part
    both = decisions(agent, obs, nothing, path), decisions(agent, obs, nothing + 1e3, path)
    np.testing.assert_array_equal(both[0]["numpy"].action, both[1]["numpy"].action)


def test_a_network_that_does_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = ready.make("ddpg", "HalfCheetah")
    whole = export.extract

    def other(*arguments: Any) -> Any:
        about, arrays = whole(*arguments)
        return about, arrays | {"actor/0/b": arrays["actor/0/b"] + 1.0}

    monkeypatch.setattr(export, "extract", other)
    with pytest.raises(ValueError, match="does not do what ddpg does"):
        export.prepare(agent, onnx=False)


def test_a_diverged_agent_is_not_exported() -> None:
    agent = ready.make("ddpg", "HalfCheetah")
    device = agent.training.device
    first, *rest = device.agent.target_actor
    actor = ({**first, "b": first["b"] * np.nan}, *rest)
    agent.training.device = device._replace(agent=device.agent._replace(target_actor=actor))
    with pytest.raises(ValueError, match="actor/0/b is not finite"):
        export.prepare(agent, onnx=False)
