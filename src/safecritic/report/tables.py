"""The tables of a report. Cells are text, so that the page and CSV show the same.

Our numbers are means with standard errors over seeds, followed by the interquartile mean (IQM) with
its interval and, where the paper has one, by its number, marked `differs` where mean ± standard
error of the two do not overlap. docs/report.md says more.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from safecritic.core import statistics
from safecritic.evaluate import verdict
from safecritic.report import claims, sections
from safecritic.report.data import PaperValue, Study, steps_text, title
from safecritic.report.table import Table
from safecritic.study.grid import limit_text
from safecritic.study.table import NONE, ROUNDING, Summary, number_text, summarise
from safecritic.tasks.registry import TASKS

CONTEXT = ("limit", "within limit", "steps")  # of every table
MOST_ROWS = 48  # of a table that is not folded: eight methods on six tasks
# of a cell in the paper's deployment tables, whose ± must be a standard deviation over them: 0.70 ±
# 2.10 is one episode of 7 among ten
EPISODES = 10


def differs(
    summary: Summary, theirs: PaperValue | None, episodes: int = 1, scale: float = 1.0
) -> bool:
    """Return whether ours and the paper's mean ± standard error do not overlap.

    `episodes` is the number over which the paper's ± is a standard deviation.
    """
    if theirs is None:
        return False
    errors = scale * summary.standard_error + theirs.spread / math.sqrt(episodes)
    return abs(scale * summary.mean - theirs.mean) > errors  # NaN: not known


# ---------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Column:
    """A quantity of a table: its name, where it comes from, and the paper's name for it."""

    name: str
    source: str  # a column of runs.csv or a path into measures.json, see `StudyTable.values`
    metric: str = ""
    best: Any = None  # min or max
    digits: int = 2
    scale: float = 1.0
    iqm: bool = True
    unlike: str = ""  # another source: left out where it has the same numbers
    about: str = ""  # joins the caption of a table that has the column


def first_cells(
    study: Study, method: str, case: str, n: object, cost: str = "deployed_cost"
) -> list[str]:
    """Return the cells with which a row begins; `cost` is what must be within the limit."""
    kept, number = study.within(method, case, cost)
    cells = [study.case_of[case].task, title(method), str(n)]
    cells += [limit_text(study.limit(case, method)), f"{kept} of {number}"]
    return [*cells, steps_text(*study.steps(method, case))]


def best_methods(study: Study, case: str, column: Column, cost: str) -> list[str]:
    """Return the best of the methods that keep the limit, and those not told apart from it.

    None if there is nothing to choose from, or too few seeds to choose by.
    """
    known = {m: study.known(m, case, column.source) for m in study.comparable(case)[0]}
    known = {method: x for method, x in known.items() if len(x)}
    kept = {m: x for m, x in known.items() if study.keeps(m, case, cost)}
    if column.best is None or len(known) < 2 or not kept:
        return []
    means = {method: float(x.mean()) for method, x in kept.items()}
    top = kept[column.best(means, key=means.__getitem__)]
    if not all(statistics.can_be_told_apart(len(top), len(x)) for x in known.values()):
        return []
    return [m for m, x in kept.items() if x is top or not statistics.told_apart(x, top)]


