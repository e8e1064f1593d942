"""The paper's claims, taken one by one against the runs of a study.

A claim is a row of tests, one for each task it is made on, which hold, do not hold, or cannot tell.
A difference holds if the means of two methods over their seeds lie on the claimed sides of each
other by more than chance explains (a permutation test over seeds, 5%). It does not hold if they lie
the other way round by more than that, or if the paper names a size and the 95% interval of ours
stays below it. A claim holds if all its tests hold, and does not hold if one of them does not.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safecritic.core import statistics
from safecritic.core.statistics import Interval
from safecritic.report.data import Study, listed, title
from safecritic.report.table import Table
from safecritic.study.grid import limit_text
from safecritic.study.table import NONE, ROUNDING, interval_text, number_text

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"
CARS = ("CarGoal1", "CarGoal2", "CarButton1", "CarButton2")
GOALS = (*CARS, "FetchReach")
TASKS = (*GOALS, "HalfCheetah")
NEAR = 0.05  # of a mean: no less means at most this much less


class Quantity(NamedTuple):
    """A number of a run: its column, and the paper's table and metric."""

    column: str
    table: str = ""
    metric: str = ""


REWARD, COST = (Quantity(x, "training", x) for x in ("reward", "cost"))
EARNED, DEPLOYED, SUCCESS = (
    Quantity(f"deployed_{x}", "deployment", x) for x in ("reward", "cost", "success")
)
DISTANCE = Quantity("deployed_hazard_distance_mean")
GRADIENT, CONTRAST, ENTROPY = (
    Quantity(f"cost_map/instant/{x}", "cost_map", x)
    for x in ("gradient_mse", "contrast_error", "entropy_error")
)
RANK, EXCESS = "calibration/rank_correlation", "calibration/excess"


class Finding(NamedTuple):
    """What one test found."""

    task: str
    paper: str
    here: str
    seeds: str
    verdict: str


# ---------------------------------------------------------------- the kinds of tests
# None: the study does not have the runs


def differs(
    study: Study,
    task: str,
    quantity: Quantity,
    method: str,
    other: str,
    sign: float,
    size: float = 0.0,
) -> Finding | None:
    """Test that a method has more (sign 1) or less (-1) of something than another.

    `other` is a method or "best", the best of all others. `size` is the claimed change, relative to
    the other's mean.
    """

    def judge(ours: np.ndarray, theirs: np.ndarray, change: Interval) -> str:
        most = change.high if sign > 0 else -change.low
        if size and most < size:  # NaN is below nothing
            return FAILS
        if not statistics.told_apart(ours, theirs):
            return OPEN
        return HOLDS if sign * change.value > 0 else FAILS

    if other != "best":
        return _compare(study, task, quantity, method, other, judge)
    means = {
        m: x.mean()
        for m in study.methods
        if m != method and len(x := study.known(m, task, quantity.column))
    }
    best = max(means, key=lambda name: sign * means[name], default="")
    return _compare(study, task, quantity, method, best, judge, f"against {title(best)}: ")


def no_less(study: Study, task: str, quantity: Quantity, method: str, other: str) -> Finding | None:
    """Test that a method has as much of something as another, or more."""

    def judge(ours: np.ndarray, theirs: np.ndarray, change: Interval) -> str:
        if not statistics.can_be_told_apart(len(ours), len(theirs)):
            return OPEN
        return HOLDS if change.low >= -NEAR else FAILS if change.high < -NEAR else OPEN

    return _compare(study, task, quantity, method, other, judge)


def breaks_the_limit(study: Study, task: str, method: str) -> Finding | None:
    """Test that a method's deployed cost is above the limit."""
    costs = study.known(method, task, DEPLOYED.column)
    if not len(costs):
        return None
    limit = study.limit(task, method)
    mean = statistics.interval_of_mean(costs)
    verdict = HOLDS if mean.low > limit else FAILS if mean.high <= limit + ROUNDING else OPEN
    kept, number = study.within(method, task)
    text = f"{_level_text(mean)}, limit {limit_text(limit)}, within it {kept} of {number}"
    theirs = study.paper_value("deployment", method, task, "cost")
    paper = NONE if theirs is None else f"{theirs.mean:.2f} contacts"
    return Finding(task, paper, text, str(number), verdict)


