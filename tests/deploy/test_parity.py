"""ONNX, NumPy and JAX decide the same, for every method and every task."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy import ready
from helpers.once import made_once
from safecritic.deploy import export
from safecritic.methods import METHODS
from safecritic.runtime import load
from safecritic.tasks import TASKS

pytestmark = pytest.mark.slow

CLOSE = 1e-5
# every method on every task
PAIRS = [(method, task) for method in METHODS for task in TASKS]
OTHERS: list[dict[str, Any]] = [
    {"safety_output": "softplus", "safety_critics": 2, "safety_value": "mean"},
    {"safety_output": "bounded", "safety_critics": 2, "layer_norm": "all"},
    {"safety_output": "linear", "sharpening_for": "critic", "screen_choice": "cost"},
    {"observation_scaling": "none", "sharpening": 1.0, "units": "task", "tolerance_in": "cost"},
    {"sharpening": 2.5, "tolerance": 0.0, "layer_norm": "none", "hidden": (8, 12, 10)},
]


def rows(factory: pytest.TempPathFactory, task: str, number: int, random: int) -> np.ndarray:
    """Return observations of episodes, and random ones far from them."""

    def make(folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "seen.npy", ready.observations(task, number))

    seen = np.load(made_once(factory, f"seen-{task}-{number}", make) / "seen.npy")
    rng = np.random.default_rng(1)
    spread = seen.std(axis=0) + 0.1
    drawn = seen.mean(axis=0) + 4.0 * spread * rng.standard_normal((random, seen.shape[1]))
    return np.concatenate([seen, drawn]).astype(np.float32)


def values_of(agent: Any, obs: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
    """Return Q_R and Q_C of each row, in batches of the size that `export` has compiled already."""
    size, n = agent.config.batch_size, len(obs)
    rows = np.arange(-(-n // size) * size).clip(max=n - 1).reshape(-1, size)
    pieces = [agent.values(obs[at], action[at]) for at in rows]
    return {k: np.concatenate([piece[k] for piece in pieces])[:n] for k in ("q_reward", "q_cost")}


def decided_by_a_tie(agent: Any, decision: Any, obs: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return where two choices are worth the same up to rounding, so that either is right."""
    network = decision.network
    size, tolerance = network.about["cost_unit"], network.tolerance(left)
    spec, n = agent.training.spec, len(obs)
    by_cost = network.about["screen"]["choice"] == "cost"
    values = values_of(agent, obs, decision.proposed)
    proposed = values["q_cost"] / size
    near = np.abs(proposed - tolerance) < 1e-4
    price = network.about["screen"]["price"]
    q_cost, q_reward = [proposed], [values["q_reward"]]
    for candidate in network.candidates:
        tried = np.broadcast_to(candidate, (n, spec.action_dim))
        values = values_of(agent, obs, tried)
        q_cost.append(values["q_cost"] / size)
        q_reward.append(values["q_reward"])
        near |= np.abs(q_cost[-1] - tolerance) < 1e-4
    q, reward = np.stack(q_cost), np.stack(q_reward)
    within = q <= tolerance
    priced = np.where(within.any(axis=0), np.where(within, reward, -np.inf), reward - price * q)
    best = np.sort(-q if by_cost else priced, axis=0)[-2:]
    with np.errstate(invalid="ignore"):
        return near | ~(best[1] - best[0] > 1e-4)


