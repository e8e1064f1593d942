"""A study: methods x tasks x limits x seeds, described in a TOML file, run by worker processes.

docs/study.md has every key of the file and what is in a study's folder. Running a study again
resumes it: finished runs are kept, others continue from their checkpoint, and a run whose settings
have changed is refused.
"""

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from safecritic.agents import methods
from safecritic.core import files
from safecritic.core.names import suggest
from safecritic.core.schema import Matching, Name, Within, check
from safecritic.core.settings import dotted, flatten
from safecritic.evaluate.episodes import SEED as EVALUATION_SEED
from safecritic.run.episode import Intervals
from safecritic.run.failure import Failure, read_failure
from safecritic.run.folder import read_config, read_json, run_digest, settings_of, write_json
from safecritic.run.records import (
    SEED,
    Declared,
    EvaluationFile,
    Measures,
    MethodName,
    SummaryFile,
)
from safecritic.run.watch import warn_of_default_limit
from safecritic.tasks.adapter import DECLARATIONS, declared_of, is_ours, make_env
from safecritic.tasks.registry import get as get_task
from safecritic.tasks.registry import method_defaults

BUDGETS = ("steps", "train_episodes")  # may be set for a method or a task too
ONES = ("deployment_episodes", "checkpoint_every", "retries", "memory_gb")  # the same for all runs
TIMES = "steps_times"  # may be set for a method or a variant
SEEDS = "seeds"  # of a method or a variant: those of the study's that it is run with
PAPER = "paper_defaults"  # may be set for all, a method or a variant
KEYS = ("methods", "tasks", "seeds", "limits", *BUDGETS, *ONES, PAPER)
TABLES = ("settings", "method", "variant", "task")
VARIANT = r"[\w-]{1,60}"  # the name of one
LIMIT = Annotated[float, Within(0)]
Steps = Annotated[int, Within(1, 10**12)]


TWICE = "a method, task or seed is listed twice"


class StudyError(ValueError):
    """Raised for a study that cannot be run as it is written."""


@dataclass(frozen=True)
class Job:
    """One run of a study: method, task, seed, budget and every setting."""

    method: MethodName
    task: Name
    seed: SEED
    steps: Steps
    train_episodes: Steps | None = None
    deployment_episodes: Annotated[int, Within(1, 10**6)] = 10
    settings: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)  # about the environment
    checkpoint_every: Steps = Intervals.checkpoint_every
    # the study's name of the method with these settings, if it has one
    variant: Annotated[str, Matching(VARIANT, "letters, digits and any of - _")] = ""
    swept: bool = False  # the study has several limits for its task, and this is a run at one
    retries: Annotated[int, Within(0, 10**6)] = 2  # for a run whose process or machine was lost
    memory_gb: Annotated[float, Within(0, 10**6)] | None = None
    paper_defaults: bool = False  # the agent is that of `agents/paper.py`

    @property
    def limit(self) -> float:
        return float(self.settings["cost_limit"])

    @property
    def label(self) -> str:
        """What the study calls its method: that of a variant is its own name."""
        return self.variant or self.method

    @property
    def cell(self) -> str:
        """Its place in the study's table: task, method and seed."""
        return f"{self.task}/{self.label}/{self.seed}"

    @property
    def name(self) -> str:
        """The name of its folder."""
        plain = self.task.rpartition(":")[2].replace("/", "-")
        limit = f"-limit{limit_text(self.limit)}" if self.swept else ""
        return f"{self.label}-{plain}{limit}-seed{self.seed}"


@dataclass
class StudyFile:
    """The form of study.json."""

    source: str
    jobs: list[Job]
    toml: Any = ""  # the text of the study's file


def limit_text(limit: float) -> str:
    """Return a limit as it is written in names and cells.

    >>> limit_text(5.0), limit_text(0.25), limit_text(1e6)
    ('5', '0.25', '1e06')
    """
    return f"{limit:g}".replace("+", "")


