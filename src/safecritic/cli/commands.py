"""One function per command: parse the options, call the library, print the result.

The library is imported within the commands: `tasks`, `methods` and every help need no JAX.
"""

import os
import shlex
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from rich import filesize

from safecritic.cli import options, printing
from safecritic.cli.errors import FAILED, INTERRUPTED, UsageError, stopped, unexpected
from safecritic.core.files import is_there, refuse_special

SCENES = 20  # tried for a film that does not end at once
SHORTEST_FILM = 3  # steps

TRAIN_HELP = """\
Train a method on a task. Its settings: safecritic train METHOD --help

Resume a stopped run: safecritic train --resume RUN"""


def train(arguments: list[str]) -> int:
    if "resume" in options.given_names(arguments):
        return _resume(arguments)
    if not arguments or options.wants_help(arguments[:1]):
        options.parse(options.TrainAnything, "train", ["--help"], TRAIN_HELP)
    if arguments[0].startswith("-"):
        raise UsageError(
            "name the method first: safecritic train METHOD TASK; `safecritic methods` lists them"
        )
    from safecritic.agents import methods

    method = methods.get(arguments[0])
    chosen, settings = options.parse_train(method, arguments[1:])
    printing.status("loading JAX and the task")
    from safecritic.agent_classes import agent_class
    from safecritic.api import check_steps
    from safecritic.run.loop import Intervals

    run, output = chosen.run, chosen.output
    about: dict[str, Any] = {"seed": run.seed, "paper_defaults": run.paper_defaults}
    about |= chosen.environment.declared | settings
    agent = agent_class(method.name)(chosen.task, **about)
    steps = method.steps if run.steps is None else run.steps
    check_steps(steps, steps, agent.config.warm_up)
    every = Intervals(output.log_every, output.critic_every, output.checkpoint_every)
    folder = f"{method.name}-{agent.environment['task']}-seed{run.seed}".replace("/", "-")
    out = output.out or Path("runs") / folder
    return _learn(agent, steps, out, output.overwrite, every, output.wandb, output.trackio)


def _resume(arguments: list[str]) -> int:
    chosen = options.parse(options.Resume, "train", arguments, "Resume a stopped run.")
    from safecritic.api import Agent
    from safecritic.run.folder import read_config
    from safecritic.run.loop import Intervals

    content = read_config(chosen.resume)
    if content.get("every") is None:
        raise UsageError(
            f"{chosen.resume} is a saved agent, not a run: load it in Python to train it"
        )
    agent = Agent.load(chosen.resume, trust_env=chosen.trust_env, state=chosen.state)
    agent._require_env("--resume")
    until = chosen.steps or content["steps"]
    if until > agent.num_timesteps:
        steps, every = until - agent.num_timesteps, Intervals(**content["every"])
        return _learn(agent, steps, chosen.resume, False, every, chosen.wandb, chosen.trackio)
    if chosen.state == "checkpoint" and agent._finish_folder():
        print(f"{chosen.resume} was complete but for its summary and curves: written")
        printing.print_summary(agent.summary(), chosen.resume, _trust(agent))
        return 0
    raise UsageError(
        f"{chosen.resume} already has {agent.num_timesteps:,} steps: "
        "give a larger total with --steps to train it further"
    )


def _learn(
    agent: Any,
    steps: int,
    out: Path,
    overwrite: bool,
    every: Any,
    project: str | None,
    trackio: str | None,
) -> int:
    """Train an agent for `steps` more steps in the run folder `out`; return the exit code."""
    from safecritic.run.callbacks import TrackioCallback, WandbCallback
    from safecritic.run.folder import prepare
    from safecritic.run.loop import InterruptedRun

    loggers = [WandbCallback(project)] if project else []
    callback = [*loggers, *([TrackioCallback(trackio)] if trackio else [])]
    if agent.run_folder is None:
        prepare(out, overwrite)
    logged = ["--wandb", project] if project else []
    logged += ["--trackio", trackio] if trackio else []
    resume = _line("train", "--resume", out, *logged) + _trust(agent)
    first_step = agent.num_timesteps
    print(f"{agent.method} on {agent.environment['task']}, seed {agent.seed}, in {out}")
    try:
        agent.learn(steps, callback, progress_bar=True, out=out, overwrite=overwrite, every=every)
    except InterruptedRun:
        print(f"\nstopped at step {agent.num_timesteps:,} and saved; resume with\n  {resume}")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        text = stopped(error)
        if agent.num_timesteps == first_step and text is not None:
            raise UsageError(text) from error
        print(f"error: {text or unexpected(error)}", file=sys.stderr)
        for line in ways_to_resume(agent, out, resume):
            print(f"  {line}", file=sys.stderr)
        return FAILED
    printing.print_summary(agent.summary(), out, _trust(agent))
    return 0


