"""What a policy remembers of an episode: its budget and the action that it holds.

It is plain numbers and arrays: saved and brought back, an episode goes on to the bit.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(slots=True)
class Row:
    """The memory of one environment; A numbers make an action."""

    unit_action: np.ndarray  # (A,) of the last decision, in [-1, 1]
    action: np.ndarray  # (A,) the same in the environment's unit
    spent: float = 0.0  # before the last decision
    pending: float = 0.0  # since: the costs of a held action are summed before they are added
    held: int = 0  # calls for which the last action is still to be held
    kept: int = 0  # calls in a row that the fallback has held an action

    @property
    def cost(self) -> float:
        """What the episode has cost so far."""
        return self.spent + self.pending


NAMES = [field.name for field in dataclasses.fields(Row)]


class Memory:
    """The memory of N environments: what was spent, and the held action.

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
        columns = ([x if x.ndim else x.item() for x in np.asarray(arrays[name])] for name in NAMES)
        return cls([Row(*values) for values in zip(*columns, strict=True)])
