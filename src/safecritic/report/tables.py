"""The tables of a report. Cells are text, so that the page, CSV and LaTeX show the same.

Our numbers are means with standard errors over seeds, followed by the interquartile mean (IQM) with
its bootstrap interval and by the paper's number. `≠` marks where the two intervals, mean ± standard
error, do not overlap; runs that are shorter than the paper's, or have another limit, get a warning
in its place. The paper says that its ± is the standard error over five runs. In its deployment
tables it must be the standard deviation over ten episodes (0.70 ± 2.10 is one episode of 7 among
ten), so there it is divided by the root of ten.

Every table has the limit, the seeds within it, and the steps. Bold is the best of the methods that
keep the limit, and those of them that cannot be told apart from it.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from safecritic.evaluation import statistics
from safecritic.report import claims, sections
from safecritic.report.data import PaperValue, Study, listed, steps_text, title
from safecritic.report.table import Table
from safecritic.study.grid import limit_text
from safecritic.study.table import (
    NONE,
    ROUNDING,
    Summary,
    interval_text,
    number_text,
    summarise,
)

DIFFERS = "≠"
CONTEXT = ("limit", "within limit", "steps")  # of every table
MOST_ROWS = 48  # of a table that is not folded: eight methods on six tasks
EPISODES = 10  # of a cell in the paper's deployment tables


def differs(
    summary: Summary, theirs: PaperValue | None, episodes: int = 1, scale: float = 1.0
) -> str:
    """Return the mark if ours and the paper's mean ± standard error do not overlap.

    `episodes` is the number over which the paper's ± is a standard deviation.
    """
    our_error = scale * summary.standard_error
    if theirs is None or math.isnan(our_error) or math.isnan(theirs.spread):
        return ""
    their_error = theirs.spread / math.sqrt(episodes)
    apart = abs(scale * summary.mean - theirs.mean) > our_error + their_error
    return DIFFERS if apart else ""


# ---------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Column:
    """A quantity of a table: its name, where it comes from, and the paper's name for it."""

    name: str
    source: str  # a column of runs.csv or a path into measures.json, see `StudyTable.values`
    metric: str = ""
    best: Callable[[Sequence[float]], float] | None = None  # min or max
    digits: int = 2
    scale: float = 1.0
    iqm: bool = True


def context(study: Study, method: str, case: str, cost: str = "deployed_cost") -> list[str]:
    """Return the cells of CONTEXT; `cost` is the column that must be within the limit."""
    kept, number = study.within(method, case, cost)
    limit = limit_text(study.limit(case, method))
    return [limit, f"{kept} of {number}", steps_text(*study.steps(method, case))]


def best_methods(
    study: Study, methods: Sequence[str], case: str, column: Column, cost: str
) -> list[str]:
    """Return the best of the methods that keep the limit, and those not told apart from it.

    None if there is nothing to choose from, or too few seeds to choose by.
    """
    enough, _ = study.comparable(case)
    methods = [method for method in methods if method in enough]
    if column.best is None or len(methods) < 2:
        return []
    values = {method: study.values(method, case, column.source) for method in methods}
    known = {method: x[~np.isnan(x)] for method, x in values.items()}
    kept = {m: x for m, x in known.items() if len(x) and study.keeps(m, case, cost)}
    if not kept:
        return []
    means = {method: float(x.mean()) for method, x in kept.items()}
    top = column.best(list(means.values()))
    best = next(method for method, mean in means.items() if mean == top)
    number = len(kept[best])
    if not all(statistics.can_be_told_apart(number, len(x)) for x in known.values() if len(x)):
        return []
    return [m for m, x in kept.items() if m == best or not statistics.told_apart(x, kept[best])]


def compared(
    study: Study,
    name: str,
    heading: str,
    caption: str,
    columns: Sequence[Column],
    paper: str = "",
    episodes: int = 1,
    cost: str = "deployed_cost",
) -> Table:
    """Return a table with one row for each case and method that has the numbers.

    A column gives up to four cells: mean, interquartile mean, the paper's number and the mark.
    """
    header = ["task", "method", "n", *CONTEXT]
    places = []  # of the means
    for column in columns:
        places.append(len(header))
        header.append(column.name)
        header += [f"{column.name}, IQM [95%]"] if column.iqm else []
        header += [f"{column.name}, paper", DIFFERS] if column.metric else []
    table = Table(name, heading, caption, header, [])
    unlike: dict[str, list[str]] = {}  # methods by the reason
    for case in study.cases:
        task = study.case_of[case].task
        rows: dict[str, int] = {}
        for method in study.methods:
            number = len(study.values(method, case, columns[0].source))
            if not number:
                continue
            rows[method] = len(table.rows)
            row = [task, title(method), str(number), *context(study, method, case, cost)]
            for column in columns:
                summary = study.summary(method, case, column.source)
                row.append(summary.mean_text(column.digits, column.scale))
                if column.iqm:
                    row.append(summary.iqm_text(column.digits, column.scale))
                if column.metric:
                    theirs = study.paper_value(paper, method, case, column.metric)
                    row.append(NONE if theirs is None else theirs.text(column.digits))
                    reason = study.unlike_the_paper(method, case) if theirs else ""
                    if reason:
                        unlike.setdefault(reason, []).append(title(method))
                    mark = differs(summary, theirs, episodes, column.scale)
                    row.append("" if reason else mark)
            table.rows.append(row)
        for column, at in zip(columns, places, strict=True):
            for method in best_methods(study, list(rows), case, column, cost):
                table.marks[rows[method], at] = "best"
    table.warning = unlike_text(unlike)
    return table


