"""Writes the tables and figures that follow from the code or the runs: `python docs/tables.py`.

Numbers after ± are half the width of the 95% interval over seeds (Student's t), or the standard
error where the page says so; of two seeds, both numbers are shown.
"""

import csv
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import safecritic
from safecritic.agents import methods
from safecritic.core.statistics import interval_of_difference, interval_of_mean
from safecritic.report import claims, data
from safecritic.report.data import Study, title
from safecritic.study.runs import Run
from safecritic.study.table import ROUNDING
from safecritic.tasks import TASKS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
MARKED = re.compile(
    r"(<!-- (\w+) table: made by python docs/tables.py -->\n).*?(<!-- end of table -->)", re.DOTALL
)
WINDOW, SOLVED, DISTANCE = 50, 0.95, 25.0  # episodes, success, metres of HalfCheetah
EPISODES, LAST = 2_000, 100  # of the paper's runs; episodes that shorter runs are continued with
PAPER_HOURS = {"CarGoal1": 12, "CarGoal2": 20, "CarButton1": 20, "CarButton2": 20}
PAPER_HOURS |= {"FetchReach": 1, "HalfCheetah": 12}
PUBLISHED_LIMIT = 25.0
Header, Rows = Sequence[str], list[list[str]]


@functools.cache
def study(name: str = "tasks") -> Study:
    """Return the committed runs of a study."""
    return data.read(ROOT / "results" / f"{name}.parquet")


