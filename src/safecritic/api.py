"""Agents in Python, with the method names and conventions of Stable-Baselines3.

    from safecritic import USC

    agent = USC("CarGoal1", cost_limit=1.0, seed=0)
    agent.learn(total_timesteps=40_000, progress_bar=True)
    action, _ = agent.predict(obs)
    print(agent.evaluate(episodes=10).means["cost"])
    agent.save("my-agent")
    agent = USC.load("my-agent")

`env` is the name of a task ("CarGoal1"), the id of any registered environment, or a Gymnasium
environment that reports a cost; see `safecritic.tasks.adapt`, whose declarations (`cost_key`,
`no_cost`, `success_key`, `closeness`) are keywords here too. Every setting of the method is a
keyword.
"""

import functools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from safecritic import files, methods
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import flatten, replace
from safecritic.evaluation.critic_quality import episode_critic_quality
from safecritic.evaluation.evaluate import Evaluation, Policy, escape_of, evaluate
from safecritic.run import checkpoint, records
from safecritic.run.callbacks import Progress, as_callback
from safecritic.run.compiled import compile_agent
from safecritic.run.curves import draw_curves
from safecritic.run.episode import ACT_COLUMNS
from safecritic.run.folder import (
    RunFolder,
    RunFolderError,
    prepare,
    read_config,
    read_json,
    read_table,
    settings_of,
    versions,
    write_json,
)
from safecritic.run.loop import InterruptedRun, Intervals, Loop, NotFiniteError
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.run.on_policy import OnPolicyTraining
from safecritic.run.processes import memory
from safecritic.run.restored import first_unusable
from safecritic.run.watch import RunWarning, warn_of_default_limit
from safecritic.tasks.adapter import (
    COST_SOURCES,
    DECLARATIONS,
    Adapted,
    closeness_of,
    declared_of,
    is_ours,
    make_again,
    make_env,
    scale_action,
)
from safecritic.tasks.repeat import RepeatAction, repeat_action

EVALUATION_SEED = 10_000  # far from the seeds people train with
STATES = ("checkpoint", "previous", "failed")
# settings by which a program is repeated when it is traced: a file must not make that endless
UNROLLED = {"n_step": 1_000, "safety_n_step": 1_000, "safety_critics": 100}
RECORDS = 256 * 2**20  # bytes that the records of open episodes and the simulation may take


