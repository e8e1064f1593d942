"""The command line. Nothing heavy is imported before the command is known, so help is instant.

safecritic train usc CarGoal1 --steps 60000 --seed 0
safecritic train --resume runs/usc-CarGoal1-seed0
safecritic evaluate runs/usc-CarGoal1-seed0 --episodes 10
safecritic show runs/usc-CarGoal1-seed0
safecritic study quick.toml
safecritic report studies/quick
safecritic tasks
safecritic methods
"""

import dataclasses
import difflib
import itertools
import math
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

USAGE, FAILED, INTERRUPTED = 2, 1, 130


class UsageError(Exception):
    """A command that cannot be carried out: one line for the user."""


@contextmanager
def explained() -> Iterator[None]:
    """What the library refuses before a run starts is the user's to change: no traceback."""
    import gymnasium

    from safecritic.run.checkpoint import CheckpointError
    from safecritic.run.folder import RunFolderError

    refusals = (ValueError, TypeError, ImportError, CheckpointError, RunFolderError)
    try:
        yield
    except (*refusals, gymnasium.error.Error) as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        raise UsageError(" ".join(str(error).split())) from error


# ---------------------------------------------------------------- commands


def train(arguments: list[str]) -> int:
    """Train a method on a task; --resume RUN goes on with a stopped run."""
    if any(word.partition("=")[0] == "--resume" for word in arguments):
        return _resume(arguments)
    if not arguments or arguments[0].startswith("-"):
        _parse(Train, "train", arguments or ["--help"])
        raise UsageError("which method? safecritic train METHOD TASK; see safecritic methods")
    from safecritic import methods

    with explained():
        method = methods.get(arguments[0])
        guess = next((word for word in arguments[1:2] if not word.startswith("-")), None)
        defaults = methods.make_config(method.name, _task_name(guess))
        command = f"train {method.name}"
        options = _parse(_train_options(defaults, method.steps), command, arguments)
        right = methods.make_config(method.name, _task_name(options.task), options.paper_defaults)
        if right != defaults:
            options = _parse(_train_options(right, method.steps), command, arguments)
    from safecritic.agent_classes import agent_class
    from safecritic.agents.settings import flatten
    from safecritic.api import check_steps
    from safecritic.run.loop import Intervals

    with explained():
        settings = flatten(options.settings)
        options.settings.check()
        check_steps(options.steps, options.steps, options.settings.warm_up)
        agent = agent_class(method.name)(options.task, seed=options.seed, **settings)
        every = Intervals(options.log_every, options.critic_every, options.checkpoint_every)
    out = options.out or Path("runs") / f"{method.name}-{_plain(agent)}-seed{options.seed}"
    return _learn(agent, options.steps, out, options.overwrite, every, options.wandb)


def _resume(arguments: list[str]) -> int:
    options = _parse(Resume, "train", arguments)
    from safecritic.api import Agent
    from safecritic.run.folder import read_config
    from safecritic.run.loop import Intervals

    with explained():
        content = read_config(options.resume)
        if "every" not in content:
            raise UsageError(f"{options.resume} is a saved agent, not a run: use it in Python")
        agent = Agent.load(options.resume)
        until = options.steps or content["steps"]
        for note in agent.notes:
            print(f"note: {note}", file=sys.stderr)
        if until <= agent.num_timesteps:
            raise UsageError(
                f"{options.resume} has its {agent.num_timesteps} steps: "
                "give a larger total with --steps to go on"
            )
    further = until - agent.num_timesteps
    every = Intervals(**content["every"])
    return _learn(agent, further, options.resume, False, every, options.wandb)


