"""A study: methods x tasks x limits x seeds, described in a TOML file, run by worker processes.

    methods = ["ddpg", "cpo", "usc", "usc-blind"]
    tasks = ["CarGoal1"]
    seeds = [0, 1, 2]
    steps = 20_000              # environment steps of a run; left out: what the method needs
    deployment_episodes = 10    # of each trained policy
    checkpoint_every = 10_000   # steps between checkpoints
    retries = 2                 # how often a run whose process or machine was lost is started again
    memory_gb = 2.0             # memory of a run; left out: as many runs as there are cores
    paper_defaults = false      # true: the paper's values, with a decision in every step

    [settings]                  # for every method that has the setting
    gamma = 0.95
    [method.usc]                # for one method
    tolerance = 2.0
    [method.cpo]
    steps_times = 10            # as many times the steps of the others
    [variant.usc-blind]         # a method with other settings, listed among the methods
    method = "usc"
    caution_from = "chance"
    [task.CarGoal2]             # for one task
    cost_limit = 5.0
    [task."my_module:Env-v0"]   # and what is declared about an environment: keywords of `adapt`
    cost_key = "cost_speed"
    closeness = "10-25,30"

`limits = [0, 0.5, 1]`, for all tasks or under `[task.NAME]`, runs each constrained method once at
each of these cost limits; one that looks at reward alone is run once for all of them.
`train_episodes = 500` ends a run after that many episodes, if this comes before its steps. The
study's folder holds `study.json` (the grid, every setting resolved) and a run folder for each run.
Running the study again resumes it: finished runs are kept, others continue from their checkpoint,
and a run whose settings have changed is refused.
"""

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from safecritic import files, methods
from safecritic.agents.settings import flatten
from safecritic.names import suggest
from safecritic.run.episode import Intervals
from safecritic.run.folder import read_config, read_json, write_json
from safecritic.run.records import SEED, Declared, EvaluationFile, MethodName, SummaryFile
from safecritic.run.watch import warn_of_default_limit
from safecritic.schema import Matching, Name, Within, check
from safecritic.tasks.adapter import DECLARATIONS, declared_of, is_ours, make_env
from safecritic.tasks.registry import get as get_task

KEYS = (
    "methods",
    "tasks",
    "seeds",
    "limits",
    "steps",
    "train_episodes",
    "deployment_episodes",
    "checkpoint_every",
    "retries",
    "memory_gb",
    "paper_defaults",
)
TABLES = ("settings", "method", "variant", "task")
BUDGETS = ("steps", "train_episodes")  # may be set for a method or a task too
TIMES = "steps_times"  # may be set for a method or a variant
PAPER = "paper_defaults"  # may be set for all, a method or a variant
VARIANT = r"[\w-]{1,60}"  # the name of one
RETRIES = 2  # for a run whose process or machine was lost
LIMIT = Annotated[float, Within(0)]


class StudyError(ValueError):
    """Raised for a study that cannot be run as it is written."""


@dataclass
class JobRecord:
    """The form of a job in study.json."""

    method: MethodName
    task: Name
    seed: SEED
    steps: Annotated[int, Within(1, 10**12)]
    train_episodes: Annotated[int, Within(1, 10**12)] | None
    deployment_episodes: Annotated[int, Within(1, 10**6)]
    settings: dict[str, Any]
    declared: Declared
    checkpoint_every: Annotated[int, Within(1, 10**12)]
    variant: Annotated[str, Matching(VARIANT, "letters, digits and any of - _")] = ""
    swept: bool = False
    retries: Annotated[int, Within(0, 10**6)] = RETRIES
    memory_gb: Annotated[float, Within(0, 10**6)] | None = None


@dataclass
class StudyFile:
    """The form of study.json."""

    source: str
    jobs: list[JobRecord]


