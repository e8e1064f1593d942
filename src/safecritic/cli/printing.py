"""What the commands print: numbers, durations, tables, the live table of a study."""

import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from safecritic.evaluate import verdict

# Cells


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with separators of thousands, or `-` if it does not exist."""
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.0f}%"


def duration(seconds: float) -> str:
    """Return a rough duration: 40 s, 12 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _is_number(cell: str) -> bool:
    return re.sub(r"[,.%±-]", "", cell).isdigit()


def status(text: str) -> None:
    """Say what takes a moment, to somebody who watches."""
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr, flush=True)


# Tables


def plain_table(**options: Any) -> Table:
    """Return an empty table with a line under its header and no other lines."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), **options)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table; columns without any value (`-` in each row) are left out."""
    if title:
        print(f"\n{title}")
    console, table = Console(), plain_table()
    shown = [at for at in range(len(header)) if any(row[at] != "-" for row in rows)]
    numbers = [at for at in shown if _is_number(rows[0][at])]
    # neither names nor numbers are cut off, nor a word of anything else
    words = {at: header[at].split() for at in shown}
    for at in shown:
        cells = [row[at] for row in rows]
        words[at] += "\n".join(cells).split("\n" if at in (0, *numbers) else None)
    console.width = max(console.width, sum(2 + max(map(len, words[at])) for at in shown) + 1)
    wide = sum(2 + max(len(row[at]) for row in (header, *rows)) for at in shown) > console.width
    for at in shown:
        table.add_column(
            header[at].replace(" ", "\n") if wide and at in numbers else header[at],
            justify="right" if at in numbers else "left",
            no_wrap=at in (0, *numbers),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(row[at] for at in shown))
    console.print(table)


VERDICT_STYLES = {
    verdict.KEPT: "bold green",
    verdict.USEFUL: "bold green",
    verdict.BROKEN: "bold red",
    verdict.USELESS: "bold red",
    verdict.OPEN: "bold yellow",
}


def print_verdict(about: str, found: verdict.Verdict | None) -> None:
    """Print a verdict: its word in colour, and the number that decides it."""
    if found is not None:
        text = Text(f"{about}: ").append(found.word, VERDICT_STYLES[found.word])
        Console().print(text.append(f"  {found.reason}"), soft_wrap=True)


def print_summary(summary: dict[str, Any], out: Path, flags: str = "") -> None:
    """Print the means of a run's last episodes and the commands to use it with."""
    multiplier, each_costs_1 = summary["multiplier"], summary["contacts"] == summary["cost"]
    rows = [
        ("reward", number(summary["reward"])),
        ("cost", f"{number(summary['cost'])} (limit {summary['cost_limit']:g})"),
        ("contacts", "-" if each_costs_1 else number(summary["contacts"])),
        ("success", percent(summary["success"])),
        ("length", number(summary["length"], 0)),
        ("multiplier", number(multiplier, 3)),
        ("steps screened", percent(None if multiplier is None else summary["screened"])),
        ("AUC of Q_C", number(summary.get("critic/auc"))),
        ("Q_C / realised cost", number(summary.get("critic/ratio"))),
    ]
    title = f"last {summary['window']} of {summary['episodes']} training episodes"
    print_table(("", "mean"), [row for row in rows if row[1] != "-"], title)
    if summary["verdict"] is not None:
        found = verdict.Verdict(**summary["verdict"])
        print_verdict(f"limit {summary['cost_limit']:g} in training, with exploration", found)
    if summary.get("critic/q_mean") is not None:
        found = verdict.of_critic(summary["critic/auc"], summary["critic/ratio"])
        print_verdict("safety critic in training", found)
    print(f"curves:   {out / 'curves.png'}")
    for name, command in (("evaluate", "evaluate"), ("film", "show")):
        print(f"{name + ':':<10}safecritic {command} {shlex.quote(str(out))}{flags}")


