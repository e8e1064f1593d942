"""What the benchmarks count and measure."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp

from probes import SMALL, KeptPoint
from safecritic import CSC
from safecritic.fast.compilation import compiler_options
from safecritic.run.callbacks import BaseCallback

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_products_of_a_compiled_program_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    speed = importlib.import_module("speed")
    x, w, v = (jnp.ones(shape, jnp.float32) for shape in ((48, 40), (40, 56), (48, 24)))

    def both(x, w, v):
        return x @ w, x.T @ v

    call = jax.jit(both, compiler_options=compiler_options())
    found = speed.matrix_products(call.lower(x, w, v).compile().as_text())
    assert sorted(2 * m * n * k for m, n, k in found) == sorted(
        [2 * 48 * 56 * 40, 2 * 40 * 24 * 48]
    )


def test_fewer_states_make_a_noisier_step(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    measure = importlib.import_module("conservative").measure
    agent = CSC(KeptPoint(), seed=0, **SMALL | {"learning_starts": 120})
    agent.training.run(120, BaseCallback())  # rows alone: an update would take longer to compile
    (half, eighth), caution = measure(agent, (0.5, 0.125), batches=6, draws=6)
    assert 0 < half < eighth
    assert caution == 1.0