@dataclass(frozen=True)
class Job:
    """One run of a study: method, task, seed, budget and every setting."""

    method: str
    task: str
    seed: int
    steps: int
    train_episodes: int | None
    deployment_episodes: int
    settings: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)  # about the environment
    checkpoint_every: int = Intervals.checkpoint_every
    variant: str = ""  # the study's name of the method with these settings, if it has one
    swept: bool = False  # the study has several limits for its task, and this is a run at one
    retries: int = RETRIES
    memory_gb: float | None = None

    @property
    def limit(self) -> float:
        """The cost limit."""
        return float(self.settings["cost_limit"])

    @property
    def label(self) -> str:
        """What the study calls its method: that of a variant is its own name."""
        return self.variant or self.method

    @property
    def name(self) -> str:
        """The name of its folder."""
        plain = self.task.rpartition(":")[2].replace("/", "-")
        limit = f"-limit{limit_text(self.limit)}" if self.swept else ""
        return f"{self.label}-{plain}{limit}-seed{self.seed}"


def limit_text(limit: float) -> str:
    """Return a limit as it is written in names and cells.

    >>> limit_text(5.0), limit_text(0.25), limit_text(1e6)
    ('5', '0.25', '1e06')
    """
    return f"{limit:g}".replace("+", "")


def shipped() -> dict[str, Path]:
    """Return the studies that come with the package, by name."""
    folder = Path(str(resources.files("safecritic.study") / "shipped"))
    return {path.name: path for path in sorted(folder.glob("*.toml"))}


def find(name: str | Path) -> Path:
    """Return the file of that path, or else the shipped study of that name."""
    path = Path(name)
    if path.is_file():
        return path
    ours = shipped().get(path.name if path.suffix else f"{path.name}.toml")
    if ours is None or path.parent != Path("."):
        raise StudyError(
            f"no study {str(name)!r}: it is neither a file nor one of {', '.join(shipped())}"
        )
    return ours


