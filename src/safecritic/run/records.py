"""The forms of the files of a run and of the numbers in a checkpoint, for `core.schema`.

`CLOSED` classes are those whose keys become keywords.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from safecritic.core.schema import Count, Digest, Matching, Name, Within

SEED = Annotated[int, Within(0, 2**63 - 1)]
MethodName = Annotated[str, Matching(r"[\w-]{1,100}", "the name of a method")]
LONGEST_SETTING = 64  # numbers in one setting, such as widths of layers
NOT_NEGATIVE = Annotated[float, Within(0)]


@dataclass
class Declared:
    """What was declared about an environment: keywords of `adapt`."""

    CLOSED: ClassVar[bool] = True

    cost_key: str | None = None
    missing_cost: Literal["zero"] | None = None
    no_cost: bool | None = None
    success_key: str | None = None
    proximity: list[Count] | None = None
    cost: str | None = None  # the name of a function


@dataclass
class Spec:
    CLOSED: ClassVar[bool] = True

    obs_dim: Annotated[int, Within(1, 10**6)]
    action_dim: Annotated[int, Within(1, 10**4)]
    cost_max: NOT_NEGATIVE | None
    proximity: list[Count]


@dataclass
class Environment:
    """What an agent must know of its environment."""

    task: Name
    id: Name | None
    declared: Declared
    spec: Spec
    action_low: list[Any] | float  # one number for a box without a shape
    action_high: list[Any] | float
    action_dtype: Literal["float16", "float32", "float64"]


@dataclass
class Every:
    CLOSED: ClassVar[bool] = True

    log_every: Annotated[int, Within(1, 10**12)]
    critic_every: Annotated[int, Within(1, 10**12)]
    checkpoint_every: Annotated[int, Within(1, 10**12)]


@dataclass
class Config:
    """config.json of a run or a saved agent."""

    method: MethodName
    title: Annotated[str, Matching(r"[^<>\x00-\x1f\x7f$]{1,200}", "the title of a method")]
    task: Name
    seed: SEED
    paper_defaults: bool
    config: dict[str, Any]
    environment: Environment
    steps: Count
    versions: dict[str, str]
    every: Every | None = None


@dataclass
class Cut:
    bytes: Count
    sha256: Digest


@dataclass
class Tables:
    """The tables of a run when a checkpoint or the summary was written."""

    episodes: Cut
    updates: Cut


@dataclass
class SummaryFile:
    """summary.json, as far as a study reads it."""

    steps: Count
    episodes: Count
    tables: Tables
    run: Digest | None = None  # `folder.run_digest` of it; results of the run have the same
    warnings: Annotated[list[str], Within(0, 1_000)] | None = None


@dataclass
class EpisodeRow:
    """A deployment episode, as far as a report reads it."""

    episode: Count
    reward: float | None
    cost: NOT_NEGATIVE | None
    hazard_distance_mean: float | None


@dataclass
class EvaluationFile:
    """evaluation.json."""

    means: dict[str, float | None]
    safety_critic: dict[str, float | None]
    episodes: list[EpisodeRow]
    seed: Count | None = None
    screen: bool | None = None  # whether it was on; None: the method has none
    run: Digest | None = None  # of the run whose policy it was


@dataclass
class Errors:
    gradient_mse: float | None
    contrast_error: float | None
    entropy_error: float | None


@dataclass
class CostMap:
    """The measure `cost_map`."""

    extent: Annotated[float, Within(1e-6, 1e6)]
    instant: Errors
    discounted: Errors | None = None


@dataclass
class Calibration:
    """The measure `calibration`."""

    rank_correlation: float | None
    area: float | None
    random: float | None
    oracle: float | None
    excess: float | None


@dataclass
class TheoremRow:
    """The measure `theorem` for one number of alternatives."""

    m: Annotated[int, Within(1, 10**9)]
    premise: float | None
    left: float | None
    right: float | None
    larger: float | None
    holds: float | None
    says_something: float | None
    maxima_hold: float | None
    mirrored_left: float | None


@dataclass
class Measures:
    """measures.json; measures of other packages have a form of their own."""

    calibration: Calibration | None = None
    cost_map: CostMap | None = None
    theorem: Annotated[list[TheoremRow], Within(0, 1_000)] | None = None
    arrays_sha256: Digest | None = None
    run: Digest | None = None  # of the run that was measured


@dataclass
class Resources:
    """resources.json."""

    peak_memory_bytes: Annotated[float, Within(0, 2**63)]


@dataclass
class BestFile:
    """best.json of an `EvalCallback`."""

    step: Count
    reward: float
    cost: NOT_NEGATIVE


@dataclass
class WandbRun:
    """wandb.json."""

    id: Annotated[str, Matching(r"[\w-]{1,128}", "the id of a W&B run")]


# ---------------------------------------------------------------- inside a checkpoint


@dataclass
class Words128:
    state: Annotated[int, Within(0, 2**128 - 1)]
    inc: Annotated[int, Within(0, 2**128 - 1)]


@dataclass
class Rng:
    bit_generator: Literal["PCG64"]
    state: Words128
    has_uint32: Annotated[int, Within(0, 1)]
    uinteger: Annotated[int, Within(0, 2**32 - 1)]


@dataclass
class WatchState:
    messages: dict[str, str]
    episodes: Count
    steps: Count
    costly: bool
    course: Annotated[list[list[float | None]], Within(0, 500)]


@dataclass
class StreamNumbers:
    rng: Rng
    env: dict[str, str] | None = None
    elapsed: list[Count] | None = None


@dataclass(kw_only=True)
class Counters:
    step: Count
    episodes: Count
    watch: WatchState
    streams: Annotated[list[StreamNumbers], Within(1, 10_000)] | None
    tables: Tables | None = None


@dataclass(kw_only=True)
class OffPolicyNumbers(Counters):
    streams: Annotated[list[StreamNumbers], Within(1, 1)] | None
    lengths: list[Count]  # of the episodes that were not assessed yet
    terminated: list[bool]


@dataclass(kw_only=True)
class OnPolicyNumbers(Counters):
    last_episodes: Annotated[list[float], Within(2, 2)] | None
    metric_sums: dict[str, float]
    updates: Count


def is_setting(value: Any) -> bool:
    """Return whether a value from a file may be a setting: one value, or a few numbers."""
    if isinstance(value, list):
        return len(value) <= LONGEST_SETTING and all(_is_number(x) for x in value)
    return isinstance(value, str | bool) or value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**31  # what the device counts with
    return isinstance(value, float) and not math.isnan(value)
