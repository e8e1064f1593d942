"""Drive every task at random, and continue from checkpoints taken anywhere.

    python benchmarks/fuzz.py [SafetyCarGoal2-v0 ...] --steps 1000000

Actions are noise, slow drifts, bounds, nothing, or beyond the bounds; episodes also end early, in
new seeds and in scenes that were read back. Every number must be finite and every cost >= 0. Now
and then a checkpoint is written; some steps later a second environment continues from it through
the same steps and resets, which must give the same to the bit.
"""

from __future__ import annotations

import argparse
import io
import time
from collections import Counter
from typing import Any

import numpy as np

from safecritic.tasks import TASKS, make

CHANGE = 0.01  # chance in a step that the actions become of another kind
BREAK = 5e-4  # that the episode is left
SAVE = 5e-3  # that a checkpoint is written
REPLAY = 0.03  # that an open one is continued from


def next_action(kind: int, last: np.ndarray, space: Any, rng: np.random.Generator) -> np.ndarray:
    """Return the action after `last`, of one of five kinds."""
    low, high = space.low.astype(float), space.high.astype(float)
    drift = last + 0.1 * (high - low) * rng.standard_normal(last.shape)
    choices = (
        rng.uniform(low, high),
        np.clip(drift, low, high),
        np.where(rng.random(last.shape) < 0.5, low, high),
        np.zeros(last.shape),
        rng.uniform(3 * low, 3 * high),
    )
    return choices[kind]


def written(checkpoint: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a checkpoint after it was saved and loaded, without pickles."""
    file = io.BytesIO()
    np.savez(file, **checkpoint)  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def check(env: Any, obs: np.ndarray, reward: float, info: dict[str, Any]) -> None:
    """Raise for a step that no environment may return."""
    assert obs.shape == env.observation_space.shape, obs.shape
    assert np.isfinite(obs).all(), obs
    assert np.isfinite(reward), reward
    assert 0.0 <= info["cost"] < np.inf, info


def replay(env: Any, checkpoint: dict[str, np.ndarray], calls: list[Any]) -> None:
    """Continue from a checkpoint through what was done since, and compare."""
    env.set_checkpoint(checkpoint)
    for name, given, expected in calls:
        found = env.step(given) if name == "step" else env.reset(**given)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1:] == expected[1:], (name, found[1:], expected[1:])


def fuzz(name: str, steps: int, seed: int) -> Counter[str]:
    """Drive one task; return what was done."""
    rng = np.random.default_rng([seed, list(TASKS).index(name)])
    env, second = make(name), make(name)
    task: Any = env
    env.reset(seed=seed)
    second.reset(seed=seed + 1)
    action, kind = np.zeros(task.action_space.shape), 0
    done: Counter[str] = Counter()
    checkpoint: dict[str, np.ndarray] | None = None
    calls: list[Any] = []
    for _ in range(steps):
        if rng.random() < CHANGE:
            kind = int(rng.integers(5))
        action = next_action(kind, action, task.action_space, rng)
        result = env.step(action)
        obs, reward, terminated, truncated, info = result
        check(env, obs, float(reward), info)
        calls.append(("step", action, result))
        if checkpoint is not None and rng.random() < REPLAY:
            replay(second, written(checkpoint), calls)
            checkpoint, done["restored"] = None, done["restored"] + 1
        if checkpoint is None and rng.random() < SAVE:
            checkpoint, calls = task.get_checkpoint(), []
        if terminated or truncated or rng.random() < BREAK:
            ways: Any = ({}, {"seed": int(rng.integers(2**31))},
                    {"options": {"layout": task.layout or None, "state": task.state}})  # fmt: skip
            given: Any = ways[rng.choice(3, p=(0.6, 0.2, 0.2))]
            calls.append(("reset", given, env.reset(**given)))
            done["episodes"] += 1
        done["diverged"] += bool(info.get("diverged"))
        if checkpoint is None:
            calls = []
    done["steps"] = steps
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--steps", type=int, default=1_000_000, help="of all tasks together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    start = time.monotonic()
    for name in options.tasks:
        done = fuzz(name, -(-options.steps // len(options.tasks)), options.seed)
        total += done
        print(f"{name:28} {done['episodes']:5} episodes, {done['restored']:4} restored", flush=True)
    print(
        f"{total['steps']:,} steps, {len(options.tasks)} tasks, {total['episodes']:,} episodes, "
        f"{total['restored']:,} checkpoints restored to the bit, {total['diverged']} diverged, "
        f"{time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