def _learn(
    agent: Any, steps: int, out: Path, overwrite: bool, every: Any, project: str | None
) -> int:
    from safecritic.run.callbacks import WandbCallback, WandbError
    from safecritic.run.checkpoint import CheckpointError
    from safecritic.run.folder import RunFolderError, prepare
    from safecritic.run.loop import InterruptedRun, NotFiniteError
    from safecritic.run.rollouts import WorkerError

    with explained():
        callback = None if project is None else WandbCallback(project)
        if agent.run_folder is None:
            prepare(out, overwrite)
    resume = f"safecritic train --resume {shlex.quote(str(out))}"
    if project is not None:
        resume += f" --wandb {shlex.quote(project)}"
    started_at = agent.num_timesteps
    print(f"{agent.method} on {agent.environment['task']}, seed {agent.seed}, in {out}")
    try:
        agent.learn(steps, callback, progress_bar=True, out=out, overwrite=overwrite, every=every)
    except InterruptedRun:
        print(f"\nstopped at step {agent.num_timesteps:,} and saved; go on with\n  {resume}")
        return INTERRUPTED
    except (NotFiniteError, CheckpointError, RunFolderError, WandbError, WorkerError) as error:
        if agent.num_timesteps == started_at:
            raise UsageError(str(error)) from error
        print(f"error: {error}", file=sys.stderr)
        print(f"  the last good checkpoint goes on with {resume}", file=sys.stderr)
        return FAILED
    _print_summary(agent.summary(), out)
    return 0


def evaluate(arguments: list[str]) -> int:
    """Run a trained policy without exploration, screen on; a table and a JSON file."""
    options = _parse(Evaluate, "evaluate", arguments)
    from safecritic.api import Agent

    with explained():
        agent = Agent.load(options.run)
        found = agent.evaluate(options.episodes, options.seed)
        target = options.json or options.run / "evaluation.json"
        found.save(target)
    from safecritic.evaluation.critic_figure import draw_critic

    _print_evaluation(found, agent)
    title = f"{agent.method} on {agent.environment['task']}: the safety critic, {options.episodes}"
    picture = draw_critic(
        found, agent.config.gamma, f"{title} episodes", target.with_name(f"{target.stem}.png")
    )
    print(f"written to {target}" + (f" and {picture}" if picture else ""))
    return 0


def show(arguments: list[str]) -> int:
    """Film episodes of a trained policy from above and draw its learning curves."""
    options = _parse(Show, "show", arguments)
    from safecritic.api import Agent, make_env
    from safecritic.run.curves import draw_curves

    with explained():
        agent = Agent.load(options.run)
        if (options.run / "episodes.csv").is_file():
            print(draw_curves(options.run))
        if agent.environment["id"] is None:
            raise UsageError(f"{options.run} was trained on an environment without an id")
        env, _ = make_env(agent.environment["id"])
        if not hasattr(env.unwrapped, "draw"):
            raise UsageError(f"{agent.environment['task']} cannot be drawn: only curves were made")
        from safecritic.tasks.drawing import record_episode

        for number in range(options.episodes):
            path = options.run / f"episode-{number}.{options.format}"
            seed = options.seed + number
            record_episode(env, agent.policy(seed=seed), path, seed, every=options.every)
            print(path)
    return 0


def study(arguments: list[str]) -> int:
    """Run methods x tasks x seeds from a TOML file; running it again goes on."""
    options = _parse(Study, "study", arguments)
    from safecritic.study import driver as study_driver
    from safecritic.study import grid as studies
    from safecritic.study import ray as study_ray

    with explained():
        path = studies.find(options.file)
        jobs = studies.read(path)
        if options.workers < 0:
            raise UsageError(f"workers must be >= 0, got {options.workers} (--workers)")
        out = options.out or Path("studies") / path.stem
        watch = _StudyTable(len(jobs))
        print(f"{len(jobs)} runs of {path.name}, in {out}")
        again = f"safecritic study {shlex.quote(str(options.file))} --out {shlex.quote(str(out))}"
        if options.ray is not None:
            again += f" --ray {shlex.quote(options.ray)}"
        try:
            with watch:
                if options.ray is None:
                    found = study_driver.run(out, jobs, path.name, options.workers, watch.show)
                else:
                    found = study_ray.run(out, jobs, path.name, options.ray, watch.show)
        except KeyboardInterrupt:
            print(f"\nstopped; the runs are saved. Go on with\n  {again}")
            return INTERRUPTED
    failed = [one for one in found if one.state == "failed"]
    for one in failed:
        print(f"failed: {one.job.name}: {one.error}", file=sys.stderr)
        print(f"  more in {out / 'runs' / one.job.name / 'error.txt'}", file=sys.stderr)
    _print_study(out)
    print(f"{len(found) - len(failed)} of {len(found)} runs are done")
    print(f"a page of it: safecritic report {shlex.quote(str(out))}")
    return FAILED if failed else 0


