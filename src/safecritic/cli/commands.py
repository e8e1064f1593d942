"""One function per command: parse the options, call the library, print the result.

The library is imported within the commands: `tasks` and `methods` need no JAX.
"""

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from safecritic.cli import options, printing
from safecritic.cli.errors import FAILED, INTERRUPTED, UsageError, explained, unexpected_text
from safecritic.files import is_there, refuse_special

SCENES = 20  # tried for a film that does not end at once
SHORTEST_FILM = 3  # steps

TRAIN_HELP = """\
Train a method on a task. Its settings: safecritic train METHOD --help

Resume a stopped run: safecritic train --resume RUN"""


def train(arguments: list[str]) -> int:
    """Train a method on a task, or resume a run."""
    if "resume" in options.given_flags(arguments):
        return _resume(arguments)
    if not arguments or options.wants_help(arguments[:1]):
        options.parse(options.Train, "train", ["--help"], TRAIN_HELP)
    if arguments[0].startswith("-"):
        raise UsageError(
            "name the method first: safecritic train METHOD TASK; `safecritic methods` lists them"
        )
    from safecritic import methods

    with explained():
        method = methods.get(arguments[0])
        task, run, declared, output, settings = options.parse_train(method, arguments[1:])
    printing.status("loading JAX and the task")
    from safecritic.agent_classes import agent_class
    from safecritic.api import check_steps
    from safecritic.run.loop import Intervals

    with explained():
        name, paper = options.task_name(task), run.paper_defaults
        config = methods.make_config(method.name, name, paper, **settings)
        check_steps(run.steps, run.steps, config.warm_up)
        agent = agent_class(method.name)(
            task, seed=run.seed, paper_defaults=paper, **declared, **settings
        )
        every = Intervals(output.log_every, output.critic_every, output.checkpoint_every)
    folder = f"{method.name}-{agent.environment['task']}-seed{run.seed}".replace("/", "-")
    out = output.out or Path("runs") / folder
    return _learn(agent, run.steps, out, output.overwrite, every, output.wandb)


def _resume(arguments: list[str]) -> int:
    chosen = options.parse(options.Resume, "train", arguments, "Resume a stopped run.")
    from safecritic.api import Agent
    from safecritic.run.folder import read_config
    from safecritic.run.loop import Intervals

    with explained():
        content = read_config(chosen.resume)
        if "every" not in content:
            raise UsageError(
                f"{chosen.resume} is a saved agent, not a run: load it in Python to train it"
            )
        agent = Agent.load(chosen.resume, trust_env=chosen.trust_env, state=chosen.state)
        agent._require_env("--resume")
        until = chosen.steps or content["steps"]
        if until <= agent.num_timesteps:
            if chosen.state == "checkpoint" and agent.finish_folder():
                print(f"{chosen.resume} had its steps, but not its summary and curves: written")
                printing.print_summary(agent.summary(), chosen.resume, _trust(agent))
                return 0
            raise UsageError(
                f"{chosen.resume} already has {agent.num_timesteps} steps: "
                "give a larger total with --steps to resume it"
            )
    steps = until - agent.num_timesteps
    every = Intervals(**content["every"])
    return _learn(agent, steps, chosen.resume, False, every, chosen.wandb)


def _learn(
    agent: Any, steps: int, out: Path, overwrite: bool, every: Any, project: str | None
) -> int:
    """Train an agent for `steps` more steps in the run folder `out`; return the exit code."""
    from safecritic.files import FileError
    from safecritic.run.callbacks import WandbCallback, WandbError
    from safecritic.run.folder import prepare
    from safecritic.run.loop import InterruptedRun, RunStopped
    from safecritic.run.rollouts import WorkerError

    foreseen = (RunStopped, FileError, WandbError, WorkerError)
    with explained():
        callback = None if project is None else WandbCallback(project)
        if agent.run_folder is None:
            prepare(out, overwrite)
    resume = f"safecritic train --resume {shlex.quote(str(out))}"
    if project is not None:
        resume += f" --wandb {shlex.quote(project)}"
    resume += _trust(agent)
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
        if agent.num_timesteps == first_step and isinstance(error, foreseen):
            raise UsageError(str(error)) from error
        text = str(error) if isinstance(error, foreseen) else unexpected_text(error)
        print(f"error: {text}", file=sys.stderr)
        for line in ways_to_resume(agent, out, resume):
            print(f"  {line}", file=sys.stderr)
        return FAILED
    printing.print_summary(agent.summary(), out, _trust(agent))
    return 0


