"""A certificate: what the next episode may cost, and everything needed to check that again.

Two statements, neither of which assumes a distribution; both assume that the next episode is drawn
like the certifying ones, in no particular order (exchangeable episodes):

    split conformal   P(cost of the next episode <= bound) >= confidence, with bound the k-th
                      smallest of n costs, k = ceil((n + 1) confidence)
    Clopper-Pearson   with this confidence, the share of episodes above the limit is at most the
                      rate at which so few of n would be above it only with 1 - confidence

Two permutation tests stand beside them: where the costs have a trend, or each depends on the one
before, the bounds mean nothing. Numbers, verdict and sentences are computed from the costs whenever
a certificate is read; what its file says otherwise is an alteration.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from .schema import Count, Digest, Matching, Name, Within, problems

FORMAT = 2
KEPT, NOT_KEPT, UNTOLD = "KEPT", "NOT KEPT", "CANNOT BE TOLD"
SURPRISE = 0.005  # of a test: 1 in 100 certificates of exchangeable episodes is told to be none
PERMUTATIONS = 999
ROUNDING = 1e-9  # of a sum of costs
WORST = 0.1  # share of the episodes whose mean stands beside that of all
NUMBERS = ("bound", "above", "rate_bound", "mean_cost", "worst_decile", "mean_reward",
           "p_trend", "p_correlation")  # fmt: skip

Costs = Annotated[list[Annotated[float, Within(0, 1e30)]], Within(1, 100_000)]
Rewards = Annotated[list[float], Within(1, 100_000)]
Share = Annotated[float, Within(0, 1)]
Seed = Annotated[int, Within(0, 2**63)]
Base64 = Annotated[str, Matching(r"[A-Za-z0-9+/=]{1,200}", "base64")]


@dataclass
class Made:
    """Episodes, and the numbers that follow from them."""

    CLOSED: ClassVar[bool] = True

    bound: float
    above: Count
    rate_bound: Share
    mean_cost: float
    worst_decile: float
    mean_reward: float
    p_trend: Share
    p_correlation: Share
    faults: Count
    costs: Costs
    rewards: Rewards


@dataclass
class World:
    """The environment that was run."""

    CLOSED: ClassVar[bool] = True

    task: Name
    id: Name | None  # None: an object that somebody made
    kind: Annotated[str, Matching(r"[\w.<>]{1,300}", "the name of a class")]
    ours: bool  # a task of this package, whose episodes can be replayed
    sha256: Digest  # of its description: spaces, wrappers, arguments


@dataclass
class Tried:
    CLOSED: ClassVar[bool] = True

    tolerance: float
    bound: float
    reward: float


@dataclass
class Chosen:
    CLOSED: ClassVar[bool] = True

    tolerance: float
    within_limit: bool
    tried: Annotated[list[Tried], Within(1, 100)]
    episodes: Annotated[int, Within(1, 100_000)]
    seed: Seed


@dataclass
class Signature:
    CLOSED: ClassVar[bool] = True

    algorithm: Literal["ed25519"]
    public_key: Base64
    signature: Base64


@dataclass
class Certificate:
    """certificate.json."""

    CLOSED: ClassVar[bool] = True

    format: Literal[2]
    verdict: Literal["KEPT", "NOT KEPT", "CANNOT BE TOLD"]
    policy_sha256: Digest
    parameters_sha256: Digest
    method: Name
    environment: World
    cost_limit: Annotated[float, Within(0, 1e30)]
    tolerance: float | None
    confidence: Annotated[float, Within(1e-6, 1 - 1e-6)]
    episodes: Annotated[int, Within(1, 100_000)]
    seed: Seed
    screen_on: Made | None
    screen_off: Made
    choice_of_tolerance: Chosen | None
    attempt: Annotated[int, Within(1, 10**9)] | None
    versions: dict[str, str]
    signature: Signature | None


# ---------------------------------------------------------------- numbers


def least_episodes(confidence: float) -> int:
    """Return the least number of episodes for which the conformal bound is finite."""
    return math.ceil(round(confidence / (1.0 - confidence), 9))


def conformal_bound(costs: Sequence[float] | np.ndarray, confidence: float) -> float:
    """Return the split-conformal bound on the next cost; infinite for too few costs."""
    rank = math.ceil(round((len(costs) + 1) * confidence, 9))
    return float(np.sort(costs)[rank - 1]) if rank <= len(costs) else math.inf


def rate_bound(above: int, episodes: int, confidence: float) -> float:
    """Return the Clopper-Pearson upper bound on a rate: `above` of `episodes` were seen."""
    if above >= episodes:
        return 1.0
    k = np.arange(1, above + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((episodes - k + 1) / k))])  # of k of them
    k = np.arange(above + 1)
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2.0
        terms = ways + k * math.log(rate) + (episodes - k) * math.log1p(-rate)
        likely = float(np.exp(terms - terms.max()).sum()) * math.exp(terms.max())
        low, high = (rate, high) if likely > 1.0 - confidence else (low, rate)
    return high


def exchangeable(costs: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the p-values of a trend over the episodes, and of each depending on the one before.

    Permutation tests on ranks (Spearman's and the circular serial correlation): if the episodes are
    exchangeable, every order of them is as likely, whatever their costs.
    """
    x = np.asarray(costs, np.float64)
    _, place, number = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(number) - (number - 1) / 2.0)[place.ravel()]
    ranks -= ranks.mean()
    time = np.arange(len(x)) - (len(x) - 1) / 2.0
    # its stream is the same in every version of NumPy, as a check needs
    orders = np.random.RandomState(0).random_sample((PERMUTATIONS, len(x))).argsort(axis=1)
    rows = np.concatenate([ranks[None], ranks[orders]])
    expected = -(ranks @ ranks) / max(len(x) - 1, 1)
    trend = np.abs(rows @ time)
    serial = np.abs(np.einsum("ij,ij->i", rows, np.roll(rows, 1, axis=1)) - expected)
    return _share(trend), _share(serial)