def print_evaluation(evaluation: Any, agent: Any) -> None:
    """Print an evaluation: a row per episode, and the quality of the safety critic."""
    columns: dict[str, tuple[str, Any]] = {
        "reward": ("reward", number),
        "cost": ("cost", number),
        "contacts": ("contacts", number),
        "success": ("success", percent),
        "hazard (m)": ("hazard_distance_mean", number),
        "nearest (m)": ("hazard_distance_min", number),
        "steps": ("length", lambda value: number(value, 0)),
        "screened": ("screened", percent),
    }
    named = {str(row["episode"]): row for row in evaluation.episodes} | {"mean": evaluation.means}
    if all(row["contacts"] == row["cost"] for row in named.values()):
        del columns["contacts"]  # each costs 1
    if evaluation.screen is None:
        del columns["screened"]
    rows = [(x, *(cell(row[key]) for key, cell in columns.values())) for x, row in named.items()]
    screen = {None: "", True: ", screen on", False: ", screen off"}[evaluation.screen]
    title = f"{agent.method} on {agent.environment['task']}: no exploration{screen}"
    print_table(("", *columns), rows, title)
    if not math.isnan(evaluation.nearest):
        print(f"nearest to a hazard in any episode: {number(evaluation.nearest)} m")
    parts, number_of = evaluation.cost_parts, len(evaluation.episodes)
    if len(parts) > 1:
        rows = [(n, number(x.mean), f"{x.episodes} of {number_of}") for n, x in parts.items()]
        print_table(("the cost, by what the environment reports", "mean", "episodes"), rows)
    names = {
        "auc": ("AUC of Q_C for any cost within the discount horizon", 3),
        "q_mean": ("mean Q_C", 3),
        "realised_mean": ("mean realised discounted cost", 3),
        "ratio": ("ratio of the two", 2),
        "influence_error_correlation": ("rank correlation of influence with |Q_C - realised|", 2),
    }
    quality = {
        name: number(x, names[name][1]) for name, x in evaluation.critic.items() if name in names
    }
    rows = [(text, quality[name]) for name, (text, _) in names.items() if name in quality]
    if rows:
        print_table(("safety critic on these episodes", ""), rows)
    limit = f"limit {evaluation.cost_limit:g}" if evaluation.cost_limit is not None else ""
    print_verdict(limit, evaluation.verdict)
    print_verdict("safety critic", evaluation.critic_verdict)


def print_limits(found: Any) -> None:
    """Print what policies cost, and which limits bind."""
    rows = []
    for policy in found.policies.values():
        cost = policy.cost
        interval = f"{number(max(cost.low, 0.0))} to {number(cost.high)}"
        means = (number(cost.value), interval, number(policy.reward), percent(policy.success))
        rows.append((policy.name, policy.about, *means))
    header = ("policy", "what it is", "cost", "95% interval", "reward", "success")
    print_table(header, rows, f"{found.task}: means over episodes")
    print(found.words)


def print_dial(found: Any) -> None:
    """Print what a policy costs and earns by its tolerance, and what to use for each limit."""
    rows = [
        (
            x.option,
            number(x.cost.value),
            f"{number(max(x.cost.low, 0.0))} to {number(x.cost.high)}",
            number(x.reward),
        )
        for x in found.settings
    ]
    header = ("screen", "cost", "95% interval", "reward")
    print_table(header, rows, f"{found.task}: one policy by the tolerance of its screen")
    for sentence in found.words:
        print(sentence)


def print_export(contract: dict[str, Any], difference: float | None) -> None:
    """Print a contract; `difference` is that of the file's actions from the agent's."""
    screen, period = contract["network"]["screen"], contract["period"]
    rows = [
        ("policy", f"{contract['method']} on {contract['task']}, {contract['steps']:,} steps"),
        ("hash", contract["policy_sha256"][:12]),
        ("observation", f"{len(contract['observation']['names'])} numbers, raw"),
        ("action", f"{len(contract['action']['names'])} numbers, the environment's own unit"),
        ("period", "-" if period is None else f"{period:g} s, held {contract['action_repeat']}x"),
        ("limit", f"{contract['cost_limit']:g}"),
        ("screen", "none" if screen is None else f"tolerance {screen['tolerance']:g}"),
        ("bad input", f"fallback {contract['on_bad_input']['fallback']}"),
    ]
    if difference is not None:
        rows.append(("difference", f"{difference:.1e} from the agent's own actions"))
    print_table(("", ""), rows)