def _trust(agent: Any) -> str:
    """Return the flag that a command on this run needs, if it needs one."""
    from safecritic.tasks.adapter import is_ours

    known = agent.environment["id"]
    return "" if known is None or is_ours(known) else " --trust-env"


def ways_to_resume(agent: Any, out: Path, resume: str) -> list[str]:
    """Return what can be done with a run that an error has stopped."""
    from safecritic.files import FileError
    from safecritic.run import checkpoint

    lines = []
    try:
        step = checkpoint.load_index(out / "checkpoint")["numbers"]["step"]
        lines.append(f"resume from the last good checkpoint, step {step:,}, with {resume}")
    except (FileError, KeyError):
        pass  # there is none yet
    fault = agent.training.fault
    if fault is not None and fault.usable:
        lines.append(
            f"{'or' if lines else 'resume'} from the moment of the error, step {fault.step:,}, "
            f"with {resume} --state failed"
        )
    return lines or [
        "nothing can be resumed: there was no checkpoint yet (--checkpoint-every); start again "
        "with --overwrite"
    ]


def evaluate(arguments: list[str]) -> int:
    """Evaluate a trained policy without exploration; write a table, a JSON file and a figure."""
    chosen = options.parse(options.Evaluate, "evaluate", arguments)
    from safecritic.api import Agent
    from safecritic.evaluation.critic_figure import draw_critic

    with explained():
        agent = Agent.load(chosen.run, trust_env=chosen.trust_env, state=chosen.state)
        if chosen.no_screen and getattr(agent.config, "screen", None) is None:
            raise UsageError(f"{agent.method} has no screen here to switch off (--no-screen)")
        name = "evaluation-no-screen.json" if chosen.no_screen else "evaluation.json"
        target = chosen.json or chosen.run / name
        refuse_special(target)  # before the episodes take their time
        evaluation = agent.evaluate(chosen.episodes, chosen.seed, screen=not chosen.no_screen)
        printing.print_evaluation(evaluation, agent)
        evaluation.save(target)
        task = agent.environment["task"]
        title = f"{agent.method} on {task}: the safety critic, {chosen.episodes} episodes"
        picture = target.with_name(f"{target.stem}.png")
        figure = draw_critic(evaluation, agent.config.gamma, title, picture)
    print(f"written to {target}" + (f" and {figure}" if figure else ""))
    return 0


def export(arguments: list[str]) -> int:
    """Write the deployed policy of a run to one file."""
    chosen = options.parse(options.Export, "export", arguments)
    from safecritic.api import Agent
    from safecritic.deploy import c_header
    from safecritic.deploy.export import prepare_with_certificate, write

    target = chosen.out or chosen.run / "policy.safecritic"
    with explained():
        fallback: Any = chosen.fallback
        with suppress(ValueError):  # no numbers: the contract says what it must be
            fallback = [float(word) for word in chosen.fallback.split(",")]
        agent = Agent.load(chosen.run, trust_env=chosen.trust_env, state=chosen.state)
        exported, certificate, note = prepare_with_certificate(
            agent,
            chosen.run / "certificate.json",
            tolerance=chosen.tolerance,
            fallback=fallback,
            period=chosen.period,
            onnx=not chosen.no_onnx,
        )
        write(target, exported, certificate)
        if chosen.c is not None:
            c_header.write(chosen.c, exported)
    printing.print_export(exported.contract, exported.difference)
    print(note)
    print(f"written to {target}" + (f" and {chosen.c}" if chosen.c is not None else ""))
    return 0


def certify(arguments: list[str]) -> int:
    """Certify what the next episode of a trained policy may cost."""
    chosen = options.parse(options.Certify, "certify", arguments)
    from safecritic.api import Agent
    from safecritic.deploy.certificate import certify
    from safecritic.run.folder import write_json

    with explained(), printing.progress("episodes") as advance:
        certificate = certify(
            Agent.load(chosen.run, trust_env=chosen.trust_env, state=chosen.state),
            episodes=chosen.episodes,
            confidence=chosen.confidence,
            seed=chosen.seed,
            tolerance=chosen.tolerance,
            choose_tolerance=chosen.choose_tolerance,
            advance=advance,
        )
    target = chosen.out or chosen.run / "certificate.json"
    write_json(target, certificate)
    printing.print_certificate(certificate)
    print(f"written to {target}; `safecritic export {shlex.quote(str(chosen.run))}` includes it")
    return 0


