"""Several seeds in one program are the single runs."""

from contextlib import nullcontext

import jax
import numpy as np
import pytest

from helpers.quick import quick_runs
from probes import KeptPoint
from safecritic import api
from safecritic.agent_classes import agent_class
from safecritic.run.seeds import Seeds

SMALL = {"hidden": (16, 16), "learning_starts": 70, "buffer_size": 100, "batch_size": 16}
SAFETY = {"refine_top": 4, "refine_block": 32, "curvature_refresh": 4}


@pytest.mark.parametrize("method", ["ddpg", pytest.param("usc", marks=pytest.mark.slow)])
def test_each_seed_is_its_single_run(method, monkeypatch):
    """Past the warm-up, two ends of episodes and the replay's first wrap."""
    monkeypatch.setattr(api, "make_env", lambda env: (KeptPoint(), "point"))
    settings = SMALL | (SAFETY if method == "usc" else {})
    # DDPG as users run it; USC has more to compile, in one program and alone
    with quick_runs() if method == "usc" else nullcontext():
        assert_seeds_are_single_runs(method, settings)


def assert_seeds_are_single_runs(method, settings):
    runs = Seeds(method, "point", seeds=[3, 8], **settings)
    assert runs.learn(60).learn(52).step == 112
    kind = agent_class(method)
    for agent, seed, episodes in zip(runs.agents, (3, 8), runs.episodes, strict=True):
        single = kind("point", seed=seed, **settings)
        rows = []
        while single.training.step < 112:
            rows += single.training.advance()
        assert len(rows) >= 2
        for ours, theirs in zip(episodes, rows, strict=True):
            np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-3)
        ours, theirs = agent.training.device, single.training.device
        assert int(ours.replay.cursor) == int(theirs.replay.cursor) == 11
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_what_cannot_run_together_is_refused():
    with pytest.raises(ValueError, match="rollouts"):
        Seeds("cpo", "CarGoal1", seeds=[0, 1])
    with pytest.raises(ValueError, match="different"):
        Seeds("ddpg", "CarGoal1", seeds=[1, 1])
