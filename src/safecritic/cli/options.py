"""Options of the commands, parsed by tyro: a dataclass each, whose comments are the help.

The settings of a method are read from its own nested dataclass (`agents/settings.py`).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro
from tyro.conf import (
    AvoidSubcommands,
    DisallowNone,
    FlagCreatePairsOff,
    OmitArgPrefixes,
    Positional,
    arg,
)

from safecritic import tasks
from safecritic.agents.methods import METHODS, Method, make_config
from safecritic.cli import COMMANDS
from safecritic.cli.errors import UsageError
from safecritic.core.names import suggest
from safecritic.core.settings import Settings, flatten, part_types

CONFIG = (DisallowNone, AvoidSubcommands)


def default(text: str) -> Any:
    """Return the annotation of an option whose default the help shows as `text`."""
    return arg(help_behavior_hint=f"(default: {text})")


def optional(metavar: str) -> Any:
    """Return the annotation of an option without a default."""
    return arg(metavar=metavar, help_behavior_hint="(optional)")


METHOD = arg(metavar="METHOD", help="a method; `safecritic methods` lists them")
TASK = arg(
    metavar="TASK",
    help="a task (`safecritic tasks` lists them), or the id of any environment that reports a cost",
)
RUN = arg(metavar="RUN", help="folder of the run")
FILE = arg(
    metavar="FILE",
    help="TOML file, or one that is shipped: quick.toml, tasks.toml, limits.toml, "
    "critics.toml, ablations.toml, printed.toml, paper.toml, benchmark.toml",
)
STUDY = arg(metavar="STUDY", help="folder of the study, or the file it was packed into")
RUNS = arg(metavar="RUN [RUN ...]", help="folders of runs of one task, shown side by side")
BESIDE = arg(metavar="RUN ...", help="other runs, filmed in the same scenes beside this one")
STEPS = arg(help_behavior_hint=lambda x: f"(default: {'by method' if x == 'None' else x})")
Flag = Annotated[bool, FlagCreatePairsOff]  # `--x` alone, without `--no-x`
Text = Annotated[str | None, optional("NAME")]
STATE = arg(
    help="what to load: the last checkpoint, the one before it, or what was saved when an error "
    "stopped the run"
)
State = Annotated[Literal["checkpoint", "previous", "failed"], STATE]
TRUST = arg(help="import the environment that the folder names: only for folders you trust")
TrustEnv = Annotated[Flag, TRUST]
Places = Annotated[tuple[Path, ...], optional("STUDY ...")]


@dataclass
class Nothing:
    pass


@dataclass
class Run:
    steps: Annotated[int | None, STEPS] = None  # environment steps in total
    seed: int = 0  # seed of networks, exploration, replay buffer and environment
    paper_defaults: Flag = False  # start from the paper's values instead of ours


@dataclass
class Environment:
    cost_key: Text = None  # key of the cost in info; without it `cost`
    # zero: a step without the key in info costs nothing; without it such a step is an error
    missing_cost: Annotated[Literal["zero"] | None, optional("zero")] = None
    no_cost: Flag = False  # the environment has no cost; only for ddpg
    success_key: Text = None  # key of success in info; a step without the key is no success
    # proximity inputs: observations in [0, 1], 1 for near, such as lidars, by places or names, as
    # in 10-25,30; without it what the task declares
    proximity: Annotated[str | None, optional("PLACES")] = None

    @property
    def declared(self) -> dict[str, Any]:
        """Return what was declared about an environment: keywords of `adapt`."""
        return {name: x for name, x in vars(self).items() if x not in (None, False)}


@dataclass
class Output:
    out: Annotated[Path | None, default("runs/METHOD-TASK-seedSEED")] = None  # folder of the run
    overwrite: Flag = False  # replace a run that is already there
    log_every: int = 1_000  # steps between lines of updates.csv
    critic_every: int = 5_000  # steps between measurements of the safety critic
    checkpoint_every: int = 10_000  # steps between checkpoints
    # log to this project of Weights & Biases as well; needs wandb
    wandb: Annotated[str | None, optional("PROJECT")] = None
    # log to this project of Trackio as well; needs trackio
    trackio: Annotated[str | None, optional("PROJECT")] = None


@dataclass
class Switches:
    """Each part of the method can be left out."""


@dataclass
class TrainAnything:
    method: Annotated[str, Positional, METHOD]
    task: Annotated[str, Positional, TASK]
    run: Annotated[Run, OmitArgPrefixes]
    environment: Annotated[Environment, OmitArgPrefixes]
    output: Annotated[Output, OmitArgPrefixes]


@dataclass
class Train:
    task: Annotated[str, Positional, TASK]
    settings: Annotated[Settings, arg(name="")]  # of the class that the method has
    switches: Annotated[Switches, OmitArgPrefixes]
    run: Annotated[Run, OmitArgPrefixes]
    environment: Annotated[Environment, OmitArgPrefixes] = field(default_factory=Environment)
    output: Annotated[Output, OmitArgPrefixes] = field(default_factory=Output)


@dataclass
class Resume:
    resume: Annotated[Path, RUN]
    steps: Annotated[int | None, default("as planned when it started")] = None  # steps in total
    # log to this project of Weights & Biases as well; needs wandb
    wandb: Annotated[str | None, optional("PROJECT")] = None
    # log to this project of Trackio as well; needs trackio
    trackio: Annotated[str | None, optional("PROJECT")] = None
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class OfRun:
    run: Annotated[Path, Positional, RUN]
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Evaluate(OfRun):
    episodes: int = 10  # number of episodes
    seed: int = 10_000  # episode i starts from this seed + i
    no_screen: Flag = False  # switch the screen off; written to RUN/evaluation-no-screen.json
    json: Annotated[Path | None, default("RUN/evaluation.json")] = None  # file of the results


@dataclass
class Export(OfRun):
    out: Annotated[Path | None, default("RUN/policy.safecritic")] = None  # file of the policy
    # tolerance of the screen; without it the one of the training
    tolerance: Annotated[float | None, optional("NUMBER")] = None
    fallback: str = "hold"  # action on bad input: hold, zero, or numbers such as 0,-0.5
    # period of a control step; without it what the environment says
    period: Annotated[float | None, optional("SECONDS")] = None
    no_onnx: Flag = False  # leave the ONNX graph out


POLICY = arg(metavar="POLICY", help="a file of `safecritic export`, or the folder of its run")
PLACE = arg(metavar="OWNER/NAME", help="repository of the Hugging Face Hub, or a folder: ./NAME")


@dataclass
class Push:
    policy: Annotated[Path, Positional, POLICY]
    target: Annotated[str, Positional, PLACE]


@dataclass
class Pull:
    source: Annotated[str, Positional, PLACE]
    out: Path = Path("policy.safecritic")  # file to write


@dataclass
class Certify(OfRun):
    episodes: int = 99  # fresh episodes with the screen on, and as many with it off
    confidence: float = 0.95  # probability with which both bounds hold
    seed: int = 1_000_000  # episode i starts from this seed + i
    # tolerance of the screen; without it the one of the training
    tolerance: Annotated[float | None, optional("NUMBER")] = None
    choose_tolerance: Flag = False  # choose the largest tolerance whose bound is within the limit
    out: Annotated[Path | None, default("RUN/certificate.json")] = None  # file of the certificate
    no_onnx: Flag = False  # certify the policy that `export --no-onnx` writes
    # sign with this private ed25519 key, a PEM file; needs cryptography
    sign: Annotated[Path | None, optional("KEY")] = None


@dataclass
class CertifyPolicy:
    # any policy: a function from observation to action, imported from the current folder
    policy: Annotated[str, arg(metavar="MODULE:FUNCTION")]
    env: Annotated[str, TASK]
    cost_limit: Annotated[float | None, default("the task's")] = None  # of an episode
    episodes: int = 99  # fresh episodes
    confidence: float = 0.95  # probability with which both bounds hold
    seed: int = 1_000_000  # episode i starts from this seed + i
    out: Path = Path("certificate.json")  # file of the certificate
    # sign with this private ed25519 key, a PEM file; needs cryptography
    sign: Annotated[Path | None, optional("KEY")] = None
    environment: Annotated[Environment, OmitArgPrefixes] = field(default_factory=Environment)


@dataclass
class CheckCertificate:
    check: Annotated[Path, arg(metavar="FILE", help="a certificate, or a policy file with one")]
    replay: int = 3  # episodes that are run again, where the task is ours
    # the public key, a PEM file, that it must be signed with
    key: Annotated[Path | None, optional("KEY")] = None
    trust_env: TrustEnv = False


@dataclass
class Dial(OfRun):
    limits: Annotated[tuple[float, ...], default("the trained one")] = ()  # to choose for
    episodes: int = 50  # of each tolerance, in the same scenes
    seed: int = 2_000_000  # episode i starts from this seed + i
    out: Annotated[Path | None, default("RUN")] = None  # folder of the picture and the numbers


@dataclass
class Show(OfRun):
    episodes: int = 1  # number of episodes, a file each
    seed: int = 10_000  # episode i starts from this seed + i
    # png: the last frame with the whole trail; mp4: needs imageio-ffmpeg
    format: Literal["gif", "mp4", "png"] = "gif"
    every: int = 2  # draw every n-th step
    size: int = 480  # width of the picture of one run, in pixels
    beside: Annotated[tuple[Path, ...], BESIDE] = ()
    map: Flag = False  # on a car task, draw over the map of Q_C: the cost that is expected there


@dataclass
class Limits:
    task: Annotated[str, Positional, TASK]
    environment: Annotated[Environment, OmitArgPrefixes]
    steps: int = 20_000  # environment steps of each of the two trainings
    episodes: int = 20  # of each of the four policies
    seed: int = 0  # seed of both trainings
    out: Annotated[Path | None, default("limits/TASK")] = None  # folder of the picture


@dataclass
class Explore:
    runs: Annotated[tuple[Path, ...], Positional, RUNS]
    out: Annotated[Path | None, default("RUN/explorer.html")] = None  # file to write
    episodes: int = 2  # number of episodes of each run to replay
    seed: int = 10_000  # episode i starts from this seed + i
    state: State = "checkpoint"
    trust_env: TrustEnv = False


@dataclass
class Study:
    file: Annotated[Path, Positional, FILE]
    out: Annotated[Path | None, default("studies/NAME")] = None  # folder of the study
    workers: int = 0  # runs at a time, each on its own core; 0: one per core
    # run on the Ray cluster at this address, or `local`; needs ray
    ray: Annotated[str | None, optional("ADDRESS")] = None
    reuse: Places = ()  # take finished runs with the same settings from these studies
    # run these cells alone: TASK/METHOD/SEED, with * for anything
    only: Annotated[tuple[str, ...], optional("CELL ...")] = ()


@dataclass
class Tasks:
    environment: Annotated[Environment, OmitArgPrefixes]
    # a task, or the id of any environment (also `module:Id`) to step at random for a few seconds
    # and describe
    env: Annotated[str, Positional, optional("ENV")] = ""


@dataclass
class Pack:
    study: Annotated[Path, Positional, STUDY]
    out: Path  # file to write, such as quick.parquet; packing into it again adds what is new


@dataclass
class Report:
    study: Annotated[Path, Positional, STUDY]
    out: Annotated[Path | None, default("STUDY/report")] = None  # folder of the report
    # write the page alone, as one file to send or publish
    page: Annotated[Path | None, optional("FILE.html")] = None


# Parsing


def given_names(arguments: Sequence[str]) -> list[str]:
    """Return the names of the flags among the arguments: `no_screen` for `--no-screen`."""
    words = [word[2:].partition("=")[0] for word in arguments if word.startswith("--")]
    return [word.replace("-", "_") for word in words]


def wants_help(arguments: Sequence[str]) -> bool:
    return "-h" in arguments or "--help" in arguments


def parse(kind: type, command: str, arguments: list[str], description: str = "") -> Any:
    """Return the options of a command; refuse unknown flags, print the help and exit if asked."""
    if wants_help(arguments):
        arguments = ["--help"]  # tyro leaves the arguments before it out of the help
    _refuse_unknown(option_names(kind), arguments)
    return _read(kind, command, arguments, description or COMMANDS[command])


def _read(kind: type, command: str, arguments: list[str], about: str = "", **how: Any) -> Any:
    prog = f"safecritic {command}"
    return tyro.cli(kind, prog=prog, description=about, args=arguments, config=CONFIG, **how)


def option_names(kind: Any) -> list[str]:
    """Return the names of the flags of an options class, those of its groups included."""
    names = ["help"]
    for option in dataclasses.fields(kind):
        annotated = get_origin(option.type) is Annotated
        type_, *marks = get_args(option.type) if annotated else (option.type,)
        if dataclasses.is_dataclass(type_):
            names += option_names(type_)[1:]
        elif Positional not in marks:
            names.append(option.name)
    return names


def _refuse_unknown(known: Sequence[str], arguments: Sequence[str]) -> None:
    for name in given_names(arguments):
        if name not in known:
            raise UsageError(f"unknown flag {flag(name)}: {suggest(name, known).replace('_', '-')}")


def flag(name: str) -> str:
    """Return the flag of an option: `--no-cost` for `no_cost`."""
    return f"--{name.replace('_', '-')}"


# Training


def parse_train(method: Method, arguments: list[str]) -> tuple[Train, dict[str, Any]]:
    """Return the options of `safecritic train METHOD`, and the settings given by name.

    `--help` shows the defaults in force.
    """
    given = given_names(arguments)
    paper_defaults = "paper_defaults" in given
    command, about = f"train {method.name}", f"Train {method.title} ({method.summary})."
    if wants_help(arguments):
        options = _train(method, _task_beside_help(method, arguments), paper_defaults)
        _read(Train, command, ["--help"], about, default=options)
    options = _train(method, None, paper_defaults)
    meant, known = _settings_of_flags(options), option_names(Train)
    _refuse_settings_of_others(method, paper_defaults, set(given) - {*meant, *known})
    _refuse_unknown([*meant, *known], arguments)
    chosen = _read(Train, command, arguments, default=options)
    values, off = flatten(chosen.settings), vars(options.switches)
    return chosen, {meant[x]: x not in off and values[meant[x]] for x in given if x in meant}


def _train(method: Method, task: str | None, paper_defaults: bool) -> Train:
    """Return the options of a method with the defaults in force."""
    settings = make_config(method.name, tasks.registry.method_defaults(task), paper_defaults)
    kinds = part_types(type(settings))
    parts = [name for name in kinds if getattr(settings, name) is not None]
    switches = []
    for name in parts:
        about = f"leave out {(kinds[name].__doc__ or '').partition(':')[0].lower()}"
        marked = Annotated[Flag, arg(help=about, help_behavior_hint="")]
        switches.append((f"no_{name}", marked, False))
    namespace = {"__doc__": Switches.__doc__}
    made = make_dataclass("Switches", switches, bases=(Switches,), namespace=namespace)
    return Train(tyro.MISSING, settings, made(), Run(steps=method.steps))


def _settings_of_flags(options: Train) -> dict[str, str]:
    """Return the name of the setting that each flag of a method sets."""
    flat, parts = flatten(options.settings), part_types(type(options.settings))
    meant = {name: name for name in flat if name not in parts}
    for name in list(meant):
        if isinstance(flat[name], bool):  # `--group.no-name` as well
            meant["{}{}no_{}".format(*name.rpartition("."))] = name
    return meant | {name: name.removeprefix("no_") for name in vars(options.switches)}


def _task_beside_help(method: Method, arguments: list[str]) -> str | None:
    """Return the task in a command that asks for help, if there is one."""
    words = [word for word in arguments if not wants_help([word])]
    options = _train(method, None, "paper_defaults" in given_names(words))
    try:
        chosen = _read(Train, "", words, default=options, console_outputs=False)
    except SystemExit:
        return None
    return task_name(chosen.task)


def task_name(task: str) -> str | None:
    """Return a task's own spelling, by which its cost limit is known; None for others."""
    try:
        return tasks.get(task).name
    except ValueError:
        return None


def _refuse_settings_of_others(method: Method, paper_defaults: bool, unknown: set[str]) -> None:
    """Refuse flags of a part or a setting that only other methods have, and name those."""
    for flag_ in sorted(unknown):
        name = flag_.removeprefix("no_")
        if name.partition(".")[0] in part_types(method.settings_type(paper_defaults)):
            make_config(method.name, None, paper_defaults, **{name: None})  # raises with the reason
        others = [other.name for other in METHODS.values() if name in other.setting_names()]
        if others:
            raise UsageError(
                f"{method.name} has no setting {name}: use it with {', '.join(others)}"
            )