def compare(agent: Any, path: Path, obs: np.ndarray) -> tuple[np.ndarray, Any]:
    """Compare the file with the agent on these observations; return what the screen did."""
    limit = np.float32(agent.config.cost_limit)
    left = (limit * np.random.default_rng(2).uniform(-0.2, 1.0, len(obs))).astype(np.float32)
    spent = limit - left
    # in pieces of the size that `export` has compiled already
    size = export.CHECKED
    pieces = [agent.act_on_batch(obs[at : at + size], spent[at : at + size])
              for at in range(0, len(obs), size)]  # fmt: skip
    packed = np.concatenate(pieces)
    dim = agent.training.spec.action_dim
    action, (q, screened, changed) = packed[:, :dim], packed[:, dim:].T
    for engine in ("numpy", "onnx"):
        policy = load(path, engine=engine, clock=None)
        parts = [
            policy._decide(obs[at : at + 1000], limit - spent[at : at + 1000])
            for at in range(0, len(obs), 1000)
        ]
        made = [np.concatenate([part[k] for part in parts]) for k in range(7)]
        apart = np.abs(made[1] - action).max(axis=1) > CLOSE
        apart |= (made[5] != np.nan_to_num(screened)) | (made[6] != np.nan_to_num(changed))
        if apart.any():
            at = np.flatnonzero(apart)
            # many only where the actor saturates in a corner of the box, which is a candidate too
            assert len(at) <= 0.02 * len(obs), (engine, len(at))

            class Seen:
                network, proposed = policy.network, made[2][at]

            assert decided_by_a_tie(agent, Seen, obs[at], (limit - spent)[at]).all(), engine
        same = ~apart
        np.testing.assert_allclose(made[3][same], q[same], rtol=1e-4, atol=1e-4)
        low, high = (np.ravel(agent.environment[end]) for end in ("action_low", "action_high"))
        own = low + (action[same].astype(float) + 1.0) / 2.0 * (high - low)
        np.testing.assert_allclose(made[0][same], own, atol=CLOSE * float((high - low).max()))
        first = slice(agent.config.batch_size)
        values = agent.values(obs[first], made[1][first])
        if policy.contract["network"]["influence"]:
            np.testing.assert_allclose(made[4][first], values["influence"], atol=1e-4)
        else:
            assert np.isnan(made[4]).all()
    return screened, changed


@pytest.mark.parametrize(("method", "task"), PAIRS)
def test_onnx_numpy_and_jax_decide_the_same(
    method: str, task: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agent = ready.make(method, task, cost_limit=1.0)  # of a size that the screen has work to do
    path = agent.export(tmp_path / "policy.safecritic")
    screened, changed = compare(agent, path, rows(tmp_path_factory, task, 10_000, 1_000))
    if "screen" in METHODS[method].parts:
        assert 0.02 < screened.mean() < 0.98
        assert 0.0 < changed.mean() < screened.mean()
    else:
        assert not np.nan_to_num(screened).any()


@pytest.mark.parametrize("changes", OTHERS)
def test_every_output_scale_and_choice_is_reproduced(
    changes: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agent = ready.make("usc", "CarGoal1", **changes)
    path = agent.export(tmp_path / "policy.safecritic")
    screened, _ = compare(agent, path, rows(tmp_path_factory, "CarGoal1", 1_000, 200))
    assert screened.any()


@pytest.mark.parametrize("source", ["ou", "uniform"])
def test_random_candidates_become_a_fixed_set(
    source: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    agent = ready.make("sc", "HalfCheetah", screen_from=source, screen_choice="cost")
    path = agent.export(tmp_path / "policy.safecritic")
    obs = rows(tmp_path_factory, "HalfCheetah", 300, 50)
    first, again = (load(path, engine=e, clock=None).batch(obs) for e in ("numpy", "onnx"))
    np.testing.assert_allclose(first.unit_action, again.unit_action, atol=CLOSE)
    assert first.changed.any()
    screen = load(path).contract["network"]["screen"]
    assert (screen["source"], screen["seed"]) == (source, 0)
    # Q_C of what was taken is the agent's own, and lower than that of the proposed action
    q = agent.values(obs, first.unit_action)["q_cost"]
    np.testing.assert_allclose(q[first.changed], first.q_cost[first.changed], rtol=1e-4, atol=1e-4)
    proposed = agent.values(obs, first.proposed)["q_cost"]
    assert (q < proposed + 1e-5)[first.changed].all()


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