def show(arguments: list[str]) -> int:
    """Film episodes of a trained policy from above and plot its learning curves."""
    chosen = options.parse(options.Show, "show", arguments)
    from safecritic.run.curves import draw_curves

    with explained():
        first = _Filmed(chosen.run, chosen)
        if is_there(chosen.run / "episodes.csv"):
            print(draw_curves(chosen.run))
        first.open()
        others = [_Filmed(run, chosen) for run in chosen.beside]
        for other in others:
            other.open()
            if other.task != first.task:
                raise UsageError(
                    f"{other.run} was trained on {other.task}, {chosen.run} on {first.task}: only "
                    "runs of one task have the same scenes (--beside)"
                )
        films = [first, *others]
        from safecritic.tasks.drawing import beside, real_time, save_film

        seed = chosen.seed
        for number in range(chosen.episodes):
            path = chosen.run / f"{'beside' if others else 'episode'}-{number}.{chosen.format}"
            refuse_special(path)
            for _ in range(SCENES):
                if not _ends_at_once(first.env, first.agent.policy(seed=seed), seed):
                    break
                print(f"the scene of seed {seed} ends at once: the next one is filmed instead")
                seed += 1
            frames = beside([one.film(seed, titled=bool(others)) for one in films])
            save_film(frames, path, real_time(first.env, chosen.every))
            print(path)
            seed += 1
    return 0


class _Filmed:
    """A run that `show` films."""

    def __init__(self, run: Path, chosen: options.Show):
        from safecritic.api import Agent

        self.run, self.chosen = run, chosen
        self.agent = Agent.load(run, trust_env=chosen.trust_env, state=chosen.state)
        self.task = self.agent.environment["task"]

    def open(self) -> None:
        """Make the environment, and the critic where its map is asked for."""
        from safecritic.api import make_again
        from safecritic.evaluation.cost_map import has_maps
        from safecritic.evaluation.critic import Critic

        if self.agent.environment["id"] is None:
            raise UsageError(
                f"{self.run} was trained on an environment without an id, "
                "which cannot be made again: film it in Python"
            )
        self.agent._require_env("show")
        self.env, _ = make_again(self.agent.environment)
        if not hasattr(self.env.unwrapped, "draw"):
            raise UsageError(f"{self.task} cannot be drawn: only curves were made")
        if self.chosen.map and not has_maps(self.env):
            raise UsageError(f"{self.task} has no map: only the car tasks have (--map)")
        self.critic = Critic.of(self.agent) if self.chosen.map else None

    def film(self, seed: int, titled: bool) -> list[Any]:
        """Return the frames of an episode."""
        from safecritic import methods
        from safecritic.evaluation.cost_map import shade_of
        from safecritic.tasks.drawing import record_episode

        return record_episode(
            *(self.env, self.agent.policy(seed=seed), None, seed),
            every=self.chosen.every if self.chosen.format != "png" else 10**9,
            size=self.chosen.size,
            action_repeat=self.agent.config.action_repeat,
            title=f"{methods.get(self.agent.method).title}   " if titled else "",
            shade=None if self.critic is None else shade_of(self.critic),
        )


def _ends_at_once(env: Any, policy: Any, seed: int) -> bool:
    """Return whether an episode ends in its first steps, too soon for a film."""
    obs, _ = env.reset(seed=seed)
    action = policy(obs)
    for _ in range(SHORTEST_FILM):
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return True
    return False


