"""The paper's claims, taken one by one against the runs of a study.

A claim is a row of tests, one for each task it is made on. A test of a difference asks whether the
means of two methods over their seeds lie on the claimed sides of each other, and says

- holds: they do, by more than chance explains (a permutation test over seeds, 5%);
- does not hold: they lie the other way round by more than chance explains, or the paper names a
  size and the 95% interval of ours stays below it;
- cannot be told: neither.

A claim holds if all its tests hold, and does not hold if one of them does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from safecritic.evaluation import statistics
from safecritic.evaluation.statistics import Interval
from safecritic.report.data import Study, listed, title
from safecritic.report.table import Table
from safecritic.study.grid import limit_text
from safecritic.study.table import NONE, ROUNDING, interval_text, number_text

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"
CARS = ("CarGoal1", "CarGoal2", "CarButton1", "CarButton2")
GOALS = (*CARS, "FetchReach")
TASKS = (*GOALS, "HalfCheetah")
NEAR = 0.05  # of a mean: no less means at most this much less

# what a number is called, its column, and the paper's table and metric
QUANTITIES = {
    "reward in training": ("reward", "training", "reward"),
    "cost in training": ("cost", "training", "cost"),
    "reward in deployment": ("deployed_reward", "deployment", "reward"),
    "cost in deployment": ("deployed_cost", "deployment", "cost"),
    "success in deployment": ("deployed_success", "deployment", "success"),
    "distance to hazards": ("deployed_hazard_distance_mean", "", ""),
    "gradient MSE": ("cost_map/instant/gradient_mse", "cost_map", "gradient_mse"),
    "contrast error": ("cost_map/instant/contrast_error", "cost_map", "contrast_error"),
    "entropy error": ("cost_map/instant/entropy_error", "cost_map", "entropy_error"),
}


class Finding(NamedTuple):
    """What one test found."""

    task: str
    paper: str
    here: str
    seeds: str
    verdict: str


Test = Callable[[Study], Finding | None]  # None: the study does not have its runs


@dataclass(frozen=True)
class Claim:
    """What the paper says, in our words, and what would show it."""

    text: str
    tests: Sequence[Test]

    def findings(self, study: Study) -> list[Finding]:
        """Return what the tests found that the study has the runs for."""
        found = (test(study) for test in self.tests)
        return [finding for finding in found if finding is not None]


# ---------------------------------------------------------------- the kinds of tests


def differs(
    task: str,
    quantity: str,
    method: str,
    other: str,
    sign: float,
    size: float = 0.0,
) -> Test:
    """Return the test that a method has more (sign 1) or less (-1) of something than another.

    `other` is a method or "best", the best of all others. `size` is the claimed change, relative to
    the other's mean.
    """

    def test(study: Study) -> Finding | None:
        against = _other(study, task, quantity, method, other, sign)
        if against is None:
            return None
        ours, theirs = (_values(study, name, task, quantity) for name in (method, against))
        if not len(ours) or not len(theirs):
            return None
        change = _change(ours, theirs)
        apart = statistics.told_apart(ours, theirs)
        verdict = OPEN
        if apart:
            verdict = HOLDS if sign * (ours.mean() - theirs.mean()) > 0 else FAILS
        most = change.high if sign > 0 else -change.low
        if size and most < size:  # NaN is below nothing
            verdict = FAILS
        here = f"against {title(against)}: {_change_text(change)}" if other == "best" else ""
        return Finding(
            task,
            _paper_change(study, task, quantity, method, against),
            here or _change_text(change),
            _seeds(ours, theirs),
            verdict,
        )

    return test


def no_less(task: str, quantity: str, method: str, other: str) -> Test:
    """Return the test that a method has as much of something as another, or more."""

    def test(study: Study) -> Finding | None:
        ours, theirs = (_values(study, name, task, quantity) for name in (method, other))
        if not len(ours) or not len(theirs):
            return None
        change = _change(ours, theirs)
        verdict = HOLDS if change.low >= -NEAR else FAILS if change.high < -NEAR else OPEN
        if not statistics.can_be_told_apart(len(ours), len(theirs)):
            verdict = OPEN
        paper = _paper_change(study, task, quantity, method, other)
        return Finding(task, paper, _change_text(change), _seeds(ours, theirs), verdict)

    return test


def breaks_the_limit(task: str, method: str) -> Test:
    """Return the test that a method's deployed cost is above the limit."""

    def test(study: Study) -> Finding | None:
        costs = _values(study, method, task, "cost in deployment")
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

    return test