def print_certificate(certificate: dict[str, Any]) -> None:
    """Print a certificate: verdict, numbers with the screen on and off, and what can be signed."""
    from safecritic.runtime.certificate import headline, statement

    print(headline(certificate))
    chosen, episodes = certificate["choice_of_tolerance"], certificate["episodes"]
    if chosen is not None:
        names = ("tolerance", "bound", "reward")
        tried = [tuple(number(x[name]) for name in names) for x in chosen["tried"]]
        print_table(names, tried, "on the calibration episodes")
        lowest = "" if chosen["within_limit"] else " (no bound is within the limit: the lowest)"
        print(f"chosen: {chosen['tolerance']:g}{lowest}")
    rows = []
    for name in ("on", "off"):
        if (made := certificate[f"screen_{name}"]) is not None:
            counted = (f"{made['above']} of {episodes}", f"{100 * made['rate_bound']:.1f}%")
            means = (number(made[x]) for x in ("mean_cost", "worst_decile", "mean_reward"))
            rows.append((name, number(made["bound"]), *counted, *means))
    header = (
        "screen",
        "next cost at most",
        "above the limit",
        "rate at most",
        "mean",
        "worst 10%",
        "reward",
    )
    title = f"{episodes} fresh episodes, confidence {certificate['confidence']:g}, "
    print_table(header, rows, f"{title}limit {certificate['cost_limit']:g}")
    print(statement(certificate))


# Studies


def print_study(out: Path) -> None:
    """Print a study's finished runs as a table per task; write them as CSV."""
    from safecritic.study import table as tables

    table = tables.read(out)
    if not table.rows:
        return
    tables.write_tables(table)
    for task, lines in table.overview().items():
        title = f"{task}, mean ± standard error over n seeds (success in %):\n"
        title += "the last 100 training episodes, then the deployed policy"
        print_table(("method", "n", *tables.OVERVIEW), lines, title)
    print("\nIs the limit kept, and are the safety critics of use?")
    for method, case in table.groups:
        print_verdict(f"{case}  {method}", table.verdict(method, case))
        found = table.critic_verdict(method, case)
        if found is not None and found.word == verdict.USELESS:
            print_verdict(f"{case}  {method}  safety critic", found)
    print(f"interquartile means and intervals: {out / 'summary.csv'}; runs: {out / 'runs.csv'}")


@contextmanager
def study_progress() -> Iterator[Callable[[Any, list[Any]], None]]:
    """Show a study as it runs; yield what is called with its driver and the runs that ended.

    In a terminal there is a live table, and everywhere a line for each run that ended.
    """
    console = Console()
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def show(driver: Any, ended: list[Any]) -> None:
            done = sum(run.state == "done" for run in driver.all)
            left = driver.left()
            text = f"{done} of {len(driver.all)} done"
            text += "" if left is None else f", {duration(left)} left"
            for run in ended:
                metrics = "  ".join(f"{k} {v:.2f}" for k, v in run.about.items() if k != "step")
                line = f"{run.state}: {run.job.name}  {run.seconds:.0f} s  {metrics}  ({text})"
                console.print(line, highlight=False, soft_wrap=True)
            if console.is_terminal:
                live.update(_runs_table(driver.all, text, max(console.height - 8, 4)))

        yield show


def _runs_table(runs: list[Any], caption: str, most: int) -> Table:
    """Return a table of the runs that are active, failed or waiting."""
    from safecritic.study.driver import ACTIVE

    table = plain_table(caption=caption)
    for name in ("run", "state", "steps", "steps/s", "left", "reward", "cost", "success"):
        table.add_column(name, justify="left" if name in ("run", "state") else "right")
    active = [run for run in runs if run.state in (*ACTIVE, "failed")]
    for run in [*active, *(run for run in runs if run.state == "waiting")][:most]:
        cells = ["", "", ""]
        if rate := run.rate:
            cells[1:] = f"{rate:,.0f}", duration((run.job.steps - run.step) / rate)
        if run.step:
            cells[0] = f"{run.step:,}/{run.job.steps:,}"
        cells += [number(run.about.get("reward")), number(run.about.get("cost"))]
        table.add_row(run.job.name, run.state, *cells, percent(run.about.get("success")))
    return table


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield the function that moves it to `done` of `total`."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
