"""The compiled step: what goes to the device, how often it compiles, what it restores from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.fakes import SPEC, small_training
from probes import SMALL, KeptPoint
from safecritic.agents import methods
from safecritic.run.callbacks import BaseCallback
from safecritic.run.checkpoint import CheckpointError
from safecritic.run.compiled import compile_ahead, pack, unpack
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.run.rollout import Transition


def test_a_transition_goes_to_the_device_as_it_is() -> None:
    obs, action, next_obs = np.array([1.0, 2.0]), np.array([0.5]), np.array([4.0, 5.0])
    row = pack(Transition(obs, action, 3.0, 0.25, next_obs, True, False, {"success": True}, 1))
    transition = unpack(jnp.asarray(row), SPEC)
    assert transition.obs.tolist() == [1.0, 2.0]
    assert transition.action.tolist() == [0.5]
    assert (float(transition.reward), float(transition.cost)) == (3.0, 0.25)
    assert transition.next_obs.tolist() == [4.0, 5.0]
    assert (bool(transition.terminated), bool(transition.truncated)) == (True, False)
    assert bool(transition.success)


@pytest.mark.slow
def test_each_function_compiles_once_over_several_runs() -> None:
    training = small_training("ddpg")
    training.run(150, BaseCallback())
    again = small_training("ddpg")
    again.restore(*training.state())
    again.run(250, BaseCallback())
    assert again.compiled is training.compiled
    compiled = training.compiled
    assert [compiled.learn._cache_size(), compiled.act._cache_size()] == [1, 1]
    assert [compiled.store._cache_size(), compiled.end_episode._cache_size()] == [1, 1]


def test_a_checkpoint_of_other_settings_is_refused() -> None:
    training = small_training("ddpg")
    arrays, numbers = training.state()
    wider = methods.make_config("ddpg", None, **(SMALL | {"hidden": (8, 16)}))
    other = OffPolicyTraining(KeptPoint(), methods.get("ddpg").load_agent(), wider, SPEC, 0)
    with pytest.raises(CheckpointError, match=r"float32 \(16,\).*expected.*\(8,\)"):
        other.restore(arrays, numbers)
    del arrays["device/agent/actor/0/w"]
    with pytest.raises(CheckpointError, match="has no device/agent/actor/0/w"):
        training.restore(arrays, numbers)


def test_what_was_compiled_ahead_is_not_compiled_again() -> None:
    compiled: list[str] = []

    def note(event: str, seconds: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    config = methods.make_config("ddpg", None, **SMALL | {"hidden": (13, 11)})
    agent = methods.get("ddpg").load_agent()
    training = OffPolicyTraining(KeptPoint(), agent, config, SPEC, 0)
    for thread in compile_ahead(training.compiled, training.device, SPEC):
        thread.join()
    jax.monitoring.register_event_duration_secs_listener(note)
    state, row = training.device.agent, np.zeros(11, np.float32)
    training.compiled.act(state, np.zeros(2, np.float32), np.float32(0))
    training.compiled.end_episode(state, np.float32(0), np.float32(1))
    device = training.compiled.learn(training.device, row)
    assert compiled == []
    assert compile_ahead(training.compiled, device, SPEC) == []
    training.compiled.values(
        device.agent, np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32)
    )
    assert compiled  # it does notice what was not