def always_succeeds(task: str, method: str) -> Test:
    """Return the test that every deployed episode reaches the goal."""

    def test(study: Study) -> Finding | None:
        runs = study.of(method, task)
        episodes = [row for run in runs for row in run.deployment]
        if not episodes:
            return None
        reached = sum(bool(row.get("success")) for row in episodes)
        number = len(episodes)
        verdict = HOLDS if reached == number else FAILS
        theirs = study.paper_value("deployment", method, task, "success")
        paper = NONE if theirs is None else f"{theirs.mean:.0f}%"
        text = f"{100 * reached / number:.1f}%: {reached:,} of {number:,} episodes"
        return Finding(task, paper, text, str(len(runs)), verdict)

    return test


def level(task: str, name: str, source: str, method: str, above: float, sign: float) -> Test:
    """Return the test that a number of a method is above (sign 1) or below (-1) a value."""

    def test(study: Study) -> Finding | None:
        values = _known(study.values(method, task, source))
        if not len(values):
            return None
        mean = statistics.interval_of_mean(values)
        low, high = sorted(sign * (end - above) for end in mean[1:])  # NaN: cannot be told
        verdict = HOLDS if low > 0 else FAILS if high < 0 else OPEN
        return Finding(task, NONE, f"{name} {_level_text(mean)}", str(len(values)), verdict)

    return test


# ---------------------------------------------------------------- their numbers


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _values(study: Study, method: str, task: str, quantity: str) -> np.ndarray:
    return _known(study.values(method, task, QUANTITIES[quantity][0]))


def _other(
    study: Study, task: str, quantity: str, method: str, other: str, sign: float
) -> str | None:
    """Return the method to compare with."""
    if other != "best":
        return other
    names = [name for name in study.methods if name != method]
    means = {
        name: float(values.mean())
        for name in names
        if len(values := _values(study, name, task, quantity))
    }
    return max(means, key=lambda name: sign * means[name], default=None)


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


def _change_text(change: Interval) -> str:
    return f"{_percent(change.value)} [{_percent(change.low)}, {_percent(change.high)}]"


def _level_text(mean: Interval) -> str:
    return number_text(mean.value) if np.isnan(mean.low) else interval_text(mean)


def _seeds(ours: np.ndarray, theirs: np.ndarray) -> str:
    return f"{len(ours)}, {len(theirs)}"


def _paper_change(study: Study, task: str, quantity: str, method: str, other: str) -> str:
    _, table, metric = QUANTITIES[quantity]
    values = [study.paper_value(table, name, task, metric) for name in (method, other)]
    if any(value is None for value in values):
        return NONE
    ours, theirs = (value.mean for value in values if value is not None)
    return _percent((ours - theirs) / abs(theirs)) if theirs else f"{ours:.2f} for {theirs:.2f}"


# ---------------------------------------------------------------- the claims


def _each(tasks: Sequence[str], make: Callable[[str], Test]) -> list[Test]:
    return [make(task) for task in tasks]


