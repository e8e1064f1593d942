"""The page: one HTML file that holds everything, Plotly too, and needs no network."""

import base64
import hashlib
import html
import json
import re
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from safecritic import __version__
from safecritic.evaluation.statistics import can_be_told_apart
from safecritic.files import write_text
from safecritic.report.data import Study, listed, title
from safecritic.report.interactive import plotly, widest
from safecritic.report.marks import Figure
from safecritic.report.sections import INTRODUCTIONS, Item
from safecritic.report.table import TEXTS, WORDS, Table
from safecritic.report.tables import DIFFERS
from safecritic.report.verdict import verdicts
from safecritic.study.table import in_order

LEGEND = (
    "A method keeps the limit if the mean cost of its deployed policies is at most the limit, on "
    "average over seeds and in more than half of them. Two methods are told apart by a permutation "
    "test over seeds (5%). The verdict takes the method of least cost among those that do as well "
    "as the best, first in success, then in reward: at most a hundredth lower, or not told apart "
    "from it. In the tables, <b>bold</b> is the best of the methods that keep the limit, and those "
    "of them that cannot be told apart from it; <b>within limit</b> counts seeds, and one that "
    "diverged is not within it. Numbers are means ± standard errors over n seeds, followed by the "
    "interquartile mean (IQM) "
    f"with its 95% bootstrap interval. <b>{DIFFERS}</b> marks where our mean ± standard error and "
    "the paper's do not overlap (in its deployment table ± is a standard deviation over ten "
    "episodes, and is divided by the root of ten first)."
)
HINT = "Click a method in a legend to hide it, double-click it to show it alone."
FIXED = ("method", "against", "setting")  # columns that stay in sight when a table is scrolled
PAPER = (
    "The paper: Bethell, Gerasimou, Calinescu, Imrie, “Safe But Not Sorry: Reducing "
    "Over-Conservatism in Safety Critics via Uncertainty-Aware Modulation”, AAMAS 2026, "
    "arXiv 2510.18478."
)


def write(
    study: Study, tables: list[Table], figures: list[Figure], path: Path, files: bool = True
) -> None:
    """Write the page; with `files`, it links to those beside it and to the folders of runs."""
    drawn = {_id(figure): plotly(figure) for figure in figures}
    # no sign in it may end the script or open another
    data = json.dumps(drawn, separators=(",", ":"), allow_nan=False)
    data = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    script = plotly_script()
    own = f"\n{_own('page.js')}"
    items: list[Item] = [*tables, *figures]
    names = in_order((item.section for item in items), INTRODUCTIONS)
    links = "".join(
        f'<a href="#{_slug(name)}">{html.escape(name)}</a>' for name in ("Verdict", *names)
    )
    hint = 'placeholder="find a run: usc seed3" aria-label="find a run"'
    search = f'<input id="search" type="search" {hint}>'
    body = "\n".join(_section(name, tables, figures, drawn, files) for name in names)
    content = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script, own)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(study.out.resolve().name)}: safecritic report</title>
<link rel="icon" href="data:,">
<style>
{_own("page.css")}</style>
</head>
<body>
<header>
{_head(study)}
</header>
<nav><div>{links}{search}<span id="search-count" class="about"></span></div></nav>
<main>
{_verdicts(study)}
{body}
</main>
<footer><p class="about">{PAPER}</p></footer>
<script type="application/json" id="figures">{data}</script>
<script>{script}</script>
<script>{own}</script>
</body>
</html>
"""
    write_text(path, content)


def plotly_script() -> str:
    """Return Plotly's own script."""
    import plotly as package

    return (Path(package.__file__).parent / "package_data" / "plotly.min.js").read_text("utf-8")


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


def _own(name: str) -> str:
    return (resources.files("safecritic") / "report" / name).read_text("utf-8")


def _head(study: Study) -> str:
    done, failed = sum(run.done for run in study.runs), [run for run in study.runs if run.failure]
    seeds = len({run.job.seed for run in study.runs})
    methods = ", ".join(title(method) for method in study.methods)
    about = f"{study.source}: {methods} on {', '.join(study.tasks)}; {seeds} seed"
    about += f"{'s' * (seeds > 1)}; {done} of {len(study.runs)} runs done. {_made(study)}"
    lines = [
        f"<h1>{html.escape(study.out.resolve().name)}</h1>",
        f'<p class="about">{html.escape(about)}</p>',
    ]
    if done < len(study.runs):
        text = f"This study is not finished: {len(study.runs) - done} runs are missing"
        text += f", {len(failed)} of them failed" if failed else ""
        lines.append(_warning(f"{text}. Tables show finished runs only."))
    if failed:
        lines.append(_warning(f"Failed: {'; '.join(_failures(study))}."))
    lines += [_warning(text) for text in (_short(study), _few(study)) if text]
    return "\n".join(lines)


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