def _line(*words: Any) -> str:
    """Return a command as it is typed."""
    return shlex.join(["safecritic", *map(str, words)])


def _trust(agent: Any) -> str:
    """Return the flag that a command on this run needs, if it needs one."""
    from safecritic.tasks.adapter import is_ours

    known = agent.environment["id"]
    return "" if known is None or is_ours(known) else " --trust-env"


def ways_to_resume(agent: Any, out: Path, resume: str) -> list[str]:
    """Return what can be done with a run that an error has stopped."""
    from safecritic.core.files import FileError
    from safecritic.run import checkpoint

    lines = []
    with suppress(FileError, KeyError):  # there may be none yet
        step = checkpoint.load_index(out / "checkpoint")["numbers"]["step"]
        lines.append(f"resume from the last good checkpoint, step {step:,}, with {resume}")
    fault = agent.training.fault
    if fault is not None and fault.usable:
        way = f"{'or' if lines else 'resume'} from the moment of the error, step {fault.step:,}, "
        lines.append(f"{way}with {resume} --state failed")
    return lines or [
        "nothing can be resumed: there was no checkpoint yet (--checkpoint-every); start again "
        "with --overwrite"
    ]


def evaluate(arguments: list[str]) -> int:
    chosen = options.parse(options.Evaluate, "evaluate", arguments)
    from safecritic.evaluate.critic_figure import draw_critic

    agent = _load(chosen)
    if chosen.no_screen and not getattr(agent.config, "screen", None):
        raise UsageError(f"{agent.method} has no screen here to switch off (--no-screen)")
    name = "evaluation-no-screen.json" if chosen.no_screen else "evaluation.json"
    target = chosen.json or chosen.run / name
    refuse_special(target)  # before the episodes take their time
    printing.status(f"{chosen.episodes} episodes")
    evaluation = agent.evaluate(chosen.episodes, chosen.seed, screen=not chosen.no_screen)
    printing.print_evaluation(evaluation, agent)
    evaluation.save(target)
    about = f"{agent.method} on {agent.environment['task']}"
    title = f"{about}: the safety critic, {chosen.episodes} episodes"
    figure = draw_critic(evaluation, agent.config.gamma, title, target.with_suffix(".png"))
    print(f"written to {target}" + (f" and {figure}" if figure else ""))
    return 0


def _load(chosen: Any) -> Any:
    """Return the agent of the run that a command names."""
    printing.status("loading JAX and the run")
    from safecritic.api import Agent

    return Agent.load(chosen.run, trust_env=chosen.trust_env, state=chosen.state)


def export(arguments: list[str]) -> int:
    chosen = options.parse(options.Export, "export", arguments)
    from safecritic.deploy.export import prepare_with_certificate, write

    target = chosen.out or chosen.run / "policy.safecritic"
    fallback: Any = chosen.fallback
    with suppress(ValueError):  # no numbers: the contract says what it must be
        fallback = [float(word) for word in chosen.fallback.split(",")]
    exported, certificate, note = prepare_with_certificate(
        _load(chosen),
        chosen.run / "certificate.json",
        tolerance=chosen.tolerance,
        fallback=fallback,
        period=chosen.period,
        onnx=not chosen.no_onnx,
    )
    write(target, exported, certificate)
    printing.print_export(exported.contract, exported.difference)
    print(note)
    print(f"written to {target} ({filesize.decimal(target.stat().st_size)})")
    return 0


CERTIFY_HELP = """\
Bound what the next episode of a trained policy costs, from fresh episodes.

Any policy: safecritic certify --policy MODULE:FUNCTION --env ENV

Check a certificate or a policy file: safecritic certify --check FILE"""


def certify(arguments: list[str]) -> int:
    given = options.given_names(arguments)
    if "check" in given:
        return _check_certificate(arguments)
    if "policy" in given:
        return _certify_policy(arguments)
    chosen = options.parse(options.Certify, "certify", arguments, CERTIFY_HELP)
    from safecritic.deploy.certificate import LEDGER, certify

    target = chosen.out or chosen.run / "certificate.json"
    refuse_special(target)  # before the episodes take their time
    agent = _load(chosen)
    with printing.progress("episodes") as advance:
        certificate = certify(
            agent,
            episodes=chosen.episodes,
            confidence=chosen.confidence,
            seed=chosen.seed,
            tolerance=chosen.tolerance,
            choose_tolerance=chosen.choose_tolerance,
            onnx=not chosen.no_onnx and _has_ndonnx(),
            ledger=chosen.run / LEDGER,
            advance=advance,
        )
    _write_certificate(certificate, target, chosen.sign)
    print(f"`{_line('export', chosen.run)}` includes it")
    return 0


