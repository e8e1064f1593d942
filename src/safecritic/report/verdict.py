"""Which method to take on each task, in one sentence; docs/report.md has the rule."""

from dataclasses import dataclass

import numpy as np

from safecritic.agents.methods import METHODS
from safecritic.core.statistics import can_be_told_apart, told_apart
from safecritic.report.data import Study, listed, steps_text, title
from safecritic.study.grid import limit_text
from safecritic.study.table import ROUNDING

NEAR = 0.01  # of the highest mean: too little to decide by
SUCCESS, REWARD, COST = "deployed_success", "deployed_reward", "deployed_cost"


@dataclass(frozen=True)
class Verdict:
    """What a study says about one case."""

    case: str
    about: str  # task, limit, steps
    text: str
    kind: str  # take, ahead (too few seeds), none (no method keeps the limit), empty
    method: str = ""


def verdicts(study: Study) -> list[Verdict]:
    return [verdict(study, case) for case in study.cases]


def verdict(study: Study, case: str) -> Verdict:
    run, left_out = study.comparable(case)
    about = f"{study.case_of[case].task}, limit {limit_text(study.limit(case))}"
    if not run:
        return Verdict(case, about, "no run is finished.", "empty")
    steps = [count for method in run for count in study.steps(method, case)]
    about += f", {steps_text(min(steps), max(steps))} steps"
    kept = [method for method in run if study.keeps(method, case)]
    counts = [len(study.of(method, case)) for method in run]
    fewest = min(counts)
    few = not can_be_told_apart(fewest, max(counts))
    seeds = f"{fewest} seed{'s are' if fewest != 1 else ' is'} too few"
    rest = _about(left_out, "has", "have", "too few seeds to be compared")
    if not kept:
        tail = [f"{seeds} to be sure of it"] * few + rest
        return Verdict(case, about, "; ".join([_none(study, case, run), *tail]) + ".", "none")
    equal = _as_well(study, case, _as_well(study, case, kept, SUCCESS, few), REWARD, few)
    chosen = max(equal, key=lambda method: _score(study, case, method))
    alone = len(run) == 1
    tail = []
    if chosen in METHODS and not METHODS[chosen].constrained:
        tail.append("it looks at reward alone, so the limit asks for nothing")
    if alone:
        tail.append("no other method was run")
    elif len(kept) == 1:
        tail.append("no other method keeps the limit")
    if few:
        tail.append(f"{seeds} to {'be sure of it' if alone else 'tell methods apart'}")
    elif len(equal) > 1:
        alike = [x for x in _equal(study, case, equal, COST, chosen) if x != chosen]
        dearer = [x for x in equal if x not in (chosen, *alike)]
        tail += _about(dearer, "does", "do", "as well at more cost")
        tail += _about(alike, "cannot", "cannot", "be told apart from it")
    elif len(kept) > 1:
        tail.append("no other method that keeps the limit does as well")
    tail += rest
    head = f"{title(chosen)} is ahead" if few else f"take {title(chosen)}"
    head = f"{title(chosen)} keeps the limit" if alone else head
    if min(steps) < max(steps):
        head += f" after {steps_text(*study.steps(chosen, case))} steps"
    text = "; ".join([f"{head}: {_numbers(study, case, chosen)}", *tail]) + "."
    return Verdict(case, about, text, "ahead" if few else "take", chosen)


def _none(study: Study, case: str, run: list[str]) -> str:
    """Return the sentence for a limit that nobody keeps: who is nearest."""
    costs = {method: study.summary(method, case, COST) for method in run}
    known = {method: cost for method, cost in costs.items() if cost.n}
    if not known:
        return "no cost is known"
    nearest = min(known, key=lambda method: known[method].mean)
    kept, number = study.within(nearest, case)
    cost = known[nearest].mean_text()
    on_average = known[nearest].mean <= study.limit(case, nearest) + ROUNDING
    but = " on average, but" if on_average else ","
    numbers = f"cost {cost}{but} within it in {kept} of {number} seeds"
    if len(run) == 1:
        return f"{title(nearest)} does not keep the limit: {numbers}; no other method was run"
    return f"no method keeps the limit; nearest is {title(nearest)}: {numbers}"


def _numbers(study: Study, case: str, method: str) -> str:
    kept, number = study.within(method, case)
    success = study.summary(method, case, SUCCESS)
    parts = [f"success {success.mean_text(0, 100.0)} %"] if success.n else []
    parts.append(f"reward {study.summary(method, case, REWARD).mean_text()}")
    parts.append(f"cost {study.summary(method, case, COST).mean_text()}")
    return f"{', '.join(parts)}, within the limit in {kept} of {number} seeds"


def _about(methods: list[str], verb: str, verbs: str, rest: str) -> list[str]:
    """Return what is true of some methods as a clause; none of no method."""
    names = listed([title(method) for method in methods])
    return [f"{names} {verb if len(methods) == 1 else verbs} {rest}"] if methods else []


def _score(study: Study, case: str, method: str) -> tuple[float, ...]:
    """Return what decides among equals: the least cost, then the highest reward."""
    cost, reward = (study.summary(method, case, column).mean for column in (COST, REWARD))
    return tuple(-np.inf if np.isnan(x) else x for x in (-cost, reward))


def _as_well(study: Study, case: str, methods: list[str], column: str, few: bool) -> list[str]:
    """Return the methods whose mean is near the highest; or, if not few, not told apart from it."""
    means = {method: study.summary(method, case, column).mean for method in methods}
    means = {method: mean for method, mean in means.items() if not np.isnan(mean)}
    if not means:
        return methods
    best = max(means, key=means.__getitem__)
    least = means[best] - NEAR * abs(means[best])
    equal = [] if few else _equal(study, case, methods, column, best)
    return [x for x in methods if means.get(x, -np.inf) >= least or x in equal]


def _equal(study: Study, case: str, methods: list[str], column: str, best: str) -> list[str]:
    """Return the methods that cannot be told apart from one of them, with that one."""
    theirs = study.values(best, case, column)
    return [
        m for m in methods if m == best or not told_apart(study.values(m, case, column), theirs)
    ]