def markdown(header: Header, rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    text = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([text[0], "|---" * len(header) + "|\n", *text[1:]])


# ---------------------------------------------------------------- cells


def interval(values: np.ndarray, digits: int, scale: float = 1.0) -> str:
    """Return the mean and half the width of its 95% interval over the seeds; of two, both."""
    if len(values) == 2 and not np.isnan(values).any():  # an interval of two is many times as wide
        return " / ".join(f"{scale * x:.{digits}f}" for x in values)
    mean, low, high = (scale * x for x in interval_of_mean(values))
    if np.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" + ("" if np.isnan(low) else f" ± {(high - low) / 2:.{digits}f}")


def difference(own: np.ndarray, whole: np.ndarray, digits: int) -> str:
    """Return the difference of means and its 95% interval, in bold where that leaves out 0."""
    found = interval_of_difference(own, whole)
    if np.isnan(found[0]):
        return ""
    mean, low, high = (f"{round(x, digits) + 0.0:+.{digits}f}" for x in found)
    if np.isnan(found[1]):
        return mean
    text = f"{mean} [{low}, {high}]"
    return f"**{text}**" if found[1] > 0 or found[2] < 0 else text


# name in a table: column of a run, factor, digits
COLUMNS = {
    "success %": ("deployed_success", 100.0, 1),
    "reward": ("deployed_reward", 1.0, 2),
    "cost": ("deployed_cost", 1.0, 2),
    "cost over training": ("cost", 1.0, 2),
    "late cost": ("late_cost", 1.0, 2),
    "AUC": ("critic_auc", 1.0, 2),
    "u and error": ("critic_influence_error_correlation", 1.0, 2),
    "error, least u": ("error_least_u", 1.0, 2),
    "error, most u": ("error_most_u", 1.0, 2),
}


def numbers(runs: Sequence[Run], name: str) -> np.ndarray:
    """Return a column of a table for some runs."""
    column, scale, _ = COLUMNS[name]
    return scale * np.array([run.row[column] for run in runs])


# ---------------------------------------------------------------- of the code


def methods_table() -> str:
    """Return the methods of the package; those of installed plugins are left out."""
    rows = [
        (
            f"[`{method.name}`](docs/methods/{method.name}.md)",
            f"`{method.class_name}`",
            method.cost_model,
        )
        for method in methods._TABLE
    ]
    return markdown(("name", "in Python", "what it knows of the cost"), rows)


# ---------------------------------------------------------------- of the runs


def outcomes(name: str, *columns: str, only: Sequence[str] = ()) -> str:
    """Return what each method came to in a study: deployed means, and seeds within the limit."""
    table = study(name)
    rows = []
    for case, (task, *_) in table.case_of.items():
        for method in table.methods:
            runs, lost = table.of(method, case), table.diverged(method, case)
            if not (runs or lost) or (only and method not in only):
                continue
            kept, number = table.within(method, case)
            cells = {"task": task, "limit": f"{table.limit(case, method):g}", "method": method}
            cells |= {"steps": f"{(runs or lost)[0].job.steps:,}", "within": f"{kept} of {number}"}
            for column in columns:
                if column not in cells:
                    cells[column] = interval(numbers(runs, column), COLUMNS[column][2])
            rows.append([cells[column] for column in columns])
    return markdown(columns, rows)


ALL = ("task", "limit", "method", "success %", "reward", "cost", "within", "cost over training")


def steps_of(run: Run) -> float:
    """Return the environment steps of 2,000 episodes of a run."""
    lengths = np.diff(run.episodes["step"], prepend=0.0)
    more = max(EPISODES - len(lengths), 0)
    return float(lengths[:EPISODES].sum() + more * lengths[-LAST:].mean())


def hours_table() -> str:
    """Return how long 2,000 training episodes of USC take, medians over the seeds."""
    header = ("task", "steps of 2,000", "steps/s", "minutes", "the paper's hours", "times sooner")
    rows = []
    for task in study().tasks:
        runs = study().of("usc", task)
        steps = np.array([steps_of(run) for run in runs])
        rate = np.array([run.row["rate"] for run in runs])
        minutes, hours = float(np.median(steps / rate)) / 60, PAPER_HOURS[task]
        cells = [task, f"{np.median(steps):,.0f}", f"{np.median(rate):,.0f}", f"{minutes:.1f}"]
        rows.append([*cells, str(hours), f"{60 * hours / minutes:.0f}"])
    return markdown(header, rows)


def solved_at(run: Run) -> float:
    """Return the steps after which a run had solved its task; infinity if it never did."""
    name, least = ("success", SOLVED) if TASKS[run.task].has_goal else ("reward", DISTANCE)
    good, cost = (np.asarray(run.episodes[column], float) for column in (name, "cost"))
    if len(cost) < WINDOW:
        return np.inf
    means = [np.convolve(x, np.full(WINDOW, 1.0 / WINDOW), "valid") for x in (good, cost)]
    ends = np.flatnonzero((means[0] >= least - 1e-9) & (means[1] <= run.limit + ROUNDING))
    return float(run.episodes["step"][ends[0] + WINDOW - 1]) if len(ends) else np.inf


def solved_table() -> str:
    """Return the median over seeds of the steps until each task was solved."""
    table, rows = study(), []
    for task in table.tasks:
        row = [task]
        for method in table.methods:
            steps = np.array([solved_at(run) for run in table.of(method, task)])
            solved, median = int(np.isfinite(steps).sum()), float(np.median(steps))
            text = "–" if np.isinf(median) else f"{median:,.0f}"
            row.append(text if solved == len(steps) else f"{text} ({solved} of {len(steps)})")
        rows.append(row)
    return markdown(("task", *table.methods), rows)


def against_paper(place: str, **columns: tuple[str, str, float, int]) -> str:
    """Return mean ± standard error of some columns, each beside the paper's number."""
    table, rows = study(), []
    header = ["task", "method"]
    for name in columns:
        header += [name.replace("_", " "), "paper"]
    for case in table.cases:
        for method in table.methods:
            row = [case, title(method)]
            for column, metric, scale, digits in columns.values():
                theirs = table.paper_value(place, method, case, metric)
                ours = table.summary(method, case, column)
                row.append(ours.mean_text(digits, scale))
                row.append("–" if theirs is None else theirs.text(digits))
            if any(cell != "–" for cell in row[3::2]):
                rows.append(row)
    return markdown(header, rows)


def maps_table() -> str:
    """Return the errors of the cost maps of CarGoal2, against both kinds of truth."""
    table, rows = study(), []
    errors = {"gradient MSE": "gradient_mse", "contrast": "contrast_error"}
    errors |= {"entropy": "entropy_error"}
    for method in table.methods:
        row = [title(method)]
        for name in errors.values():
            ours = table.summary(method, "CarGoal2", f"cost_map/instant/{name}")
            theirs = table.paper_value("cost_map", method, "CarGoal2", name)
            row += [ours.mean_text(), "–" if theirs is None else theirs.text()]
        for name in errors.values():
            row.append(table.summary(method, "CarGoal2", f"cost_map/discounted/{name}").mean_text())
        if row[1] != "–":
            rows.append(row)
    header = ["method"]
    for name in errors:
        header += [name, "paper"]
    return markdown([*header, *(f"{name}, realised" for name in errors)], rows)


def better_table(name: str) -> str:
    """Return the probability that a run of USC does better than one of another method."""
    table, rows = study(name), []
    columns = {"training reward": ("reward", 1), "training cost": ("cost", -1)}
    columns |= {"late cost": ("late_cost", -1), "deployed reward": ("deployed_reward", 1)}
    columns |= {"deployed cost": ("deployed_cost", -1)}
    for case, (task, *_) in table.case_of.items():
        for other in ("sc", "csc", "usc-nr"):
            row = [task, f"{table.limit(case):g}", title(other)]
            for column, sign in columns.values():
                ours, theirs = (sign * table.values(x, case, column) for x in ("usc", other))
                if len(ours) and len(theirs):
                    found = safecritic.core.statistics.probability_of_improvement(ours, theirs)
                    row.append("{:.2f} [{:.2f}, {:.2f}]".format(*found))
            if len(row) > 3:
                rows.append(row)
    return markdown(("task", "limit", "against", *columns), rows)


def calibration_table() -> str:
    """Return how well u orders the errors of Q_C."""
    table, rows = study(), []
    for case in table.cases:
        for method in ("usc-nr", "usc"):
            parts = [("rank_correlation", 2), ("excess", 2)]
            cells = [
                table.summary(method, case, f"calibration/{name}").mean_text(digits)
                for name, digits in parts
            ]
            rows.append([case, title(method), *cells])
    return markdown(("task", "method", "rank correlation", "excess"), rows)


def sweep_table() -> str:
    """Return the cost of every method at every limit, with its success."""
    table, rows = study("limits"), []
    for case, (task, limit, _) in table.case_of.items():
        row = [task, f"{limit:g}"]
        for method in table.methods:
            runs = table.of(method, case)
            texts = [interval(numbers(runs, x), COLUMNS[x][2]) for x in ("cost", "success %")]
            row.append(f"{texts[0]} ({texts[1]}%)")
        rows.append(row)
    return markdown(("task", "limit", *table.methods), rows)


def diverged_table() -> str:
    """Return the step at which each run of results/printed diverged."""
    table, rows = study("printed"), []
    for case in table.cases:
        for method in table.methods:
            if lost := table.diverged(method, case):
                steps = [f"{run.failure.step:,}" for run in lost if run.failure]
                rows.append([case, method, ", ".join(steps)])
    return markdown(("task", "method", "steps after which the runs diverged"), rows)


def differences(name: str, base: str, columns: Sequence[str], only: Sequence[str] = ()) -> Rows:
    """Return every method of a study minus USC, whose runs are those of the study `base`."""
    table, rows = study(name), []
    whole = [run for run in study(base).runs if run.method == "usc" and run.done]
    for case, (task, *_) in table.case_of.items():
        limit = table.limit(case)
        of_usc = [run for run in whole if (run.task, run.limit) == (task, limit)]
        for method in table.methods:
            runs = table.of(method, case)
            if method == "usc" or not runs or not of_usc or (only and method not in only):
                continue
            cells = [
                difference(numbers(runs, x), numbers(of_usc, x), COLUMNS[x][2]) for x in columns
            ]
            rows.append([task, f"{limit:g}", method, f"{len(runs)}, {len(of_usc)}", *cells])
    return rows


def parts_table() -> str:
    """Return USC without a part minus USC, and SC, which has none, minus USC."""
    columns = ("success %", "cost", "cost over training", "late cost", "AUC", "u and error")
    rows = differences("ablations", "critics", columns)
    cases = {tuple(row[:2]) for row in rows}
    sc = differences("critics", "critics", columns, only=["sc"])
    rows += [row for row in sc if tuple(row[:2]) in cases]
    rows.sort(key=lambda row: list(TASKS).index(row[0]))
    return markdown(("task", "limit", "method", "seeds", *columns), rows)


def refinement_table() -> str:
    """Return what Q_C lacks or gains without refinement: USC (NR) minus USC."""
    columns = ("u and error", "error, least u", "error, most u")
    rows = [
        [*row[:2], *row[4:]]
        for name in ("tasks", "ablations")
        for row in differences(name, name, columns, only=["usc-nr"])
    ]
    return markdown(("task", "limit", *columns), rows)


PHASES = {  # digits of each
    "steps until learned": 0,
    "cost per episode before": 1,
    "cost per episode after": 1,
    "steps per episode after": 0,
}


def phases(run: Run) -> list[float]:
    """Return the columns of PHASES; NaN of what a run has not got."""
    step, success, cost = (np.asarray(run.episodes[x], float) for x in ("step", "success", "cost"))
    mean = np.convolve(success, np.full(WINDOW, 1.0 / WINDOW), "valid")
    good = np.flatnonzero(mean >= SOLVED - 1e-9)
    end = int(good[0]) + WINDOW if len(success) >= WINDOW and len(good) else len(success)
    number = len(cost) - end
    after = [cost[end:].mean(), (step[-1] - step[end - 1]) / number] if number else [np.nan] * 2
    return [step[end - 1], cost[:end].mean(), *after]


def phases_table() -> str:
    """Return runs at a limit of 1 minus runs at 5, before and after the task is learned."""
    table, rows = study("critics"), []
    for task in table.tasks:
        found = [(run.method, run.limit, phases(run)) for run in table.runs if run.task == task]
        for method in ("all", *table.methods):
            low, high = (
                np.array([x for name, at, x in found if at == limit and method in ("all", name)])
                for limit in (1.0, 5.0)
            )
            row = [task, method]
            for digits, tight, lax in zip(PHASES.values(), low.T, high.T, strict=True):
                text = difference(tight, lax, digits)
                row.append(f"{text} ({np.nanmean(lax):,.{digits}f})")
            rows.append(row)
    return markdown(("task", "method", *PHASES), rows)


def claims_table() -> str:
    """Return the paper's claims and what the runs in results/tasks say of each."""
    table = claims.claims_table(study(), ROOT)
    return markdown(table.header, table.rows)


def published_table() -> str:
    """Return the best of others' methods within the limit, and the best without one, by task."""
    with (ROOT / "results" / "published.csv").open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))

    def best(of: list[dict[str, str]]) -> str:
        if not of:
            return "–"
        top = max(of, key=lambda cell: float(cell["reward"]))
        reward, cost = (
            f"{float(top[x]):,.{digits}f}" for x, digits in (("reward", 1), ("cost", 0))
        )
        return f"{top['method']} {reward} at {cost}"

    rows = []
    for task in TASKS:
        if not (own := [cell for cell in cells if cell["task"] == task]):
            continue
        kept = [cell for cell in own if float(cell["cost"]) <= PUBLISHED_LIMIT]
        pages = ("off-policy", "on-policy")
        kinds = [[cell for cell in kept if page in cell["source"]] for page in pages]
        rows.append([task, *map(best, (*kinds, own))])
    return markdown(("task", "off-policy", "on-policy", "at any cost"), rows)