def _made(study: Study) -> str:
    """Return when and with what the page was made, and with what the runs were."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = f"Page made on {now} with safecritic {__version__}"
    used = [run.versions["safecritic"] for run in study.runs if "safecritic" in run.versions]
    return f"{text}; runs with {', '.join(dict.fromkeys(used))}." if used else f"{text}."


def _short(study: Study) -> str:
    """Return a warning if runs are shorter than the paper's, or nothing."""
    short: dict[str, list[str]] = {}
    for method in study.methods:
        steps = [run.steps for run in study.runs if run.method == method and run.done]
        if steps and min(steps) < study.paper_steps(method):
            reason = f"{min(steps):,} steps in place of {study.paper_steps(method):,}"
            short.setdefault(reason, []).append(title(method))
    if not short:
        return ""
    reasons = "; ".join(f"{listed(names)}: {reason}" for reason, names in short.items())
    return (
        f"This study is shorter than the paper's ({reasons}, as in paper.toml), so differences "
        f"from the paper's numbers are not marked ({DIFFERS}) and say nothing about the paper."
    )


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


def _warning(text: str) -> str:
    return f'<p class="warning">{html.escape(text)}</p>'


def _verdicts(study: Study) -> str:
    """Return the verdict on every case, and how to read the page."""
    items = "\n".join(
        f'<li class="{one.kind}"><b>{html.escape(one.about)}:</b> {html.escape(one.text)}</li>'
        for one in verdicts(study)
    )
    return f"""<h2 id="verdict">Verdict</h2>
<ul class="verdict">
{items}
</ul>
<details><summary>How to read this page</summary>
<p>{LEGEND}</p>
<p>{HINT}</p>
</details>"""


def _section(
    name: str, tables: list[Table], figures: list[Figure], drawn: dict[str, Any], files: bool
) -> str:
    parts = [f'<h2 id="{_slug(name)}">{html.escape(name)}</h2>']
    if introduction := INTRODUCTIONS.get(name):
        parts.append(f"<p>{html.escape(introduction)}</p>")
    parts += [_table(table, files) for table in tables if table.section == name]
    for figure in figures:
        if figure.section == name:
            parts.append(_figure(figure, drawn[_id(figure)]["layout"]["height"], files))
    return "\n".join(parts)


def _table(table: Table, files: bool) -> str:
    head = "".join(
        f'<th class="{"word" + " fixed" * (x in FIXED)}">{html.escape(x)}</th>'
        if x in WORDS
        else f"<th>{html.escape(x)}</th>"
        for x in table.header
    )
    lines = []
    groups = [at for at, name in enumerate(table.header) if at == 0 or name == "limit"]
    for number, row in enumerate(table.rows):
        above = table.rows[number - 1]
        first = number == 0 or any(row[at] != above[at] for at in groups)
        cells = []
        for at, cell in enumerate(row):
            kinds = [table.marks.get((number, at), "")]
            kinds.append("word" if table.header[at] in WORDS else "")
            kinds.append("text" if table.header[at] in TEXTS else "")
            kinds.append("fixed" if table.header[at] in FIXED else "")
            kinds.append("paper" if table.header[at].endswith(", paper") else "")
            kinds.append("differs" if table.header[at] == DIFFERS else "")
            text = html.escape(cell)
            if files and (number, at) in table.links:
                text = f'<a href="{html.escape(table.links[number, at])}">{text}</a>'
            kind = html.escape(" ".join(filter(None, kinds)))
            cells.append(f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>")
        lines.append(f"<tr{' class=first' * first}>{''.join(cells)}</tr>")
    beside = _files(table.name, "tables", ("csv", "tex")) if files else ""
    rows = "\n".join(lines)
    whole = f"""<div class="scroll"><table id="table-{html.escape(table.name)}">
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div>"""
    if table.folded:
        whole = f"<details><summary>{len(table.rows)} rows</summary>\n{whole}\n</details>"
    warning = f"{_warning(table.warning)}\n" if table.warning else ""
    return f"""<h3>{html.escape(table.title)}</h3>
<p class="caption">{html.escape(table.caption)} {beside}</p>
{warning}{whole}"""


def _figure(figure: Figure, height: int, files: bool) -> str:
    beside = _files(figure.name, "figures", ("png", "pdf")) if files else ""
    style = f"min-height:{height}px;max-width:{widest(figure)}px"
    return f"""<figure>
<h3>{html.escape(figure.title)}</h3>
<p class="caption">{html.escape(figure.caption)} {beside}</p>
<div class="plot" id="{_id(figure)}" style="{style}"></div>
</figure>"""


def _files(name: str, folder: str, kinds: tuple[str, ...]) -> str:
    links = (f'<a href="{folder}/{quote(name)}.{kind}">{kind.upper()}</a>' for kind in kinds)
    return f'<span class="files">{" ".join(links)}</span>'


def _id(figure: Figure) -> str:
    return f"figure-{_slug(figure.name)}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
