"""The tables of a report: of strings, so that page, CSV and LaTeX show the same cells.

Ours are means with standard errors over seeds, beside them the interquartile mean (IQM) with its
bootstrap interval, beside that what the paper prints. `≠` marks where the two intervals, mean ±
standard error, do not overlap. What follows the paper's ± is by its text the standard error over
five runs; in its deployment tables it is the standard deviation of ten episodes (0.70 ± 2.10 is one
episode of 7 among ten), so its standard error is taken as a root-tenth of it.
"""

import csv
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from safecritic.evaluation import statistics
from safecritic.report.data import Printed, Study, title

NONE = "–"
DIFFERS = "≠"
WORDS = ("task", "method", "against", "run", "state")  # columns that are not numbers
EPISODES = 10  # in the paper's deployment tables


@dataclass
class Table:
    name: str  # of its files
    title: str
    caption: str
    header: list[str]
    rows: list[list[str]]
    section: str = ""
    folded: bool = False  # long and for the few: opened on a click
    marks: dict[tuple[int, int], str] = field(default_factory=dict)  # (row, column): best, worse
    links: dict[tuple[int, int], str] = field(default_factory=dict)  # to a folder

    def write_csv(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.header)
            writer.writerows(self.rows)

    def write_latex(self, path: Path) -> None:
        """Needs the package booktabs; best cells are bold."""
        columns = "l" * _labels(self) + "r" * (len(self.header) - _labels(self))
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(self.title)}. {_latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(_latex(name) for name in self.header) + r" \\",
            r"\midrule",
        ]
        for number, row in enumerate(self.rows):
            if number and row[0] != self.rows[number - 1][0] and _labels(self) > 1:
                lines.append(r"\addlinespace")
            cells = [_latex(cell) for cell in row]
            for at in range(len(cells)):
                if self.marks.get((number, at)) == "best":
                    cells[at] = rf"\textbf{{{cells[at]}}}"
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _labels(table: Table) -> int:
    """How many columns are words."""
    return sum(name in WORDS for name in table.header)


def _latex(text: str) -> str:
    plain = {
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "≠": r"$\neq$",
        "≥": r"$\geq$",
        "–": "--",
        "²": r"$^2$",
        "→": r"$\to$",
        "<": r"$<$",
        ">": r"$>$",
        "^": r"\^{}",
        "~": r"\~{}",
        **{sign: "\\" + sign for sign in "%&_#{}$"},
    }
    return "".join(plain.get(sign, sign) for sign in text)


# ---------------------------------------------------------------- cells


def mean_cell(values: np.ndarray, digits: int = 2, scale: float = 1.0) -> str:
    mean, error = statistics.mean_and_error(values)
    spread = "" if math.isnan(error) else f" ± {number_cell(scale * error, digits)}"
    return f"{number_cell(scale * mean, digits)}{spread}"


def iqm_cell(values: np.ndarray, digits: int = 2, scale: float = 1.0) -> str:
    """One seed has no interval."""
    if np.count_nonzero(~np.isnan(values)) < 2:
        return NONE
    return interval_cell(statistics.interval_of_iqm(values), digits, scale)


def interval_cell(found: statistics.Interval, digits: int = 2, scale: float = 1.0) -> str:
    if math.isnan(found.value):
        return NONE
    value, low, high = (number_cell(scale * x, digits) for x in found)
    return f"{value} [{low}, {high}]"


def differs(values: np.ndarray, printed: Printed | None, episodes: int = 1) -> str:
    """The sign where the intervals, mean ± standard error, do not overlap."""
    mean, error = statistics.mean_and_error(values)
    if printed is None or math.isnan(error) or math.isnan(printed.spread):
        return ""
    theirs = printed.spread / math.sqrt(episodes)
    return DIFFERS if abs(mean - printed.mean) > error + theirs else ""


def number_cell(value: float, digits: int = 2) -> str:
    return NONE if math.isnan(value) else f"{value:z.{digits}f}"


# ---------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Column:
    """A quantity of a table: its name, its column in runs.csv, and the paper's name for it."""

    name: str
    source: str
    metric: str = ""
    best: Callable[[Sequence[float]], float] | None = None  # min or max
    digits: int = 2
    scale: float = 1.0
    iqm: bool = True