def _has_ndonnx() -> bool:
    from importlib.util import find_spec

    return find_spec("ndonnx") is not None


def _write_certificate(certificate: dict[str, Any], target: Path, key: Path | None) -> None:
    from safecritic.deploy.certificate import sign
    from safecritic.run.folder import write_json

    if key is not None:
        certificate = sign(certificate, key)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, certificate)
    printing.print_certificate(certificate)
    print(f"written to {target}; check it with `{_line('certify', '--check', target)}`")


def _certify_policy(arguments: list[str]) -> int:
    chosen = options.parse(options.CertifyPolicy, "certify", arguments, CERTIFY_HELP)
    from safecritic.deploy.certificate import LEDGER, certify_function, function_of

    refuse_special(chosen.out)
    function, sha256 = function_of(chosen.policy)
    limit = chosen.cost_limit
    if limit is None:
        from safecritic.tasks import registry

        task = registry.find(chosen.env)
        if task is None:
            raise UsageError(f"{chosen.env} has no cost limit of its own: give --cost-limit")
        limit = task.cost_limit
    with printing.progress("episodes") as advance:
        certificate = certify_function(
            function,
            chosen.env,
            cost_limit=limit,
            name=chosen.policy,
            sha256=sha256,
            episodes=chosen.episodes,
            confidence=chosen.confidence,
            seed=chosen.seed,
            ledger=chosen.out.parent / LEDGER,
            advance=advance,
            **chosen.environment.declared,
        )
    _write_certificate(certificate, chosen.out, chosen.sign)
    return 0


def _check_certificate(arguments: list[str]) -> int:
    chosen = options.parse(options.CheckCertificate, "certify", arguments, CERTIFY_HELP)
    from safecritic.deploy.certificate import check_file

    def load_agent(run: Path) -> Any:
        from safecritic.api import Agent

        return Agent.load(run, trust_env=chosen.trust_env)

    with printing.progress("episodes") as advance:
        certificate, done = check_file(chosen.check, load_agent, chosen.replay, chosen.key, advance)
    printing.print_certificate(certificate)
    for text in done:
        print(f"checked: {text}")
    return 0


def show(arguments: list[str]) -> int:
    chosen = options.parse(options.Show, "show", arguments)
    printing.status("loading JAX and the run")
    from safecritic.run.curves import draw_curves
    from safecritic.tasks.drawing import beside, real_time, save_film

    if is_there(chosen.run / "episodes.csv"):
        print(draw_curves(chosen.run))
    films = [_Film(run, chosen) for run in (chosen.run, *chosen.beside)]
    first = films[0]
    for film in films:
        if film.task != first.task:
            raise UsageError(
                f"{film.run} was trained on {film.task}, {first.run} on {first.task}: only runs "
                "of one task have the same scenes (--beside)"
            )
    kind = "-".join(["beside"] * (len(films) > 1) + ["map"] * chosen.map) or "episode"
    seed = chosen.seed
    for number in range(chosen.episodes):
        path = chosen.run / f"{kind}-{number}.{chosen.format}"
        refuse_special(path)
        for _ in range(SCENES):
            if not first.ends_at_once(seed):
                break
            print(f"the scene of seed {seed} ends at once: the next one is filmed instead")
            seed += 1
        printing.status(f"filming the scene of seed {seed}")
        frames = beside([film.frames(seed, titled=len(films) > 1) for film in films])
        save_film(frames, path, real_time(first.env, chosen.every))
        print(f"{path} ({filesize.decimal(path.stat().st_size)})")
        seed += 1
    return 0