CLAIMS = [
    Claim(
        "DDPG keeps no limit",
        _each(TASKS, lambda task: breaks_the_limit(task, "ddpg")),
    ),
    Claim(
        "CarButton1: over training USC costs nearly 40% less than DDPG",
        [differs("CarButton1", "cost in training", "usc", "ddpg", -1.0, 0.39)],
    ),
    Claim(
        "USC costs less over training than DDPG",
        _each(TASKS, lambda task: differs(task, "cost in training", "usc", "ddpg", -1.0)),
    ),
    Claim(
        "CarGoal2: over training USC costs less than SC",
        [differs("CarGoal2", "cost in training", "usc", "sc", -1.0)],
    ),
    Claim(
        "CarGoal2: over training USC earns more than SC and CSC",
        [differs("CarGoal2", "reward in training", "usc", other, 1.0) for other in ("sc", "csc")],
    ),
    Claim(
        "CarButton1 and FetchReach: over training USC earns the most of all methods",
        _each(
            ("CarButton1", "FetchReach"),
            lambda task: differs(task, "reward in training", "usc", "best", 1.0),
        ),
    ),
    Claim(
        "Deployed, USC earns as much as DDPG or more",
        _each(TASKS, lambda task: no_less(task, "reward in deployment", "usc", "ddpg")),
    ),
    Claim(
        "Deployed, USC costs less than DDPG",
        _each(TASKS, lambda task: differs(task, "cost in deployment", "usc", "ddpg", -1.0)),
    ),
    Claim(
        "Deployed, USC always reaches the goal",
        _each(GOALS, lambda task: always_succeeds(task, "usc")),
    ),
    Claim(
        "CarButton1 and CarButton2: SC and CSC fail where USC succeeds",
        [
            differs(task, "success in deployment", "usc", other, 1.0)
            for task in ("CarButton1", "CarButton2")
            for other in ("sc", "csc")
        ],
    ),
    Claim(
        "Deployed, USC stays farthest from the hazards",
        _each(CARS, lambda task: differs(task, "distance to hazards", "usc", "best", 1.0)),
    ),
    Claim(
        "Without refinement, USC (NR), the deployed policy costs more",
        _each(TASKS, lambda task: differs(task, "cost in deployment", "usc", "usc-nr", -1.0)),
    ),
    Claim(
        "CarGoal2: the gradient error of USC's cost maps is 83% below SC's",
        [differs("CarGoal2", "gradient MSE", "usc", "sc", -1.0, 0.83)],
    ),
    Claim(
        "CarGoal2: and a tenth of CSC's",
        [differs("CarGoal2", "gradient MSE", "usc", "csc", -1.0, 0.9)],
    ),
    Claim(
        "CarGoal2: the contrast error of CSC's cost maps is the least",
        [differs("CarGoal2", "contrast error", "csc", "best", -1.0)],
    ),
    Claim(
        "CarGoal2: the entropy error of USC's cost maps is the least",
        [differs("CarGoal2", "entropy error", "usc", "best", -1.0)],
    ),
    Claim(
        "USC's uncertainty u is higher where Q_C is wrong",
        _each(
            TASKS,
            lambda task: level(
                task, "rank correlation", "calibration/rank_correlation", "usc", 0.0, 1.0
            ),
        ),
    ),
    Claim(
        "Among the steps of least u the error is smaller (risk against coverage)",
        _each(TASKS, lambda task: level(task, "excess", "calibration/excess", "usc", 1.0, -1.0)),
    ),
]


def verdict(findings: Sequence[Finding]) -> str:
    """Return the verdict on a claim."""
    seen = {finding.verdict for finding in findings}
    return HOLDS if seen == {HOLDS} else FAILS if FAILS in seen else OPEN


def _where(findings: Sequence[Finding]) -> str:
    """Return what was found, in a few words."""
    if len(findings) == 1:
        return findings[0].here
    parts = []
    for word in (HOLDS, FAILS, OPEN):
        tasks = list(dict.fromkeys(x.task for x in findings if x.verdict == word))
        if tasks:
            parts.append(f"{word} on {listed(tasks)}")
    return "; ".join(parts)


def claims_table(study: Study, folder: Path) -> Table:
    """Make a table of the claims for which the study has runs."""
    caption = (
        "What the paper says of USC, in our words, and what these runs say. Holds: on every task "
        "by more than chance explains (permutation test over seeds, 5%). Does not hold: on some "
        "task it is the other way round by more than chance explains, or the size that the paper "
        "names is outside the 95% interval. Cannot be told: neither."
    )
    table = Table("claims", "Claims", caption, ["claim", "paper", "here", "verdict"], [])
    for claim in CLAIMS if not study.swept else []:
        if findings := claim.findings(study):
            paper = findings[0].paper if len(findings) == 1 else NONE
            row = [claim.text, paper, _where(findings), verdict(findings)]
            mark = {HOLDS: "best", FAILS: "worse"}.get(row[-1])
            if mark:
                table.marks[len(table.rows), len(row) - 1] = mark
            table.rows.append(row)
    table.warning = _short(study)
    return table


def _short(study: Study) -> str:
    """Return a warning if runs are shorter than those of the paper's grid."""
    cases = [(method, task) for method in study.methods for task in TASKS]
    fewer = [
        f"{title(method)} on {task}"
        for method, task in cases
        if study.of(method, task) and study.steps(method, task)[0] < study.paper_steps(method)
    ]
    if not fewer:
        return ""
    return (
        f"{len(fewer)} of the methods and tasks have fewer steps than paper.toml gives them: what "
        "does not hold here may hold after more."
    )


def tests_table(study: Study, folder: Path) -> Table:
    """Make a table of every test of every claim."""
    caption = (
        "Every test of the claims: change of USC's mean relative to the other method's, or a "
        "level, with its 95% interval over seeds (bootstrap, and Student's t); n counts the seeds."
    )
    header = ["claim", "task", "n", "paper", "here", "verdict"]
    table = Table("claims-tests", "Their tests", caption, header, [], folded=True)
    for claim in CLAIMS if not study.swept else []:
        for x in claim.findings(study):
            table.rows.append([claim.text, x.task, x.seeds, x.paper, x.here, x.verdict])
    return table