def compared(
    study: Study,
    name: str,
    heading: str,
    caption: str,
    columns: Sequence[Column],
    paper: str,
    episodes: int = 1,
) -> Table:
    """One row for each task and method with finished runs: ours, IQM, the paper's, the mark."""
    header = ["task", "method", "n"]
    for column in columns:
        header.append(column.name)
        header += [f"{column.name}, IQM [95%]"] if column.iqm else []
        header += [f"{column.name}, paper", DIFFERS] if column.metric else []
    table = Table(name, heading, caption, header, [])
    for task in study.tasks:
        first = len(table.rows)
        means: dict[int, list[float]] = {}
        for method in study.methods:
            number = len(study.of(method, task))
            if not number:
                continue
            row = [task, title(method), str(number)]
            for column in columns:
                values = study.values(method, task, column.source)
                if column.best is not None:
                    mean = statistics.mean_and_error(values)[0]
                    means.setdefault(len(row), []).append(mean)
                row.append(mean_cell(values, column.digits, column.scale))
                if column.iqm:
                    row.append(iqm_cell(values, column.digits, column.scale))
                if column.metric:
                    printed = study.printed(paper, method, task, column.metric)
                    row.append(NONE if printed is None else printed.text(column.digits))
                    row.append(differs(column.scale * values, printed, episodes))
            table.rows.append(row)
        places = [at for at, text in enumerate(header) if text in {c.name for c in columns}]
        for column, at in zip(columns, places, strict=True):
            if column.best is not None:
                found = means.get(at, [])
                known = [value for value in found if not math.isnan(value)]
                for number, value in enumerate(found):
                    if len(known) > 1 and value == column.best(known):
                        table.marks[first + number, at] = "best"
    return table


def training_table(study: Study) -> Table:
    return compared(
        study,
        "training",
        "Table 1: training",
        "Reward and undiscounted cost of an episode, over all training episodes, warm-up and "
        "exploration included. Best of a task in bold.",
        [Column("reward", "reward", "reward", max), Column("cost", "cost", "cost", min)],
        "training",
    )


def late_table(study: Study) -> Table:
    return compared(
        study,
        "late",
        "The end of training",
        "The last 100 training episodes, exploration included. Not in the paper.",
        [
            Column("reward", "late_reward", best=max),
            Column("cost", "late_cost", best=min),
            Column("success %", "late_success", best=max, digits=1, scale=100.0),
        ],
        "",
    )


def deployment_table(study: Study) -> Table:
    return compared(
        study,
        "deployment",
        "Table 3: deployment",
        "Trained policies without exploration, screen on, the same scenes for all. Contacts are "
        "the cost in whole contacts, the paper's unit in this table; distance is that to the edge "
        "of the nearest hazard in metres. The paper deploys one policy for ten episodes.",
        [
            Column("reward", "deployed_reward", "reward", max),
            Column("contacts", "deployed_contacts", "cost", min),
            Column("cost", "deployed_cost", best=min, iqm=False),
            Column("distance", "deployed_hazard_distance_mean", best=max, iqm=False),
        ],
        "deployment",
        EPISODES,
    )


def success_table(study: Study) -> Table:
    table = compared(
        study,
        "success",
        "Table 4: success in deployment",
        "Share of the deployment episodes that reach the goal. Below 100% is shaded. The paper "
        "prints no interval, so nothing is marked.",
        [Column("success %", "deployed_success", "success", digits=1, scale=100.0)],
        "deployment",
    )
    table.rows = [row[:-1] for row in table.rows if row[3] != NONE]
    table.header = table.header[:-1]
    for number, row in enumerate(table.rows):
        for at in (3, 5):
            if row[at] != NONE and float(row[at].split()[0]) < 100.0:
                table.marks[number, at] = "worse"
    return table


MAP_ERRORS = {
    "gradient_mse": "gradient MSE",
    "contrast_error": "contrast error",
    "entropy_error": "entropy error",
}


