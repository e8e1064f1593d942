"""Several seeds of one method in one program, for devices that a single run leaves mostly idle.

    from safecritic.run.seeds import Seeds

    runs = Seeds("usc", "CarGoal1", seeds=range(8))
    runs.learn(60_000)
    runs.agents[3].evaluate(20)

The agents' states are stacked, and every compiled step works on all of them; the environments are
stepped one after another on the host. Each agent learns what it would have learned alone, up to the
rounding of a batched matrix product. With `action_repeat` above 1 the runs take the same number of
decisions, but not of steps, where an episode ends while an action is held: their warm-up and their
training end together, when the last of them has its steps. On a CPU use separate processes
(`safecritic study`) instead: XLA's batched product is slow there.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from safecritic import methods
from safecritic.agent_classes import agent_class
from safecritic.run import compiled


class Seeds:
    """Runs that differ only in their seed, advanced together step by step."""

    def __init__(self, method: str, env: str, seeds: Iterable[int], **settings: Any):
        row = methods.get(method)
        if row.on_policy:
            raise ValueError(
                f"Seeds needs a method with a replay, but {row.name} learns from rollouts: "
                "train each seed by itself"
            )
        numbers = list(seeds)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError(f"seeds must be one or more different numbers, got {numbers}")
        kind = agent_class(row.name)
        self.agents: list[Any] = [kind(env, seed=seed, **settings) for seed in numbers]
        self.trainings: list[Any] = [agent.training for agent in self.agents]
        self.episodes: list[list[dict[str, float]]] = [[] for _ in numbers]
        first = self.trainings[0]
        self.compiled = compiled.compile_stacked(
            row.load_agent(), first.config, first.spec, len(first.compiled.metrics)
        )

    @property
    def step(self) -> int:
        """The environment steps of each run so far; of the shortest, if they differ."""
        return min(int(training.step) for training in self.trainings)

    def learn(self, total_timesteps: int) -> "Seeds":
        """Train every run for `total_timesteps` further steps; `agents` then hold the result."""
        axes = self.compiled.axes
        self.stacked = compiled.stack([training.device for training in self.trainings], axes)
        for number, training in enumerate(self.trainings):
            training.end_agent_episode = partial(self._end_agent_episode, number)
        until = self.step + total_timesteps
        try:
            while self.step < until:
                self._advance()
        finally:
            for number, training in enumerate(self.trainings):
                training.device = compiled.unstack(self.stacked, axes, number)
                del training.end_agent_episode
            del self.stacked
        for training in self.trainings:
            training.check()
        return self

    def _advance(self) -> None:
        """Advance all runs at once, as `OffPolicyTraining.advance` does for one."""
        begun = [training.begin() for training in self.trainings]
        learning = all(ready for _, ready in begun)
        packed: Any = [None] * len(begun)
        if learning:
            spent = np.array([training.spent for training in self.trainings])
            observations = np.stack([obs for obs, _ in begun])
            carry, packed = self.compiled.act(self.stacked.agent, observations, spent)
            self.stacked = self.stacked._replace(agent=self.stacked.agent._replace(**carry))
        if self.trainings[0].pending is not None:
            ingest = self.compiled.learn if learning else self.compiled.store
            self.stacked = ingest(self.stacked, np.stack([t.pending for t in self.trainings]))
        if learning:
            packed = np.asarray(packed)
        for number, training in enumerate(self.trainings):
            self.episodes[number] += training.step_env(packed[number])

    def _end_agent_episode(self, number: int, cost: float, decisions: int) -> float:
        agents, multiplier = self.compiled.end_episode(
            self.stacked.agent, np.int32(number), np.float32(cost), np.float32(decisions)
        )
        self.stacked = self.stacked._replace(agent=agents)
        return float(multiplier)