def _share(values: np.ndarray) -> float:
    """Return the share of values that are no smaller than the first, itself included."""
    slack = 1e-9 * (1.0 + values.max())
    return float(np.mean(values >= values[0] - slack))


def is_above(cost: float, limit: float) -> bool:
    """Return whether a cost is above the limit by more than rounding."""
    return cost > limit + ROUNDING * max(limit, 1.0)


def numbers(
    costs: Sequence[float], rewards: Sequence[float], limit: float, confidence: float
) -> dict[str, Any]:
    """Return what follows from the costs of episodes: the entries NUMBERS."""
    above = sum(is_above(cost, limit) for cost in costs)
    worst = np.sort(costs)[-math.ceil(WORST * len(costs)) :]
    trend, correlation = exchangeable(costs)
    return {
        "bound": conformal_bound(costs, confidence),
        "above": above,
        "rate_bound": rate_bound(above, len(costs), confidence),
        "mean_cost": float(np.mean(costs)),
        "worst_decile": float(np.mean(worst)),
        "mean_reward": float(np.mean(rewards)),
        "p_trend": trend,
        "p_correlation": correlation,
    }


# ---------------------------------------------------------------- reading


def deciding(certificate: dict[str, Any]) -> dict[str, Any]:
    """Return the episodes that a certificate is about: with the screen on where there is one."""
    return certificate["screen_on"] or certificate["screen_off"]


def verdict(certificate: dict[str, Any]) -> str:
    """Return whether the next episode keeps the limit with the certificate's confidence."""
    made = deciding(certificate)
    if min(made["p_trend"], made["p_correlation"]) < SURPRISE:
        return UNTOLD
    return NOT_KEPT if is_above(made["bound"], certificate["cost_limit"]) else KEPT


