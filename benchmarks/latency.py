"""How long a decision takes on one thread: NumPy, ONNX Runtime, and `agent.predict` beside them.

    python benchmarks/latency.py                    # 100,000 calls each, two layers of 256
    python benchmarks/latency.py --calls 2000       # a quick look

The screen is on and searches in every call (a tolerance of 0 and a Q_C above it), the most
expensive case. p99 must be at most 0.3 ms on a quiet machine.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before NumPy is imported

import numpy as np  # noqa: E402

TARGET = 0.3e-3  # s, p99


def measure(call: Callable[[np.ndarray], Any], rows: np.ndarray, calls: int) -> np.ndarray:
    """Return the seconds of each call, on rows in turn."""
    times = np.empty(calls)
    for at in range(calls):
        row = rows[at % len(rows)]
        start = time.perf_counter()
        call(row)
        times[at] = time.perf_counter() - start
    return times


def products_alone(network: Any) -> Callable[[np.ndarray], Any]:
    """Return a call that does a decision's large matrix products in NumPy and nothing else.

    What it takes is a floor, and how far its p99 is above its p50 is the machine's own unrest.
    """
    rng = np.random.default_rng(0)
    rows, size = len(network.candidates) + 1, len(network.mean)
    shapes = [(1, layer["w"].shape) for layer in network.actor[:-1]]
    for layers in (network.safety, network.reward):
        shapes += [(1, (size, layers[0]["w"].shape[1]))]
        shapes += [(rows, layer["w"].shape) for layer in layers[1:-1]]
    shapes += [(1, network.whitener.shape)]
    pairs = [
        (rng.standard_normal((n, shape[0]), np.float32), rng.standard_normal(shape, np.float32))
        for n, shape in shapes
    ]
    return lambda _: [left @ right for left, right in pairs]


def observations(env: Any, number: int) -> np.ndarray:
    """Return observations of random steps."""
    rng = np.random.default_rng(0)
    rows, obs = [], env.reset(seed=0)[0]
    while len(rows) < number:
        rows.append(np.asarray(obs, np.float32))
        obs, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        if terminated or truncated:
            obs = env.reset()[0]
    return np.stack(rows)


def prepare(task: str, hidden: tuple[int, ...], folder: Path) -> tuple[Any, Path, np.ndarray]:
    """Return an agent as it starts, its file, and observations of its task."""
    import jax.numpy as jnp

    from safecritic import USC
    from safecritic.core import scaling

    agent = USC(task, hidden=hidden, action_repeat=1, screen={"tolerance": 0.0})
    rows = observations(agent.env, 500)
    device = agent.training.device
    (*layers, last), *_ = device.agent.safety
    state = device.agent._replace(
        safety=((*layers, last | {"b": last["b"] + 1.0}),),  # every Q_C is above the tolerance
        scaler=scaling.scaler_update_many(device.agent.scaler, jnp.asarray(rows)),
    )
    agent.training.device = device._replace(agent=state)
    return agent, agent.export(folder / "policy.safecritic"), rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--predict-calls", type=int, default=2_000)
    parser.add_argument("--task", default="CarGoal1")
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    chosen = parser.parse_args()
    from safecritic.runtime import load

    with tempfile.TemporaryDirectory() as folder:
        agent, path, rows = prepare(chosen.task, tuple(chosen.hidden), Path(folder))
        contestants: dict[str, tuple[Callable[[np.ndarray], Any], int]] = {}
        for engine in ("numpy", "onnx"):
            policy = load(path, engine=engine, clock=None)
            contestants[engine] = (policy, chosen.calls)
        alone = products_alone(load(path, engine="numpy", clock=None).network.parts)
        contestants["products alone"] = (alone, chosen.calls)
        contestants["agent.predict"] = (agent.predict, chosen.predict_calls)
        print(f"usc on {chosen.task}, hidden {tuple(chosen.hidden)}, screen searching in each call")
        print(f"{'':<15}{'calls':>9}{'p50 ms':>9}{'p99 ms':>9}{'worst ms':>10}")
        for name, (call, calls) in contestants.items():
            measure(call, rows, min(calls, 200))  # warm
            times = 1e3 * measure(call, rows, calls)
            counts = getattr(call, "counts", {"calls": 0, "screened": 0})
            assert counts["screened"] == counts["calls"], "a call that searched nothing"
            p50, p99 = np.quantile(times, [0.5, 0.99])
            print(f"{name:<15}{calls:>9,}{p50:>9.3f}{p99:>9.3f}{times.max():>10.3f}")
            if name in ("numpy", "onnx"):
                word = "holds  " if p99 <= 1e3 * TARGET else "misses "
                print(f"{word} {name}: p99 {p99:.3f} ms (<= {1e3 * TARGET:g})")


if __name__ == "__main__":
    main()
