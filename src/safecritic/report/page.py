"""The page: one HTML file (page.html) that holds everything, Plotly too, and needs no network."""

import base64
import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from safecritic import __version__
from safecritic.core.files import write_text
from safecritic.core.statistics import can_be_told_apart
from safecritic.core.style import method_style
from safecritic.report.data import Study, listed, steps_text, title
from safecritic.report.figures import TEMPLATE, Figure
from safecritic.report.sections import INTRODUCTIONS
from safecritic.report.table import TEXTS, WORDS, Table
from safecritic.report.verdict import verdicts
from safecritic.study.table import in_order

FIXED = ("method", "setting")  # columns that stay in sight when a table is scrolled


def write(
    study: Study, tables: list[Table], figures: list[Figure], path: Path, files: bool = True
) -> None:
    """Write the page; with `files`, it links to those beside it and to the folders of runs."""
    # everything is escaped but what is marked safe, which is our own
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    env = jinja2.Environment(autoescape=True, loader=loader, trim_blocks=True, lstrip_blocks=True)
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    css, script = (loader.get_source(env, f"page.{kind}")[0] for kind in ("css", "js"))
    plotly = plotly_script()
    sections = [table.section for table in tables] + [figure.section for figure in figures]
    plots = {
        plot_id(figure, at): _plot(panel.plot)
        for figure in figures
        for at, panel in enumerate(figure.panels)
    }
    out = study.out.resolve()
    done = sum(run.done for run in study.runs)
    helpers = (slug, plot_id, kinds, begins_group, method_style, title)
    text = env.get_template("page.html").render(
        {helper.__name__: helper for helper in helpers},
        name=out.stem if out.is_file() else out.name,
        policy=_policy(plotly, script),
        css=css,
        plotly=plotly,
        script=script,
        data={"template": TEMPLATE, "plots": plots},
        sections=in_order(sections, INTRODUCTIONS),
        introductions=INTRODUCTIONS,
        tables=tables,
        figures=figures,
        files=files,
        verdicts=verdicts(study),
        warnings=_warnings(study, done),
        about=_about(study, done),
        of_the_paper=study.of_the_paper,
    )
    write_text(path, text)


def plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _plot(plot: Any) -> dict[str, Any]:
    """Return what Plotly's script takes, without the template that is the same for all."""
    made = plot.to_dict()
    made["layout"].pop("template", None)
    return made


def _policy(*scripts: str) -> str:
    """Return a policy by which a browser runs these scripts and no others, and asks for nothing."""
    # a browser reads line ends in one way, whatever the file has
    plain = (script.replace("\r\n", "\n").replace("\r", "\n") for script in scripts)
    digests = (hashlib.sha256(script.encode()).digest() for script in plain)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def _warnings(study: Study, done: int) -> list[str]:
    """Return what to be careful about."""
    warnings, failed = [_few(study), _short(study)], _failures(study)
    if missing := len(study.runs) - done:
        number = sum(run.failure is not None for run in study.runs)
        text = f"This study is not finished: {missing} runs are missing"
        text += f", {number} of them failed" * bool(failed)
        warnings.insert(0, f"{text}. Tables show finished runs only.")
    if failed:
        warnings.insert(1, f"Failed: {'; '.join(failed)}.")
    return [text for text in warnings if text]


def _about(study: Study, done: int) -> str:
    seeds = len({run.job.seed for run in study.runs})
    methods = ", ".join(title(method) for method in study.methods)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    used = [run.versions["safecritic"] for run in study.runs if "safecritic" in run.versions]
    made = f"Page made on {now} with safecritic {__version__}"
    made += f"; runs with {', '.join(dict.fromkeys(used))}." if used else "."
    about = f"{methods} on {', '.join(study.tasks)}; {seeds} seed{'s' * (seeds > 1)}"
    source = f"{study.source}: " if study.source else ""
    return f"{source}{about}; {done} of {len(study.runs)} runs done. {made}"


def _failures(study: Study) -> list[str]:
    """Return how many runs of each method failed on each task, and why: the rest are survivors."""
    texts = []
    for case in study.cases:
        for method in study.methods:
            runs = study.of(method, case, done=False)
            whys = [f"seed {run.job.seed}: {run.failure.text}" for run in runs if run.failure]
            if whys:
                count = f"{len(whys)} of {len(runs)} runs"
                texts.append(f"{count} of {title(method)} on {case} ({', '.join(whys)})")
    return texts


def _short(study: Study) -> str:
    """Return a warning if runs are shorter than the paper's, or nothing."""
    short: dict[int, dict[str, tuple[int, ...]]] = {}  # steps of each method, by the paper's
    for method in study.methods:
        for case in study.cases:
            if study.shorter_than_the_paper(method, case):
                by_method = short.setdefault(study.paper_steps(method), {})
                name = title(method)
                by_method[name] = by_method.get(name, ()) + study.steps(method, case)
    reasons = []
    for needed, by_method in short.items():
        counts = [steps for of_method in by_method.values() for steps in of_method]
        steps = steps_text(min(counts), max(counts))
        reasons.append(f"{listed(list(by_method))}: {steps} steps in place of {needed:,}")
    text = f"Shorter than the paper's runs, as paper.toml has them ({'; '.join(reasons)}): "
    return text + "differences from the paper's numbers say nothing about it." if short else ""


def _few(study: Study) -> str:
    """Return a warning if methods have too few seeds, or nothing; not begun is another warning."""
    counts = [len(study.of(m, case)) for m in study.methods for case in study.cases]
    few = min(filter(None, counts), default=5)
    if few >= 5:
        return ""
    text = f"Some method has only {few} finished run{'s' * (few != 1)} on some task"
    text += ": intervals over fewer than five seeds are wide and unreliable"
    if any(study.comparable(case)[1] for case in study.cases):
        text += "; it is compared with no other there, and never bold"
    elif not can_be_told_apart(few, few):
        text += ", and no two methods can be told apart, so nothing is bold there"
    return f"{text}."


def kinds(column: str, mark: str | None = None) -> str:
    """Return the classes of a column's cells, with that of a marked one."""
    found = {"word": column in WORDS, "text": column in TEXTS, "fixed": column in FIXED}
    found |= {"paper": column.endswith(", paper"), "iqm": "IQM" in column}
    return " ".join([kind for kind, has in found.items() if has] + ([mark] if mark else []))


def begins_group(table: Table, number: int) -> bool:
    """Return whether a row is the first of its task or limit."""
    row, above = table.rows[number], table.rows[number - 1]
    groups = [at for at, name in enumerate(table.header) if at == 0 or name == "limit"]
    return number == 0 or any(row[at] != above[at] for at in groups)


def plot_id(figure: Figure, at: int) -> str:
    return f"figure-{slug(figure.name)}-{at}"


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
