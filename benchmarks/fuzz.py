"""Step every task a million times in all with hostile actions, options and checkpoints.

    python benchmarks/fuzz.py                 # 1,000,000 steps, some minutes
    python benchmarks/fuzz.py --steps 20000

Every step must be one that a method can learn from (`StepChecks`), and what is refused must be
refused with a ValueError or Gymnasium's ResetNeeded that says why. Prints a line for each task:
steps, episodes, refusals, and the rate with and without the checks, whose ratio is their price.
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np

from safecritic.tasks import TASKS, make
from safecritic.tasks.checks import StepChecks

SCALES = (0.0, 1e-6, 0.3, 1.0, 1.0, 3.0, 1e6, 1e30)  # of random actions; beyond 1 they are clipped
REFUSED = (ValueError, gymnasium.error.ResetNeeded)


def bad_actions(size: int) -> list[Any]:
    """Return what is no action of this size."""
    return [
        np.full(size, np.nan),
        np.full(size, np.inf),
        np.zeros(size + 1),
        np.zeros((2, size)),
        np.zeros(0),
        ["x"] * size,
        None,
        "forward",
        {},
    ]


def refused(env: gymnasium.Env, action: Any) -> bool:
    """Return whether an action is refused with a reason."""
    try:
        env.step(action)
    except REFUSED as error:
        return len(str(error)) > 20
    return False


def fuzz(name: str, steps: int, seed: int) -> dict[str, int]:
    """Step a task with hostile actions; raise if a step cannot be learned from."""
    rng = np.random.default_rng(seed)
    env = make(name, action_repeat=int(rng.integers(1, 4)))
    checks = StepChecks(env)
    size = env.action_space.shape[0]  # type: ignore[index]
    counts = {"steps": 0, "episodes": 0, "refused": 0, "checkpoints": 0}
    checks.reset(seed=int(rng.integers(2**31)))
    scale = 1.0
    while counts["steps"] < steps:
        if rng.random() < 0.02:
            scale = SCALES[rng.integers(len(SCALES))]
        chance = rng.random()
        if chance < 0.002:
            for action in bad_actions(size):
                if not refused(env, action):
                    raise AssertionError(f"{name} took {action!r} for an action")
                counts["refused"] += 1
        elif chance < 0.003:
            env.set_checkpoint(env.get_checkpoint())  # type: ignore[attr-defined]
            counts["checkpoints"] += 1
        action = (scale * rng.normal(size=size)).astype(rng.choice([np.float32, np.float64]))
        step = checks.step(action)
        counts["steps"] += step.steps
        if step.terminated or step.truncated:
            counts["episodes"] += 1
            checks.reset(seed=None if rng.random() < 0.9 else int(rng.integers(2**31)))
    return counts


def price(name: str, steps: int, rounds: int = 7) -> float:
    """Return the processor time of checked steps over that of bare ones, a median of rounds."""
    env = make(name)
    checks = StepChecks(env)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape))  # type: ignore[misc]

    def seconds(step: Any) -> float:
        env.reset(seed=0)
        start = time.process_time()
        for action in actions:
            *_, terminated, truncated, _ = step(action)[:5]
            if terminated or truncated:
                env.reset()
        return time.process_time() - start

    def checked(action: np.ndarray) -> Any:
        done = checks.step(action)
        return done.obs, done.reward, done.terminated, done.truncated, done.info

    def bare(action: np.ndarray) -> Any:
        # what a loop without checks does as well: an observation of its own, as float32
        obs, *rest = env.step(action)
        return np.array(obs, np.float32), *rest

    ratios = [seconds(checked) / seconds(bare) for _ in range(rounds)]
    return float(np.median(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of all tasks together")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    total = 0
    for name in TASKS:
        start = time.perf_counter()
        counts = fuzz(name, -(-chosen.steps // len(TASKS)), chosen.seed)
        rate = counts["steps"] / (time.perf_counter() - start)
        total += counts["steps"]
        about = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        print(f"{name:<12} {about}, {rate:,.0f} steps/s", flush=True)
    print(f"{total:,} steps, every one checked")
    for name in ("CarGoal1", "HalfCheetah"):
        print(f"checked / bare time of a step of {name}: {price(name, 2_000):.3f}")


if __name__ == "__main__":
    main()
