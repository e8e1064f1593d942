"""Options of the commands, parsed by tyro: a dataclass each, whose comments are the help."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from safecritic import tasks
from safecritic.agents.settings import flatten, helps, part_types, setting_fields
from safecritic.cli import COMMANDS
from safecritic.cli.errors import UsageError
from safecritic.methods import METHODS, Method, make_config
from safecritic.names import suggest

CONFIG = (DisallowNone, OmitArgPrefixes)


def default(text: str) -> Any:
    """Return the annotation of an option whose default the help shows as `text`."""
    return arg(help_behavior_hint=f"(default: {text})")


def optional(metavar: str, text: str) -> Any:
    """Return the annotation of an option without a default."""
    return arg(metavar=metavar, help=text, help_behavior_hint="(optional)")


METHOD = arg(metavar="METHOD", help="a method, see `safecritic methods`")
TASK = arg(
    metavar="TASK",
    help="a task, see `safecritic tasks`, or the id of any environment that reports a cost",
)
RUN = arg(metavar="RUN", help="folder of the run")
FILE = arg(
    metavar="FILE",
    help="TOML file, or one that is shipped: quick.toml, tasks.toml, limits.toml, "
    "critics.toml, ablations.toml, printed.toml, paper.toml",
)
PAGE = optional("FILE.html", "write the page alone there, to send or publish: it links to no file")
STUDY = arg(metavar="STUDY", help="folder of the study")
BESIDE = arg(metavar="RUN ...", help="other runs, filmed in the same scenes beside this one")
FORMAT = arg(help="png is the last frame with the whole trail; mp4 needs imageio-ffmpeg")
WANDB = optional("PROJECT", "project of Weights & Biases to log to as well; needs wandb")
REUSE = optional("STUDY ...", "studies whose finished runs are taken where this one has the same")
RAY = optional("ADDRESS", "run on the Ray cluster there, or `local`; needs ray")
Flag = Annotated[bool, FlagCreatePairsOff]  # `--x` alone, without `--no-x`
STATE = arg(
    help="what to load: the last checkpoint, the one before it, or what a run saved when an error "
    "stopped it"
)
State = Annotated[Literal["checkpoint", "previous", "failed"], STATE]
TrustEnv = Annotated[
    Flag, arg(help="import the environment that the folder names; only folders of yours")
]
RUN_TITLE, OUTPUT_TITLE = arg(name="task and run"), arg(name="output")
ENVIRONMENT_TITLE = arg(name="environment")
ENV = arg(
    metavar="ENV",
    help="a task or the id of any environment, `module:Id` too; it is stepped at random for a few "
    "seconds and described",
    help_behavior_hint="(optional)",
)
TOLERANCE = optional("NUMBER", "the screen's, instead of the one it was trained with")
PERIOD = optional("SECONDS", "of a control step; without it what the environment says")
C_HEADER = optional("FILE", "write the same policy as a plain C header too")
COST_KEY = optional("NAME", "key of the cost in info; without it `cost`")
SUCCESS_KEY = optional("NAME", "key of success in info; a step without it is no success")
CLOSENESS = optional(
    "PLACES",
    "observations in [0, 1], 1 for near, such as lidars: places or names, as in 10-25,30; "
    "without it what the task declares",
)


@dataclass
class Nothing:
    pass


@dataclass
class Run:
    steps: int = 0  # environment steps in total; the default is enough to solve CarGoal1
    seed: int = 0  # seed of parameters, exploration, replay and environment
    paper_defaults: Flag = False  # start from the paper's settings instead of ours


@dataclass
class RunOfAnyMethod(Run):
    steps: Annotated[int, default("by method")] = 0  # environment steps in total


@dataclass
class Environment:
    cost_key: Annotated[str | None, COST_KEY] = None
    no_cost: Flag = False  # the environment has no cost; only for ddpg
    success_key: Annotated[str | None, SUCCESS_KEY] = None
    closeness: Annotated[str | None, CLOSENESS] = None


@dataclass
class Output:
    out: Annotated[Path | None, default("runs/METHOD-TASK-seedSEED")] = None  # folder of the run
    overwrite: Flag = False  # replace a run that is already there
    log_every: int = 1_000  # steps between lines of updates.csv
    critic_every: int = 5_000  # steps between measurements of the safety critic (AUC, ratio)
    checkpoint_every: int = 10_000  # steps between checkpoints
    wandb: Annotated[str | None, WANDB] = None


@dataclass
class Train:
    method: Annotated[str, Positional, METHOD]
    task: Annotated[str, Positional, TASK]
    run: Annotated[RunOfAnyMethod, RUN_TITLE]
    environment: Annotated[Environment, ENVIRONMENT_TITLE]
    output: Annotated[Output, OUTPUT_TITLE]


@dataclass
class Resume:
    resume: Annotated[Path, RUN]
    steps: Annotated[int | None, default("as planned when it started")] = None  # steps in total
    wandb: Annotated[str | None, WANDB] = None
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Evaluate:
    run: Annotated[Path, Positional, RUN]
    episodes: int = 10  # number of episodes
    seed: int = 10_000  # episode i starts from this seed + i
    no_screen: Flag = False  # switch the screen off; written to RUN/evaluation-no-screen.json
    json: Annotated[Path | None, default("RUN/evaluation.json")] = None  # file of the results
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Export:
    run: Annotated[Path, Positional, RUN]
    out: Annotated[Path | None, default("RUN/policy.safecritic")] = None  # file of the policy
    tolerance: Annotated[float | None, TOLERANCE] = None
    fallback: str = "hold"  # answers bad input: hold, zero, or an action such as 0,-0.5
    period: Annotated[float | None, PERIOD] = None
    c: Annotated[Path | None, C_HEADER] = None
    no_onnx: Flag = False  # leave the ONNX graph out
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Certify:
    run: Annotated[Path, Positional, RUN]
    episodes: int = 99  # fresh episodes with the screen on, and as many with it off
    confidence: float = 0.95  # of both bounds
    seed: int = 1_000_000  # episode i starts from this seed + i
    tolerance: Annotated[float | None, TOLERANCE] = None
    choose_tolerance: Flag = False  # the largest whose bound is within the limit
    out: Annotated[Path | None, default("RUN/certificate.json")] = None  # file of the certificate
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Show:
    run: Annotated[Path, Positional, RUN]
    episodes: int = 1  # number of episodes, a file each
    seed: int = 10_000  # episode i starts from this seed + i
    format: Annotated[Literal["gif", "mp4", "png"], FORMAT] = "gif"
    every: int = 2  # draw every n-th step
    size: int = 480  # width of the picture of one run, in pixels
    beside: Annotated[tuple[Path, ...], BESIDE] = ()
    map: bool = False  # on a car task, draw over the map of Q_C: what the critic expects to cost
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Study:
    file: Annotated[Path, Positional, FILE]
    out: Annotated[Path | None, default("studies/NAME")] = None  # folder of the study
    workers: int = 0  # runs at a time, each on its own core; 0: one per core
    ray: Annotated[str | None, RAY] = None
    reuse: Annotated[tuple[Path, ...], REUSE] = ()


@dataclass
class Tasks:
    environment: Annotated[Environment, ENVIRONMENT_TITLE]
    env: Annotated[str, Positional, ENV] = ""


@dataclass
class Pack:
    study: Annotated[Path, Positional, STUDY]
    out: Path  # folder of the copy; packing into it again adds what is new


@dataclass
class Report:
    study: Annotated[Path, Positional, STUDY]
    out: Annotated[Path | None, default("STUDY/report")] = None  # folder of the report
    page: Annotated[Path | None, PAGE] = None


# Parsing


def given_flags(arguments: Sequence[str]) -> list[str]:
    """Return the names of the flags among the arguments: `no_screen` for `--no-screen`."""
    words = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    return [word.replace("-", "_") for word in words]


def wants_help(arguments: Sequence[str]) -> bool:
    return "-h" in arguments or "--help" in arguments


def parse(kind: type, command: str, arguments: list[str], description: str = "") -> Any:
    """Return the options of a command; refuse unknown flags, print the help and exit if asked."""
    if wants_help(arguments):
        arguments = ["--help"]  # tyro leaves the arguments before it out of the help
    else:
        _refuse_unknown(flag_names(kind), arguments)
    return tyro.cli(
        kind,
        prog=f"safecritic {command}",
        description=description or COMMANDS[command],
        args=arguments,
        config=CONFIG,
    )


def flag_names(kind: type) -> list[str]:
    """Return the names of the flags of an options class, those of its groups included."""
    names: list[str] = []
    for option in dataclasses.fields(kind):
        annotated = get_origin(option.type) is Annotated
        type_, *marks = get_args(option.type) if annotated else (option.type,)
        if isinstance(type_, type) and dataclasses.is_dataclass(type_):
            names += flag_names(type_)
        elif Positional not in marks:
            names.append(option.name)
            if type_ is bool and FlagCreatePairsOff not in marks:
                names.append(f"no_{option.name}")
    return names


def _refuse_unknown(known: Sequence[str], arguments: Sequence[str]) -> None:
    for name in given_flags(arguments):
        if name not in known:
            flag, *flags = (x.replace("_", "-") for x in (name, *known))
            raise UsageError(f"unknown flag --{flag}: {suggest(flag, flags)}")


# Training: the options of a method, grouped as its settings are


class TrainOptions(NamedTuple):
    task: str
    run: Run
    declared: dict[str, Any]  # of the environment, those that were given
    output: Output
    settings: dict[str, Any]  # those that were given, by flat name


def parse_train(method: Method, arguments: list[str]) -> TrainOptions:
    """Return the options of `safecritic train METHOD`; `--help` shows the defaults in force."""
    flags = given_flags(arguments)
    paper_defaults = "paper_defaults" in flags
    kind = _train_type(method, None, paper_defaults)
    if wants_help(arguments):
        kind = _train_type(method, _task_beside_help(kind, arguments), paper_defaults)
    else:
        _refuse_settings_of_others(method, set(flags) - set(flag_names(kind)))
    description = f"Train {method.title} ({method.summary})."
    chosen = parse(kind, f"train {method.name}", arguments, description)
    values: dict[str, Any] = {}
    for group in vars(chosen).values():
        if dataclasses.is_dataclass(group):
            values |= vars(group)
    given = {name.removeprefix("no_") for name in flags}
    settings = {name: values[name] for name in method.setting_names() if name in given}
    declared = given_declarations(chosen.environment)
    return TrainOptions(chosen.task, chosen.run, declared, chosen.output, settings)


def given_declarations(environment: Environment) -> dict[str, Any]:
    """Return what was declared about an environment: keywords of `adapt`."""
    return {name: x for name, x in vars(environment).items() if x not in (None, False)}


def flag(name: str) -> str:
    """Return the flag of an option: `--no-cost` for `no_cost`."""
    return f"--{name.replace('_', '-')}"


def _train_type(method: Method, task: str | None, paper_defaults: bool) -> type:
    """Return a class of options: a group for each group of settings, defaults as in force."""
    defaults = flatten(make_config(method.name, task, paper_defaults))
    kind = method.settings_type()
    parts = part_types(kind)
    about = {part.TITLE: part.__doc__ for part in parts.values()}
    texts = dict.fromkeys(parts, "use this part")
    for owner in (kind, *parts.values()):
        texts |= helps(owner)
    rows: list[Any] = [(x.name, x.type, group.TITLE) for x, group in setting_fields(kind, ())]
    for name in method.parts:
        part = parts[name]
        rows.append((name, bool, part.TITLE))
        rows += [(x.name, x.type, part.TITLE) for x in dataclasses.fields(part)]
    groups: dict[str, list[Any]] = {}
    for name, type_, title in rows:
        option = (name, Annotated[type_, arg(help=texts.get(name, ""))], defaults[name])
        groups.setdefault(title, []).append(option)

    run = field(default_factory=lambda: Run(steps=method.steps))
    options: list[Any] = [("task", Annotated[str, Positional, TASK])]
    options.append(("run", Annotated[Run, RUN_TITLE], run))
    options.append(("environment", Annotated[Environment, ENVIRONMENT_TITLE]))
    for title, settings in groups.items():
        group_type = make_dataclass("Group", settings)
        group_type.__doc__ = about.get(title)
        options.append((title.replace(" ", "_"), Annotated[group_type, arg(name=title)]))
    options.append(("output", Annotated[Output, OUTPUT_TITLE]))
    return make_dataclass("Train", options, kw_only=True)


def _task_beside_help(kind: type, arguments: list[str]) -> str | None:
    """Return the task in a command that asks for help, if there is one."""
    words = [word for word in arguments if not wants_help([word])]
    try:
        chosen: Any = tyro.cli(kind, args=words, console_outputs=False, config=CONFIG)
    except SystemExit:
        return None
    return task_name(chosen.task)


def task_name(task: str) -> str | None:
    """Return a task's own spelling, by which its cost limit is known; None for others."""
    try:
        return tasks.get(task).name
    except ValueError:
        return None


def _refuse_settings_of_others(method: Method, flags: set[str]) -> None:
    """Refuse flags of a part or a setting that only other methods have, and name those."""
    for flag in sorted(flags):
        name = flag.removeprefix("no_")
        if any(name in names for names in method.part_fields().values()):
            make_config(method.name, None, False, **{name: None})  # raises with the reason
        others = [other.name for other in METHODS.values() if name in other.setting_names()]
        if others:
            raise UsageError(
                f"{method.name} has no setting {name}: use it with {', '.join(others)}"
            )