def map_table(study: Study, truth: str) -> Table:
    """Against one of the two truths; the paper's Table 2 has CarGoal2 and the instant one alone."""
    printed_too = truth == "instant"
    header = ["task", "method", "n"]
    for name in MAP_ERRORS.values():
        header += [name, f"{name}, IQM [95%]"]
        header += [f"{name}, paper", DIFFERS] if printed_too else []
    if printed_too:
        heading = "Table 2: cost maps against the cost of standing there"
        caption = (
            "Q_C of the car at rest at each cell of a grid, mean of four headings, against the "
            "cost of standing there for one step; both scaled to [0, 1], gradients per metre; mean "
            "of five scenes. Less is better. The paper has CarGoal2 alone."
        )
    else:
        heading = "Cost maps against what followed"
        caption = (
            "The same against the discounted cost of an episode of the deployed policy from each "
            "cell, one scene and one heading. Not in the paper."
        )
    table = Table(f"cost-maps-{truth}", heading, caption, header, [])
    for task in study.tasks:
        first = len(table.rows)
        means: dict[int, list[float]] = {}
        for method in study.methods:
            found = study.measured(method, task, "cost_map")
            if not found:
                continue
            row = [task, title(method), str(len(found))]
            for name in MAP_ERRORS:
                values = np.array([one[truth][name] for one in found])
                means.setdefault(len(row), []).append(float(values.mean()))
                row += [mean_cell(values), iqm_cell(values)]
                if printed_too:
                    printed = study.printed("cost_map", method, task, name)
                    row += [NONE if printed is None else printed.text(), differs(values, printed)]
            table.rows.append(row)
        for at, column in means.items():
            if len(column) > 1:
                table.marks[first + int(np.argmin(column)), at] = "best"
    return table


def calibration_table(study: Study) -> Table:
    names = ("rank_correlation", "area", "random", "oracle", "excess")
    header = ["task", "method", "n", "rank correlation", "rank correlation, IQM [95%]"]
    header += ["risk area", "random order", "oracle order", "excess", "excess, IQM [95%]"]
    caption = (
        "Does the influence u know where Q_C errs? Error is |Q_C - realised discounted cost| at "
        "the steps of the deployment episodes. Risk area: mean error over all coverages, the least "
        "u first; excess is 0 for the order by the error itself and 1 for chance."
    )
    table = Table("calibration", "Calibration of the influence", caption, header, [])
    for task in study.tasks:
        for method in study.methods:
            found = study.measured(method, task, "calibration")
            if not found:
                continue
            columns = {
                name: np.array([np.nan if one[name] is None else one[name] for one in found])
                for name in names
            }
            row = [task, title(method), str(len(found))]
            row += [mean_cell(columns["rank_correlation"]), iqm_cell(columns["rank_correlation"])]
            row += [mean_cell(columns[name], 3) for name in ("area", "random", "oracle")]
            row += [mean_cell(columns["excess"]), iqm_cell(columns["excess"])]
            table.rows.append(row)
    return table


def improvement_table(study: Study) -> Table:
    """Of the last of the methods, USC if it is there, over each other."""
    columns = {
        "training reward": ("reward", 1.0),
        "training cost": ("cost", -1.0),
        "late cost": ("late_cost", -1.0),
        "deployed reward": ("deployed_reward", 1.0),
        "deployed cost": ("deployed_cost", -1.0),
    }
    chosen = study.methods[-1] if study.methods else ""
    name = title(chosen) if chosen else NONE
    caption = (
        f"Chance that a run of {name} is better than a run of the other method (more reward, less "
        "cost), ties counting half, with its 95% bootstrap interval over seeds. 0.5: no difference."
    )
    table = Table(
        "improvement", f"Is {name} better?", caption, ["task", "against", "n", *columns], []
    )
    for task in study.tasks:
        for other in study.methods[:-1]:
            counts = [len(study.of(method, task)) for method in (chosen, other)]
            if not all(counts):
                continue
            row = [task, title(other), f"{counts[0]}, {counts[1]}"]
            for column, sign in columns.values():
                ours = sign * study.values(chosen, task, column)
                theirs = sign * study.values(other, task, column)
                found = statistics.probability_of_improvement(ours, theirs)
                row.append(interval_cell(found) if min(counts) > 1 else NONE)
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


