"""Agents in Python, with the method names and conventions of Stable-Baselines3.

    from safecritic import USC

    agent = USC("CarGoal1", cost_limit=1.0, seed=0)
    agent.learn(total_timesteps=60_000, progress_bar=True)
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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from safecritic import methods
from safecritic.agents.interface import EnvSpec
from safecritic.agents.settings import flatten
from safecritic.evaluation.critic_quality import episode_critic_quality
from safecritic.evaluation.evaluate import Evaluation, Policy, evaluate
from safecritic.run import checkpoint
from safecritic.run.callbacks import Progress, as_callback
from safecritic.run.curves import draw_curves
from safecritic.run.folder import (
    RunFolder,
    prepare,
    read_config,
    read_table,
    versions,
    write_json,
)
from safecritic.run.loop import InterruptedRun, Intervals, Loop
from safecritic.run.off_policy import OffPolicyTraining
from safecritic.run.on_policy import OnPolicyTraining
from safecritic.run.watch import warn_of_default_limit
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

    def _build(self, env: Any, environment: dict[str, Any], config: Any, seed: int) -> None:
        self.env, self.environment, self.config, self.seed = env, environment, config, seed
        spec = EnvSpec(**_with_tuples(environment["spec"]))
        method = methods.get(self.method)
        functions = method.load_agent()
        self.training: Loop
        if method.on_policy:
            self.training = OnPolicyTraining(
                env, functions, config, spec, seed, environment["id"], environment["declared"]
            )
        else:
            self.training = OffPolicyTraining(
                env, functions, config, spec, seed, episode_critic_quality
            )
        no_cost = environment["declared"].get("no_cost", False)
        # the costs of our own tasks are known to be right, however rare
        self.training.watch.expects_cost = not (no_cost or is_ours(environment["task"]))
        self.run_folder: Path | None = None  # the run folder this agent writes to
        self._tables: dict[str, int] | None = None  # lengths to cut its tables to on resume
        self._policies: dict[bool, tuple[int, Policy]] = {}  # of `predict`, and their step
        self.notes: list[str] = []  # what could not be restored

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
        bar = [Progress(until)] if progress_bar else []
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
            with folder.writing():
                write_json(folder.path / "summary.json", self.summary())
                draw_curves(folder.path)
        if reason == "interrupted":
            raise InterruptedRun
        return self

    def _open(self, path: Path, overwrite: bool, until: int, every: Intervals) -> RunFolder:
        resumed = self.run_folder is not None and path.resolve() == self.run_folder.resolve()
        if not resumed:
            prepare(path, overwrite)
        description = self._description() | {"steps": until, "every": asdict(every)}
        folder = RunFolder(path, self.training.compiled.metrics, description)
        if resumed and self._tables is not None:
            folder.cut_back(self._tables)
        self.run_folder, self._tables = path, None
        return folder

    def _description(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "title": methods.get(self.method).title,
            "task": self.environment["task"],
            "seed": self.seed,
            "config": flatten(self.config),
            "environment": self.environment,
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

    def policy(self, deterministic: bool = True, seed: int = 0) -> Policy:
        """Return the current policy, screen on: adapted observation -> action in [-1, 1]^A."""
        compiled = self.training.compiled
        # a copy: the next learning step reuses the memory of the current parameters
        state = jax.tree.map(jnp.copy, self.training.device.agent)
        act = compiled.deploy if deterministic else compiled.act
        return Policy(act, state, self.training.spec.action_dim, seed)

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
            row, place = np.argwhere(~np.isfinite(rows))[0]
            raise ValueError(
                f"observation must be finite, got {rows[row, place]} at place {place}, row {row}: "
                "check the sensor; a deployed policy has a fallback for it (agent.export)"
            )
        actions = self.act_on_batch(rows, spent, deterministic)[:, : self.training.spec.action_dim]
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
            self._policies[deterministic] = (self.num_timesteps, policy)
        rows = np.asarray(obs, np.float32)
        costs = np.broadcast_to(np.asarray(spent, np.float32), (len(rows),))
        if len(rows) == 1:
            policy.spent = float(costs[0])
            return np.concatenate([policy(rows[0]), policy.acting], dtype=np.float32)[None]
        # to a power of two, so that few sizes are ever compiled
        more = 2 ** math.ceil(math.log2(len(rows))) - len(rows)
        padded = np.concatenate([rows, np.repeat(rows[-1:], more, axis=0)])
        padded_costs = np.concatenate([costs, np.repeat(costs[-1:], more)])
        key, packed = _batched(policy._act)(policy._state, padded, padded_costs)
        policy._state = policy._state._replace(key=key)
        return np.asarray(packed)[: len(rows)]

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
    ) -> Evaluation:
        """Deploy the policy, without exploration noise and with the screen; episode i: seed + i.

        Runs on `env` if given, on a fresh environment if the agent's was made from an id, and
        otherwise on the agent's own; `notes` says if the training episode there had to be dropped.
        """
        if episodes < 1:
            raise ValueError(f"episodes must be >= 1, got {episodes} (--episodes)")
        lending: AbstractContextManager[list[str]] = nullcontext([])
        if env is None and self.environment["id"] is None:
            self._require_env("evaluate")
            used, lending = self.env, self.training.borrowed_env()
        else:
            used, _ = make_again(self.environment, env, self.config.action_repeat)
        with lending as notes:
            evaluation = evaluate(
                used, self.policy(seed=seed), self.values, self.config, episodes, seed
            )
        self.notes += notes
        return evaluation

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
        checkpoint.save(path / "checkpoint", arrays, numbers)
        content = self._description() | {"steps": self.num_timesteps, "versions": versions()}
        write_json(path / "config.json", content)

    @classmethod
    def load(cls, path: str | Path, env: str | gymnasium.Env | None = None) -> Self:
        """Return an agent from `save` or from a run folder; runs no code from the files.

        The environment is made again if it was made from an id. Otherwise pass `env`; without one
        the agent can still predict.
        """
        from safecritic.agent_classes import agent_class  # imports this module

        content = read_config(path)
        method = content["method"]
        kind: Any = cls if hasattr(cls, "method") else agent_class(method)
        if kind.method != method:
            name = methods.get(method).class_name
            raise ValueError(f"{path} holds an agent of {method}: use {name}.load")
        environment = content["environment"]
        config = methods.make_config(method, None, False, **content["config"])
        adapted = None
        source = env if env is not None else environment["id"]
        if source is not None:
            adapted, task = make_again(environment, env, config.action_repeat)
            described = describe(source, task, adapted, config.action_repeat)
            for size in ("obs_dim", "action_dim"):
                expected, given = environment["spec"][size], described["spec"][size]
                if given != expected:
                    raise ValueError(
                        f"{path} was trained on {environment['task']} with {size} {expected}, "
                        f"{task} has {given}: pass an environment like that one"
                    )
            environment = described | {"spec": environment["spec"]}
        agent = kind.__new__(kind)
        agent._build(adapted, environment, config, content["seed"])
        arrays, numbers = checkpoint.load(Path(path) / "checkpoint")
        agent.notes = agent.training.restore(arrays, numbers)
        if "tables" in numbers:
            agent.run_folder, agent._tables = Path(path), numbers["tables"]
        now = versions()
        changed = [
            f"{name} {then} (now {now.get(name, 'missing')})"
            for name, then in content["versions"].items()
            if now.get(name) != then
        ]
        if changed:
            agent.notes.append(f"saved with {', '.join(changed)}: numbers may differ in rounding")
        return agent

    def _require_env(self, what: str) -> None:
        """Raise unless the agent has an environment."""
        if self.env is None:
            raise ValueError(
                f"{what} needs the environment this agent was trained on, which was not made from "
                f"an id: pass it, {type(self).__name__}.load(path, env=...)"
            )


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