class _Film:
    """A run to film: its agent, an environment, and its critic where the map is asked for."""

    def __init__(self, run: Path, chosen: options.Show):
        from safecritic.api import Agent, make_again
        from safecritic.evaluate.cost_map import has_maps, shade_of
        from safecritic.evaluate.critic import Critic

        self.run, self.chosen = run, chosen
        self.agent = Agent.load(run, trust_env=chosen.trust_env, state=chosen.state)
        self.task = self.agent.environment["task"]
        self.agent._require_env("show")
        self.env, _ = make_again(self.agent.environment)
        if not hasattr(self.env.unwrapped, "draw"):
            raise UsageError(f"{self.task} cannot be drawn: only curves were made")
        if chosen.map and not has_maps(self.env):
            raise UsageError(
                f"{self.task} has no map: only tasks on the floor with lidars have (--map)"
            )
        critic = Critic.of(self.agent) if chosen.map else None
        self.shade = None if critic is None else shade_of(critic)

    def ends_at_once(self, seed: int) -> bool:
        from safecritic.run.rollout import Rollout

        rollout = Rollout(self.env)
        rollout.reset(seed=seed)
        steps = islice(rollout.play(self.agent.policy()), SHORTEST_FILM)
        return any(step.ended for step in steps)

    def frames(self, seed: int, titled: bool) -> list[Any]:
        from safecritic.agents import methods
        from safecritic.evaluate.films import record_episode

        return record_episode(
            *(self.env, self.agent.policy(), None, seed),
            every=self.chosen.every if self.chosen.format != "png" else 10**9,
            size=self.chosen.size,
            action_repeat=self.agent.config.action_repeat,
            title=f"{methods.get(self.agent.method).title}   " if titled else "",
            shade=self.shade,
        )


def push(arguments: list[str]) -> int:
    chosen = options.parse(options.Push, "push", arguments)
    from safecritic.deploy.hub import push

    print(f"pushed to {push(chosen.policy, chosen.target)}")
    return 0


def pull(arguments: list[str]) -> int:
    chosen = options.parse(options.Pull, "pull", arguments)
    from safecritic.deploy.hub import pull
    from safecritic.runtime.certificate import statement
    from safecritic.runtime.file import read

    path = pull(chosen.source, chosen.out)
    contract, _, _, certificate = read(path)
    printing.print_export(contract, None)
    print(statement(certificate) if certificate else "no certificate")
    print(f"written to {path}, every byte checked")
    return 0


def dial(arguments: list[str]) -> int:
    chosen = options.parse(options.Dial, "dial", arguments)
    from safecritic.core.files import make_folder
    from safecritic.evaluate.dial import dial

    agent = _load(chosen)
    about = {"episodes": chosen.episodes, "seed": chosen.seed, "limits": chosen.limits}
    with printing.progress("episodes") as advance:
        found = dial(agent, advance=advance, **about)
    printing.print_dial(found)
    folder = make_folder(chosen.out or chosen.run)
    found.save(folder / "dial.json")
    print(f"written to {found.draw(folder / 'dial.png')} and {folder / 'dial.json'}")
    print(f"then: {_line('certify', chosen.run, '--tolerance', 'NUMBER')}, in other scenes")
    return 0


def limits(arguments: list[str]) -> int:
    chosen = options.parse(options.Limits, "limits", arguments)
    printing.status("loading JAX and the task")
    from safecritic.api import check_steps
    from safecritic.core.files import make_folder
    from safecritic.study.limits import limits

    check_steps(chosen.steps, chosen.steps, 1)
    about = {"steps": chosen.steps, "episodes": chosen.episodes, "seed": chosen.seed}
    declared = chosen.environment.declared
    found = limits(chosen.task, say=print, progress_bar=True, **about, **declared)
    printing.print_limits(found)
    folder = make_folder(chosen.out or Path("limits") / found.task.replace("/", "-"))
    found.save(folder / "limits.json")
    print(f"written to {found.draw(folder / 'limits.png')} and {folder / 'limits.json'}")
    return 0


def explore(arguments: list[str]) -> int:
    chosen = options.parse(options.Explore, "explore", arguments)
    if not chosen.runs:
        raise UsageError("name a run: safecritic explore RUN")
    printing.status("loading JAX and the runs")
    from safecritic.api import Agent
    from safecritic.report import explorer

    target = chosen.out or chosen.runs[0] / "explorer.html"
    refuse_special(target)
    agents = [
        Agent.load(run, trust_env=chosen.trust_env, state=chosen.state) for run in chosen.runs
    ]
    for agent in agents:
        agent._require_env("explore")
    printing.status(f"{chosen.episodes} episodes of each run")
    explorer.write(agents, target, chosen.episodes, chosen.seed)
    size = filesize.decimal(target.stat().st_size)
    print(f"{target} ({size}): one file, to open in a browser or to send")
    return 0


