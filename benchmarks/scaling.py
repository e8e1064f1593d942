"""How the time of an update grows: batch, width, alternatives and size of the replay.

    python benchmarks/scaling.py                     # prints the tables, some 10 minutes
    python benchmarks/scaling.py --picture docs/images/scaling.png

One setting is changed at a time from the defaults, on data of CarGoal1's shape. Beside each time
stands the law: for batch, width and alternatives the FLOPs of the update's matrix products, counted
in the compiled program and scaled to the time at the default setting; for the replay no growth at
all. All points take turns, CPU time of one core, medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

if hasattr(os, "sched_setaffinity"):  # before XLA counts the cores
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

from safecritic.agents import methods
from safecritic.core import conservative
from safecritic.core.compilation import use_compilation_cache
from safecritic.core.interface import EnvSpec
from safecritic.run import compiled as device
from speed import matrix_products

CARGOAL1 = EnvSpec(72, 2, 1.0, tuple(range(24, 72)))
METHODS = ("ddpg", "usc")
ROWS = 20_000  # of the replay, where its size is not what is looked at
AXES = {
    "batch": [64, 128, 256, 512, 1024],
    "width": [64, 128, 256, 512, 1024],
    "alternatives": [1, 2, 4, 8, 16, 32, 64],
    "replay": [10_000, 100_000, 1_000_000],
}
DEFAULT = {"batch": 64, "width": 256, "alternatives": 2, "replay": 100_000}
LABELS = {
    "batch": "batch",
    "width": "width of both hidden layers",
    "alternatives": "alternative actions per sample",
    "replay": "transitions in the replay",
}


class Point:
    """A method at one setting, ready to be timed."""

    def __init__(self, method: str, axis: str, value: int) -> None:
        settings: dict[str, dict[str, Any]] = {
            "batch": {"batch_size": value},
            "width": {"hidden": (value, value)},
            "replay": {"buffer_size": value},
            "alternatives": {},
        }
        # a constant of the method, read while its update is traced
        conservative.ALTERNATIVES = value if axis == "alternatives" else DEFAULT["alternatives"]
        device.compile_agent.cache_clear()
        config = methods.make_config(method, **{"buffer_size": ROWS} | settings[axis])
        compiled = device.compile_agent(methods.get(method).load_agent(), config, CARGOAL1)
        state = compiled.init(jax.random.PRNGKey(0))
        self.row = np.zeros(2 * CARGOAL1.obs_dim + CARGOAL1.action_dim + 6, np.float32)
        self.state = state._replace(replay=full(state.replay))
        self.learn = compiled.learn
        text = self.learn.lower(self.state, self.row).compile().as_text()
        self.flops = sum(2.0 * m * n * k for m, n, k in matrix_products(text))
        self.times: list[float] = []
        self.block = 1
        self.block = max(1, int(0.1 / self._time()))

    def _time(self) -> float:
        start = time.process_time()
        for _ in range(self.block):
            self.state = self.learn(self.state, self.row)
        jax.block_until_ready(self.state.metric_sums)
        return (time.process_time() - start) / self.block

    def round(self) -> None:
        self.times.append(min(self._time() for _ in range(3)))

    @property
    def ms(self) -> float:
        return 1e3 * statistics.median(self.times)


def full(store: Any) -> Any:
    """Return the replay with every row written, so that draws reach all of its memory."""
    rng = np.random.default_rng(0)
    capacity = store.cost.shape[0]

    def filled(like: Any) -> jax.Array:
        return jnp.asarray(rng.random(like.shape, np.float32))

    return store._replace(
        obs=filled(store.obs),
        action=filled(store.action),
        reward=filled(store.reward),
        cost=jnp.asarray(rng.random(capacity) < 0.1, jnp.float32),
        next_obs=filled(store.next_obs),
        size=jnp.asarray(capacity, jnp.int32),
        costly=jnp.arange(capacity, dtype=jnp.int32),
        costly_size=jnp.asarray(capacity // 10, jnp.int32),
    )


def law(points: dict[int, Point], axis: str, value: int) -> float:
    """Return the expected time in ms, through the one at the default setting."""
    start = points[DEFAULT[axis]]
    return start.ms if axis == "replay" else start.ms * points[value].flops / start.flops


def draw(found: dict[str, dict[str, dict[int, Point]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    from safecritic.core.style import GRID, SOFT, STYLE, method_style

    colours = {name: method_style(name).colour for name in METHODS}

    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(found), figsize=(12, 3.4), sharey=True)
        for panel, (axis, by_method) in zip(panels, found.items(), strict=True):
            for method, points in by_method.items():
                values = list(points)
                times = [point.ms for point in points.values()]
                expected = [law(points, axis, value) for value in values]
                panel.plot(values, expected, "--", color=SOFT, linewidth=1)
                panel.plot(values, times, "o-", color=colours[method], markersize=4)
            panel.set_xscale("log", base=10 if axis == "replay" else 2)
            panel.set_yscale("log")
            if axis != "replay":
                panel.set_xticks(values, [str(value) for value in values])
            panel.minorticks_off()
            panel.set_yticks([1, 10, 100], ["1 ms", "10 ms", "100 ms"])
            panel.set_xlabel(LABELS[axis])
            panel.grid(color=GRID, linewidth=0.7)
            panel.set_axisbelow(True)
        lines = [Line2D([], [], color=c, marker="o", markersize=4) for c in colours.values()]
        lines.append(Line2D([], [], color=SOFT, linestyle="--", linewidth=1))
        names = [methods.get(name).title for name in METHODS]
        figure.legend(
            lines,
            [*names, "expected from the count of FLOPs; replay: no growth"],
            loc="upper center",
            ncols=3,
            frameon=False,
        )
        panels[0].set_ylabel("time of an update")
        figure.tight_layout(rect=(0, 0, 1, 0.92))
        figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--axes", nargs="*", choices=list(AXES), default=list(AXES))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="write the curves to this file")
    options = parser.parse_args()
    use_compilation_cache()
    found: dict[str, dict[str, dict[int, Point]]] = {}
    for axis in options.axes:
        names = [n for n in options.methods if axis != "alternatives" or n == "usc"]
        found[axis] = {n: {v: Point(n, axis, v) for v in AXES[axis]} for n in names}
    for _ in range(options.rounds):
        for by_method in found.values():
            for points in by_method.values():
                for point in points.values():
                    point.round()
    for axis, by_method in found.items():
        head = "".join(f" {n + ' ms':>9} {'law':>7} {'ratio':>6}" for n in by_method)
        print(f"{axis:>12}{head}")
        for value in AXES[axis]:
            line = f"{value:12}"
            for points in by_method.values():
                ms, expected = points[value].ms, law(points, axis, value)
                line += f" {ms:9.2f} {expected:7.2f} {ms / expected:6.2f}"
            print(line)
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