def read(path: Path) -> list[Job]:
    """Return the jobs of a study file, with every setting checked."""
    try:
        return jobs_of(tomllib.loads(files.read_bytes(path, 2**20, "a study").decode("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StudyError(f"{path} is not valid TOML: {error}") from error
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from error


def jobs_of(content: dict[str, Any]) -> list[Job]:
    """Return the jobs of a study's content.

    Seeds vary slowest, so that an unfinished study has every method on some seeds.
    """
    known = (*KEYS, *TABLES)
    for key in content:
        if key not in known:
            raise StudyError(f"unknown key {key!r}: {suggest(key, known)}")
    _require_tables(content)
    of = _methods(content)
    tasks = [_task(name) for name in _listed(content, "tasks", str)]
    seeds = _listed(content, "seeds", int)
    for kind, names in (("method", list(of.values())), ("task", tasks)):
        for name in content.get(kind, {}):
            if name not in names:
                raise StudyError(f"[{kind}.{name}] is not among the {kind}s: {', '.join(names)}")
    declared = {task: _declared(content, task) for task in tasks}
    limits = {task: _limits(content, task) for task in tasks}
    for task in tasks:
        _require_used(of.values(), _general(content, task))
    jobs = []
    for seed in seeds:
        for task in tasks:
            for limit in limits[task]:
                first = limit == limits[task][0]
                jobs += [
                    _job(content, (label, method), task, seed, declared[task], limit)
                    for label, method in of.items()
                    if first or methods.get(method).constrained
                ]
    _warn_of_default_limits(content, jobs)
    if len({job.name for job in jobs}) < len(jobs):
        raise StudyError("a method, task or seed is listed twice")
    return jobs


def _require_tables(content: dict[str, Any]) -> None:
    """Raise if what must be a table is a plain value, as in `method = "usc"`."""
    for kind in TABLES:
        table = content.get(kind, {})
        if not isinstance(table, dict):
            written = "[settings]" if kind == "settings" else f"[{kind}.NAME]"
            raise StudyError(f"{kind} must be a table, {written} on a line of its own: {table!r}")
        for name, inner in table.items():
            if kind != "settings" and not isinstance(inner, dict):
                raise StudyError(f"{kind}.{name} must be a table, [{kind}.{name}]: {inner!r}")


def _methods(content: dict[str, Any]) -> dict[str, str]:
    """Return the method of each name that is listed; that of a variant is said in its table."""
    variants = content.get("variant", {})
    listed = _listed(content, "methods", str)
    of: dict[str, str] = {}
    for name in listed:
        table = variants.get(name)
        label = methods.get(name).name if table is None else name
        if label in of:
            raise StudyError("a method, task or seed is listed twice")
        if table is None:
            of[label] = label
            continue
        if name.lower() in methods.METHODS or not re.fullmatch(VARIANT, name):
            raise StudyError(
                f"[variant.{name}] needs a name that no method has, of letters, digits, - and _"
            )
        if not isinstance(table.get("method"), str):
            raise StudyError(f'[variant.{name}] must say of which method: method = "usc"')
        of[label] = methods.get(table["method"]).name
    for name in variants:
        if name not in of:
            raise StudyError(f"[variant.{name}] is not among the methods: {', '.join(listed)}")
    return of


def _own(content: dict[str, Any], label: str, method: str) -> dict[str, Any]:
    """Return what is set for a method, or for a variant beside what is set for its method."""
    own = content.get("method", {}).get(method, {})
    of_variant = content.get("variant", {}).get(label, {})
    return own | {name: x for name, x in of_variant.items() if name != "method"}


def _job(
    content: dict[str, Any],
    named: tuple[str, str],
    task: str,
    seed: int,
    declared: dict[str, Any],
    limit: float | None,
) -> Job:
    label, method = named
    fields = set(methods.get(method).setting_names())
    own = _own(content, label, method)
    general = _general(content, task)
    methods.require_cost(method, declared)
    settings = {name: x for name, x in general.items() if name in fields}
    settings |= {name: x for name, x in own.items() if name not in (*BUDGETS, TIMES, PAPER)}
    printed = own.get(PAPER, content.get(PAPER, False))
    if not isinstance(printed, bool):
        raise StudyError(f"{PAPER} must be true or false, got {printed!r}")
    swept = limit is not None and methods.get(method).constrained
    if swept:
        settings["cost_limit"] = limit
    budgets = _budgets(own, content | general)
    config = methods.make_config(method, task, printed, **settings)
    deployment = content.get("deployment_episodes", 10)
    checkpoints = content.get("checkpoint_every", Intervals.checkpoint_every)
    retries = content.get("retries", RETRIES)
    whole = {"deployment_episodes": deployment, "checkpoint_every": checkpoints}
    whole |= {"seeds": seed, "retries": retries}
    for name, value in (*budgets.items(), *whole.items()):
        least = 0 if name in ("seeds", "retries") else 1
        if value is not None and (type(value) is not int or value < least):
            raise StudyError(f"{name} must be a whole number >= {least}, got {value!r}")
    memory = content.get("memory_gb")
    if memory is not None and (type(memory) not in (int, float) or not 0 < memory <= 10**6):
        raise StudyError(f"memory_gb must be a number > 0, got {memory!r}")
    return Job(
        method=method,
        task=task,
        seed=seed,
        steps=budgets["steps"] or methods.get(method).steps,
        train_episodes=budgets["train_episodes"],
        deployment_episodes=deployment,
        settings=json.loads(json.dumps(flatten(config))),
        declared=declared,
        checkpoint_every=checkpoints,
        variant=label if label != method else "",
        swept=swept,
        retries=retries,
        memory_gb=memory,
    )


def _budgets(own: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return steps and episodes of a method, from what is set for it and for the others."""
    budgets = {name: own.get(name, others.get(name)) for name in BUDGETS}
    if TIMES not in own:
        return budgets
    times, steps = own[TIMES], budgets["steps"]
    if type(times) is not int or times < 1:
        raise StudyError(f"{TIMES} must be a whole number >= 1, got {times!r}")
    if "steps" in own or type(steps) is not int:
        raise StudyError(f"{TIMES} needs the steps of the others: give the study or its task steps")
    return budgets | {"steps": times * steps}


def _limits(content: dict[str, Any], task: str) -> list[float | None]:
    """Return the limits at which a task is run; None stands for its one limit."""
    of_task = content.get("task", {}).get(task, {})
    limits = of_task.get("limits", content.get("limits"))
    if limits is None:
        return [None]
    known = isinstance(limits, list) and limits and all(type(x) in (int, float) for x in limits)
    if not known or not all(0 <= x < math.inf for x in limits):
        raise StudyError(f"limits must be a list of one or more numbers >= 0, got {limits!r}")
    texts = [limit_text(x) for x in limits]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise StudyError(f"limits has {twice} twice")
    places = {"[settings]": content.get("settings", {}), f"[task.{task}]": of_task}
    for kind in ("method", "variant"):
        places |= {f"[{kind}.{name}]": own for name, own in content.get(kind, {}).items()}
    for place, given in places.items():
        if "cost_limit" in given:
            raise StudyError(
                f"{task} has limits, and {place} sets cost_limit: remove one of the two"
            )
    return [float(x) for x in limits]


def _general(content: dict[str, Any], task: str) -> dict[str, Any]:
    """Return the settings for all methods on a task."""
    of_task = content.get("task", {}).get(task, {})
    known = (*DECLARATIONS, "limits")
    settings = {name: x for name, x in of_task.items() if name not in known}
    return content.get("settings", {}) | settings


def _declared(content: dict[str, Any], task: str) -> dict[str, Any]:
    """Return what the file declares about an environment, after trying it on one."""
    of_task = content.get("task", {}).get(task, {})
    declared = {name: of_task[name] for name in DECLARATIONS if name in of_task}
    if not declared:
        return {}
    env, _ = make_env(task, **declared)
    env.close()
    return declared_of(env)


def _warn_of_default_limits(content: dict[str, Any], jobs: list[Job]) -> None:
    """Warn of each environment of the user's own for which no cost limit is given."""
    without = {}
    for job in jobs:
        given = _own(content, job.label, job.method) | _general(content, job.task)
        if methods.get(job.method).constrained and not job.swept and "cost_limit" not in given:
            without[job.task] = job
    for task, job in without.items():
        if not is_ours(task):
            warn_of_default_limit(task, task, job.declared, job.limit, stacklevel=3)


def _require_used(chosen: Iterable[str], general: dict[str, Any]) -> None:
    """Raise if a setting for all methods belongs to none of them."""
    every = {setting for name in chosen for setting in methods.get(name).setting_names()}
    for name in general:
        if name in DECLARATIONS:
            raise StudyError(f"{name} belongs to an environment: put it under [task.NAME]")
        if name not in every and name not in BUDGETS:
            raise StudyError(
                f"no method here has a setting {name!r}: {suggest(name, sorted(every))}"
            )


def _listed(content: dict[str, Any], key: str, kind: type) -> list[Any]:
    values = content.get(key)
    if not isinstance(values, list) or not values or not all(type(x) is kind for x in values):
        raise StudyError(f"{key} must be a list of one or more {kind.__name__}, got {values!r}")
    return values


def _task(name: str) -> str:
    if is_ours(name):
        return get_task(name).name
    if ":" in name:  # a module to import first, then a Gymnasium id
        return name
    get_task(name)  # raises, naming the nearest
    raise AssertionError


# ---------------------------------------------------------------- the folder


def open_folder(out: Path, jobs: list[Job], source: str) -> None:
    """Write the grid; raise if a run that exists was made with other settings."""
    files.require_folder(out / "runs")
    for job in jobs:
        run = files.require_folder(out / "runs" / job.name)
        if files.is_there(run / "config.json"):
            then = read_config(run)
            changed = differences(then["config"], job.settings)
            changed += differences(then["environment"]["declared"], job.declared)
            if changed:
                raise StudyError(
                    f"{job.name} was run with {'; '.join(changed[:3])}: "
                    "undo the change, or give the study another folder (--out)"
                )
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_grid(out, jobs, source)
    except OSError as error:
        raise StudyError(
            f"could not write to {out}: {error.strerror or error}; give the study another folder "
            "(--out)"
        ) from error


def _write_grid(out: Path, jobs: list[Job], source: str) -> None:
    records = [dataclasses.asdict(job) for job in jobs]
    for record in records:
        for name in ("swept", "variant"):
            if not record[name]:
                del record[name]
    write_json(out / "study.json", {"source": source, "jobs": records})


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the settings that changed, as text."""
    changed = []
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) == now.get(name):
            continue
        if name not in then:
            changed.append(f"a version without {name} (now {now[name]})")
        elif name not in now:
            changed.append(f"{name} {then[name]} (now there is none)")
        else:
            changed.append(f"{name} {then[name]} (now {now[name]})")
    return changed


def read_folder(out: Path) -> list[Job]:
    """Return the jobs of a study's folder."""
    content = read_study(out)
    names = [field.name for field in dataclasses.fields(Job)]
    jobs = [Job(**{k: x for k, x in job.items() if k in names}) for job in content["jobs"]]
    path = out / "study.json"
    for job in jobs:
        key = f"settings.cost_limit of {job.label} on {job.task}, seed {job.seed}"
        check(LIMIT, job.settings.get("cost_limit"), path, key)
    if len({job.name for job in jobs}) < len(jobs):
        raise files.damaged(path, "a run is there twice")
    files.require_folder(out / "runs")
    return jobs


def read_study(out: Path) -> dict[str, Any]:
    """Return the content of a study's folder, checked."""
    try:
        return files.read_json(out / "study.json", StudyFile)
    except FileNotFoundError:
        raise StudyError(
            f"{out} is not a study's folder: it has no study.json; run safecritic study first"
        ) from None


def trained(run: Path, job: Job) -> bool:
    """Return whether the run has used up its steps or episodes."""
    summary = read_json(files.require_folder(run) / "summary.json", SummaryFile)
    if not summary:
        return False
    enough = job.train_episodes is not None and summary["episodes"] >= job.train_episodes
    return enough or summary["steps"] >= job.steps


def deployed(run: Path, job: Job) -> bool:
    """Return whether the trained policy has run its deployment episodes."""
    evaluation = read_json(run / "evaluation.json", EvaluationFile)
    return bool(evaluation) and len(evaluation["episodes"]) == job.deployment_episodes


def measured(run: Path) -> bool:
    """Return whether the measures of the run are written (`evaluation.measures`)."""
    return files.is_there(run / "measures.json")


class Failure(NamedTuple):
    """Why a run failed."""

    kind: str  # the exception's name
    about: str  # its message, without the folder that holds the run's state

    @property
    def diverged(self) -> bool:
        """Whether its own numbers were not finite: trained again it would do the same.

        Of an environment's, the message says more behind the step.
        """
        own = re.search(r" was not finite at step \d+$", self.about)
        return self.kind == "NotFiniteError" and own is not None

    @property
    def text(self) -> str:
        """Both, for a reader; the kind of a run that diverged goes without saying."""
        return self.about if self.diverged or not self.kind else f"{self.kind}: {self.about}"


def error_line(run: Path) -> str:
    """Return the last line of a run's error.txt; an empty text if there is none."""
    return (files.read_text(run / "error.txt").strip().splitlines() or [""])[-1]


def failure(run: Path) -> Failure | None:
    """Return what the last line of a run's error.txt says, or None without such a file."""
    if not files.is_there(run / "error.txt"):
        return None
    text = error_line(run).partition("; its state is in ")[0].removesuffix(": the run was stopped")
    kind, colon, about = text.partition(": ")
    if colon and re.fullmatch(r"[\w.]+", kind):
        return Failure(kind.rpartition(".")[2], about)
    return Failure("", text)


def done(out: Path, job: Job) -> bool:
    """Return whether the run is trained, deployed and measured."""
    run = out / "runs" / job.name
    return trained(run, job) and deployed(run, job) and measured(run)