class Agent:
    """A method on an environment; the base of the classes in `agent_classes`, one per method."""

    method: ClassVar[str]

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        **settings: Any,
    ):
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed} (--seed)")
        for name in methods.OF_THE_TASK:
            if name in settings and settings[name] is None:
                del settings[name]
        given = {name: settings.pop(name, None) for name in DECLARATIONS}
        declared = {name: x for name, x in given.items() if x is not None and x is not False}
        adapted, task = make_env(env, **declared)
        config = methods.make_config(self.method, task, paper_defaults, **settings)
        adapted = repeat_action(adapted, config.action_repeat, made_here=isinstance(env, str))
        environment = describe(env, task, adapted, config.action_repeat)
        methods.require_cost(self.method, environment["declared"])
        constrained = methods.get(self.method).constrained
        if constrained and "cost_limit" not in settings and not is_ours(task):
            # points at the line that makes the agent, past `agent_classes`
            declared = environment["declared"]
            warn_of_default_limit(env, task, declared, config.cost_limit, stacklevel=3)
        self._build(adapted, environment, config, seed)

    def _build(
        self, env: Any, environment: dict[str, Any], config: Any, seed: int, fresh: bool = True
    ) -> None:
        """Set up the training; with `fresh=False` its state is to be restored."""
        self.env, self.environment, self.config, self.seed = env, environment, config, seed
        spec = EnvSpec(**_with_tuples(environment["spec"]))
        method = methods.get(self.method)
        functions = method.load_agent()
        self.training: Loop
        if method.on_policy:
            source = (environment["id"], environment["declared"])
            self.training = OnPolicyTraining(env, functions, config, spec, seed, *source, fresh)
        else:
            self.training = OffPolicyTraining(
                env, functions, config, spec, seed, episode_critic_quality, fresh
            )
        no_cost = environment["declared"].get("no_cost", False)
        # the costs of our own tasks are known to be right, however rare
        self.training.watch.expects_cost = not (no_cost or is_ours(environment["task"]))
        self.run_folder: Path | None = None  # the run folder this agent writes to
        self._tables: dict[str, Any] | None = None  # what to cut its tables to on resume
        self._recorded = environment  # as config.json has it
        self._saved_settings: dict[str, Any] | None = None  # of the checkpoint in `run_folder`
        self._policies: dict[bool, tuple[int, Policy]] = {}  # of `predict`, and their step
        self.notes: list[str] = []  # what could not be restored, and other versions
        self._unsaid: list[str] = []  # notes that matter when it learns on

    @property
    def num_timesteps(self) -> int:
        """Environment steps taken so far."""
        return self.training.step

    @property
    def recent_episodes(self) -> list[dict[str, float]]:
        """Rows of the last 100 training episodes, as in episodes.csv."""
        return list(self.training.window)

    def __repr__(self) -> str:
        if not hasattr(self, "training"):  # `__init__` raised, and a debugger shows its frame
            return super().__repr__()
        headline, means = self._shown()
        values = ", ".join(f"{name} {value}" for name, value in means.items())
        window = _counted(len(self.recent_episodes), "episode")
        return f"<{headline}\n last {window}: {values}>" if means else f"<{headline}>"

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        headline, means = self._shown()
        names = "".join(f"<th>{escape(name)}</th>" for name in means)
        values = "".join(f"<td>{escape(value)}</td>" for value in means.values())
        window = _counted(len(self.recent_episodes), "episode")
        rows = f"<tr><th></th>{names}</tr><tr><th>last {window}</th>{values}</tr>" if means else ""
        return f"<table><caption>{escape(headline)}</caption>{rows}</table>"

    def _shown(self) -> tuple[str, dict[str, str]]:
        """Return a headline and the means over the last episodes, as text."""
        steps = _counted(self.num_timesteps, "step")
        episodes = _counted(self.training.episodes, "episode")
        name, task = type(self).__name__, self.environment["task"]
        headline = f"{name} on {task}, seed {self.seed}: {steps}, {episodes}"
        means = self._recent_means("reward", "cost", "success")
        texts = {name: f"{value:,.2f}" for name, value in means.items() if value is not None}
        if means["cost"] is not None:
            texts["cost"] += f" (limit {self.config.cost_limit:g})"
        if means["success"] is not None:
            texts["success"] = f"{means['success']:.0%}"
        return headline, texts

    def _recent_means(self, *names: str) -> dict[str, float | None]:
        """Return means over the last 100 episodes; None where no episode knows the quantity."""
        means: dict[str, float | None] = {}
        for name in names:
            known = [row[name] for row in self.recent_episodes if not math.isnan(row[name])]
            means[name] = sum(known) / len(known) if known else None
        return means

    # ------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        progress_bar: bool = False,
        out: str | Path | None = None,
        overwrite: bool = False,
        every: Intervals | None = None,
    ) -> Self:
        """Train for `total_timesteps` further environment steps and return the agent.

        A decision (for CPO a rollout) that extends over the end is completed; where none does,
        learning twice for n steps equals learning once for 2n. With `out` a run folder is written,
        with checkpoints, tables and curves. Ctrl-C stops after the current step, saves and raises
        KeyboardInterrupt.
        """
        self._require_env("learn")
        until = self.num_timesteps + total_timesteps
        check_steps(total_timesteps, until, self.config.warm_up)
        every = every or Intervals()
        while self._unsaid:
            warnings.warn(self._unsaid.pop(0), RunWarning, stacklevel=2)
        bar = [Progress(self.training.last_step(until))] if progress_bar else []
        callbacks = as_callback(callback, *bar)
        folder = None if out is None else self._open(Path(out), overwrite, until, every)
        try:
            callbacks.init_callback(self)
            callbacks.on_training_start(self.training.locals, globals())
            try:
                reason = self.training.run(until, callbacks, folder, every)
            finally:
                callbacks.on_training_end()
        finally:
            if folder is not None:
                folder.close()
        if folder is not None:
            self._finish(folder.path)
        if reason == "interrupted":
            raise InterruptedRun
        return self

    def _finish(self, folder: Path) -> None:
        """Write what comes after the last checkpoint: the summary and the curves."""
        try:
            tables = checkpoint.load_index(folder / "checkpoint")["numbers"]["tables"]
            write_json(folder / "summary.json", self.summary() | {"tables": tables})
            draw_curves(folder)
        except OSError as error:
            raise RunFolderError(
                f"could not write to {folder}: {error.strerror or error}; the last checkpoint is "
                "intact"
            ) from error

    def finish_folder(self) -> bool:
        """Write what a run that was killed after its last step lacks; return whether it did."""
        folder = self.run_folder
        if folder is None or self._tables is None:
            return False
        summary = read_json(folder / "summary.json", records.SummaryFile)
        whole = summary.get("steps") == self.num_timesteps and summary["tables"] == self._tables
        if whole and files.is_there(folder / "curves.png"):
            return False
        run = RunFolder(folder, self.training.compiled.metrics)
        try:
            run.cut_back(self._tables)
            self._tables = None
        finally:
            run.close()
        self._finish(folder)
        return True

    def _open(self, path: Path, overwrite: bool, until: int, every: Intervals) -> RunFolder:
        resumed = self.run_folder is not None and path.resolve() == self.run_folder.resolve()
        if not resumed:
            prepare(path, overwrite)
            self._recorded = self.environment
        description = self._description() | {"steps": until, "every": asdict(every)}
        folder = RunFolder(path, self.training.compiled.metrics, description)
        try:
            if resumed and self._tables is not None:
                folder.cut_back(self._tables)
            self.run_folder, self._tables = path, None
            if resumed and folder.settings != self._saved_settings:
                # another environment was passed: config.json now belongs to no checkpoint
                self.training.save(folder)
            self._saved_settings = folder.settings
        except BaseException:
            folder.close()
            raise
        return folder

    def _description(self) -> dict[str, Any]:
        """Return the method and the settings, as config.json has them."""
        return {
            "method": self.method,
            "title": methods.get(self.method).title,
            "task": self.environment["task"],
            "seed": self.seed,
            "config": flatten(self.config),
            "environment": self._recorded,
        }

    def summary(self) -> dict[str, Any]:
        """Return means over the last 100 episodes and the safety critic's last metrics."""
        rows = self.recent_episodes
        summary: dict[str, Any] = {
            "steps": self.num_timesteps,
            "episodes": self.training.episodes,
            "window": len(rows),
            "cost_limit": self.config.cost_limit,
        }
        names = ("reward", "cost", "contacts", "success", "length", "screened")
        summary |= self._recent_means(*names)
        multiplier = rows[-1]["multiplier"] if rows else math.nan
        summary["multiplier"] = None if math.isnan(multiplier) else multiplier
        summary["warnings"] = list(self.training.watch.messages.values())
        if self.run_folder is not None:
            table = read_table(self.run_folder / "updates.csv")
            for name in ("critic/auc", "critic/ratio"):
                known = [value for value in table[name] if not math.isnan(value)]
                summary[name] = known[-1] if known else None
        return summary

    # ------------------------------------------------------------ acting

    def policy(self, deterministic: bool = True, seed: int = 0, screen: bool = True) -> Policy:
        """Return the current policy: adapted observation -> action in [-1, 1]^A.

        `screen=False` leaves out the screen of a method that has one, and its escape.
        """
        compiled, config = self.training.compiled, self.config
        if not screen and getattr(config, "screen", None) is not None:
            config = replace(config, screen=False)
            functions = methods.get(self.method).load_agent()
            compiled = compile_agent(functions, config, self.training.spec)
        # a copy: the next learning step reuses the memory of the current parameters
        state = jax.tree.map(jnp.copy, self.training.device.agent)
        act = compiled.deploy if deterministic else compiled.act
        spec = self.training.spec
        escape = escape_of(state, config, spec.obs_dim) if deterministic else None
        return Policy(act, state, spec.action_dim, seed, escape)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        spent: Any = 0.0,
    ) -> tuple[np.ndarray, None]:
        """Return the action for an observation or a batch of them, in the environment's own form.

        Hold it for `config.action_repeat` steps of the environment. The screen is on, for an
        episode that has cost `spent` so far (one number, or one per observation);
        `deterministic=False` adds the exploration noise. A batch is one compiled call. There is no
        recurrent state: the second value is always None.
        """
        n = self.training.spec.obs_dim
        raw = observation
        if self.env is not None and isinstance(observation, dict | tuple):
            raw = gymnasium.spaces.flatten(own_env(self.env).observation_space, observation)
        rows = np.asarray(raw, np.float32).reshape(-1, n) if np.size(raw) % n == 0 else None
        if rows is None or not len(rows):
            raise ValueError(f"observation must have {n} numbers, got shape {np.shape(raw)}")
        if not np.isfinite(rows).all():
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=0)).tolist()
            raise ValueError(
                f"observation must be finite, got NaN or infinity at {bad[:8]}: no action is safe "
                "for what was not seen; check the sensor or the environment. A deployed policy "
                "has a fallback for it (agent.export)"
            )
        actions = self.act_on_batch(rows, spent, deterministic)[:, : self.training.spec.action_dim]
        if not np.isfinite(actions).all():
            row = int(np.flatnonzero(~np.isfinite(actions).all(axis=1))[0])
            raise ValueError(
                f"the action is not finite for observation {rows[row].tolist()[:8]}: it is too far "
                "from what was seen in training"
            )
        own = self._own_actions(actions)
        batch = np.size(raw) > n or (np.ndim(raw) == 2 and np.shape(raw)[1] == n)
        return (own if batch else own[0]), None

    def act_on_batch(
        self, obs: np.ndarray, spent: Any = 0.0, deterministic: bool = True
    ) -> np.ndarray:
        """Return actions in [-1, 1]^A, and Q_C, screened and changed behind them, (N, A + 3).

        One compiled call for adapted observations (N, O), each in an episode that has cost `spent`
        so far.
        """
        at, policy = self._policies.get(deterministic, (-1, None))
        if policy is None or at != self.num_timesteps:
            policy = self.policy(deterministic)
            policy.escape = None  # rows by themselves have no past
            self._policies[deterministic] = (self.num_timesteps, policy)
        rows = np.asarray(obs, np.float32)
        costs = np.broadcast_to(np.asarray(spent, np.float32), (len(rows),))
        if len(rows) == 1:
            policy.spent = float(costs[0])
            return np.concatenate([policy(rows[0]), policy.acting], dtype=np.float32)[None]
        columns = self.training.spec.action_dim + len(ACT_COLUMNS)
        # to a power of two, so that few sizes are ever compiled
        more = 2 ** math.ceil(math.log2(len(rows))) - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[-1:], more, axis=0)])
        padded_costs = np.concatenate([costs, np.repeat(costs[-1:], more)])
        key, packed = _batched(policy._act)(policy._state, padded, padded_costs)
        policy._state = policy._state._replace(key=key)
        return np.asarray(packed)[: len(rows), :columns]

    def _own_actions(self, actions: np.ndarray) -> np.ndarray:
        """Return actions (N, A) in [-1, 1] in the bounds, shape and type of the environment."""
        low, high = (np.array(self.environment[end]) for end in ("action_low", "action_high"))
        own = scale_action(actions.astype(np.float64), low.ravel(), high.ravel())
        return own.reshape(len(actions), *low.shape).astype(self.environment["action_dtype"])

    def export(
        self,
        path: str | Path,
        *,
        certificate: dict[str, Any] | None = None,
        tolerance: float | None = None,
        fallback: Any = "hold",
        period: float | None = None,
        onnx: bool = True,
    ) -> Path:
        """Write the deployed policy, its screen and its contract to one file; see docs/deploy.md.

        `safecritic.runtime.load` runs it with NumPy alone. The arguments are those of
        `safecritic.deploy.export.prepare`; a `certificate` must be for the same parameters.
        """
        from safecritic.deploy import export

        prepared = export.prepare(
            self, tolerance=tolerance, fallback=fallback, period=period, onnx=onnx
        )
        if certificate is not None:
            export.require_valid(certificate, prepared)
        return export.write(path, prepared, certificate)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int = EVALUATION_SEED,
        env: str | gymnasium.Env | None = None,
        screen: bool = True,
    ) -> Evaluation:
        """Deploy the policy, without exploration noise and with the screen; episode i: seed + i.

        `screen=False` switches the screen off, to see what it is worth in the same episodes.

        Runs on `env` if given, on a fresh environment if the agent's was made from an id, and
        otherwise on the agent's own; `notes` says if the training episode there had to be dropped.
        """
        if episodes < 1:
            raise ValueError(f"episodes must be >= 1, got {episodes} (--episodes)")
        with self.lent_env("evaluate", env) as (used, notes):
            policy = self.policy(seed=seed, screen=screen)
            evaluation = evaluate(used, policy, self.values, self.config, episodes, seed)
        evaluation.screen = screen
        for note in notes:
            warnings.warn(note, RunWarning, stacklevel=2)
        return evaluation

    @contextmanager
    def lent_env(
        self, what: str, env: str | gymnasium.Env | None = None
    ) -> Iterator[tuple[Any, list[str]]]:
        """Lend an environment to deploy in: `env`, a fresh one from the agent's id, or its own.

        Refuses `what` if the agent has none: an id in a folder is not imported for that. The list
        beside it holds notes, at the end, on what of the agent's own could not be restored.
        """
        if env is None:
            self._require_env(what)
        if env is None and self.environment["id"] is None:
            with self.training.borrowed_env() as notes:
                yield self.env, notes
            self.notes += notes
        else:
            yield make_again(self.environment, env, self.config.action_repeat)[0], []

    def values(self, obs: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        """Return Q_R and, if the method has them, Q_C and influence of adapted (N, O), (N, A)."""
        values = self.training.compiled.values(
            self.training.device.agent,
            np.asarray(obs, np.float32),
            np.asarray(action, np.float32),
        )
        return {name: np.asarray(value) for name, value in values.items()}

    # ------------------------------------------------------------ saving

    def save(self, path: str | Path) -> None:
        """Save the whole state, replay and current episode included, as a folder.

        An agent saved there before is replaced.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            read_config(path)  # raises if the folder is not a saved agent
        self.training.check()
        arrays, numbers = self.training.state()
        unusable = first_unusable(arrays)
        if unusable is not None:
            raise NotFiniteError(unusable, self.num_timesteps)
        content = self._description() | {"environment": self.environment}
        try:
            checkpoint.save(path / "checkpoint", arrays, numbers, settings_of(content))
            about = {"steps": self.num_timesteps, "versions": versions()}
            write_json(path / "config.json", content | about)
        except OSError as error:
            raise RunFolderError(f"could not write to {path}: {error.strerror or error}") from error

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: str | gymnasium.Env | None = None,
        *,
        trust_env: bool = False,
        state: str = "checkpoint",
    ) -> Self:
        """Return an agent from `save` or from a run folder; runs no code from the files.

        Args:
            path: the folder.
            env: the environment, or its id. By default the task it was trained on is made again if
                it is one of this package; without an environment the agent can still predict.
            trust_env: make the environment from the id in the folder, whatever it is. An id such as
                `module:Env-v0` imports that module: do this only with folders of your own.
            state: "checkpoint", "previous" for the checkpoint before, or "failed" for what a run
                saved when an error stopped it.
        """
        from safecritic.agent_classes import agent_class  # imports this module

        path = Path(path)
        content = read_config(path)
        method = content["method"]
        kind: Any = cls if hasattr(cls, "method") else agent_class(method)
        if kind.method != method:
            name = methods.get(method).class_name
            raise ValueError(f"{path} holds an agent of {method}: use {name}.load")
        folder, generation = _state_folder(path, state)
        index = checkpoint.load_index(folder, generation)
        require_same_settings(path, index["settings"], settings_of(content))
        environment = content["environment"]
        config = settings_from(path, method, content["config"])
        adapted, described = None, environment
        untrusted = environment["id"] is not None and not is_ours(environment["id"])
        if env is not None or (environment["id"] is not None and (trust_env or not untrusted)):
            source = environment["id"] if env is None else env
            adapted, task = make_again(environment, env, config.action_repeat)
            described = describe(source, task, adapted, config.action_repeat)
            for size in ("obs_dim", "action_dim"):
                expected, given = environment["spec"][size], described["spec"][size]
                if given != expected:
                    raise ValueError(
                        f"{path} was trained on {environment['task']} with {size} {expected}, "
                        f"{task} has {given}: pass an environment like that one"
                    )
            described |= {"spec": environment["spec"]}
        agent = kind.__new__(kind)
        try:
            agent._build(adapted, described, config, content["seed"], fresh=False)
        except Exception as error:  # sizes that no program can be traced with
            raise RunFolderError(
                f"{path / 'config.json'}, key config: no agent can be made of these settings "
                f"({type(error).__name__}: {files.printable(str(error)[:200])}); restore the file"
            ) from error
        if described["task"] == environment["task"]:
            agent._recorded = environment  # the same one, whoever made it
        most = room_for(path, agent.training.device)
        arrays, index = checkpoint.load_with_index(folder, generation, most)
        try:
            agent._unsaid = agent.training.restore(arrays, index["numbers"])
        except checkpoint.CheckpointError as error:
            advice = checkpoint.other_generation(folder, generation)
            raise checkpoint.CheckpointError(f"{folder}: {error}{advice}") from error
        agent.notes = list(agent._unsaid)
        if content.get("every") is not None:  # the folder of a run, not of `save`
            if index["numbers"].get("tables") is None:
                raise checkpoint.CheckpointError(
                    f"{folder} does not say how long the tables of the run were: it is damaged, or "
                    "belongs to another folder"
                )
            agent.run_folder, agent._tables = path, index["numbers"]["tables"]
            agent._saved_settings = index["settings"]
        now = versions()
        changed = [
            f"{name} {then} (now {now.get(name, 'missing')})"
            for name, then in content["versions"].items()
            if now.get(name) != then
        ]
        if changed:
            saved = files.printable(", ".join(changed))
            note = f"saved with {saved}: numbers may differ in rounding"
            agent.notes.append(note)
            warnings.warn(note, RunWarning, stacklevel=2)
        return agent

    def _require_env(self, what: str) -> None:
        """Raise unless the agent has an environment."""
        if self.env is not None:
            return
        name, known = type(self).__name__, self._recorded["id"]
        if known is None:
            raise ValueError(
                f"{what} needs the environment this agent was trained on, which was not made from "
                f"an id: pass it, {name}.load(path, env=...)"
            )
        raise ValueError(
            f"{what} needs the environment this agent was trained on, {known!r}, which is not a "
            "task of this package, and a file may not choose what is imported: pass it, "
            f"{name}.load(path, env={known!r}), or trust the folder, trust_env=True (--trust-env)"
        )


def _state_folder(path: Path, state: str) -> tuple[Path, str]:
    """Return the folder of a state and its generation there."""
    if state not in STATES:
        raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r} (--state)")
    if state == "failed":
        return path / "failed", "checkpoint"
    return path / "checkpoint", state


def require_same_settings(path: Path, then: dict[str, Any] | None, now: dict[str, Any]) -> None:
    """Raise unless config.json has the settings that the checkpoint was written with."""
    if then == now:
        return
    changed = differences(then or {}, now)
    raise checkpoint.CheckpointError(
        f"{path / 'config.json'} does not belong to the checkpoint, which was written with "
        f"{files.printable('; '.join(changed[:3]))}: undo the change; other settings need a new run"
    )


def differences(then: Any, now: Any, key: str = "") -> list[str]:
    """Return the entries of nested dicts that differ, as text."""
    if isinstance(then, dict) and isinstance(now, dict):
        names = sorted(then.keys() | now.keys())
        inner = [
            differences(then.get(name), now.get(name), f"{key}.{name}" if key else name)
            for name in names
        ]
        return [line for lines in inner for line in lines]
    return [] if then == now else [f"{key} {files.shown(then)} (now {files.shown(now)})"]


def settings_from(path: Path, method: str, flat: dict[str, Any]) -> Any:
    """Return the settings in a file, checked as those of a user are."""
    for name, most in UNROLLED.items():
        if isinstance(flat.get(name), int) and flat[name] > most:
            raise RunFolderError(
                f"{path / 'config.json'}, key config.{name}: expected at most {most}, got "
                f"{flat[name]}; restore the file from a copy"
            )
    try:
        return methods.make_config(method, None, False, **flat)
    except (ValueError, TypeError) as error:
        raise RunFolderError(
            f"{path / 'config.json'}, key config: {files.printable(str(error))}"
        ) from error


def room_for(path: Path, shapes: Any) -> int:
    """Return the most bytes that the arrays of a state of these shapes can have.

    Raises if this machine has no room for them.
    """
    needed = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    room = memory() // 2
    if needed > room:
        raise RunFolderError(
            f"{path / 'config.json'}: such an agent needs {needed / 1e9:,.1f} GB, half of this "
            f"machine's memory is {room / 1e9:,.1f} GB: is buffer_size or hidden right?"
        )
    return needed + RECORDS


def check_steps(further: int, until: int, warm_up: int) -> None:
    """Raise ValueError if no update would run in `further` steps that end at step `until`."""
    if further < 1:
        raise ValueError(f"total_timesteps must be >= 1, got {further} (--steps)")
    if until <= warm_up:
        raise ValueError(
            f"no update would run: warm-up {warm_up} >= steps {until} (--learning-starts, --steps)"
        )


@functools.lru_cache(maxsize=32)
def _batched(act: Any) -> Any:
    """Compile `act` of one observation for many at once, each with a random key of its own."""
    plain = act.__wrapped__  # its compiler options are refused inside another compiled function

    def many(state: Any, obs: jax.Array, spent: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(state.key, len(obs) + 1)

        def one(key: jax.Array, row: jax.Array, cost: jax.Array) -> jax.Array:
            return plain(state._replace(key=key), row, cost)[1]

        return keys[0], jax.vmap(one)(keys[1:], obs, spent)

    return jax.jit(many)


def _counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural if need be."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def own_env(adapted: gymnasium.Env) -> gymnasium.Env:
    """Return the environment inside the adapter, or the environment itself."""
    adapted = adapted.env if isinstance(adapted, RepeatAction) else adapted
    return adapted.env if isinstance(adapted, Adapted) else adapted


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with tuples in place of JSON's lists."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}


def describe(
    env: str | gymnasium.Env, task: str, adapted: Any, action_repeat: int = 1
) -> dict[str, Any]:
    """Return what an agent must know of its environment, as JSON."""
    box: Any = own_env(adapted).action_space
    declared = declared_of(adapted)
    own_cost = not any(name in declared for name in COST_SOURCES)
    cost_max = getattr(adapted.unwrapped, "cost_max", None) if own_cost else None  # of a step
    spec = EnvSpec(
        obs_dim=int(adapted.observation_space.shape[0]),
        action_dim=int(adapted.action_space.shape[0]),
        cost_max=None if cost_max is None else cost_max * action_repeat,
        closeness=closeness_of(adapted),
    )
    return {
        "task": task,
        "id": env if isinstance(env, str) else None,
        "declared": declared,
        "spec": spec._asdict(),
        "action_low": box.low.tolist(),
        "action_high": box.high.tolist(),
        "action_dtype": str(box.dtype),
    }
