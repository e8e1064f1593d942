"""Environments that misbehave: the step is named, the state saved, no message is a traceback."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from helpers.commands import FLAGS
from probes import SMALL, KeptPoint
from safecritic import CPO, DDPG, cli
from safecritic.run import checkpoint
from safecritic.run.episode import Intervals
from safecritic.run.failure import NotFiniteError, RunStopped, read_failure
from safecritic.run.rollout import Rollout
from safecritic.tasks.checks import EnvError
from safecritic.tasks.repeat import RepeatAction

BAD_STEP = 130


class Faulty(KeptPoint):
    """Behaves until some step, counted over all episodes; then one of its results is wrong."""

    def __init__(self, fault: str = "", step: int = BAD_STEP + 1):  # `adapt` takes one
        super().__init__()
        self.fault, self.fault_step = fault, step

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        good = (obs, reward, terminated, truncated, info)
        if self.total != self.fault_step:
            return good
        if self.fault == "raises":
            raise OSError("the simulator\nhas gone away")
        return FAULTS[self.fault](*good)


FAULTS: dict[str, Any] = {
    "raises": None,
    "no cost": lambda o, r, a, b, i: (o, r, a, b, {}),
    "negative cost": lambda o, r, a, b, i: (o, r, a, b, {"cost": -28.9}),
    "cost NaN": lambda o, r, a, b, i: (o, r, a, b, {"cost": float("nan")}),
    "cost None": lambda o, r, a, b, i: (o, r, a, b, {"cost": None}),
    "cost text": lambda o, r, a, b, i: (o, r, a, b, {"cost": "0.5"}),
    "cost list": lambda o, r, a, b, i: (o, r, a, b, {"cost": [0.0, 1.0]}),
    "reward NaN": lambda o, r, a, b, i: (o, float("nan"), a, b, i),
    "reward 1e30": lambda o, r, a, b, i: (o, 1e30, a, b, i),
    "reward None": lambda o, r, a, b, i: (o, None, a, b, i),
    "reward text": lambda o, r, a, b, i: (o, "1.0", a, b, i),
    "observation NaN": lambda o, r, a, b, i: (o * np.nan, r, a, b, i),
    "observation 1e30": lambda o, r, a, b, i: (o + 1e30, r, a, b, i),
    "observation 1e300": lambda o, r, a, b, i: (o.astype(np.float64) + 1e300, r, a, b, i),
    "observation longer": lambda o, r, a, b, i: (np.append(o, o), r, a, b, i),
    "observation of one": lambda o, r, a, b, i: (o[:1], r, a, b, i),
    "observation None": lambda o, r, a, b, i: (None, r, a, b, i),
    "observation text": lambda o, r, a, b, i: ("seen", r, a, b, i),
    "observation of text": lambda o, r, a, b, i: (np.array(["1", "2"]), r, a, b, i),
    "terminated None": lambda o, r, a, b, i: (o, r, None, b, i),
    "truncated text": lambda o, r, a, b, i: (o, r, a, "False", i),
    "info None": lambda o, r, a, b, i: (o, r, a, b, None),
    "four values": lambda o, r, a, b, i: (o, r, a, i),
    "nothing": lambda *_: None,
}
gymnasium.register("Faulty-v0", Faulty, kwargs={"fault": "negative cost"})


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_stops_the_run_at_its_step_and_keeps_what_is_good(
    fault: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    agent = DDPG(Faulty(fault), seed=0, **SMALL)
    with pytest.raises(RunStopped) as stopped:
        agent.learn(300, out=run, every=Intervals(50, 50, checkpoint_every=40))
    text = str(stopped.value)
    assert "\n" not in text
    assert re.search(rf"\bat step {BAD_STEP}\b", text), text
    assert str(run / "failed") in text
    failure = read_failure(run)
    assert failure is not None
    assert (failure.type, failure.step) == (type(stopped.value).__name__, BAD_STEP)
    assert not failure.diverged  # what was wrong came from the environment
    assert checkpoint.load(run / "checkpoint")[1]["step"] == 120
    assert checkpoint.load(run / "checkpoint", "previous")[1]["step"] == 80
    assert agent.training.fault is not None
    assert agent.training.fault.usable
    # from the checkpoint, or from the moment of the fault, with an environment that is mended
    for state, step in (("checkpoint", 120), ("failed", BAD_STEP - 1)):
        again = DDPG.load(run, env=KeptPoint(), state=state)
        assert again.num_timesteps == step
    again.learn(30)
    assert np.isfinite(again.predict(np.zeros(2))[0]).all()


def test_a_fault_that_is_a_number_is_told_from_others() -> None:
    with pytest.raises(NotFiniteError, match=r"reward was not finite at step 130.*within 1e\+10"):
        DDPG(Faulty("reward 1e30"), seed=0, **SMALL).learn(300)
    with pytest.raises(RunStopped, match=r"the cost of Faulty must be >= 0, got -28\.9"):
        DDPG(Faulty("negative cost"), seed=0, **SMALL).learn(300)


@pytest.mark.parametrize("fault", ["no cost", "observation of one", "raises", "reward NaN"])
def test_rollouts_are_checked_too(fault: str) -> None:
    small = {"hidden": (8,), "rollout_steps": 200, "batch_size": 50, "cost_limit": 1.0}
    with pytest.raises(RunStopped):
        CPO(Faulty(fault), seed=0, **small).learn(200)


@pytest.mark.parametrize("fault", ["no cost", "observation of one", "cost NaN", "raises"])
def test_evaluations_are_checked_too(fault: str) -> None:
    agent = DDPG(KeptPoint(), seed=0, **SMALL).learn(100)
    with pytest.raises(EnvError):
        agent.evaluate(5, env=Faulty(fault))


@pytest.mark.parametrize("cost", [{}, {"cost": -1.0}, {"cost": float("nan")}, {"cost": None}])
def test_a_cost_is_not_lost_while_an_action_is_held(cost: dict[str, Any]) -> None:
    env = RepeatAction(Faulty("no cost", step=2), 4)
    FAULTS["held"] = lambda o, r, a, b, i: (o, r, a, b, cost)
    env.env.fault = "held"  # type: ignore[attr-defined]
    rollout = Rollout(env)
    rollout.reset(seed=0)
    with pytest.raises(EnvError, match="cost of Faulty must be one number, finite and >= 0, got"):
        rollout.step(np.zeros(1, np.float32))
    del FAULTS["held"]


def test_a_key_named_steps_of_an_environments_own_is_not_taken_for_held_steps() -> None:
    class Counting(KeptPoint):
        def step(self, action: np.ndarray) -> Any:
            *rest, info = super().step(action)
            return (*rest, info | {"steps": 1_000})

    agent = DDPG(Counting(), seed=0, **SMALL).learn(100)
    assert agent.num_timesteps == 100
    assert max(row["length"] for row in agent.recent_episodes) <= 50


def test_the_command_line_says_what_happened_and_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "ddpg", "Faulty-v0", *FLAGS, "--steps", "300", "--out", "run"]
    assert cli.main([*command, "--checkpoint-every", "100"]) == 1
    text = capsys.readouterr().err
    assert "Traceback" not in text
    error, checkpoint_line, failed_line = text.splitlines()[-3:]
    assert error.startswith("error: the cost of Faulty-v0 must be >= 0, got -28.9")
    resume = "safecritic train --resume run --trust-env"
    assert checkpoint_line.endswith(f"the last good checkpoint, step 100, with {resume}")
    assert failed_line.endswith(f"step 129, with {resume} --state failed")
    assert cli.main([*command, "--overwrite", "--checkpoint-every", "1000"]) == 1
    text = capsys.readouterr().err
    assert "the last good checkpoint" not in text
    assert "resume from the moment of the error, step 129" in text


def test_an_error_of_a_callback_saves_the_state_too(tmp_path: Path) -> None:
    def fails(locals_: Any, globals_: Any) -> None:
        if agent.num_timesteps == 90:
            raise KeyError("mine")

    agent = DDPG(KeptPoint(), seed=0, **SMALL)
    with pytest.raises(KeyError, match="mine"):
        agent.learn(200, fails, out=tmp_path / "run")
    assert DDPG.load(tmp_path / "run", env=KeptPoint(), state="failed").num_timesteps == 90