def study(arguments: list[str]) -> int:
    chosen = options.parse(options.Study, "study", arguments)
    from safecritic.core.files import printable
    from safecritic.run.folder import read_json
    from safecritic.run.records import SummaryFile
    from safecritic.study import driver, grid, ray
    from safecritic.study.pack import results_of, reuse

    path = grid.find(chosen.file)
    jobs = grid.read(path)
    if chosen.workers < 0:
        raise UsageError(f"workers must be >= 0, got {chosen.workers} (--workers)")
    out = chosen.out or Path("studies") / path.stem
    print(f"{len(jobs)} runs of {path.name}, in {out}")
    cluster = [] if chosen.ray is None else ["--ray", chosen.ray]
    cells = ["--only", *chosen.only] if chosen.only else []
    again = _line("study", chosen.file, "--out", out, *cluster, *cells)
    wanted = grid.only(jobs, chosen.only)
    if chosen.only:
        print(f"{len(wanted)} of them chosen: {', '.join(chosen.only)}")
    if chosen.reuse:
        taken = reuse(out, jobs, path, chosen.reuse)
        print(f"{len(taken)} of them taken from {', '.join(map(str, chosen.reuse))}")
    for job in wanted:
        if text := grid.lost(out / "runs" / job.name, job):
            print(f"made again: {job.name}: {text}")
    if before := sum(run.done for run in results_of(out, wanted).values()):
        print(f"{before} of {len(wanted)} runs are done already")
    try:
        with printing.study_progress() as show_runs:
            if chosen.ray is None:
                runs = driver.run(out, jobs, path, chosen.workers, show_runs, wanted)
            else:
                runs = ray.run(out, jobs, path, chosen.ray, show_runs, wanted)
    except KeyboardInterrupt:
        print(f"\nstopped; the runs are saved. Resume with\n  {again}")
        return INTERRUPTED
    for run in runs:
        summary = read_json(out / "runs" / run.job.name / "summary.json", SummaryFile)
        for text in summary.get("warnings") or []:
            print(f"warning: {run.job.name}: {printable(text)}", file=sys.stderr)
    failed = [run for run in runs if run.state == "failed"]
    for run in failed:
        print(f"failed: {run.job.name}: {run.error}", file=sys.stderr)
        print(f"  traceback: {out / 'runs' / run.job.name / 'error.txt'}", file=sys.stderr)
    printing.print_study(out)
    print(f"{len(runs) - len(failed)} of {len(runs)} runs are done")
    if failed:
        print(f"try the failed ones again: {again}")
    print(f"make a page of it: {_line('report', out)}")
    return FAILED if failed else 0


def pack(arguments: list[str]) -> int:
    chosen = options.parse(options.Pack, "pack", arguments)
    from safecritic.study.pack import pack

    packed = pack(chosen.study, chosen.out)
    size = filesize.decimal(packed.bytes)
    print(f"{packed.done} of {packed.total} runs in {chosen.out}, {packed.new} of them new, {size}")
    return 0


def report(arguments: list[str]) -> int:
    chosen = options.parse(options.Report, "report", arguments)
    printing.status("reading the study")
    from safecritic.report.build import build, build_page

    if chosen.page is None:
        page = build(chosen.study, chosen.out)
        print(f"{page}: open it in a browser; its tables are beside it as CSV")
        return 0
    if chosen.out is not None:
        raise UsageError("give either a folder (--out) or a file for the page (--page)")
    size = filesize.decimal(build_page(chosen.study, chosen.page).stat().st_size)
    print(f"{chosen.page} ({size}): one file, to open in a browser or to send")
    return 0


def tasks(arguments: list[str]) -> int:
    chosen = options.parse(options.Tasks, "tasks", arguments)
    declared = chosen.environment.declared
    if declared and not chosen.env:
        raise UsageError(f"{options.flag(next(iter(declared)))} describes an environment: name it")
    from safecritic.tasks import TASKS, describe

    if chosen.env:
        print(describe(chosen.env, **declared))
        return 0
    names: dict[tuple[str, str, str], str] = {}  # of robots with the same task: one row
    for t in TASKS.values():
        about = (t.summary, t.cost, "-" if t.cost == "none" else f"{t.cost_limit:g}")
        names[about] = f"{names[about]}\n{t.name}" if about in names else t.name
    rows = [(name, *about) for about, name in names.items()]
    printing.print_table(("task", "what to do", "cost", "limit"), rows)
    print("Any Gymnasium environment that reports a cost works as well, by its id.")
    print("What is understood of a task or an environment: safecritic tasks ENV")
    return 0


def methods(arguments: list[str]) -> int:
    options.parse(options.Nothing, "methods", arguments)
    from safecritic.agents.methods import METHODS

    rows = [(m.name, m.title, m.summary) for m in METHODS.values()]
    printing.print_table(("method", "paper's name", "what it is"), rows)
    print("The settings of a method: safecritic train METHOD --help")
    return 0