def unlike_text(unlike: dict[str, list[str]]) -> str:
    """Return the warning that stands in place of the mark, from the methods by the reason."""
    if not unlike:
        return ""
    reasons = [f"{listed(list(dict.fromkeys(x)))}: {reason}" for reason, x in unlike.items()]
    return f"Not comparable with the paper's numbers ({'; '.join(reasons)}): no {DIFFERS} there."


def limits_table(study: Study, folder: Path) -> Table:
    """Make a table of every limit and method: what the deployed policies do."""
    columns = [
        Column("cost", "deployed_cost"),
        Column("success %", "deployed_success", best=max, digits=1, scale=100.0),
        Column("reward", "deployed_reward", best=max),
    ]
    header = ["task", "limit", "method", "n", *CONTEXT[1:], *(column.name for column in columns)]
    caption = "The deployed policies trained at each limit."
    table = Table("limits", "What each limit gives", caption, header, [])
    for name, case in study.case_of.items():
        methods = [method for method in study.methods if case.swept and study.of(method, name)]
        first = len(table.rows)
        for method in methods:
            limit, *rest = context(study, method, name)
            row = [case.task, limit, title(method), str(len(study.of(method, name))), *rest]
            summaries = [study.summary(method, name, column.source) for column in columns]
            for column, summary in zip(columns, summaries, strict=True):
                row.append(summary.mean_text(column.digits, column.scale))
            table.rows.append(row)
        for column in columns:
            for method in best_methods(study, methods, name, column, "deployed_cost"):
                at = first + methods.index(method), header.index(column.name)
                table.marks[at] = "best"
    return table


def training_table(study: Study, folder: Path) -> Table:
    """Make the paper's Table 1."""
    return compared(
        study,
        "training",
        "Table 1: training",
        "Reward and cost of an episode (undiscounted sums), averaged over all training episodes of "
        "a run, warm-up and exploration included; within limit is by this cost.",
        [Column("reward", "reward", "reward", max), Column("cost", "cost", "cost", min)],
        "training",
        cost="cost",
    )


def late_table(study: Study, folder: Path) -> Table:
    """Make a table of the end of training."""
    return compared(
        study,
        "late",
        "The end of training",
        "The same for the last 100 training episodes of each run, exploration included. The paper "
        "has no such table.",
        [
            Column("reward", "late_reward", best=max),
            Column("cost", "late_cost", best=min),
            Column("success %", "late_success", best=max, digits=1, scale=100.0),
        ],
        cost="late_cost",
    )


def deployment_table(study: Study, folder: Path) -> Table:
    """Make the paper's Table 3."""
    return compared(
        study,
        "deployment",
        "Table 3: deployment",
        "The trained policies without exploration noise, with the screen on, all in the same "
        "scenes. Contacts: the cost of an episode counted in contacts, the unit of the paper's "
        "table. Cost: the same in the task's own unit. Distance: from the car to the edge of the "
        "nearest hazard in metres, mean over an episode. The paper deploys one policy for ten "
        "episodes.",
        [
            Column("reward", "deployed_reward", "reward", max),
            Column("contacts", "deployed_contacts", "cost", min),
            Column("cost", "deployed_cost", best=min, iqm=False),
            Column("distance", "deployed_hazard_distance_mean", best=max, iqm=False),
        ],
        "deployment",
        EPISODES,
    )


def success_table(study: Study, folder: Path) -> Table:
    """Make the paper's Table 4."""
    table = compared(
        study,
        "success",
        "Table 4: success in deployment",
        "Share of the deployment episodes that reach the goal; shaded where it is below 100%. The "
        "paper gives no ± here, so differences are not marked.",
        [Column("success %", "deployed_success", "success", digits=1, scale=100.0)],
        "deployment",
    )
    at, theirs = (table.header.index(name) for name in ("success %", "success %, paper"))
    table.rows = [row[:-1] for row in table.rows if row[at] != NONE]
    table.header, table.warning = table.header[:-1], ""
    for number, row in enumerate(table.rows):
        for place in (at, theirs):
            if row[place] != NONE and float(row[place].split()[0]) < 100.0:
                table.marks[number, place] = "worse"
    return table