def always_succeeds(study: Study, task: str, method: str) -> Finding | None:
    """Test that every deployed episode reaches the goal."""
    runs = study.of(method, task)
    episodes = [row for run in runs for row in run.deployment]
    if not episodes:
        return None
    number, reached = len(episodes), sum(bool(row.get("success")) for row in episodes)
    theirs = study.paper_value("deployment", method, task, "success")
    paper = NONE if theirs is None else f"{theirs.mean:.0f}%"
    text = f"{100 * reached / number:.1f}%: {reached:,} of {number:,} episodes"
    return Finding(task, paper, text, str(len(runs)), HOLDS if reached == number else FAILS)


def level(
    study: Study, task: str, name: str, source: str, method: str, above: float, sign: float
) -> Finding | None:
    """Test that a number of a method is above (sign 1) or below (-1) a value."""
    values = study.known(method, task, source)
    if not len(values):
        return None
    mean = statistics.interval_of_mean(values)
    low, high = sorted(sign * (end - above) for end in mean[1:])  # NaN: cannot be told
    verdict = HOLDS if low > 0 else FAILS if high < 0 else OPEN
    return Finding(task, NONE, f"{name} {_level_text(mean)}", str(len(values)), verdict)


# ---------------------------------------------------------------- their numbers


def _compare(
    study: Study,
    task: str,
    quantity: Quantity,
    method: str,
    other: str,
    judge: Callable[[np.ndarray, np.ndarray, Interval], str],
    about: str = "",
) -> Finding | None:
    """Return what is found by comparing two methods; `judge` has the verdict."""
    ours, theirs = (study.known(name, task, quantity.column) for name in (method, other))
    if not len(ours) or not len(theirs):
        return None
    change = _change(ours, theirs)
    here = "{} [{}, {}]".format(*map(_percent, change))
    paper = _paper_change(study, task, quantity, method, other)
    seeds = f"{len(ours)}, {len(theirs)}"
    return Finding(task, paper, about + here, seeds, judge(ours, theirs, change))