def _print_study(out: Path) -> None:
    """What the finished runs of a study show, also as CSV."""
    from safecritic.study import table as tables

    table = tables.read(out)
    if not table.rows:
        return
    tables.write_csv(out / "runs.csv", table.rows)
    tables.write_csv(out / "summary.csv", table.summary_rows())
    for task, lines in table.overview().items():
        title = f"{task}, mean ± standard error over n seeds (success in %):\n"
        title += "the last 100 training episodes, then the deployed policy"
        _print_table(("method", "n", *tables.OVERVIEW), lines, title)
    print(
        f"with interquartile means and intervals: {out / 'summary.csv'}; runs: {out / 'runs.csv'}"
    )


class _StudyTable:
    """A live table of the runs in a terminal, a line for each that ended elsewhere."""

    def __init__(self, total: int) -> None:
        from rich.console import Console

        self.console, self.total, self.live = Console(), total, None

    def __enter__(self) -> Any:
        from rich.live import Live

        if self.console.is_terminal:
            live: Any = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live = live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live is not None:
            self.live.__exit__(*error)

    def show(self, driver: Any, ended: list[Any]) -> None:
        done = sum(one.state == "done" for one in driver.all)
        left = driver.left()
        text = f"{done} of {self.total} done"
        if left is not None:
            text += f", {_duration(left)} left"
        for one in ended:
            about = "  ".join(f"{k} {v:.2f}" for k, v in one.about.items() if k != "step")
            line = f"{one.state}: {one.job.name}  {one.seconds:.0f} s  {about}  ({text})"
            self.console.print(line, highlight=False, soft_wrap=True)
        if self.live is not None:
            self.live.update(self._table(driver, text))

    def _table(self, driver: Any, text: str) -> Any:
        from rich import box
        from rich.table import Table

        from safecritic.study.driver import ACTIVE

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=text)
        for name in ("run", "state", "steps", "steps/s", "left", "reward", "cost", "success"):
            table.add_column(name, justify="left" if name in ("run", "state") else "right")
        active = [one for one in driver.all if one.state in (*ACTIVE, "failed")]
        waiting = [one for one in driver.all if one.state == "waiting"]
        for one in [*active, *waiting][: max(self.console.height - 8, 4)]:
            rate = one.rate
            table.add_row(
                one.job.name,
                one.state,
                f"{one.step:,}/{one.job.steps:,}" if one.step else "",
                f"{rate:,.0f}" if rate else "",
                _duration((one.job.steps - one.step) / rate) if rate else "",
                _number(one.about.get("reward")),
                _number(one.about.get("cost")),
                _percent(one.about.get("success")),
            )
        return table