MAP_ERRORS = {
    "gradient_mse": "gradient MSE",
    "contrast_error": "contrast error",
    "entropy_error": "entropy error",
}


def instant_map_table(study: Study, folder: Path) -> Table:
    """Make the paper's Table 2."""
    return compared(
        study,
        "cost-maps-instant",
        "Table 2: cost maps against the immediate cost",
        "A cost map is Q_C with the car at rest in each cell of a grid, averaged over four "
        "headings. Here it is compared with the cost of standing in that cell for one step, both "
        "scaled to [0, 1]. Gradient MSE: squared difference of the slopes, per metre. Contrast "
        "error: how much more, or less, costly places stand out. Entropy error: how much more, or "
        "less, the map is spread out. Means over five scenes; smaller is better. The paper gives "
        "CarGoal2 only.",
        [Column(text, f"cost_map/instant/{key}", key, min) for key, text in MAP_ERRORS.items()],
        "cost_map",
    )


def discounted_map_table(study: Study, folder: Path) -> Table:
    """Make a table of cost maps against what Q_C is trained to predict."""
    return compared(
        study,
        "cost-maps-discounted",
        "Cost maps against the realised cost",
        "The same errors against what Q_C is trained to predict: the discounted cost that followed "
        "when the deployed policy was started in each cell. One scene, one heading. The paper has "
        "no such table.",
        [Column(text, f"cost_map/discounted/{key}", "", min) for key, text in MAP_ERRORS.items()],
    )


def calibration_table(study: Study, folder: Path) -> Table:
    """Make a table of how well the influence ranks the errors of Q_C."""
    caption = (
        "Is the influence u high where Q_C is wrong? The error is |Q_C - realised discounted cost| "
        "at the steps of the deployment episodes. Rank correlation: Spearman's, between u and the "
        "error. Risk area: the mean error of the steps with the lowest u, averaged over all shares "
        "of the steps; beside it the same for a random order and for the order by the error itself "
        "(oracle). Excess: (risk area - oracle) / (random - oracle), so 0 is perfect and 1 is "
        "chance."
    )
    columns = [
        Column("rank correlation", "calibration/rank_correlation"),
        Column("risk area", "calibration/area", digits=3, iqm=False),
        Column("random order", "calibration/random", digits=3, iqm=False),
        Column("oracle order", "calibration/oracle", digits=3, iqm=False),
        Column("excess", "calibration/excess"),
    ]
    return compared(study, "calibration", "Calibration of the influence", caption, columns)


def improvement_table(study: Study, folder: Path) -> Table:
    """Compare USC, or without it the last of the methods, with each other one."""
    columns = {
        "training reward": ("reward", 1.0),
        "training cost": ("cost", -1.0),
        "late cost": ("late_cost", -1.0),
        "deployed reward": ("deployed_reward", 1.0),
        "deployed cost": ("deployed_cost", -1.0),
    }
    chosen = next((name for name in ("usc", *study.methods[::-1]) if name in study.methods), "")
    name = title(chosen) if chosen else NONE
    caption = (
        f"Probability that a run of {name} does better than a run of the other method (higher "
        "reward, lower cost), ties counting half, with its 95% bootstrap interval over seeds. 0.5 "
        f"means no difference, 1 that {name} always does better. Within limit and steps are the "
        "other method's."
    )
    table = Table(
        "improvement",
        f"Is {name} better?",
        caption,
        ["task", "against", "n", *CONTEXT, *columns],
        [],
    )
    for case in study.cases:
        for other in study.methods:
            counts = [len(study.of(method, case)) for method in (chosen, other)]
            if other == chosen or not all(counts):
                continue
            row = [study.case_of[case].task, title(other), f"{counts[0]}, {counts[1]}"]
            row += context(study, other, case)
            for column, sign in columns.values():
                ours = sign * study.values(chosen, case, column)
                theirs = sign * study.values(other, case, column)
                chance = statistics.probability_of_improvement(ours, theirs)
                row.append(interval_text(chance) if min(counts) > 1 else NONE)
            table.rows.append(row)
    return table


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
        "Theorem 1 says that the conservative penalty is larger with m uniform alternatives than "
        "with m actions of the policy, by at least a bound. Left: the mean difference of the "
        "penalties; right: the mean bound; columns in % are shares of the states, which were met "
        "in deployment. Premise: there is a threshold of Q_C that uniform actions exceed more "
        "often than the policy's. Where right is not above 0 the bound says nothing. Maxima hold: "
        "the step of the proof about expected maxima, before log m is subtracted. Mirrored left: "
        "the difference for the form of the penalty that is our default. Means over runs with "
        "standard errors."
    )
    header = ["task", "method", "n", *CONTEXT, "m", *THEOREM.values()]
    table = Table("theorem", "Theorem 1 on trained critics", caption, header, [], folded=True)
    for case in study.cases:
        for method in study.methods:
            for checks in zip(*study.measured(method, case, "theorem"), strict=False):
                row = [study.case_of[case].task, title(method), str(len(checks))]
                row += [*context(study, method, case), str(checks[0]["m"])]
                for name, text in THEOREM.items():
                    share = "%" in text
                    values = np.array([check.get(name) for check in checks], np.float64)
                    digits, scale = (0, 100.0) if share else (2, 1.0)
                    row.append(summarise(values).mean_text(digits, scale))
                table.rows.append(row)
    return table