def shipped() -> dict[str, Path]:
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
    _require_form(content)
    method_of = _methods(content)
    tasks = [_task(name) for name in _listed(content, "tasks", str)]
    for kind, names in (("method", list(method_of.values())), ("task", tasks)):
        for name in content.get(kind, {}):
            if name not in names:
                raise StudyError(f"[{kind}.{name}] is not among the {kind}s: {', '.join(names)}")
    declared = {task: _declared(content, task) for task in tasks}
    for task in tasks:
        _require_used(method_of.values(), _general(content, task))
    seeds = _listed(content, SEEDS, int)
    seeds_of = {label: _seeds(content, label, seeds) for label in method_of}
    jobs = [
        _job(content, label, task, seed, declared[task], limit)
        for seed in seeds
        for task in tasks
        for at, limit in enumerate(_limits(content, task))
        for label, method in method_of.items()
        if seed in seeds_of[label] and (at == 0 or methods.get(method).constrained)
    ]
    _warn_of_default_limits(content, jobs)
    if len({job.name for job in jobs}) < len(jobs):
        raise StudyError(TWICE)
    return jobs


def only(jobs: list[Job], patterns: Iterable[str]) -> list[Job]:
    """Return the jobs whose cell, TASK/METHOD/SEED, matches one of the patterns; all without any.

    A pattern may stop early, and * stands for anything: "CarGoal1", "*/usc", "CarGoal1/*/0".
    """
    chosen = {job.name: job for pattern in patterns for job in jobs if _matches(job, pattern)}
    for pattern in patterns:
        if not any(_matches(job, pattern) for job in jobs):
            cells = sorted({job.cell for job in jobs})
            raise StudyError(
                f"no run is {pattern!r}: {suggest(pattern, cells)}; the form is "
                "TASK/METHOD/SEED, with * for anything (--only)"
            )
    return [job for job in jobs if job.name in chosen] if chosen else jobs


def _matches(job: Job, pattern: str) -> bool:
    return any(fnmatchcase(job.cell, pattern + rest) for rest in ("", "/*"))


def _require_form(content: dict[str, Any]) -> None:
    """Raise for an unknown key, and if what must be a table is a plain value."""
    for key in content:
        if key not in (*KEYS, *TABLES):
            raise StudyError(f"unknown key {key!r}: {suggest(key, (*KEYS, *TABLES))}")
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
    for name in variants:
        if name.lower() in methods.METHODS or not re.fullmatch(VARIANT, name):
            raise StudyError(
                f"[variant.{name}] needs a name that no method has, of letters, digits, - and _"
            )
        if name not in listed:
            raise StudyError(f"[variant.{name}] is not among the methods: {', '.join(listed)}")
        if not isinstance(variants[name].get("method"), str):
            raise StudyError(f'[variant.{name}] must say of which method: method = "usc"')
    labels = [name if name in variants else methods.get(name).name for name in listed]
    if len(set(labels)) < len(labels):
        raise StudyError(TWICE)
    return {x: methods.get(variants[x]["method"]).name if x in variants else x for x in labels}


def _own(content: dict[str, Any], label: str) -> dict[str, Any]:
    """Return what is set for a method, or for a variant beside what is set for its method."""
    variant = dotted(content.get("variant", {}).get(label, {}))
    method = methods.get(variant.pop("method", label)).name
    return dotted(content.get("method", {}).get(method, {})) | variant


def _seeds(content: dict[str, Any], label: str, every: list[int]) -> list[int]:
    """Return the seeds with which a method or variant is run."""
    given = _own(content, label).get(SEEDS, every)
    chosen = _listed({SEEDS: list(given) if isinstance(given, tuple) else given}, SEEDS, int)
    if others := [seed for seed in chosen if seed not in every]:
        raise StudyError(f"seeds of {label} has {others[0]}, which is not among the study's seeds")
    return chosen


