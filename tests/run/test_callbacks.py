"""Callbacks by the names of Stable-Baselines3, and its own ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safecritic
from helpers.fakes import assert_same_state
from probes import SMALL, KeptPoint
from safecritic import DDPG
from safecritic.run.callbacks import BaseCallback, EvalCallback, Logger, _rank, as_callback

pytestmark = pytest.mark.usefixtures("quick_runs")

ABOUT: dict[str, Any] = {"cost_limit": 1.0, "seed": 0, **SMALL}


def test_the_best_agent_keeps_the_limit_first_and_then_earns_more() -> None:
    beyond, cheaper, within, more = (
        _rank({"cost": cost, "reward": reward}, limit=1.0)
        for cost, reward in ((3, 9), (2, 1), (1, 2), (0.5, 3))
    )
    assert beyond < cheaper < within < more


def test_evaluating_changes_nothing_and_keeps_the_best(tmp_path: Path) -> None:
    plain = DDPG(KeptPoint(), **ABOUT).learn(400)
    callback = EvalCallback(None, None, 2, 100, tmp_path, verbose=0)
    watched = DDPG(KeptPoint(), **ABOUT).learn(400, callback=callback)
    assert_same_state(plain.training, watched.training)
    assert [row["step"] for row in callback.evaluations] == [100, 200, 300, 400]
    best = max(callback.evaluations, key=lambda row: _rank(row, 1.0))
    agent = safecritic.load(tmp_path / "best_model", env=KeptPoint())
    assert agent.num_timesteps == best["step"]
    assert agent.evaluate(2, seed=20_000).means["reward"] == best["reward"]
    again = EvalCallback(None, None, 2, 100, tmp_path, verbose=0)
    watched.learn(50, callback=again)
    assert again.best == {name: best[name] for name in ("step", "reward", "cost")}


def test_agents_are_kept_along_the_way(tmp_path: Path) -> None:
    DDPG(KeptPoint(), **ABOUT).learn(250, callback=safecritic.CheckpointCallback(100, tmp_path))
    assert sorted(x.name for x in tmp_path.iterdir()) == ["agent_100_steps", "agent_200_steps"]
    assert DDPG.load(tmp_path / "agent_200_steps").num_timesteps == 200
    with pytest.raises(ValueError, match="save_freq must be >= 1"):
        safecritic.CheckpointCallback(0, tmp_path)


class Recording(BaseCallback):
    """Records a number in each step, and keeps the metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        self.logger.record("mine/last", self.num_timesteps)
        self.logger.record_mean("mine/mean", self.num_timesteps)
        return True

    def _on_log(self, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)


def test_what_is_recorded_is_in_the_metrics() -> None:
    callback = Recording()
    every = safecritic.api.Intervals(log_every=100, critic_every=100)
    DDPG(KeptPoint(), **ABOUT).learn(200, callback=callback, every=every)
    assert [row["mine/last"] for row in callback.metrics] == [99, 199]
    assert callback.metrics[1]["mine/mean"] == np.mean(np.arange(100, 200))
    logger = Logger()
    logger.record("a", 1)
    assert (logger.take(), logger.take()) == ({"a": 1.0}, {})


def test_a_callback_of_stable_baselines_runs(tmp_path: Path) -> None:
    callbacks = pytest.importorskip("stable_baselines3.common.callbacks")

    class Foreign(callbacks.BaseCallback):
        seen: list[int]

        def _on_training_start(self) -> None:
            self.seen = []
            assert self.training_env is self.model.env

        def _on_step(self) -> bool:
            self.seen.append(self.num_timesteps)
            self.logger.record("mine/reward", self.locals["reward"])
            return self.num_timesteps < 120

    foreign = Foreign()
    agent = DDPG(KeptPoint(), **ABOUT).learn(200, callback=[foreign])
    assert foreign.seen == list(range(1, 121))
    assert agent.num_timesteps == 120
    keep = callbacks.CheckpointCallback(50, str(tmp_path))
    DDPG(KeptPoint(), **ABOUT).learn(100, callback=keep)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(TypeError, match="callback must be a BaseCallback, a function"):
        as_callback(3)