def theorem_table(study: Study) -> Table:
    caption = (
        "Is the conservative penalty larger with m uniform alternatives than with the policy's own "
        "(left: the mean gap), and by at least the claimed bound (right)? Shares of the states met "
        "in deployment, means over runs with standard errors. Premise: there is a threshold that "
        "the policy's actions exceed less often. Where right is not above 0 the bound is empty. "
        "Maxima hold: the claim on expected maxima before log m is subtracted. Mirrored: the form "
        "of the penalty that is trained with by default."
    )
    header = ["task", "method", "n", "m", *THEOREM.values()]
    table = Table("theorem", "Theorem 1 on trained critics", caption, header, [], folded=True)
    for task in study.tasks:
        for method in study.methods:
            found = study.measured(method, task, "theorem")
            for checks in zip(*found, strict=False):
                row = [task, title(method), str(len(checks)), str(checks[0]["m"])]
                for name, text in THEOREM.items():
                    share = "%" in text
                    values = np.array([check[name] for check in checks], np.float64)
                    row.append(mean_cell(values, 0 if share else 2, 100.0 if share else 1.0))
                table.rows.append(row)
    return table


def resources_table(study: Study) -> Table:
    caption = (
        "Training alone, on one core for each run, compilation and what else the machine did "
        "included. Memory is the peak of the run's process, and of the largest it started."
    )
    header = ["task", "method", "n", "steps", "minutes", "steps/s", "memory, MiB"]
    table = Table("resources", "Time and memory", caption, header, [])
    for task in study.tasks:
        for method in study.methods:
            runs = study.of(method, task)
            if not runs:
                continue
            steps = np.array([run.job.steps for run in runs], np.float64)
            taken = np.array([run.episodes["step"][-1] if len(run.episodes["step"]) else np.nan
                              for run in runs])  # fmt: skip
            seconds = np.array([run.seconds for run in runs])
            memory = np.array([run.memory for run in runs]) / 2**20
            row = [task, title(method), str(len(runs)), f"{steps.mean():,.0f}"]
            row += [mean_cell(seconds / 60, 1), mean_cell(taken / seconds, 0), mean_cell(memory, 0)]
            table.rows.append(row)
    return table


def runs_table(study: Study, folder: Path) -> Table:
    """Every run with a link to its folder, relative to where the page lies."""
    header = ["run", "method", "task", "seed", "state", "reward", "cost", "success %"]
    header += ["deployed reward", "deployed cost", "deployed success %"]
    caption = (
        "The last 100 training episodes, then the deployment. A run's name leads to its folder."
    )
    table = Table("runs", "All runs", caption, header, [])
    rows = {row["run"]: row for row in study.rows}
    names = ("reward", "cost", "success")
    columns = [f"{stage}_{name}" for stage in ("late", "deployed") for name in names]
    for run in study.runs:
        known = rows.get(run.job.name, {})
        cells = []
        for name in columns:
            share = "success" in name
            value = float(known.get(name, math.nan)) * (100.0 if share else 1.0)
            cells.append(number_cell(value, 0 if share else 2))
        link = Path(os.path.relpath(run.path, folder)).as_posix()
        table.links[len(table.rows), 0] = f"{link}/"
        table.rows.append(
            [run.job.name, title(run.method), run.task, str(run.job.seed), run.state, *cells]
        )
    return table


def all_tables(study: Study, folder: Path) -> list[Table]:
    """In the order of the page; those that would be empty are left out."""
    sections = {
        "Training": [training_table(study), late_table(study), improvement_table(study)],
        "Deployment": [deployment_table(study), success_table(study)],
        "Cost maps": [map_table(study, truth) for truth in ("instant", "discounted")],
        "Uncertainty": [calibration_table(study), theorem_table(study)],
        "Time and memory": [resources_table(study)],
        "Runs": [runs_table(study, folder)],
    }
    found = []
    for section, tables in sections.items():
        for table in tables:
            if table.rows:
                table.section = section
                found.append(table)
    return found