def resources_table(study: Study, folder: Path) -> Table:
    """Make a table of the time and memory that training took."""
    caption = (
        "Training only, one core for each run. Times include compilation, and grow with whatever "
        "else the machine was doing. Memory is the peak of the run's process plus that of the "
        "largest process it started."
    )
    header = ["task", "method", "n", *CONTEXT, "minutes", "steps/s", "memory, MiB"]
    table = Table("resources", "Time and memory", caption, header, [])
    for case in study.cases:
        for method in study.methods:
            runs = study.of(method, case)
            if not runs:
                continue
            taken = np.array([run.episodes["step"][-1] if len(run.episodes["step"]) else np.nan
                              for run in runs])  # fmt: skip
            seconds = np.array([run.seconds for run in runs])
            memory = np.array([run.memory for run in runs]) / 2**20
            row = [study.case_of[case].task, title(method), str(len(runs))]
            row += context(study, method, case)
            row.append(summarise(seconds / 60).mean_text(1))
            row += [summarise(values).mean_text(0) for values in (taken / seconds, memory)]
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
    names = ("reward", "cost", "success")
    columns = [f"{stage}_{name}" for stage in ("late", "deployed") for name in names]
    for run in study.runs:
        known = run.row if run.done else {}
        cells = []
        for name in columns:
            share = "success" in name
            value = float(known.get(name, math.nan)) * (100.0 if share else 1.0)
            cells.append(number_text(value, 0 if share else 2))
        link = Path(os.path.relpath(run.path, folder)).as_posix()
        table.links[len(table.rows), 0] = f"{quote(link)}/"
        row = [run.job.name, title(run.method), run.task, str(run.job.seed), run.state]
        cost = float(known.get("deployed_cost", math.nan))
        kept = NONE if math.isnan(cost) else "yes" if cost <= run.limit + ROUNDING else "no"
        table.rows.append([*row, limit_text(run.limit), kept, f"{run.steps:,}", *cells])
    return table


def settings_table(study: Study, folder: Path) -> Table:
    """Make a table of the settings of every method."""
    columns: dict[str, dict[str, list[str]]] = {}
    for run in study.runs:
        job = run.job
        budget = {"steps": job.steps, "train_episodes": job.train_episodes}
        budget |= {"deployment_episodes": job.deployment_episodes}
        for name, value in (budget | job.settings).items():
            if value is not None:
                seen = columns.setdefault(run.method, {}).setdefault(name, [])
                if str(value) not in seen:
                    seen.append(str(value))
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [
        [name, *(" / ".join(columns[method].get(name, [NONE])) for method in study.methods)]
        for name in names
    ]
    caption = (
        "All settings of every method, as the runs were given them; where they differ between "
        "tasks or limits, in the order of the study."
    )
    header = ["setting", *(title(method) for method in study.methods)]
    return Table("settings", "Settings", caption, header, rows, folded=True)


def versions_table(study: Study, folder: Path) -> Table:
    """Make a table of the versions with which the runs were made."""
    versions: dict[str, list[str]] = {}
    for run in study.runs:
        for name, version in run.versions.items():
            seen = versions.setdefault(name, [])
            if version not in seen:
                seen.append(version)
    rows = [[name, ", ".join(seen)] for name, seen in versions.items()]
    caption = "With which the finished runs were begun."
    return Table("versions", "Versions", caption, ["package", "version"], rows)


# ---------------------------------------------------------------- the sections

Function = Callable[[Study, Path], Table]

TABLES: dict[str, list[Function]] = {
    "Limits": [limits_table],
    "Training": [training_table, late_table, improvement_table],
    "Deployment": [deployment_table, success_table],
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
        searched = bool(table.links)
        table.folded = table.folded or (len(table.rows) > MOST_ROWS and not searched)
    return tables