def _change(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """Return the change relative to their mean, with its bootstrap interval over seeds."""

    def statistic(parts: list[np.ndarray]) -> np.ndarray:
        mean, other = (part.mean(axis=1) for part in parts)
        return (mean - other) / np.maximum(np.abs(other), 1e-9)

    return statistics.bootstrap([ours, theirs], statistic)


def _percent(value: float) -> str:
    if abs(value) < 99.95:
        return f"{100 * value:+z.0f}%"
    if abs(value) < 999:
        return f"{value + 1:.0f} times"
    return ">1000 times" if value > 0 else "<-1000 times"  # of a mean of nearly 0: no more is known


def _level_text(mean: Interval) -> str:
    return number_text(mean.value) if np.isnan(mean.low) else interval_text(mean)


def _paper_change(study: Study, task: str, quantity: Quantity, method: str, other: str) -> str:
    _, table, metric = quantity
    values = [study.paper_value(table, name, task, metric) for name in (method, other)]
    if None in values:
        return NONE
    ours, theirs = (value.mean for value in values if value is not None)
    return _percent((ours - theirs) / abs(theirs)) if theirs else f"{ours:.2f} for {theirs:.2f}"


# ---------------------------------------------------------------- the claims


BUTTONS, GOAL2 = ("CarButton1", "CarButton2"), ("CarGoal2",)

# what the paper says, in our words, and what would show it: tasks, a test, its arguments after them
CLAIMS: dict[str, list[tuple[Any, ...]]] = {
    "DDPG keeps no limit": [(TASKS, breaks_the_limit, "ddpg")],
    "CarButton1: over training USC costs nearly 40% less than DDPG": [
        (("CarButton1",), differs, COST, "usc", "ddpg", -1.0, 0.39)
    ],
    "USC costs less over training than DDPG": [(TASKS, differs, COST, "usc", "ddpg", -1.0)],
    "CarGoal2: over training USC costs less than SC": [(GOAL2, differs, COST, "usc", "sc", -1.0)],
    "CarGoal2: over training USC earns more than SC and CSC": [
        (GOAL2, differs, REWARD, "usc", "sc", 1.0),
        (GOAL2, differs, REWARD, "usc", "csc", 1.0),
    ],
    "CarButton1 and FetchReach: over training USC earns the most of all methods": [
        (("CarButton1", "FetchReach"), differs, REWARD, "usc", "best", 1.0)
    ],
    "Deployed, USC earns as much as DDPG or more": [(TASKS, no_less, EARNED, "usc", "ddpg")],
    "Deployed, USC costs less than DDPG": [(TASKS, differs, DEPLOYED, "usc", "ddpg", -1.0)],
    "Deployed, USC always reaches the goal": [(GOALS, always_succeeds, "usc")],
    "CarButton1 and CarButton2: SC and CSC fail where USC succeeds": [
        ((task,), differs, SUCCESS, "usc", other, 1.0)
        for task in BUTTONS
        for other in ("sc", "csc")
    ],
    "Deployed, USC stays farthest from the hazards": [
        (CARS, differs, DISTANCE, "usc", "best", 1.0)
    ],
    "Without refinement, USC (NR), the deployed policy costs more": [
        (TASKS, differs, DEPLOYED, "usc", "usc-nr", -1.0)
    ],
    "CarGoal2: the gradient error of USC's cost maps is 83% below SC's": [
        (GOAL2, differs, GRADIENT, "usc", "sc", -1.0, 0.83)
    ],
    "CarGoal2: and a tenth of CSC's": [(GOAL2, differs, GRADIENT, "usc", "csc", -1.0, 0.9)],
    "CarGoal2: the contrast error of CSC's cost maps is the least": [
        (GOAL2, differs, CONTRAST, "csc", "best", -1.0)
    ],
    "CarGoal2: the entropy error of USC's cost maps is the least": [
        (GOAL2, differs, ENTROPY, "usc", "best", -1.0)
    ],
    "USC's uncertainty u is higher where Q_C is wrong": [
        (TASKS, level, "rank correlation", RANK, "usc", 0.0, 1.0)
    ],
    "Among the steps of least u the error is smaller (risk against coverage)": [
        (TASKS, level, "excess", EXCESS, "usc", 1.0, -1.0)
    ],
}


def findings(study: Study) -> dict[str, list[Finding]]:
    """Return what was found by the tests for which the study has runs, by claim."""
    found: dict[str, list[Finding]] = {}
    for text, tests in CLAIMS.items() if not study.swept else ():
        every = [test(study, task, *rest) for tasks, test, *rest in tests for task in tasks]
        if results := [result for result in every if result is not None]:
            found[text] = results
    return found


def verdict(results: Sequence[Finding]) -> str:
    seen = {result.verdict for result in results}
    return HOLDS if seen == {HOLDS} else FAILS if FAILS in seen else OPEN


def _where(results: Sequence[Finding]) -> str:
    """Return what was found, in a few words."""
    if len(results) == 1:
        return results[0].here
    parts = []
    for word in (HOLDS, FAILS, OPEN):
        tasks = list(dict.fromkeys(x.task for x in results if x.verdict == word))
        if tasks:
            parts.append(f"{word} on {listed(tasks)}")
    return "; ".join(parts)


def claims_table(study: Study, folder: Path) -> Table:
    caption = (
        "In our words. Holds: on every task by more than chance explains (permutation test over "
        "seeds, 5%). Does not hold: on some task it is the other way round by more than that, or "
        "the size that the paper names is outside the 95% interval. Cannot be told: neither."
    )
    table = Table("claims", "Claims", caption, ["claim", "paper", "here", "verdict"], [])
    for text, results in findings(study).items():
        paper = results[0].paper if len(results) == 1 else NONE
        row = [text, paper, _where(results), verdict(results)]
        if mark := {HOLDS: "best", FAILS: "worse"}.get(row[-1]):
            table.marks[len(table.rows), len(row) - 1] = mark
        table.rows.append(row)
    short = [
        study.shorter_than_the_paper(method, case)
        for method in study.methods
        for case in study.cases
    ]
    if any(short):
        table.warning = (
            f"{sum(short)} of the methods and tasks have fewer steps than paper.toml gives them: "
            "what does not hold here may hold after more."
        )
    return table


def tests_table(study: Study, folder: Path) -> Table:
    caption = (
        "Every test of the claims: change of USC's mean relative to the other method's, or a "
        "level, with its 95% interval over seeds (bootstrap, and Student's t); n counts the seeds."
    )
    header = ["claim", "task", "n", "paper", "here", "verdict"]
    rows = [
        [text, x.task, x.seeds, x.paper, x.here, x.verdict]
        for text, results in findings(study).items()
        for x in results
    ]
    return Table("claims-tests", "Their tests", caption, header, rows, folded=True)
