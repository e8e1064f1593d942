"""What the benchmarks count and measure."""

import dataclasses
import importlib
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from safecritic.core import networks

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_products_of_a_compiled_program_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    speed = importlib.import_module("speed")
    x, w, v = (jnp.ones(shape, jnp.float32) for shape in ((48, 40), (40, 56), (48, 24)))

    def both(x, w, v):
        return x @ w, x.T @ v

    found = speed.matrix_products(jax.jit(both).lower(x, w, v).compile().as_text())
    assert sorted(2 * m * n * k for m, n, k in found) == sorted(
        [2 * 48 * 56 * 40, 2 * 40 * 24 * 48]
    )


def test_both_forms_of_the_printed_influence_are_equal(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    influence = importlib.import_module("influence")
    (params,) = networks.init_members(jax.random.PRNGKey(0), (6, 16, 16, 1), 1, final=0.1)
    x = jax.random.normal(jax.random.PRNGKey(1), (12, 6), jnp.float32)
    u = influence.gram(params, x)
    np.testing.assert_allclose(u, influence.per_sample(params, x), rtol=1e-3)
    assert u.min() < u.max() < 1


def test_tasks_are_driven_at_random_and_restored(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    fuzz = importlib.import_module("fuzz")
    monkeypatch.setattr(fuzz, "SAVE", 0.1)
    done = fuzz.fuzz("SafetyHopperVelocity-v1", 400, 0)
    assert done["restored"] >= 5
    assert done["episodes"] >= 5

    class Forgetful:
        """Comes back from a checkpoint to another state."""

        def __init__(self, env):
            self.env = env

        def __getattr__(self, name):
            return getattr(self.env, name)

        def set_checkpoint(self, checkpoint):
            self.env.set_checkpoint(checkpoint | {"physics": 1.001 * checkpoint["physics"]})

    make = fuzz.make
    monkeypatch.setattr(fuzz, "make", lambda name: Forgetful(make(name)))
    with pytest.raises(AssertionError):
        fuzz.fuzz("SafetyHopperVelocity-v1", 400, 0)


def test_a_policy_is_compared_scene_by_scene(monkeypatch):
    """A difference that the spread between scenes hides is seen, and one by rounding is none."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    original = importlib.import_module("original")
    rng = np.random.default_rng(0)
    reward, cost = rng.normal(20.0, 5.0, 40), rng.integers(0, 50, 40).astype(float)
    here = [{"reward": x, "cost": y} for x, y in zip(reward, cost, strict=True)]
    there = [
        {"reward": x + 1e-9, "cost": y + 1.0 + (y % 2)} for x, y in zip(reward, cost, strict=True)
    ]
    row = {"cost_limit": 25.0, "here": {"rows": here}, "there": {"rows": there}}
    lines = {line["name"]: line for line in original.summary(row)}
    assert lines["reward"]["same"]
    assert not lines["cost"]["same"]
    apart = stats.ttest_1samp(1.0 + cost % 2, 0.0).confidence_interval()
    assert lines["cost"]["apart"][1:] == pytest.approx(apart)
    assert lines["above the limit %"]["here"][0] == 100.0 * (cost > 25.0).mean()
    assert lines["cost, worst tenth"]["there"] == [np.sort([x["cost"] for x in there])[-4:].mean()]


def test_dataclasses_take_arrays_as_defaults_while_the_original_is_imported(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    original = importlib.import_module("original")
    fields = {"__annotations__": {"size": float, "colour": np.ndarray}}
    fields |= {"size": 1.0, "colour": np.array([1.0, 0.0])}
    with original.arrays_as_defaults():
        made = dataclasses.dataclass(type("Object", (), dict(fields)))()
    assert (made.size, made.colour.tolist()) == (1.0, [1.0, 0.0])
    with pytest.raises(ValueError, match="mutable default"):
        dataclasses.dataclass(type("Object", (), dict(fields)))


def test_an_episode_is_summed_over_five_or_six_values(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    original = importlib.import_module("original")
    spent = []

    class Policy:
        reset, spend = spent.clear, spent.append

        def __call__(self, obs):
            return obs

    def env(six):
        steps = iter([(1.0, 0.0, False, False), (2.0, 1.0, False, True)])

        def step(action):
            reward, cost, *ends = next(steps)
            if six:
                return action, reward, cost, *ends, {}
            return action, reward, *ends, {"cost": cost}

        return types.SimpleNamespace(reset=lambda seed: (np.zeros(2), {}), step=step)

    five, six = (original.episode(env(six), Policy(), 7) for six in (False, True))
    assert five == six
    assert five == {"seed": 7, "first": [0.0, 0.0], "reward": 3.0, "cost": 1.0, "steps": 2}
    assert spent == [0.0, 1.0]


@pytest.mark.skipif(
    importlib.util.find_spec("safety_gymnasium") is not None, reason="the original is installed"
)
def test_the_module_for_old_code_is_not_taken_for_the_original():
    package = Path(networks.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-I", BENCHMARKS / "original.py", "--serve", package, "plain"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "No module named 'safety_gymnasium'" in found.stderr