@dataclass(frozen=True)
class Compared:
    """A table with one row for each case and method that has the numbers, made when called.

    Columns without a number are left out.
    """

    name: str
    heading: str
    caption: str
    columns: Sequence[Column]
    paper: str = ""  # the paper's name of it
    number: str = ""  # in the paper
    episodes: int = 1  # over which the paper's ± is a standard deviation
    cost: str = "deployed_cost"  # the column that must be within the limit
    swept: bool = False  # only for tasks with several limits

    def __call__(self, study: Study, folder: Path) -> Table:
        cases = [name for name, case in study.case_of.items() if case.swept or not self.swept]
        rows = {
            (case, method): len(study.values(method, case, self.columns[0].source))
            for case in cases
            for method in study.methods
        }
        rows = {row: number for row, number in rows.items() if number}
        paper = f"{self.number}: " if self.number and study.of_the_paper else ""
        heading = paper + (self.heading.lower() if paper else self.heading)
        table = Table(self.name, heading, self.caption, ["task", "method", "n", *CONTEXT], [])
        for (case, method), number in rows.items():
            table.rows.append(first_cells(study, method, case, number, self.cost))
        unlike: dict[str, None] = {}  # limits that are not the paper's
        for column in self.columns:
            summaries = [study.summary(method, case, column.source) for case, method in rows]
            if not any(summary.n for summary in summaries):
                continue
            if column.unlike and all(
                np.array_equal(study.values(m, x, column.source), study.values(m, x, column.unlike))
                for x, m in rows
            ):
                continue
            table.caption += column.about
            place = len(table.header)
            best = {case: best_methods(study, case, column, self.cost) for case in cases}
            table.marks |= {
                (at, place): "best" for at, (case, m) in enumerate(rows) if m in best[case]
            }
            cells = [x.mean_text(column.digits, column.scale) for x in summaries]
            table.add(column.name, cells)
            if column.iqm:
                cells = [x.iqm_text(column.digits, column.scale) for x in summaries]
                table.add(f"{column.name}, IQM [95%]", cells)
            values = [study.paper_value(self.paper, m, case, column.metric) for case, m in rows]
            if not any(values):
                continue
            cells = [NONE if theirs is None else theirs.text(column.digits) for theirs in values]
            table.add(f"{column.name}, paper", cells)
            for at, ((case, method), theirs) in enumerate(zip(rows, values, strict=True)):
                if theirs is None or study.shorter_than_the_paper(method, case):
                    continue  # the top of the page says so
                task, limit = study.case_of[case].task, study.limit(case, method)
                if limit != (known := TASKS[task].cost_limit):
                    unlike[f"{task} has the limit {limit:g} in place of {known:g}"] = None
                elif differs(summaries[at], theirs, self.episodes, column.scale):
                    table.marks[at, len(table.header) - 1] = "differs"
        if unlike:
            table.warning = f"Not compared with the paper's numbers: {'; '.join(unlike)}."
        return table


limits_table = Compared(
    "limits",
    "What each limit gives",
    "The deployed policies trained at each limit.",
    [
        Column("cost", "deployed_cost", iqm=False),
        Column("success %", "deployed_success", "", max, 1, 100.0, iqm=False),
        Column("reward", "deployed_reward", "", max, iqm=False),
    ],
    swept=True,
)
training_table = Compared(
    "training",
    "Training",
    "Reward and cost of an episode (undiscounted sums), averaged over all training episodes of a "
    "run, warm-up and exploration included; within limit is by this cost.",
    [Column("reward", "reward", "reward", max), Column("cost", "cost", "cost", min)],
    paper="training",
    number="Table 1",
    cost="cost",
)
late_table = Compared(
    "late",
    "The end of training",
    "The same for the last 100 training episodes of each run, exploration included.",
    [
        Column("reward", "late_reward", best=max),
        Column("cost", "late_cost", best=min),
        Column("success %", "late_success", best=max, digits=1, scale=100.0),
    ],
    cost="late_cost",
)
deployment_table = Compared(
    "deployment",
    "Deployment",
    "The trained policies without exploration noise, with the screen on, all in the same scenes. "
    "Cost is in the task's own unit.",
    [
        Column("reward", "deployed_reward", "reward", max),
        Column(
            "contacts",
            "deployed_contacts",
            "cost",
            min,
            iqm=False,
            unlike="deployed_cost",
            about=" Contacts counts the steps in contact.",
        ),
        Column("cost", "deployed_cost", best=min),
        Column("success %", "deployed_success", "success", max, 1, 100.0, iqm=False),
        Column(
            "distance",
            "deployed_hazard_distance_mean",
            best=max,
            iqm=False,
            about=" Distance: from the robot to the edge of the nearest hazard in metres, mean "
            "over an episode.",
        ),
    ],
    paper="deployment",
    number="Tables 3 and 4",
    episodes=EPISODES,
)
MAP_ERRORS = {
    "gradient_mse": "gradient MSE",
    "contrast_error": "contrast error",
    "entropy_error": "entropy error",
}
instant_map_table = Compared(
    "cost-maps-instant",
    "Cost maps against the immediate cost",
    "Q_C with the robot at rest in each cell of a grid, averaged over four headings, against the "
    "cost of standing there for one step, both scaled to [0, 1]: how far slopes (per metre), the "
    "contrast of costly places and the entropy of the map differ. Means over five scenes; smaller "
    "is better.",
    [Column(text, f"cost_map/instant/{key}", key, min) for key, text in MAP_ERRORS.items()],
    paper="cost_map",
    number="Table 2",
)
discounted_map_table = Compared(
    "cost-maps-discounted",
    "Cost maps against the realised cost",
    "The same errors against what Q_C is trained to predict: the discounted cost that followed "
    "when the deployed policy was started in each cell. One scene, one heading.",
    [Column(text, f"cost_map/discounted/{key}", "", min) for key, text in MAP_ERRORS.items()],
)
calibration_table = Compared(
    "calibration",
    "Calibration of the influence",
    "The error is |Q_C - realised discounted cost| at the steps of the deployment episodes. Rank "
    "correlation: Spearman's, between u and the error. Risk area: the mean error of the steps with "
    "the lowest u, averaged over all shares of the steps; beside it that of a random order and of "
    "the order by the error itself (oracle). Excess: (risk area - oracle) / (random - oracle).",
    [
        Column("rank correlation", "calibration/rank_correlation"),
        Column("risk area", "calibration/area", digits=3, iqm=False),
        Column("random order", "calibration/random", digits=3, iqm=False),
        Column("oracle order", "calibration/oracle", digits=3, iqm=False),
        Column("excess", "calibration/excess"),
    ],
)


