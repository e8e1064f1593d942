"""Several seeds of one method in one program, for devices that one run leaves idle.

    from safecritic.seeds import Seeds

    runs = Seeds("usc", "CarGoal1", seeds=range(8))
    runs.learn(60_000)
    runs.agents[3].evaluate(20)

The agents' states are stacked and every compiled step works on all of them; the environments are
stepped one after another on the host. Each agent is what it would have become by itself, up to the
rounding of a batched matrix product. On a CPU separate processes (`safecritic study`) are the way:
XLA's batched product is slow there.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from safecritic.agent_classes import agent_class
from safecritic.methods import get
from safecritic.run import compiled as device


class Seeds:
    """Runs that differ in their seed alone, advanced together step by step."""

    def __init__(self, method: str, env: str, seeds: Iterable[int], **settings: Any):
        found = get(method)
        if found.on_policy:
            raise ValueError(f"{found.name} learns from rollouts: only methods with a replay")
        numbers = list(seeds)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError(f"seeds must be one or more different numbers, got {numbers}")
        kind = agent_class(found.name)
        self.agents: list[Any] = [kind(env, seed=seed, **settings) for seed in numbers]
        self.trainings: list[Any] = [agent.training for agent in self.agents]
        self.episodes: list[list[dict[str, float]]] = [[] for _ in numbers]
        first = self.trainings[0]
        self.compiled = device.compile_together(
            found.load_agent(), first.config, first.spec, len(first.compiled.metrics)
        )

    @property
    def step(self) -> int:
        """Environment steps of each run so far."""
        return int(self.trainings[0].step)

    def learn(self, total_timesteps: int) -> "Seeds":
        """That many further steps of every run; then ``agents`` have what was learned."""
        axes = self.compiled.axes
        self.stacked = device.together([training.device for training in self.trainings], axes)
        for number, training in enumerate(self.trainings):
            training.end_agent = partial(self._end_agent, number)
        try:
            for _ in range(total_timesteps):
                self._advance()
        finally:
            for number, training in enumerate(self.trainings):
                training.device = device.part(self.stacked, axes, number)
                del training.end_agent
            del self.stacked
        for training in self.trainings:
            training.check()
        return self

    def _advance(self) -> None:
        """`Training.advance` for all runs at once."""
        begun = [training.begin() for training in self.trainings]
        learning = begun[0][1]
        acted: Any = [None] * len(begun)
        if learning:
            small, packed = self.compiled.act(self.stacked.agent, np.stack([o for o, _ in begun]))
            self.stacked = self.stacked._replace(agent=self.stacked.agent._replace(**small))
        if self.trainings[0].pending is not None:
            take_in = self.compiled.learn if learning else self.compiled.store
            self.stacked = take_in(self.stacked, np.stack([t.pending for t in self.trainings]))
        if learning:
            acted = np.asarray(packed)
        for number, training in enumerate(self.trainings):
            self.episodes[number] += training.move(acted[number])

    def _end_agent(self, number: int, cost: float) -> float:
        agents, multiplier = self.compiled.end_episode(
            self.stacked.agent, np.int32(number), np.float32(cost)
        )
        self.stacked = self.stacked._replace(agent=agents)
        return float(multiplier)
