"""What the commands print: numbers, durations, tables, the live table of a study."""

import math
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

# Cells


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with separators of thousands, or `-` if it does not exist."""
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Return a share as a percentage, or `-` if it does not exist."""
    return "-" if value is None or math.isnan(value) else f"{100 * value:.0f}%"


def duration(seconds: float) -> str:
    """Return a rough duration: 40 s, 12 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("-", "").replace("%", "").isdigit()


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
    table = plain_table()
    shown = [at for at in range(len(header)) if any(row[at] != "-" for row in rows)]
    for at in shown:
        table.add_column(header[at], justify="right" if _is_number(rows[0][at]) else "left")
    for row in rows:
        table.add_row(*(row[at] for at in shown))
    Console().print(table)


def print_summary(summary: dict[str, Any], out: Path, flags: str = "") -> None:
    """Print the means of a run's last episodes and the commands to use it with."""
    rows = [
        ("reward", number(summary["reward"])),
        ("cost", f"{number(summary['cost'])} (limit {summary['cost_limit']:g})"),
        ("contacts", number(summary["contacts"])),
        ("success", percent(summary["success"])),
        ("length", number(summary["length"], 0)),
    ]
    if summary["multiplier"] is not None:
        rows.append(("multiplier", number(summary["multiplier"], 3)))
        rows.append(("steps screened", percent(summary["screened"])))
        rows.append(("AUC of Q_C", number(summary["critic/auc"])))
        rows.append(("Q_C / realised cost", number(summary["critic/ratio"])))
    title = f"last {summary['window']} of {summary['episodes']} training episodes"
    print_table(("", "mean"), rows, title)
    folder = shlex.quote(str(out))
    print(f"curves:   {out / 'curves.png'}")
    for name, command in (("evaluate", "evaluate"), ("film", "show")):
        print(f"{name + ':':<9} safecritic {command} {folder}{flags}")


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
    named = [(str(row["episode"]), row) for row in evaluation.episodes]
    named.append(("mean", evaluation.means))
    rows = [(name, *(cell(row[key]) for key, cell in columns.values())) for name, row in named]
    screen = ""
    if getattr(agent.config, "screen", None):
        screen = f", screen {'on' if evaluation.screen else 'off'}"
    title = f"{agent.method} on {agent.environment['task']}: no exploration{screen}"
    print_table(("", *columns), rows, title)
    parts, number_of = evaluation.cost_parts, len(evaluation.episodes)
    if len(parts) > 1:
        rows = [(n, number(x.mean), f"{x.episodes} of {number_of}") for n, x in parts.items()]
        print_table(("the cost, by what the environment reports", "mean", "episodes"), rows)
    if not evaluation.critic:
        return
    quality = evaluation.critic
    rows = [
        ("AUC of Q_C for any cost within the discount horizon", number(quality["auc"], 3)),
        ("mean Q_C", number(quality["q_mean"], 3)),
        ("mean realised discounted cost", number(quality["realised_mean"], 3)),
        ("ratio of the two", number(quality["ratio"])),
    ]
    if "influence_error_correlation" in quality:
        name = "rank correlation of influence with |Q_C - realised|"
        rows.append((name, number(quality["influence_error_correlation"])))
    print_table(("safety critic on these episodes", ""), rows)


def print_export(contract: dict[str, Any], difference: float) -> None:
    """Print what was exported, in the words of its contract."""
    network, answers = contract["network"], contract["on_bad_input"]
    screen, period = network["screen"], contract["period"]
    rows = [
        ("policy", f"{contract['method']} on {contract['task']}, {contract['steps']:,} steps"),
        ("hash", contract["policy_sha256"][:12]),
        ("observation", f"{len(contract['observation']['names'])} numbers, raw"),
        ("action", f"{len(contract['action']['names'])} numbers, the environment's own unit"),
        ("period", "-" if period is None else f"{period:g} s, held {contract['action_repeat']}x"),
        ("limit", f"{contract['cost_limit']:g}"),
        ("screen", "none" if screen is None else f"tolerance {screen['tolerance']:g}"),
        ("bad input", f"fallback {answers['fallback']}"),
        ("difference", f"{difference:.1e} from the agent's own actions"),
    ]
    print_table(("", ""), rows)


def print_certificate(certificate: dict[str, Any]) -> None:
    """Print a certificate: its numbers with the screen on and off, and what can be signed."""
    chosen = certificate["choice_of_tolerance"]
    if chosen is not None:
        tried = [(f"{x['tolerance']:g}", number(x["bound"]), number(x["reward"])) for x in
                 chosen["tried"]]  # fmt: skip
        print_table(("tolerance", "bound", "reward"), tried, "on the calibration episodes")
        print(f"chosen: {chosen['tolerance']:g}" + ("" if chosen["within_limit"] else
              "; no bound is within the limit, this is the lowest"))  # fmt: skip
    rows = [
        (
            name,
            number(made["bound"]),
            f"{made['above']} of {certificate['episodes']}",
            f"{100 * made['rate_bound']:.1f}%",
            number(made["mean_cost"]),
            number(made["mean_reward"]),
        )
        for name, made in (("on", certificate["screen_on"]), ("off", certificate["screen_off"]))
        if made is not None
    ]
    header = ("screen", "next cost at most", "above the limit", "rate at most", "mean", "reward")
    title = f"{certificate['episodes']} fresh episodes, confidence {certificate['confidence']:g}, "
    print_table(header, rows, f"{title}limit {certificate['cost_limit']:g}")
    print(certificate["statement"])


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
    print(f"interquartile means and intervals: {out / 'summary.csv'}; runs: {out / 'runs.csv'}")


class StudyTable:
    """A live table of a study's runs in a terminal; elsewhere a line for each run that ended."""

    def __init__(self, total: int) -> None:
        self.console, self.total = Console(), total
        self.live: Live | None = None

    def __enter__(self) -> "StudyTable":
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live is not None:
            self.live.__exit__(*error)

    def show(self, driver: Any, ended: list[Any]) -> None:
        """Print the runs that ended and update the table of the others."""
        done = sum(run.state == "done" for run in driver.all)
        left = driver.left()
        progress = f"{done} of {self.total} done"
        if left is not None:
            progress += f", {duration(left)} left"
        for run in ended:
            metrics = "  ".join(f"{k} {v:.2f}" for k, v in run.about.items() if k != "step")
            line = f"{run.state}: {run.job.name}  {run.seconds:.0f} s  {metrics}  ({progress})"
            self.console.print(line, highlight=False, soft_wrap=True)
        if self.live is not None:
            self.live.update(self._table(driver, progress))

    def _table(self, driver: Any, caption: str) -> Table:
        from safecritic.study.driver import ACTIVE

        table = plain_table(caption=caption)
        for name in ("run", "state", "steps", "steps/s", "left", "reward", "cost", "success"):
            table.add_column(name, justify="left" if name in ("run", "state") else "right")
        active = [run for run in driver.all if run.state in (*ACTIVE, "failed")]
        waiting = [run for run in driver.all if run.state == "waiting"]
        for run in [*active, *waiting][: max(self.console.height - 8, 4)]:
            rate = run.rate
            table.add_row(
                run.job.name,
                run.state,
                f"{run.step:,}/{run.job.steps:,}" if run.step else "",
                f"{rate:,.0f}" if rate else "",
                duration((run.job.steps - run.step) / rate) if rate else "",
                number(run.about.get("reward")),
                number(run.about.get("cost")),
                percent(run.about.get("success")),
            )
        return table


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield the function that moves it to `done` of `total`."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