resources_table = Compared(
    "resources",
    "Time and memory",
    "Training only, one core for each run. Times include compilation, and grow with whatever else "
    "the machine was doing; steps/s is the median over the run. Memory is the peak of the run's "
    "process plus that of the largest process it started.",
    [
        Column("minutes", "seconds", digits=1, scale=1 / 60, iqm=False),
        Column("steps/s", "rate", digits=0, iqm=False),
        Column("memory, MiB", "memory", digits=0, scale=2.0**-20, iqm=False),
    ],
)
THEOREM = {
    "premise": "premise %",
    "left": "left",
    "right": "right",
    "larger": "left > 0 %",
    "holds": "left ≥ right %",
    "says_something": "right > 0 %",
    "maxima_hold": "maxima hold %",
    "mirrored_left": "mirrored left",
}


def theorem_table(study: Study, folder: Path) -> Table:
    """Make a table of both sides of Theorem 1, for each m."""
    caption = (
        "Theorem 1: the conservative penalty is larger with m uniform alternatives (left: the mean "
        "difference) than with m actions of the policy, by at least a bound (right). Columns in % "
        "are shares of the states met in deployment. Premise: there is a threshold of Q_C that "
        "uniform actions exceed more often. Maxima hold: the step of the proof about expected "
        "maxima. Mirrored left: with our default form of the penalty. Means over runs."
    )
    header = ["task", "method", "n", *CONTEXT, "m", *THEOREM.values()]
    table = Table("theorem", "Theorem 1 on trained critics", caption, header, [], folded=True)
    known = {task for _, _, task, _ in study.paper}
    for case in (name for name in study.cases if study.case_of[name].task in known):
        for method in study.methods:
            for checks in zip(*study.measured(method, case, "theorem"), strict=False):
                row = [*first_cells(study, method, case, len(checks)), str(checks[0]["m"])]
                for name, text in THEOREM.items():
                    values = np.array([check.get(name) for check in checks], np.float64)
                    digits, scale = (0, 100.0) if "%" in text else (2, 1.0)
                    row.append(summarise(values).mean_text(digits, scale))
                table.rows.append(row)
    return table


def runs_table(study: Study, folder: Path) -> Table:
    """Make a table of every run, with a link to its folder relative to the page's."""
    header = ["run", "method", "task", "seed", "state", *CONTEXT, "reward", "cost", "success %"]
    header += ["deployed reward", "deployed cost", "deployed success %"]
    caption = (
        "Means over the last 100 training episodes, then over the deployment episodes, whose cost "
        "is within the limit or not. Click a run's name to open its folder."
    )
    table = Table("runs", "All runs", caption, header, [])
    columns = [
        f"{kind}_{x}" for kind in ("late", "deployed") for x in ("reward", "cost", "success")
    ]
    for run in study.runs:
        known = run.row if run.done else dict.fromkeys(columns, math.nan)
        if run.path is not None:  # a packed run has no folder
            link = Path(os.path.relpath(run.path, folder)).as_posix()
            table.links[len(table.rows), 0] = f"{quote(link)}/"
        cost = known["deployed_cost"]
        kept = NONE if math.isnan(cost) else "yes" if cost <= run.limit + ROUNDING else "no"
        row = [run.job.name, title(run.method), run.task, str(run.job.seed), run.state]
        row += [limit_text(run.limit), kept, f"{run.steps:,}"]
        for name in columns:
            digits, scale = (0, 100.0) if "success" in name else (2, 1.0)
            row.append(number_text(scale * known[name], digits))
        table.rows.append(row)
    return table


