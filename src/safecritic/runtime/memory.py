"""What a policy remembers of an episode: budget, held action, and what its escape has seen.

It is plain numbers and arrays: saved and brought back, an episode goes on to the bit.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

AFTER = 6  # decisions in a row after which a policy counts as stuck: enough not to be chance


@dataclasses.dataclass(slots=True)
class Row:
    """The memory of one environment; A numbers make an action, O an observation."""

    unit_action: np.ndarray  # (A,) of the last decision, in [-1, 1]
    action: np.ndarray  # (A,) the same in the environment's unit
    seen: list[np.ndarray]  # (O,) of the last AFTER decisions, as are the next two
    tried: list[np.ndarray]  # (A,)
    way: np.ndarray  # (A,) the way out that is held
    paid: list[float] = dataclasses.field(default_factory=lambda: [0.0] * AFTER)  # before each
    spent: float = 0.0  # before the last decision
    pending: float = 0.0  # since: the costs of a held action are summed before they are added
    held: int = 0  # calls for which the last action is still to be held
    kept: int = 0  # calls in a row that the fallback has held an action
    costly: int = 0  # decisions in a row that cost something
    changed: int = 0  # decisions in a row that the screen changed
    watched: int = 0  # decisions of a way out whose cost is not known yet
    worth: float = 0.0  # what a way out may still cost before staying had been better
    ends: bool = False  # no more ways out in this episode
    gives_way: bool = False  # the way out is the policy's own action
    given: int = 0  # times that the screen gave way
    left: int = 0  # decisions for which the way out is still held
    number: int = 0  # of ways out so far

    @classmethod
    def first(cls, obs_dim: int, unit_action: np.ndarray, action: np.ndarray) -> "Row":
        """Return the memory at the start of an episode, before which these were the actions."""
        nothing = np.zeros(len(action))
        return cls(
            unit_action=unit_action,
            action=action,
            seen=[np.zeros(obs_dim, np.float32)] * AFTER,
            tried=[nothing] * AFTER,
            way=nothing.astype(np.float32),
        )

    @property
    def cost(self) -> float:
        """What the episode has cost so far."""
        return self.spent + self.pending


NAMES = [field.name for field in dataclasses.fields(Row)]


class Memory:
    """The memory of N environments: what was spent, the held action, the way out of a dead end.

    Examples:
        >>> action, memory = agent.predict(observation)
        >>> memory.spend(0.2)
        >>> action, memory = agent.predict(observation, memory)
    """

    def __init__(self, rows: list[Row]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def spend(self, cost: Any) -> None:
        """Add what the last step cost: a number, or one for each row."""
        costs = np.broadcast_to(np.asarray(cost, np.float64), len(self.rows)).tolist()
        if not all(0.0 <= x < math.inf for x in costs):
            raise ValueError(f"a cost must be finite and >= 0, got {cost}")
        for row, x in zip(self.rows, costs, strict=True):
            row.pending += x

    def copy(self) -> "Memory":
        """Return a copy; its arrays are shared, as none is ever written into."""
        return Memory([dataclasses.replace(row) for row in self.rows])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return an array (N, ...) for each thing remembered, for `np.savez` or safetensors."""
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in NAMES}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Memory":
        """Return what `to_arrays` was given."""
        columns = ([_of_a_row(name, x) for x in np.asarray(arrays[name])] for name in NAMES)
        return cls([Row(*values) for values in zip(*columns, strict=True)])


def _of_a_row(name: str, value: Any) -> Any:
    if value.ndim == 0:
        return value.item()
    return list(value) if name in ("seen", "tried", "paid") else value
