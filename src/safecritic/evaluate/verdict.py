"""Verdicts in words, each with the number that decides it. Imports no JAX.

    of_costs(costs, limit)           KEPT      mean cost 0.54 (95% interval 0.37 to 0.71 ...
    of_bounds(low, high, limit, "")  the same for an interval that was computed elsewhere
    of_critic(auc, ratio)            USELESS   AUC 0.51: it ranks actions hardly better than chance

A limit is kept if the whole interval of the mean cost is within it, not kept if the whole interval
is above it, and otherwise it cannot be told.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

KEPT, BROKEN, OPEN = "KEPT", "NOT KEPT", "CANNOT BE TOLD"
USEFUL, USELESS = "USEFUL", "USELESS"
ROUNDING = 1e-6  # five costs of 0.2 are a little more than 1
LEAST = 5  # equal costs that say anything: their interval has no width
LEAST_AUC = 0.6  # 0.5 is chance
MOST_RATIO = 3.0  # of the expected to the realised cost, and the other way round
MOST_NEEDED = 10_000  # values that somebody might still collect


class Verdict(NamedTuple):
    """A word, and the number that decides it in a sentence without its full stop."""

    word: str
    reason: str

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"


def of_costs(costs: Sequence[float] | np.ndarray, limit: float, of: str = "episodes") -> Verdict:
    """Judge the mean of the costs of some episodes, or of some seeds, by its 95% interval."""
    from safecritic.core.statistics import interval_of_mean  # SciPy: not before it is needed

    known = np.asarray(costs, np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    if n < 2:
        seen = f"cost {known[0]:.3g} of one of the {of} only" if n else f"no {of} yet"
        return Verdict(OPEN, f"{seen}, limit {limit:g}")
    mean, low, high = interval_of_mean(known)
    spread = float(known.std(ddof=1))
    if spread <= ROUNDING and n < LEAST:
        return Verdict(OPEN, f"cost {mean:.3g} in each of {n} {of} only, limit {limit:g}")
    found = of_bounds(low, high, limit, f"mean cost {mean:.3g} of {n} {of}, 95% interval")
    if found.word != OPEN:
        return found
    return Verdict(OPEN, f"{found.reason}; {_needed(n, spread, abs(mean - limit), of)}")


def of_bounds(low: float, high: float, limit: float, about: str) -> Verdict:
    """Judge a quantity that lies between two bounds; `about` says what it is."""
    reason = f"{about} {low:.3g} to {high:.3g}, limit {limit:g}"
    if high <= limit + ROUNDING:
        return Verdict(KEPT, reason)
    return Verdict(BROKEN if low > limit + ROUNDING else OPEN, reason)


def _needed(n: int, spread: float, distance: float, of: str) -> str:
    """Return how many values, of which there are n, would probably tell so far from the limit."""
    number = (2.0 * spread / distance) ** 2 if distance > 0 else math.inf
    if number > MOST_NEEDED:
        return "it is too close to the limit to be told"
    if number < 1.5 * n:
        return f"a few more {of} would tell"
    digits = 10 ** max(int(math.log10(max(number, 1.0))), 0)
    return f"about {math.ceil(number / digits) * digits:,} {of} would tell"


def of_critic(auc: float | None, ratio: float | None) -> Verdict:
    """Judge whether Q_C tells costly decisions from others, and how large costs are."""
    auc, ratio = (math.nan if x is None else x for x in (auc, ratio))
    if math.isnan(auc):
        return Verdict(OPEN, "no AUC: either no cost lay ahead of these decisions, or of all")
    if auc < LEAST_AUC:
        return Verdict(USELESS, f"AUC {auc:.2f}: it ranks decisions hardly better than chance, 0.5")
    if ratio > MOST_RATIO or ratio < 1.0 / MOST_RATIO:
        return Verdict(USELESS, f"it expects {ratio:.2g} times the cost that comes, AUC {auc:.2f}")
    about = "" if math.isnan(ratio) else f", and it expects {ratio:.2f} times the cost that comes"
    return Verdict(USEFUL, f"AUC {auc:.2f}{about}")