def wrong(certificate: Any) -> str:
    """Return what of a certificate does not follow from its costs; an empty text if all does."""
    for key, expected, got in problems(Certificate, certificate):
        return f"{key or 'it'}: expected {expected}, got {got}"
    n, confidence = certificate["episodes"], certificate["confidence"]
    if n < least_episodes(confidence):
        return f"episodes: expected {least_episodes(confidence)} or more, got {n}"
    for name in ("screen_on", "screen_off"):
        made = certificate[name]
        if made is None:
            continue
        if len(made["costs"]) != n or len(made["rewards"]) != n:
            return f"{name}: expected costs and rewards of {n} episodes"
        true = numbers(made["costs"], made["rewards"], certificate["cost_limit"], confidence)
        for key, value in true.items():
            if not math.isclose(made[key], value, rel_tol=1e-9, abs_tol=1e-9):
                return f"{name}.{key}: {made[key]:.6g} where its costs give {value:.6g}"
    if certificate["verdict"] != verdict(certificate):
        return f"verdict: {certificate['verdict']} where its costs give {verdict(certificate)}"
    chosen = certificate["choice_of_tolerance"]
    if chosen is not None and shared(chosen, certificate):
        return "choice_of_tolerance: the tolerance was chosen on scenes that certify it"
    return ""


def shared(some: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two rows of scenes, each from `seed` on, have one in common."""
    first, second = sorted([some, other], key=lambda x: x["seed"])
    return second["seed"] < first["seed"] + first["episodes"]


def signed_bytes(certificate: dict[str, Any]) -> bytes:
    """Return what a signature is of: all of a certificate but the signature."""
    content = {k: x for k, x in certificate.items() if k not in ("signature", "sha256")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def headline(certificate: dict[str, Any]) -> str:
    """Return the verdict with the number that decides it."""
    made, word = deciding(certificate), verdict(certificate)
    limit = f"the limit of {certificate['cost_limit']:g}"
    if word == UNTOLD:
        return f"{word}: the costs have an order, and the bounds hold for episodes without one"
    share = f"{100 * certificate['confidence']:g}%"
    side = "within" if word == KEPT else "above"
    return f"{word}: the {share} bound on the next cost, {made['bound']:.4g}, is {side} {limit}"


def statement(certificate: dict[str, Any]) -> str:
    """Return the sentences that a person can sign, from the numbers."""
    made, world = deciding(certificate), certificate["environment"]
    share, n = f"{100 * certificate['confidence']:g}%", certificate["episodes"]
    screen = "with its screen on" if certificate["screen_on"] else "without a screen"
    given = "" if world["id"] else f", an object of the class {world['kind']}"
    last = certificate["seed"] + n - 1
    text = (
        f"{headline(certificate)}. The next episode of the policy "
        f"{certificate['policy_sha256'][:12]} ({certificate['method']} on {world['task']}{given}, "
        f"{screen}) costs at most {made['bound']:.4g} with a probability of at least {share}. With "
        f"a confidence of {share}, at most {100 * made['rate_bound']:.2f}% of its episodes cost "
        f"more than the limit of {certificate['cost_limit']:g}: {made['above']} of {n} fresh "
        f"episodes (seeds {certificate['seed']} to {last}) did; their mean is "
        f"{made['mean_cost']:.4g}, that of the worst tenth {made['worst_decile']:.4g}. This "
        "assumes that the next episode is drawn like those: the same task, robot, sensors and "
        "surroundings, and no trend from one episode to the next (exchangeable episodes). It is "
        "void for any other policy or environment."
    )
    p = {"a trend over them": made["p_trend"], "each depending on the one before it":
         made["p_correlation"]}  # fmt: skip
    for name, value in p.items():
        if value < SURPRISE:
            text += f" The episodes contradict that: {name} (p = {value:.3f}), so no bound holds."
    attempt = certificate["attempt"]
    if attempt is None:
        text += " How often these parameters were certified before is not known."
    elif attempt > 1:
        left = max(0.0, 1.0 - attempt * (1.0 - certificate["confidence"]))
        text += (
            f" These parameters were certified {attempt - 1} times before: for the best of "
            f"{attempt} certificates the confidence is {100 * left:.4g}%."
        )
    if made["faults"]:
        text += f" The fallback answered {made['faults']} calls in these episodes."
    return text
