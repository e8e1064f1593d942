"""Writes the tables that follow from the code or the committed runs: `python docs/tables.py`."""

import functools
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safecritic
from safecritic import methods
from safecritic.report import claims, data, tables
from safecritic.tasks import TASKS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results" / "tasks.md"
PAPER = ROOT / "docs" / "results" / "paper.md"
CLAIMS = ROOT / "docs" / "results" / "claims.md"
CRITICS = ROOT / "docs" / "results" / "critics.md"
LIMITS = ROOT / "docs" / "results" / "limits.md"
PARTS = ROOT / "docs" / "results" / "parts.md"
PRINTED = ROOT / "docs" / "results" / "printed.md"
MARKED = re.compile(
    r"(<!-- (\w+) table: made by python docs/tables.py -->\n).*?(<!-- end of table -->)", re.DOTALL
)


def methods_table() -> str:
    """Return the methods of the package; those of installed plugins are left out."""
    rows = []
    for method in methods._TABLE:
        full_name = re.split("[:;]", method.summary)[0]
        rows.append(
            (
                f"[`{method.name}`](docs/methods/{method.name}.md)",
                f"`{method.class_name}`",
                f"{method.title}: {full_name}",
                method.cost_model,
            )
        )
    return markdown(("name", "in Python", "method", "what it knows of the cost"), rows)


def tasks_table() -> str:
    """Return the tasks of the package; those of installed plugins are left out."""
    rows = []
    for task in TASKS.values():
        if not task.entry_point.startswith("safecritic."):
            continue
        env = safecritic.make(task.name)
        sizes = [str(space.shape[0]) for space in (env.observation_space, env.action_space)]
        rows.append((f"`{task.name}`", task.summary, *sizes, task.cost, str(task.cost_limit)))
    return markdown(("name", "what to do", "observation", "action", "cost", "budget"), rows)


def benchmark(name: str) -> Any:
    """Return the module of a benchmark."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)  # they import each other
    return importlib.import_module(name)


def results(name: str = "tasks") -> tuple[Sequence[str], list[list[str]]]:
    """Return what the runs in results/NAME came to, as benchmarks/tasks_table.py prints it."""
    module = benchmark("tasks_table")
    return module.HEADER, module.rows_of(study(name))


def filled_table(name: str, *left_out: str) -> str:
    """Return what the runs in results/NAME came to, without empty columns and those named."""
    header, rows = results(name)
    filled = [at for at in range(len(header)) if any(row[at] for row in rows)]
    kept = [at for at in filled if header[at] not in left_out]
    return markdown([header[at] for at in kept], [[row[at] for at in kept] for row in rows])


def phases_table() -> str:
    """Return what a lower limit does to training, as benchmarks/phases.py prints it."""
    module = benchmark("phases")
    return markdown(module.HEADER, module.rows_of(study("critics")))


def sweep_table() -> str:
    """Return the cost of every method at every limit in results/limits, with its success."""
    header, rows = results("limits")
    at = {name: header.index(name) for name in ("task", "limit", "method", "cost", "success %")}
    methods_there = list(dict.fromkeys(row[at["method"]] for row in rows))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        case = cells.setdefault((row[at["task"]], row[at["limit"]]), {})
        case[row[at["method"]]] = f"{row[at['cost']]} ({row[at['success %']]}%)"
    lines = [[*case, *(found.get(name, "") for name in methods_there)]
             for case, found in cells.items()]  # fmt: skip
    return markdown(("task", "limit", *methods_there), lines)


def diverged_table(name: str) -> str:
    """Return which runs in results/NAME diverged, as benchmarks/tasks_table.py prints it."""
    module = benchmark("tasks_table")
    return markdown(module.DIVERGED, module.diverged_rows(study(name)))


def parts_table() -> str:
    """Return what each part of USC is worth, as benchmarks/parts.py prints it."""
    module = benchmark("parts")
    return markdown(module.HEADER, module.rows_of(study("ablations")))


def again_table() -> str:
    """Return the same against all seeds of USC in results/critics, with SC, which has no part."""
    module = benchmark("parts")
    rows = module.rows_of(study("ablations"), base_of=study("critics"))
    cases = {tuple(row[:2]) for row in rows}
    others = [row for row in module.rows_of(study("critics")) if tuple(row[:2]) in cases]
    rows += [row for row in others if row[module.HEADER.index("method")] == "sc"]
    return markdown(module.HEADER, sorted(rows, key=lambda row: list(TASKS).index(row[0])))


def refinement_table() -> str:
    """Return of that, what refinement does to Q_C, in every study that has it."""
    module = benchmark("parts")
    columns = ("task", "limit", "seeds", "u and error", "error, least u", "error, most u")
    places = [module.HEADER.index(name) for name in columns]
    rows = [row for name in ("tasks", "ablations") for row in module.rows_of(study(name))]
    shown = [row for row in rows if row[module.HEADER.index("method")] == "usc-nr"]
    return markdown(columns, [[row[place] for place in places] for row in shown])


def hours_table() -> str:
    """Return how long 2,000 episodes take, as benchmarks/hours.py prints it."""
    module = benchmark("hours")
    return markdown(module.HEADER, module.rows_of(study()))


def solved_table() -> str:
    """Return when each run had solved its task, as benchmarks/solved.py prints it."""
    module = benchmark("solved")
    return markdown(module.HEADER, module.rows_of(study()))


def results_table() -> str:
    """Return all of it."""
    return markdown(*results())


def summary_table() -> str:
    """Return USC beside DDPG."""
    columns = ("task", "limit", "steps", "method", "success %", "reward", "cost", "within")
    header, rows = results()
    places = [list(header).index(name) for name in columns]
    shown = [row for row in rows if row[header.index("method")] in ("ddpg", "usc")]
    return markdown(columns, [[row[place] for place in places] for row in shown])


def claims_table() -> str:
    """Return the paper's claims and what the runs in results/tasks say of each."""
    table = claims.claims_table(study(), ROOT)
    return markdown(table.header, table.rows)