def study(arguments: list[str]) -> int:
    """Run the grid of a study file, or what is left of it; print its table."""
    chosen = options.parse(options.Study, "study", arguments)
    from safecritic.files import printable
    from safecritic.run.folder import read_json
    from safecritic.run.records import SummaryFile
    from safecritic.study import driver, grid, ray

    with explained():
        path = grid.find(chosen.file)
        jobs = grid.read(path)
        if chosen.workers < 0:
            raise UsageError(f"workers must be >= 0, got {chosen.workers} (--workers)")
        out = chosen.out or Path("studies") / path.stem
        table = printing.StudyTable(len(jobs))
        print(f"{len(jobs)} runs of {path.name}, in {out}")
        again = f"safecritic study {shlex.quote(str(chosen.file))} --out {shlex.quote(str(out))}"
        if chosen.ray is not None:
            again += f" --ray {shlex.quote(chosen.ray)}"
        if chosen.reuse:
            from safecritic.study.pack import reuse

            taken = reuse(out, jobs, path.name, chosen.reuse)
            print(f"{len(taken)} of them taken from {', '.join(map(str, chosen.reuse))}")
        if before := sum(grid.done(out, job) for job in jobs):
            print(f"{before} of {len(jobs)} runs are done already")
        try:
            with table:
                if chosen.ray is None:
                    runs = driver.run(out, jobs, path.name, chosen.workers, table.show)
                else:
                    runs = ray.run(out, jobs, path.name, chosen.ray, table.show)
        except KeyboardInterrupt:
            print(f"\nstopped; the runs are saved. Resume with\n  {again}")
            return INTERRUPTED
    failed = [run for run in runs if run.state == "failed"]
    with explained():
        for run in runs:
            summary = read_json(out / "runs" / run.job.name / "summary.json", SummaryFile)
            for text in summary.get("warnings") or []:
                print(f"warning: {run.job.name}: {printable(text)}", file=sys.stderr)
    for run in failed:
        print(f"failed: {run.job.name}: {run.error}", file=sys.stderr)
        print(f"  traceback: {out / 'runs' / run.job.name / 'error.txt'}", file=sys.stderr)
    with explained():
        printing.print_study(out)
    print(f"{len(runs) - len(failed)} of {len(runs)} runs are done")
    print(f"make a page of it: safecritic report {shlex.quote(str(out))}")
    return FAILED if failed else 0


def pack(arguments: list[str]) -> int:
    """Copy the results of a study's finished runs, without checkpoints and events."""
    chosen = options.parse(options.Pack, "pack", arguments)
    from safecritic.study.pack import pack

    with explained():
        packed = pack(chosen.study, chosen.out)
    size = f"{packed.bytes / 1e6:.1f} MB"
    print(f"{packed.done} of {packed.total} runs in {chosen.out}, {packed.new} of them new, {size}")
    return 0


def report(arguments: list[str]) -> int:
    """Build a page of tables and figures of a study."""
    chosen = options.parse(options.Report, "report", arguments)
    from safecritic.report.build import build, build_page

    if chosen.page is not None:
        with explained():
            if chosen.out is not None:
                raise UsageError("give either a folder (--out) or a file for the page (--page)")
            build_page(chosen.study, chosen.page)
        size = f"{chosen.page.stat().st_size / 1e6:.1f} MB"
        print(f"{chosen.page}: open it in a browser, or send it: it is whole ({size})")
        return 0
    with explained(), printing.progress("figures") as advance:
        page = build(chosen.study, chosen.out, advance)
    print(f"{page}: open it in a browser; tables and figures are beside it")
    return 0


def tasks(arguments: list[str]) -> int:
    """List the tasks, or describe one, or any environment."""
    chosen = options.parse(options.Tasks, "tasks", arguments)
    declared = options.given_declarations(chosen.environment)
    if declared and not chosen.env:
        raise UsageError(f"{options.flag(next(iter(declared)))} describes an environment: name it")
    from safecritic.tasks import TASKS, describe

    if chosen.env:
        with explained():
            print(describe(chosen.env, **declared))
        return 0
    rows = [(t.name, t.summary, t.cost, f"{t.cost_limit:g}") for t in TASKS.values()]
    printing.print_table(("task", "what to do", "cost", "limit"), rows)
    print("Any Gymnasium environment that reports a cost works as well, by its id.")
    print("What is understood of a task or an environment: safecritic tasks ENV")
    return 0


def methods(arguments: list[str]) -> int:
    """List the methods."""
    options.parse(options.Nothing, "methods", arguments)
    from safecritic.methods import METHODS

    rows = [(m.name, m.title, m.summary) for m in METHODS.values()]
    printing.print_table(("method", "paper's name", "what it is"), rows)
    print("The settings of a method: safecritic train METHOD --help")
    return 0