TRAINING = {"reward": ("reward", "reward", 1.0, 2), "cost": ("cost", "cost", 1.0, 2)}
DEPLOYMENT = {
    "reward": ("deployed_reward", "reward", 1.0, 2),
    "contacts": ("deployed_contacts", "cost", 1.0, 2),
    "success_%": ("deployed_success", "success", 100.0, 1),
}
TABLES: dict[str, Callable[[], str]] = {
    "methods": methods_table,
    "summary": lambda: outcomes(
        "tasks",
        *("task", "limit", "method", "success %", "reward", "cost", "within"),
        only=("ddpg", "usc"),
    ),
    "results": lambda: outcomes("tasks", *ALL, "AUC"),
    "hours": hours_table,
    "solved": solved_table,
    "training": lambda: against_paper("training", **TRAINING),
    "maps": maps_table,
    "deployment": lambda: against_paper("deployment", **DEPLOYMENT),
    "calibration": calibration_table,
    "claims": claims_table,
    "critics": lambda: outcomes("critics", *ALL),
    "against": lambda: better_table("critics"),
    "phases": phases_table,
    "sweep": sweep_table,
    "parts": parts_table,
    "refinement": refinement_table,
    "printed": lambda: outcomes(
        "printed", "task", "method", "success %", "cost", "within", "cost over training", "AUC"
    ),
    "diverged": diverged_table,
    "published": published_table,
}
PAGES = {  # the tables of each
    ROOT / "README.md": {"methods", "summary"},
    ROOT / "docs" / "safety-gymnasium.md": {"published"},
    RESULTS / "tasks.md": {"results", "hours", "solved"},
    RESULTS / "paper.md": {"training", "maps", "deployment", "calibration"},
    RESULTS / "claims.md": {"claims"},
    RESULTS / "critics.md": {"critics", "against", "phases"},
    RESULTS / "limits.md": {"sweep"},
    RESULTS / "parts.md": {"parts", "refinement"},
    RESULTS / "printed.md": {"printed", "diverged"},
}


def updated(page: Path, text: str) -> str:
    """Return a page with its marked tables written anew, without padding where they are long."""

    def table(match: re.Match[str]) -> str:
        made = TABLES[match[2]]()
        made = re.sub(r"(?<!\\) *\| *", "|", made) if page.parent == RESULTS else made
        return match[1] + made + match[3]

    return MARKED.sub(table, text)


if __name__ == "__main__":
    import figures

    for page in PAGES:
        page.write_text(updated(page, page.read_text(encoding="utf-8")), encoding="utf-8")
    figures.write(ROOT / "docs" / "images")