def _job(
    content: dict[str, Any],
    label: str,
    task: str,
    seed: int,
    declared: dict[str, Any],
    limit: float | None,
) -> Job:
    specific, general = _own(content, label), _general(content, task)
    method = methods.get(content.get("variant", {}).get(label, {}).get("method", label))
    methods.require_cost(method.name, declared)
    printed = specific.get(PAPER, content.get(PAPER, False))
    if not isinstance(printed, bool):
        raise StudyError(f"{PAPER} must be true or false, got {printed!r}")
    fields = method.setting_names(printed)
    settings = {name: x for name, x in general.items() if name in fields}
    beside = (*BUDGETS, TIMES, SEEDS, PAPER)  # what is no setting of the method
    settings |= {name: x for name, x in specific.items() if name not in beside}
    swept = limit is not None and method.constrained
    if swept:
        settings["cost_limit"] = limit
    config = methods.make_config(method.name, method_defaults(task), printed, **settings)
    job = Job(
        method=method.name,
        task=task,
        seed=seed,
        settings=json.loads(json.dumps(flatten(config))),
        declared=declared,
        variant=label if label != method.name else "",
        swept=swept,
        paper_defaults=method.is_printed(config),
        **{"steps": method.steps} | _budgets(specific, content | general),
        **{name: content[name] for name in ONES if name in content},
    )
    for name in ("seed", *BUDGETS, *ONES[:-1]):
        value, least = getattr(job, name), 0 if name in ("seed", "retries") else 1
        if value is not None and (type(value) is not int or value < least):
            name = "seeds" if name == "seed" else name
            raise StudyError(f"{name} must be a whole number >= {least}, got {value!r}")
    memory = job.memory_gb
    if memory is not None and (type(memory) not in (int, float) or not 0 < memory <= 10**6):
        raise StudyError(f"memory_gb must be a number > 0, got {memory!r}")
    return job


def _budgets(specific: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return steps and episodes of a method, from what is set for it and for the others."""
    budgets = {name: x for name, x in (others | specific).items() if name in BUDGETS}
    if TIMES not in specific:
        return budgets
    times, steps = specific[TIMES], budgets.get("steps")
    if type(times) is not int or times < 1:
        raise StudyError(f"{TIMES} must be a whole number >= 1, got {times!r}")
    if "steps" in specific or type(steps) is not int:
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
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise StudyError(f"limits has {twice[0]} twice")
    places = {"[settings]": content.get("settings", {}), f"[task.{task}]": of_task}
    for kind in ("method", "variant"):
        places |= {f"[{kind}.{name}]": specific for name, specific in content.get(kind, {}).items()}
    for place, given in places.items():
        if "cost_limit" in given:
            raise StudyError(
                f"{task} has limits, and {place} sets cost_limit: remove one of the two"
            )
    return [float(x) for x in limits]


def _general(content: dict[str, Any], task: str) -> dict[str, Any]:
    """Return the settings for all methods on a task."""
    specific = dotted(content.get("task", {}).get(task, {}))
    settings = {name: x for name, x in specific.items() if name not in (*DECLARATIONS, "limits")}
    return dotted(content.get("settings", {})) | settings


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
        given = _own(content, job.label) | _general(content, job.task)
        if methods.get(job.method).constrained and not job.swept and "cost_limit" not in given:
            without[job.task] = job
    for task, job in without.items():
        if not is_ours(task):
            warn_of_default_limit(task, task, job.declared, job.limit, stacklevel=3)


def _require_used(chosen: Iterable[str], general: dict[str, Any]) -> None:
    """Raise if a setting for all methods belongs to none of them."""
    every = {
        setting
        for name in chosen
        for printed in (False, True)
        for setting in methods.get(name).setting_names(printed)
    }
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
    """Return a task's own spelling, or the id of an environment with the module to import first."""
    return name if ":" in name and not is_ours(name) else get_task(name).name


# ---------------------------------------------------------------- the folder


def open_folder(out: Path, jobs: list[Job], source: str | Path) -> None:
    """Write the grid; raise if a run that exists was made with other settings.

    `source` is the study's file, whose text is kept, or a name for where the jobs come from.
    """
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
    content: dict[str, Any] = {"source": Path(source).name, "jobs": [record(job) for job in jobs]}
    if isinstance(source, Path):
        content["toml"] = source.read_text(encoding="utf-8")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "study.json", content)
    except OSError as error:
        raise StudyError(
            f"could not write to {out}: {error.strerror or error}; give the study another folder "
            "(--out)"
        ) from error


