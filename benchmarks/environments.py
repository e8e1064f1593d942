"""Environments nobody tuned for, at untouched defaults: cost and reward of USC beside DDPG's.

    python benchmarks/environments.py --seeds 0 1 2

Gymnasium's Hopper, Walker2d, Swimmer and Ant with the speed limits of Safety Gymnasium (a cost of 1
for each step faster than that) and Pendulum with a cost for turning fast. Limits are those of that
benchmark, 25 per 1,000 steps. Prints deployed means over fresh episodes.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import gymnasium
import numpy as np

import safecritic
from safecritic import methods

SPEED = {"Hopper-v5": 0.7402, "Walker2d-v5": 2.3415, "Swimmer-v5": 0.2282, "Ant-v5": 2.6222}
LIMIT = 25.0
TURN = 4.0  # radians per second above which the pendulum costs
TURN_LIMIT = 20.0


class SpeedLimit(gymnasium.Wrapper):
    """A cost of 1 for every step faster than a limit."""

    def __init__(self, env: gymnasium.Env, limit: float) -> None:
        super().__init__(env)
        self.limit = limit

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        speed = info["x_velocity"]
        if "y_velocity" in info:
            speed = float(np.hypot(speed, info["y_velocity"]))
        return obs, reward, terminated, truncated, info | {"cost": float(speed > self.limit)}


class TurnLimit(gymnasium.Wrapper):
    """A cost for turning fast: how much faster than allowed."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        cost = max(abs(float(obs[2])) - TURN, 0.0)
        return obs, float(reward), terminated, truncated, info | {"cost": cost}


def limit_of(name: str) -> float:
    """Return the cost that an episode of this environment may have."""
    return TURN_LIMIT if name == "Pendulum-v1" else LIMIT


def make(name: str) -> gymnasium.Env:
    """Make one of the environments with its cost."""
    if name == "Pendulum-v1":
        return TurnLimit(gymnasium.make(name))
    return SpeedLimit(gymnasium.make(name), SPEED[name])


def deployed(method: str, name: str, seed: int, steps: int, episodes: int) -> tuple[float, float]:
    """Train at the defaults and return deployed reward and cost."""
    kind = getattr(safecritic, methods.get(method).class_name)
    agent = kind(make(name), seed=seed, cost_limit=limit_of(name))
    agent.learn(steps)
    means = agent.evaluate(episodes=episodes, seed=90_000).means
    return means["reward"], means["cost"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", nargs="+", default=["Pendulum-v1", *SPEED])
    parser.add_argument("--methods", nargs="+", default=["ddpg", "usc"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    print("| environment | limit | method | deployed reward | deployed cost | seeds |")
    print("|---|---|---|---|---|---|")
    for name in options.environments:
        for method in options.methods:
            steps = min(options.steps, 20_000) if name == "Pendulum-v1" else options.steps
            run = functools.partial(deployed, method, name, steps=steps, episodes=options.episodes)
            reward, cost = np.array([run(seed=seed) for seed in options.seeds]).T
            print(
                f"| {name} | {limit_of(name):g} | {method} "
                f"| {reward.mean():.1f} | {cost.mean():.1f} "
                f"| {', '.join(f'{r:.0f} / {c:.1f}' for r, c in zip(reward, cost, strict=True))} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
