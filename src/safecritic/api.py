"""Agents in Python, with the method names and conventions of Stable-Baselines3.

    from safecritic import USC

    agent = USC("CarGoal1", cost_limit=1.0, seed=0)
    agent.learn(total_timesteps=40_000, progress_bar=True)
    policy = agent.policy()
    print(agent.evaluate(episodes=10).means["cost"])
    agent.save("my-agent")
    agent = USC.load("my-agent")

`env` is the name of a task, the id of any registered environment, or a Gymnasium environment that
reports a cost; the declarations of `safecritic.tasks.adapt` and every setting are keywords.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from safecritic.agents import methods
from safecritic.core import files
from safecritic.core.interface import EnvSpec
from safecritic.core.settings import flatten
from safecritic.deploy import export
from safecritic.evaluate.critic_quality import episode_critic_quality
from safecritic.evaluate.episodes import SEED as EVALUATION_SEED
from safecritic.evaluate.episodes import Evaluation, evaluate
from safecritic.evaluate.verdict import of_costs
from safecritic.run import checkpoint, records
from safecritic.run import folder as folders
from safecritic.run.callbacks import Progress, as_callback
from safecritic.run.curves import draw_curves
from safecritic.run.episode import over_known
from safecritic.run.folder import RunFolder, RunFolderError, finite_or_none, versions, write_json
from safecritic.run.loop import InterruptedRun, Intervals, Loop
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.run.on_policy import OnPolicyTraining
from safecritic.run.processes import memory
from safecritic.run.watch import RunWarning, warn_of_default_limit
from safecritic.runtime import Memory, Policy
from safecritic.tasks import adapter
from safecritic.tasks.adapter import is_ours, make_again, make_env
from safecritic.tasks.registry import method_defaults
from safecritic.tasks.repeat import repeat_action

STATES = ("checkpoint", "previous", "failed")
MOST_UNROLLED = 1_000  # `safety.steps` of a file, which are traced one by one
RECORDS = 256 * 2**20  # bytes that the records of open episodes and the simulation may take


class Agent:
    """A method on an environment; the base of the classes in `agent_classes`, one per method."""

    method: ClassVar[str]

    def __init_subclass__(cls, method: str = "") -> None:
        if method:
            cls.method = method

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        **settings: Any,
    ):
        answer_foreign(settings)
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed} (--seed)")
        of_the_task = methods.OF_THE_TASK  # where they are None
        settings = {k: x for k, x in settings.items() if x is not None or k not in of_the_task}
        names = (*adapter.DECLARATIONS, "cost")
        given = {name: settings.pop(name, None) for name in names}
        declared = {name: x for name, x in given.items() if x is not None and x is not False}
        adapted, task = make_env(env, **declared)
        config = methods.make_config(self.method, method_defaults(task), paper_defaults, **settings)
        adapted = repeat_action(adapted, config.action_repeat, made_here=isinstance(env, str))
        environment = describe(env, task, adapted, config.action_repeat)
        declared = environment["declared"]
        methods.require_cost(self.method, declared)
        constrained = methods.get(self.method).constrained
        if constrained and "cost_limit" not in settings and not is_ours(task):
            # points at the line that makes the agent, past `agent_classes`
            warn_of_default_limit(env, task, declared, config.cost_limit, stacklevel=3)
        self._build(adapted, environment, config, seed)

    def _build(
        self, env: Any, environment: dict[str, Any], config: Any, seed: int, fresh: bool = True
    ) -> None:
        """Set up the training; with `fresh=False` its state is to be restored."""
        self.env, self.environment, self.config, self.seed = env, environment, config, seed
        about: dict[str, Any] = environment["spec"]
        spec = EnvSpec(**about | {"proximity": tuple(about["proximity"])})
        method = methods.get(self.method)
        functions = method.load_agent(config)
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
        self._predicted: tuple[int, Policy] | None = None  # the step and the policy of `predict`
        self._exploring: Any = None  # the state that explores in `predict`
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
        steps = _counted(self.num_timesteps, "step")
        episodes = _counted(self.training.episodes, "episode")
        name, task = type(self).__name__, self.environment["task"]
        headline = f"{name} on {task}, seed {self.seed}: {steps}, {episodes}"
        means = self._recent_means("reward", "cost", "success")
        texts = {name: f"{value:,.2f}" for name, value in means.items() if value is not None}
        if not texts:
            return f"<{headline}>"
        texts["cost"] += f" (limit {self.config.cost_limit:g})"
        if means["success"] is not None:
            texts["success"] = f"{means['success']:.0%}"
        window = _counted(len(self.recent_episodes), "episode")
        values = ", ".join(f"{name} {text}" for name, text in texts.items())
        return f"<{headline}\n last {window}: {values}>"

    def _recent_means(self, *names: str) -> dict[str, float | None]:
        """Return means over the last 100 episodes; None where no episode knows the quantity."""
        columns = {name: np.array([row[name] for row in self.recent_episodes]) for name in names}
        return finite_or_none({name: over_known(np.mean, x) for name, x in columns.items()})

    @property
    def logger(self) -> Any:
        """Collects what callbacks record, for TensorBoard and other callbacks."""
        return self.training.logger

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

        A decision (for CPO a rollout) that extends over the end is completed. With `out` a run
        folder is written, with checkpoints, tables and curves. Ctrl-C stops after the current step,
        saves and raises KeyboardInterrupt.

        Examples:
            >>> agent.learn(total_timesteps=40_000, out="runs/mine")  # doctest: +SKIP
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
        with nullcontext() if folder is None else closing(folder):
            callbacks.init_callback(self)
            callbacks.on_training_start(self.training.locals, globals())
            try:
                reason = self.training.run(until, callbacks, folder, every)
            finally:
                callbacks.on_training_end()
        if folder is not None:
            self._finish(folder.path)
        if reason == "interrupted":
            raise InterruptedRun
        return self

    def get_env(self) -> Any:
        """Return the environment it learns from, adapted; None if it has none.

        Examples:
            >>> env = agent.get_env()
        """
        return self.env

    def set_env(self, env: str | gymnasium.Env) -> None:
        """Learn on in this environment, from a reset; its sizes must be those of the last one.

        Examples:
            >>> agent.set_env(safecritic.make("CarGoal1"))
        """
        adapted, described = like(self.environment, env, self.config.action_repeat, "the agent")
        self.training.set_env(adapted, described["id"], described["declared"])
        self.env, self.environment = adapted, described
        if described["task"] != self._recorded["task"]:
            self._recorded = described

    def _finish(self, folder: Path) -> None:
        """Write what comes after the last checkpoint: the summary and the curves."""
        try:
            index = checkpoint.load_index(folder / "checkpoint")
            tables = index["numbers"]["tables"]
            bound = {"tables": tables, "run": folders.run_digest(index["settings"], tables)}
            write_json(folder / "summary.json", self.summary() | bound)
            draw_curves(folder)
        except OSError as error:
            raise RunFolderError(
                f"could not write to {folder}: {error.strerror or error}; the last checkpoint is "
                "intact"
            ) from error

    def _finish_folder(self) -> bool:
        """Write what a run that was killed after its last step lacks; return whether it did."""
        folder = self.run_folder
        if folder is None or self._tables is None:
            return False
        summary = folders.read_json(folder / "summary.json", records.SummaryFile)
        whole = summary.get("steps") == self.num_timesteps and summary["tables"] == self._tables
        if whole and files.is_there(folder / "curves.png"):
            return False
        with closing(RunFolder(folder, self.training.compiled.metrics)) as run:
            run.cut_back(self._tables)
            self._tables = None
        self._finish(folder)
        return True

    def _open(self, path: Path, overwrite: bool, until: int, every: Intervals) -> RunFolder:
        resumed = self.run_folder is not None and path.resolve() == self.run_folder.resolve()
        if not resumed:
            folders.prepare(path, overwrite)
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
            "paper_defaults": methods.get(self.method).is_printed(self.config),
            "config": flatten(self.config),
            "environment": self._recorded,
        }

    def summary(self) -> dict[str, Any]:
        """Return means over the last 100 episodes and the safety critic's last metrics.

        Examples:
            >>> cost = agent.summary()["cost"]
        """
        rows = self.recent_episodes
        names = ("reward", "cost", "contacts", "success", "length", "screened")
        summary = {
            "steps": self.num_timesteps,
            "episodes": self.training.episodes,
            "window": len(rows),
            "cost_limit": self.config.cost_limit,
            **self._recent_means(*names),
            "multiplier": finite_or_none(rows[-1]["multiplier"]) if rows else None,
            "verdict": None,
            "warnings": list(self.training.watch.messages.values()),
        }
        if not self.environment["declared"].get("no_cost"):
            verdict = of_costs([row["cost"] for row in rows], self.config.cost_limit)
            summary["verdict"] = verdict._asdict()
        if self.run_folder is not None:
            table = folders.read_table(self.run_folder / "updates.csv")
            for name in ("critic/q_mean", "critic/auc", "critic/ratio"):
                known = [value for value in table[name] if not math.isnan(value)]
                summary[name] = known[-1] if known else None
        return summary

    # ------------------------------------------------------------ acting

    def policy(self, screen: bool = True) -> Policy:
        """Return what this agent is when it is deployed, as it is now: what `export` writes.

        Call it at every control step, in the environment's own form, and tell it what that cost.
        `screen=False` leaves out the screen.

        Examples:
            >>> policy = agent.policy()
            >>> policy.reset()
            >>> action = policy(observation)
            >>> policy.spend(0.0)
        """
        return Policy(export.in_memory(self), clock=None, screen=screen)

    def predict(
        self,
        observation: Any,
        state: Memory | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Memory]:
        """Return the policy's action for an observation or a batch of them, and its memory.

        This is Stable-Baselines3's convention for recurrent policies: pass the state on to the next
        call, and where an episode starts say so. `state.spend(cost)` tells it what a step cost, and
        `state.to_arrays` saves it. Without a state every call is the first decision of an episode:
        the whole budget is left, and no action is held for `config.action_repeat` steps.
        `deterministic=False` explores.

        Examples:
            >>> action, state = agent.predict(observation)
            >>> state.spend(0.0)
            >>> action, state = agent.predict(observation, state)
        """
        if self._predicted is None or self._predicted[0] != self.num_timesteps:  # it has learned
            # a copy: the next learning step reuses the memory of the current parameters
            current = jax.tree.map(jnp.copy, self.training.device.agent)
            self._exploring = current._replace(key=jax.random.fold_in(current.key, 0))
            self._predicted = self.num_timesteps, self.policy()
        policy = self._predicted[1]
        rows, batch = self._rows(policy, observation)
        policy.reset(rows=len(rows))
        if state is not None:
            if len(state) != len(rows):
                raise ValueError(f"the state is of {len(state)} rows, got {len(rows)} observations")
            policy.resume(state.copy())
            policy.reset(rows=np.asarray(False if episode_start is None else episode_start, bool))
        actions = policy(rows) if deterministic else self._explore(policy, rows)
        return (actions if batch else actions[0]), policy.memory

    def _rows(self, policy: Policy, observation: Any) -> tuple[np.ndarray, bool]:
        """Return checked observations (N, O), and whether they are a batch."""
        n = self.training.spec.obs_dim
        flat = policy.flatten(observation, None)
        number, rest = divmod(flat.size, n)
        if rest or not number:
            raise ValueError(f"observation must have {n} numbers, got shape {flat.shape}")
        rows = policy.flatten(observation, (number,))
        if not np.isfinite(rows).all():
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=0)).tolist()
            raise ValueError(
                f"observation must be finite, got NaN or infinity at {bad[:8]}: check the sensor "
                "or the environment; a deployed policy has a fallback for it (agent.export)"
            )
        row_of_one = isinstance(observation, np.ndarray | list) and np.shape(observation) == (1, n)
        return rows, number > 1 or row_of_one

    def _explore(self, policy: Policy, rows: np.ndarray) -> np.ndarray:
        """Return actions with exploration noise; the policy remembers them as its own."""
        for row, obs in zip(policy.memory.rows, rows.astype(np.float32), strict=True):
            if row.held:
                row.held -= 1
                continue
            carry, packed = self.training.compiled.act(self._exploring, obs, np.float32(row.cost))
            changed = carry if len(rows) == 1 else {"key": carry["key"]}  # no noise in common
            self._exploring = self._exploring._replace(**changed)
            policy.take(np.asarray(packed)[: self.training.spec.action_dim], row)
        return policy.actions()

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

        Examples:
            >>> path = agent.export("policy.safecritic", onnx=False)
        """
        made = export.prepare(
            self, tolerance=tolerance, fallback=fallback, period=period, onnx=onnx
        )
        if certificate is not None:
            export.require_valid(certificate, made)
        return export.write(path, made, certificate)

    def evaluate(
        self,
        episodes: int = 10,
        seed: int = EVALUATION_SEED,
        env: str | gymnasium.Env | None = None,
        screen: bool = True,
    ) -> Evaluation:
        """Deploy the policy, without exploration noise and with the screen; episode i: seed + i.

        Runs on `env` if given, on a fresh environment if the agent's was made from an id, and
        otherwise on the agent's own; `notes` says if the training episode there had to be dropped.

        Examples:
            >>> evaluation = agent.evaluate(episodes=2)
            >>> cost = evaluation.means["cost"]
        """
        if episodes < 1:
            raise ValueError(f"episodes must be >= 1, got {episodes} (--episodes)")
        with self._lent_env("evaluate", env) as (used, notes):
            policy = self.policy(screen)
            evaluation = evaluate(used, policy, self.values, self.config, episodes, seed)
        if policy.contract["network"]["screen"] is not None:
            evaluation.screen = screen
        if self.environment["declared"].get("no_cost"):
            evaluation.cost_limit = None
        if env is None:
            evaluation.run = self._run_digest()
        for note in notes:
            warnings.warn(note, RunWarning, stacklevel=2)
        return evaluation

    def _run_digest(self) -> str | None:
        """Return the digest of the run in `run_folder`; None if this agent is not what is there."""
        if self.run_folder is None:
            return None
        if self._tables is not None:
            return folders.run_digest(self._saved_settings, self._tables)
        index = checkpoint.load_index(self.run_folder / "checkpoint")
        if index["numbers"]["step"] != self.num_timesteps:
            return None
        return folders.run_digest(index["settings"], index["numbers"]["tables"])

    @contextmanager
    def _lent_env(
        self, what: str, env: str | gymnasium.Env | None = None
    ) -> Iterator[tuple[Any, list[str]]]:
        """Lend an environment, and a list of notes on what of the agent's own is not restored."""
        if env is None:
            self._require_env(what)
        if env is None and self.environment["id"] is None:
            with self.training.borrowed_env() as notes:
                yield self.env, notes
            self.notes += notes
        else:
            yield make_again(self.environment, env, self.config.action_repeat)[0], []

    def values(self, obs: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        """Return Q_R and, if the method has them, Q_C and influence of adapted (N, O), (N, A).

        Examples:
            >>> sorted(agent.values(observation[None], [[0.0, 0.0]]))
            ['influence', 'q_cost', 'q_reward']
        """
        rows = np.asarray(obs, np.float32), np.asarray(action, np.float32)
        values = self.training.compiled.values(self.training.device.agent, *rows)
        return {name: np.asarray(value) for name, value in values.items()}

    # ------------------------------------------------------------ saving

    def save(self, path: str | Path) -> None:
        """Save the whole state, replay included, as a folder; an agent there is replaced.

        Examples:
            >>> agent.save("my-agent")
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            folders.read_config(path)  # raises if the folder is not a saved agent
        arrays, numbers = self.training.usable_state()
        content = self._description() | {"environment": self.environment}
        try:
            checkpoint.save(path / "checkpoint", arrays, numbers, folders.settings_of(content))
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

        Examples:
            >>> agent.save("my-agent")
            >>> again = safecritic.USC.load("my-agent")  # doctest: +SKIP
        """
        from safecritic.agent_classes import agent_class  # imports this module

        path = Path(path)
        content = folders.read_config(path)
        method = content["method"]
        kind: Any = cls if hasattr(cls, "method") else agent_class(method)
        if kind.method != method:
            name = methods.get(method).class_name
            raise ValueError(f"{path} holds an agent of {method}: use {name}.load")
        if state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, got {state!r} (--state)")
        folder, generation = path / "checkpoint", state
        if state == "failed":
            folder, generation = path / "failed", "checkpoint"
        index = checkpoint.load_index(folder, generation)
        require_same_settings(path, index["settings"], folders.settings_of(content))
        environment = content["environment"]
        config = settings_from(path, method, content["config"], content["paper_defaults"])
        adapted, described, known = None, environment, environment["id"]
        if env is not None or (known is not None and (trust_env or is_ours(known))):
            made_from = known if env is None else env
            adapted, described = like(environment, made_from, config.action_repeat, str(path))
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
            agent.run_folder, agent._tables = path, index["numbers"].get("tables")
            agent._saved_settings = index["settings"]
            if agent._tables is None:
                raise checkpoint.CheckpointError(
                    f"{folder} does not say how long the tables of the run were: it is damaged, or "
                    "belongs to another folder"
                )
        now, then = versions(), content["versions"]
        changed = {name: now.get(name, "missing") for name, x in then.items() if now.get(name) != x}
        if changed:
            saved = ", ".join(f"{name} {then[name]} (now {x})" for name, x in changed.items())
            note = f"saved with {files.printable(saved)}: numbers may differ in rounding"
            agent.notes.append(note)
            warnings.warn(note, RunWarning, stacklevel=2)
        return agent

    def _require_env(self, what: str) -> None:
        """Raise unless the agent has an environment."""
        if self.env is not None:
            return
        name, known = type(self).__name__, self._recorded["id"]
        advice = f"which was not made from an id: pass it, {name}.load(path, env=...)"
        if known is not None:
            advice = (
                f"{known!r}, which is not a task of this package, and a file may not choose what "
                f"is imported: pass it, {name}.load(path, env={known!r}), or trust the folder, "
                "trust_env=True (--trust-env)"
            )
        raise ValueError(f"{what} needs the environment this agent was trained on, {advice}")


def load(
    path: str | Path,
    env: str | gymnasium.Env | None = None,
    *,
    trust_env: bool = False,
    state: str = "checkpoint",
) -> Agent:
    """Return the agent of a run folder or of `save`, whatever its method; see `Agent.load`.

    Examples:
        >>> agent = safecritic.load("runs/usc-CarGoal1-seed0")  # doctest: +SKIP
    """
    return Agent.load(path, env, trust_env=trust_env, state=state)


# what other libraries call what is here
ANSWERS = {
    "learning_rate": "actor_lr and critic_lr, one for each network (and safety.lr)",
    "tensorboard_log": "learn(..., out=FOLDER), a run folder with TensorBoard's events",
    "policy_kwargs": "hidden=(64, 64), the widths of every network",
    "net_arch": "hidden=(64, 64), the widths of every network",
    "policy": "nothing: a method has its own networks, of the widths hidden=(64, 64)",
    "train_freq": "action_repeat: one update for each decision",
    "gradient_steps": "action_repeat: one update for each decision",
    "action_noise": "noise_sigma, the size of the exploration noise",
}


def answer_foreign(settings: dict[str, Any]) -> None:
    """Take out Stable-Baselines3's `verbose` and `device`; refuse its other names with ours."""
    settings.pop("verbose", None)  # learn(progress_bar=True) says what it does
    device = settings.pop("device", "auto")
    if device not in ("auto", jax.default_backend()):
        raise ValueError(
            f"device must be 'auto' or {jax.default_backend()!r}, on which JAX runs here, got "
            f"{device!r}: choose before Python starts, JAX_PLATFORMS={device}"
        )
    for name, ours in ANSWERS.items():
        if name in settings:
            raise ValueError(f"{name} is called otherwise here: {ours}")


def like(
    environment: dict[str, Any], env: Any, action_repeat: int, whose: str
) -> tuple[Any, dict[str, Any]]:
    """Return an environment with the sizes of the described one, and its own description."""
    adapted, task = make_again(environment, env, action_repeat)
    described = describe(env, task, adapted, action_repeat)
    for size in ("obs_dim", "action_dim"):
        expected, given = environment["spec"][size], described["spec"][size]
        if given != expected:
            raise ValueError(
                f"{whose} was trained on {environment['task']} with {size} {expected}, "
                f"{task} has {given}: pass an environment like that one"
            )
    return adapted, described | {"spec": environment["spec"]}


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
    if not (isinstance(then, dict) and isinstance(now, dict)):
        return [] if then == now else [f"{key} {files.shown(then)} (now {files.shown(now)})"]
    changed = []
    for name in sorted(then.keys() | now.keys()):
        changed += differences(then.get(name), now.get(name), f"{key}.{name}" if key else name)
    return changed


def settings_from(path: Path, method: str, flat: dict[str, Any], printed: bool) -> Any:
    """Return the settings in a file, checked as those of a user are."""
    steps = flat.get("safety.steps")
    if isinstance(steps, int) and steps > MOST_UNROLLED:
        raise RunFolderError(
            f"{path / 'config.json'}, key config.safety.steps: expected at most {MOST_UNROLLED}, "
            f"got {steps}; restore the file from a copy"
        )
    try:
        return methods.make_config(method, None, printed, **flat)
    except (ValueError, TypeError) as error:
        raise RunFolderError(
            f"{path / 'config.json'}, key config: {files.printable(str(error))}"
        ) from error


def room_for(path: Path, shapes: Any) -> int:
    """Return the most bytes that a state of these shapes can have; raise if there is no room."""
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


def _counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural if need be."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe(
    env: str | gymnasium.Env, task: str, adapted: Any, action_repeat: int = 1
) -> dict[str, Any]:
    """Return what an agent must know of its environment, as JSON."""
    box: Any = export.own_env(adapted).action_space
    declared = adapter.declared_of(adapted)
    cost_max = getattr(adapted.unwrapped, "cost_max", None)  # of a step
    if not declared.keys().isdisjoint(adapter.COST_SOURCES):
        cost_max = None
    spec = EnvSpec(
        obs_dim=adapted.observation_space.shape[0],
        action_dim=adapted.action_space.shape[0],
        cost_max=None if cost_max is None else cost_max * action_repeat,
        proximity=adapter.proximity_of(adapted),
    )
    return {
        "task": task,
        # a file holds no function, so its id alone does not make it again
        "id": env if isinstance(env, str) and "cost" not in declared else None,
        "declared": declared,
        "spec": spec._asdict(),
        "action_low": box.low.tolist(),
        "action_high": box.high.tolist(),
        "action_dtype": str(box.dtype),
    }