def record(job: Job) -> dict[str, Any]:
    fields = dataclasses.asdict(job)
    optional = ("swept", "variant", "paper_defaults")
    return {name: value for name, value in fields.items() if value or name not in optional}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the settings that changed, as text."""
    changed = []
    for name in sorted(then.keys() | now.keys()):
        if name not in then:
            changed.append(f"a version without {name} (now {now[name]})")
        elif name not in now or then[name] != now[name]:
            after = f"now {now[name]}" if name in now else "now there is none"
            changed.append(f"{name} {then[name]} ({after})")
    return changed


def read_folder(out: Path) -> list[Job]:
    files.require_folder(out / "runs")
    return jobs_in(read_study(out), out / "study.json")


def jobs_in(content: dict[str, Any], path: Path) -> list[Job]:
    """Return the jobs of a study as it is written in `path`, checked."""
    check(StudyFile, content, path)
    names = {field.name for field in dataclasses.fields(Job)}
    jobs = [Job(**{k: x for k, x in job.items() if k in names}) for job in content["jobs"]]
    for at, job in enumerate(jobs):
        key = f"settings.cost_limit of {job.label} on {job.task}, seed {job.seed}"
        check(LIMIT, job.settings.get("cost_limit"), path, key)
        check(Declared, job.declared, path, f"jobs[{at}].declared")
    if len({job.name for job in jobs}) < len(jobs):
        raise files.damaged(path, "a run is there twice")
    return jobs


def read_study(out: Path) -> dict[str, Any]:
    """Return the content of study.json in a study's folder, checked."""
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


def other_run(run: Path, job: Job) -> str:
    """Return in what a folder holds another run than the job's; an empty text if in nothing."""
    if not files.is_there(run / "config.json"):
        return ""
    config = read_config(run)
    flat, environment = config["config"], config["environment"]
    pairs: dict[str, tuple[Any, Any]] = {
        name: (config[name], getattr(job, name)) for name in ("method", "seed")
    }
    pairs["task"] = environment["id"] or job.task, job.task
    for name, x in job.settings.items():
        if isinstance(x, int | float) and isinstance(flat.get(name), int | float):
            pairs[name] = flat[name], x
    texts = [f"{name} {was} (the study has {here})" for name, (was, here) in pairs.items()
             if was != here]  # fmt: skip
    summary = read_json(run / "summary.json", SummaryFile)
    own = summary.get("run")  # there is none while it is being trained
    if not texts and own is not None and own != digest_of(config, summary):
        texts = ["settings or tables that its summary was not made from"]
    return ", ".join(texts[:3])


def digest_of(config: dict[str, Any], summary: dict[str, Any]) -> str:
    """Return the digest of a finished run, as its config.json and its summary have it."""
    return run_digest(settings_of(config), summary["tables"])


def strange(run: Path, job: Job) -> str:
    """Return which result of a run is not its own, or not made as a study makes it; else ""."""
    if text := other_run(run, job):
        return f"its folder holds a run with {text}"
    own = read_json(run / "summary.json", SummaryFile).get("run")
    if own is None:  # made by a version without it
        return ""
    evaluation = read_json(run / "evaluation.json", EvaluationFile)
    if evaluation and evaluation.get("run") != own:
        return "evaluation.json is of another run, or of another time of this one"
    if evaluation and (
        evaluation.get("seed") != EVALUATION_SEED or evaluation.get("screen") is False
    ):
        return "evaluation.json was made with other scenes, or without the screen"
    measures = read_json(run / "measures.json", Measures)
    if measures and measures.get("run") != own:
        return "measures.json is of another run, or of another time of this one"
    return ""


def deployed(run: Path, job: Job) -> bool:
    evaluation = read_json(run / "evaluation.json", EvaluationFile)
    number = len(evaluation.get("episodes", []))
    return bool(evaluation) and number == job.deployment_episodes and not strange(run, job)


def measured(run: Path) -> bool:
    """Return whether the measures of the run are written, with their arrays."""
    measures = read_json(run / "measures.json", Measures)
    whole = not measures.get("arrays_sha256") or files.is_there(run / "measures.safetensors")
    return files.is_there(run / "measures.json") and whole


def lost(run: Path, job: Job) -> str:
    """Return why results that are there count as none; an empty text if they do."""
    if text := strange(run, job):
        return text
    if files.is_there(run / "measures.json") and not measured(run):
        return "measures.safetensors is missing"
    return ""


def failure(run: Path) -> Failure | None:
    """Return why the last attempt at a run failed; of one that diverged, what and when."""
    found = read_failure(run)
    if found is None or not found.diverged or found.step is None:
        return found
    text = f"{found.quantity} was not finite at step {found.step}"  # without the folder it is in
    return dataclasses.replace(found, message=text)


def done(out: Path, job: Job) -> bool:
    run = out / "runs" / job.name
    return trained(run, job) and deployed(run, job) and measured(run)