def report(arguments: list[str]) -> int:
    """Tables and figures of a study, finished or not, as a page with the paper's beside them."""
    options = _parse(Report, "report", arguments)
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from safecritic.report.build import build

    columns = (TextColumn("figures"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    with explained(), bar:
        task = bar.add_task("", total=None)
        page = build(
            options.study,
            options.out,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{page}: open it in a browser; tables and figures are beside it")
    return 0


def _duration(seconds: float) -> str:
    """Roughly, for people: 40 s, 12 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def tasks(arguments: list[str]) -> int:
    """List the tasks."""
    _parse(Nothing, "tasks", arguments)
    from safecritic.tasks import TASKS

    rows = [(t.name, t.summary, t.cost, f"{t.cost_limit:g}") for t in TASKS.values()]
    _print_table(("task", "what to do", "cost", "limit"), rows)
    print("Any Gymnasium environment that reports a cost works too, by its id.")
    return 0


def methods(arguments: list[str]) -> int:
    """List the methods."""
    _parse(Nothing, "methods", arguments)
    from safecritic.methods import METHODS

    _print_table(
        ("method", "paper's name", "what it is"),
        [(m.name, m.title, m.summary) for m in METHODS.values()],
    )
    print("Settings of one: safecritic train METHOD --help")
    return 0


COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "show": show,
    "study": study,
    "report": report,
    "tasks": tasks,
    "methods": methods,
}


# ---------------------------------------------------------------- options


@dataclass
class Nothing:
    pass


@dataclass
class Resume:
    """Go on with a stopped run, as if it had not stopped."""

    resume: Path
    """Folder of the run."""
    steps: int | None = None
    """Environment steps in all; default: as planned when the run was started."""
    wandb: str | None = None
    """Project of Weights & Biases to log to as well; goes on with the run there."""


@dataclass
class Evaluate:
    """Run a trained policy without exploration, screen on."""

    run: Path
    """Folder of the run."""
    episodes: int = 10
    """How many."""
    seed: int = 10_000
    """Episode i starts from this seed + i."""
    json: Path | None = None
    """Where to write the figures; default RUN/evaluation.json."""


@dataclass
class Show:
    """Film episodes of a trained policy and draw its learning curves."""

    run: Path
    """Folder of the run."""
    episodes: int = 1
    """How many; one file each."""
    seed: int = 10_000
    """Episode i starts from this seed + i."""
    format: str = "gif"
    """gif, mp4 (needs safecritic[video]) or png (the last frame with the whole trail)."""
    every: int = 2
    """Draw one step in so many."""


@dataclass
class Study:
    """Run methods x tasks x seeds from a TOML file; running it again goes on."""

    file: Path
    """The study: a file, or the name of a shipped one (quick.toml, paper.toml)."""
    out: Path | None = None
    """Folder of the study; default studies/NAME."""
    workers: int = 0
    """Runs at a time, each on a core of its own; 0: one per core."""
    ray: str | None = None
    """Run it on a Ray cluster: its address, or local (needs safecritic[ray])."""


@dataclass
class Report:
    """Tables and figures of a study, finished or not, as a page with the paper's beside them."""

    study: Path
    """Folder of the study."""
    out: Path | None = None
    """Folder of the report; default STUDY/report."""


@dataclass
class Train:
    """Train a method on a task, in a run folder with tables, checkpoints and curves."""

    method: str
    """See `safecritic methods`."""
    task: str
    """See `safecritic tasks`, or the id of any environment that reports a cost."""
    steps: int = 60_000
    """Environment steps in all."""
    seed: int = 0
    """Of the parameters, the exploration, the replay and the environment."""
    out: Path | None = None
    """Folder of the run; default runs/METHOD-TASK-seedSEED."""
    overwrite: bool = False
    """Replace a run that is already there."""
    paper_defaults: bool = False
    """Start from the paper's printed settings instead of ours."""
    log_every: int = 1_000
    """Steps between lines of updates.csv."""
    critic_every: int = 5_000
    """Steps between measurements of the safety critic's quality (AUC, ratio)."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints."""
    wandb: str | None = None
    """Project of Weights & Biases to log to as well (needs safecritic[wandb])."""


def _train_options(settings: Any, steps: int) -> type:
    """`Train` with the method's usual steps, and its settings as further flags."""
    import tyro

    kind: Any = type(settings)
    says = tyro.conf.arg(help="Environment steps in all; the default solves CarGoal1.")
    added: list[Any] = [
        ("steps", Annotated[int, says], steps),
        (
            "settings",
            Annotated[kind, tyro.conf.OmitArgPrefixes],
            field(default_factory=lambda: settings),
        ),
    ]
    made = dataclasses.make_dataclass("Train", added, bases=(Train,))
    made.__doc__ = Train.__doc__
    return made


POSITIONAL = {"run": Path, "method": str, "task": str, "file": Path, "study": Path}


def _parse(kind: type, command: str, arguments: list[str]) -> Any:
    import tyro

    # marked here and not in the classes: importing tyro would slow `safecritic --help` down
    for part, (name, what) in itertools.product(kind.__mro__, POSITIONAL.items()):
        if name in getattr(part, "__annotations__", ()):
            mark = tyro.conf.arg(metavar=name.upper())
            part.__annotations__[name] = Annotated[what, tyro.conf.Positional, mark]
    style = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(kind, prog=f"safecritic {command}", args=arguments, config=style)


def _task_name(given: str | None) -> str | None:
    """The task's own spelling, for its default limit; other environments have none."""
    from safecritic import tasks

    try:
        return None if given is None else tasks.get(given).name
    except ValueError:
        return None


def _plain(agent: Any) -> str:
    """The task's name as part of a folder's name."""
    return str(agent.environment["task"]).replace("/", "-")


# ---------------------------------------------------------------- printing


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if title:
        print(f"\n{title}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown = [at for at in range(len(header)) if any(row[at] != "-" for row in rows)]
    for at in shown:
        table.add_column(header[at], justify="right" if _is_number(rows[0][at]) else "left")
    for row in rows:
        table.add_row(*(row[at] for at in shown))
    Console().print(table)


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("-", "").replace("%", "").isdigit()


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.0f}%"


def _print_summary(summary: dict[str, Any], out: Path) -> None:
    rows = [
        ("reward", _number(summary["reward"])),
        ("cost", f"{_number(summary['cost'])} (limit {summary['cost_limit']:g})"),
        ("contacts", _number(summary["contacts"])),
        ("success", _percent(summary["success"])),
        ("length", _number(summary["length"], 0)),
    ]
    if summary["multiplier"] is not None:
        rows.append(("multiplier", _number(summary["multiplier"], 3)))
        rows.append(("steps screened", _percent(summary["screened"])))
        rows.append(("AUC of Q_C", _number(summary["critic/auc"])))
        rows.append(("Q_C / realised cost", _number(summary["critic/ratio"])))
    title = f"last {summary['window']} of {summary['episodes']} training episodes"
    _print_table(("", "mean"), rows, title)
    where = shlex.quote(str(out))
    print(f"curves: {out / 'curves.png'}")
    print(f"deploy: safecritic evaluate {where}\nwatch:  safecritic show {where}")


def _print_evaluation(found: Any, agent: Any) -> None:
    columns: dict[str, tuple[str, Any]] = {
        "reward": ("reward", _number),
        "cost": ("cost", _number),
        "contacts": ("contacts", _number),
        "success": ("success", _percent),
        "hazard m": ("hazard_distance_mean", _number),
        "nearest": ("hazard_distance_min", _number),
        "steps": ("length", lambda value: _number(value, 0)),
        "screened": ("screened", _percent),
    }
    rows = [
        (name, *(show(row[key]) for key, show in columns.values()))
        for name, row in [*((f"{r['episode']}", r) for r in found.episodes), ("mean", found.means)]
    ]
    screen = ", screen on" if getattr(agent.config, "screen", False) else ""
    title = f"{agent.method} on {agent.environment['task']}: no exploration{screen}"
    _print_table(("", *columns), rows, title)
    if not found.critic:
        return
    c = found.critic
    rows = [
        ("AUC of Q_C for any cost within the discount horizon", _number(c["auc"], 3)),
        ("mean Q_C", _number(c["q_mean"], 3)),
        ("mean realised discounted cost", _number(c["realised_mean"], 3)),
        ("ratio of the two", _number(c["ratio"])),
    ]
    if "influence_error_correlation" in c:
        text = "rank correlation of influence with |Q_C - realised|"
        rows.append((text, _number(c["influence_error_correlation"])))
    _print_table(("safety critic on these episodes", ""), rows)


# ---------------------------------------------------------------- entry


def _help() -> str:
    lines = [f"  {name:<10}{run.__doc__}" for name, run in COMMANDS.items()]
    return (
        "usage: safecritic COMMAND ...\n\nSafe reinforcement learning with safety critics.\n\n"
        + "\n".join(lines)
        + "\n\nsafecritic COMMAND --help says more. For example:\n\n"
        + textwrap.indent((__doc__ or "").split("\n\n", 1)[1].replace("    ", "").strip(), "  ")
        + "\n\nSAFECRITIC_TRACEBACK=1 shows where an error arose; SAFECRITIC_CACHE=off keeps no"
        + "\ncompiled steps, SAFECRITIC_CACHE=FOLDER keeps them there."
    )


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else USAGE
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(version("safecritic"))
        return 0
    command = COMMANDS.get(arguments[0])
    try:
        if command is None:
            near = difflib.get_close_matches(arguments[0], COMMANDS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"commands: {', '.join(COMMANDS)}"
            raise UsageError(f"unknown command {arguments[0]!r}: {hint}")
        return command(arguments[1:])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