def tests_table() -> str:
    """Return every test of those claims."""
    table = claims.tests_table(study(), ROOT)
    return markdown(table.header, table.rows)


def reported_table(make: Any, *left_out: str, of: str = "tasks") -> str:
    """Return a table of the report, without intervals, marks and the columns named."""
    table = make(study(of), ROOT)
    kept = [
        place
        for place, name in enumerate(table.header)
        if "IQM" not in name and name != "≠" and name not in left_out
    ]
    rows = [[row[place] for place in kept] for row in table.rows]
    return markdown([table.header[place] for place in kept], rows)


@functools.cache
def study(name: str = "tasks") -> data.Study:
    """Return the committed runs of a study."""
    return data.read(ROOT / "results" / name)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    text = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([text[0], "|---" * len(header) + "|\n", *text[1:]])


TABLES = {
    "methods": methods_table,
    "tasks": tasks_table,
    "results": results_table,
    "summary": summary_table,
    "claims": claims_table,
    "tests": tests_table,
    "hours": hours_table,
    "solved": solved_table,
    "training": lambda: reported_table(tables.training_table),
    "maps": lambda: reported_table(tables.instant_map_table, "within limit"),
    "realised": lambda: reported_table(tables.discounted_map_table, "within limit"),
    "deployment": lambda: reported_table(tables.deployment_table),
    "success": lambda: reported_table(tables.success_table, "within limit"),
    "improvement": lambda: reported_table(tables.improvement_table),
    "calibration": lambda: reported_table(tables.calibration_table, "within limit"),
    # its runs shared the machine with other work: their minutes say nothing
    "critics": lambda: filled_table("critics", "minutes"),
    "against": lambda: reported_table(tables.improvement_table, "steps", of="critics"),
    "phases": phases_table,
    "sweep": sweep_table,
    "ablations": lambda: filled_table("ablations"),
    "parts": parts_table,
    "again": again_table,
    "refinement": refinement_table,
    "printed": lambda: filled_table("printed"),
    "diverged": lambda: diverged_table("printed"),
}
PAGES = {  # the tables of each
    README: {"methods", "tasks", "summary"},
    RESULTS: {"results", "hours", "solved"},
    PAPER: {
        *("training", "maps", "realised", "deployment"),
        *("success", "improvement", "calibration"),
    },
    CLAIMS: {"claims", "tests"},
    CRITICS: {"critics", "against", "phases"},
    LIMITS: {"sweep"},
    PARTS: {"ablations", "parts", "again", "refinement"},
    PRINTED: {"printed", "diverged"},
}


def updated(text: str) -> str:
    """Return a page with its marked tables written anew."""
    return MARKED.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