def settings_table(study: Study, folder: Path) -> Table:
    values: dict[str, dict[str, dict[str, None]]] = {}  # by setting and method, each once
    for run in study.runs:
        names = ("steps", "train_episodes", "deployment_episodes")
        given = {name: getattr(run.job, name) for name in names} | run.job.settings
        for name, value in given.items():
            if value is not None:
                values.setdefault(name, {}).setdefault(run.method, {})[str(value)] = None
    rows = [
        [name, *(" / ".join(by_method.get(method, [NONE])) for method in study.methods)]
        for name, by_method in values.items()
    ]
    caption = (
        "All settings of every method, as the runs were given them; where they differ between "
        "tasks or limits, in the order of the study."
    )
    header = ["setting", *(title(method) for method in study.methods)]
    return Table("settings", "Settings", caption, header, rows, folded=True)


def versions_table(study: Study, folder: Path) -> Table:
    versions: dict[str, dict[str, None]] = {}
    for run in study.runs:
        for name, version in run.versions.items():
            versions.setdefault(name, {})[version] = None
    rows = [[name, ", ".join(found)] for name, found in versions.items()]
    caption = "With which the finished runs were begun."
    return Table("versions", "Versions", caption, ["package", "version"], rows)


MARKS = {
    verdict.KEPT: "best",
    verdict.BROKEN: "worse",
    verdict.USELESS: "worse",
    verdict.OPEN: "open",
}


def verdicts_table(study: Study, folder: Path) -> Table:
    """Make a table of the verdicts in words: on the limit, and on the safety critic."""
    caption = (
        "A limit is kept if the 95% interval of the mean deployed cost, by Student's t over "
        "seeds, lies within it, and not kept if it lies above. A safety critic is useless if "
        f"its AUC is below {verdict.LEAST_AUC:g}, or if it expects more than "
        f"{verdict.MOST_RATIO:g} times the cost that comes, or less than a third of it; medians."
    )
    header = ["task", "method", "limit", "verdict", "because", "critic", "because of"]
    table = Table("verdicts", "Verdicts in words", caption, header, [])
    for case in study.cases:
        for method in study.methods:
            judged = study.verdict(method, case), study.critic_verdict(method, case)
            if judged[0] is None:
                continue
            for at, found in zip((3, 5), judged, strict=True):
                if found is not None and found.word in MARKS:
                    table.marks[len(table.rows), at] = MARKS[found.word]
            cells = [cell for found in judged for cell in (found or (NONE, NONE))]
            limit = limit_text(study.limit(case, method))
            table.rows.append([study.case_of[case].task, title(method), limit, *cells])
    return table


# ---------------------------------------------------------------- the sections

Function = Callable[[Study, Path], Table]

TABLES: dict[str, list[Function]] = {
    "Kept or not": [verdicts_table],
    "Limits": [limits_table],
    "Training": [training_table, late_table],
    "Deployment": [deployment_table],
    "Cost maps": [instant_map_table, discounted_map_table],
    "Uncertainty": [calibration_table, theorem_table],
    "The paper's claims": [claims.claims_table, claims.tests_table],
    "Time and memory": [resources_table],
    "Runs": [runs_table],
    "Settings": [settings_table, versions_table],
}


def register(section: str, function: Function) -> None:
    """Append a table to a section of the page: a function of the study and the page's folder."""
    sections.add(TABLES, section, function)


def all_tables(study: Study, folder: Path) -> list[Table]:
    """Return the tables in the order of the page; those that would be empty are left out."""
    tables = sections.collect(TABLES, lambda function: [function(study, folder)])
    for table in tables:
        table.folded = table.folded or (len(table.rows) > MOST_ROWS and table.name != "runs")
    return tables
