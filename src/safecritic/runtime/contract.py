"""The form of a contract: every field has a type and bounds, and no other field is allowed."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from .schema import Count, Digest, Matching, Name, Within, problems

LARGEST = float(2**64)  # of a number in a contract: what a float32 network can work with
Number = Annotated[float, Within(-LARGEST, LARGEST)]
NotNegative = Annotated[float, Within(0, LARGEST)]
Positive = Annotated[float, Within(1e-30, LARGEST)]
Size = Annotated[int, Within(1, 100_000)]
Depth = Annotated[int, Within(2, 64)]
Label = Annotated[str, Matching(r"[^\x00-\x1f\x7f]{1,200}", "a short name on one line")]
Labels = Annotated[list[Label], Within(1, 100_000)]
Bounds = Annotated[list[float | None], Within(1, 100_000)]
DTYPES = Literal["float16", "float32", "float64"]


class Closed:
    """A form without other keys."""

    CLOSED: ClassVar[bool] = True


@dataclass
class Layers(Closed):
    layers: Depth


@dataclass
class Actor(Layers):
    activation: Literal["relu", "tanh"]
    squash: Literal["tanh", "clip"]


@dataclass
class Safety(Layers):
    clipped: bool


@dataclass
class Screen(Closed):
    tolerance: Number
    price: NotNegative
    around: bool
    budget: bool


@dataclass
class NetworkForm(Closed):
    """What `runtime.network` builds the decision from."""

    observation: Size
    action: Size
    near: list[Count]
    scaled: bool
    actor: Actor
    safety: Safety | None
    reward: Layers | None
    cost_unit: Positive
    influence: bool
    screen: Screen | None
    cost_limit: NotNegative
    action_low: list[Number]
    action_high: list[Number]


@dataclass
class Part(Closed):
    """One part of an observation: its keys, its shape, the values of discrete numbers."""

    path: Annotated[list[str | int], Within(0, 16)]
    shape: Annotated[list[Size], Within(0, 8)]
    discrete: (
        Annotated[
            list[Annotated[list[Annotated[int, Within(-(2**31), 2**31)]], Within(2, 2)]],
            Within(1, 100_000),
        ]
        | None
    )


@dataclass
class Observation(Closed):
    names: Labels
    units: Labels
    low: Bounds
    high: Bounds
    parts: Annotated[list[Part], Within(1, 10_000)]
    bounds_from: Annotated[list[Literal["environment", "training"]], Within(1, 100_000)]
    scaling: Label


@dataclass
class Action(Closed):
    shape: Annotated[list[Size], Within(0, 8)]
    dtype: DTYPES
    names: Labels
    units: Labels
    low: list[Number]
    high: list[Number]
    scaling: Label


@dataclass
class Answers(Closed):
    fallback: Literal["hold", "zero"] | list[Number]
    hold_at_most: Annotated[int, Within(0, 10**6)]
    late_after: Positive | None


@dataclass
class Distribution(Closed):
    shares: Annotated[list[Annotated[float, Within(0, 1)]], Within(2, 1_000)]
    values: Annotated[list[Number], Within(2, 1_000)]


@dataclass
class Contract(Closed):
    """contract.json of a policy file."""

    method: Name
    task: Name
    steps: Count
    seed: Count
    cost_limit: NotNegative
    period: Positive | None
    action_repeat: Annotated[int, Within(1, 10**6)]
    observation: Observation
    action: Action
    on_bad_input: Answers
    training: dict[str, Distribution]
    versions: dict[str, Label]
    network: NetworkForm
    parameters_sha256: Digest
    graph_sha256: Digest | None
    policy_sha256: Digest


def wrong(contract: Any) -> str:
    """Return what is wrong with a contract in a line; an empty text if nothing is."""
    for key, expected, got in problems(Contract, contract):
        return f"{key or 'contract'}: expected {expected}, got {got}"
    observation, action, network = (contract[x] for x in ("observation", "action", "network"))
    n, m = network["observation"], network["action"]
    sizes = {f"observation.{x}": (observation[x], n)
             for x in ("names", "units", "low", "high", "bounds_from")}  # fmt: skip
    sizes |= {f"action.{x}": (action[x], m) for x in ("names", "units", "low", "high")}
    sizes |= {f"network.action_{x}": (network[f"action_{x}"], m) for x in ("low", "high")}
    if isinstance(contract["on_bad_input"]["fallback"], list):
        sizes["on_bad_input.fallback"] = (contract["on_bad_input"]["fallback"], m)
    for key, (values, size) in sizes.items():
        if len(values) != size:
            return f"{key}: expected {size} entries, got {len(values)}"
    if any(place >= n for place in network["near"]):
        return f"network.near: expected places below {n}"
    parts = [_size(part) for part in observation["parts"]]
    if None in parts or sum(x or 0 for x in parts) != n:
        return f"observation.parts: expected parts of {n} numbers together"
    plain = [not part["path"] for part in observation["parts"]]
    if any(plain) and len(plain) > 1:
        return "observation.parts: expected one without a path, or paths to each"
    if math.prod(action["shape"]) != m:
        return f"action.shape: expected a shape of {m} numbers"
    for key, about in (("observation", observation), ("action", action)):
        for low, high in zip(about["low"], about["high"], strict=True):
            if low is not None and high is not None and low > high:
                return f"{key}.low: expected at most {high:g}, as in {key}.high, got {low:g}"
    same = [(action[x], network[f"action_{x}"]) for x in ("low", "high")]
    if any(x != y for x, y in [*same, (contract["cost_limit"], network["cost_limit"])]):
        return "network: its bounds and limit are not those of the contract"
    for key, known in contract["training"].items():
        if len(known["shares"]) != len(known["values"]):
            return f"training.{key}: expected as many values as shares"
    return ""


def _size(part: dict[str, Any]) -> int | None:
    """Return how many numbers a part becomes; None if its shape does not fit its values."""
    number = math.prod(part["shape"])
    if part["discrete"] is None:
        return number
    counts = [size for _, size in part["discrete"]]
    return sum(counts) if len(counts) == number and min(counts) >= 1 else None
