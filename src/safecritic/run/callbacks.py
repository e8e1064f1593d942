"""Callbacks as in Stable-Baselines3: subclass, override `_on_step`, return False to stop.

    class StopWhenSafe(BaseCallback):
        def _on_step(self) -> bool:
            return self.num_timesteps < 10_000

`learn(callback=...)` takes a callback, also one of Stable-Baselines3's, a list of them, or a
function `f(locals, globals)`. Besides the hooks of those there are two that receive numbers:
`_on_episode_end(row)` receives the episode's line of episodes.csv, and `_on_log(metrics)` the line
of updates.csv.
"""

import importlib.util
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from safecritic.run.folder import episode_scalars, finite, read_json, write_json
from safecritic.run.records import BestFile, WandbRun


class BaseCallback:
    """A callback that does nothing; `model` is the agent, `num_timesteps` its steps so far.

    Examples:
        >>> class StopAt(BaseCallback):
        ...     def _on_step(self):
        ...         return self.num_timesteps < 5_000
        >>> agent.learn(40_000, callback=StopAt())  # doctest: +SKIP
    """

    def __init__(self, verbose: int = 0):
        self.verbose = verbose
        self.model: Any = None
        self.n_calls = 0
        self.locals: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}

    @property
    def num_timesteps(self) -> int:
        return self.model.num_timesteps

    @property
    def training_env(self) -> Any:
        return self.model.env

    @property
    def logger(self) -> "Logger":
        return self.model.logger

    def init_callback(self, model: Any) -> None:
        self.model = model
        self._init_callback()

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals, self.globals = locals_, globals_
        self._on_training_start()

    def on_step(self) -> bool:
        self.n_calls += 1
        return self._on_step() is not False

    def on_episode_end(self, row: dict[str, float]) -> None:
        self._on_episode_end(row)

    def on_log(self, metrics: dict[str, float]) -> None:
        self._on_log(metrics)

    def on_status(self, text: str) -> None:
        self._on_status(text)

    def on_training_end(self) -> None:
        self._on_training_end()

    # The hooks to override

    def _init_callback(self) -> None: ...

    def _on_training_start(self) -> None: ...

    def _on_step(self) -> bool:
        return True

    def _on_episode_end(self, row: dict[str, float]) -> None: ...

    def _on_log(self, metrics: dict[str, float]) -> None: ...

    def _on_status(self, text: str) -> None: ...

    def _on_training_end(self) -> None: ...


class CallbackList(BaseCallback):
    """Several callbacks in turn; all are called at every step, and any of them can stop the run."""

    def __init__(self, callbacks: Iterable[BaseCallback]):
        super().__init__()
        self.callbacks = list(callbacks)

    def _each(self, hook: str, *values: Any) -> list[Any]:
        return [getattr(callback, hook)(*values) for callback in self.callbacks]

    def _init_callback(self) -> None:
        self._each("init_callback", self.model)

    def _on_training_start(self) -> None:
        self._each("on_training_start", self.locals, self.globals)

    def _on_step(self) -> bool:
        return all(self._each("on_step"))

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self._each("on_episode_end", row)

    def _on_log(self, metrics: dict[str, float]) -> None:
        self._each("on_log", metrics)

    def _on_status(self, text: str) -> None:
        self._each("on_status", text)

    def _on_training_end(self) -> None:
        self._each("on_training_end")


class FunctionCallback(BaseCallback):
    """A function `f(locals, globals)` called at every step."""

    def __init__(self, function: Callable[[dict[str, Any], dict[str, Any]], bool | None]):
        super().__init__()
        self.function = function

    def _on_step(self) -> bool:
        return self.function(self.locals, self.globals) is not False


class CheckpointCallback(BaseCallback):
    """Save the agent every `save_freq` environment steps, as `PREFIX_STEPS_steps` in a folder.

    `learn(out=...)` keeps its own checkpoints; these are agents to compare or to keep.

    Examples:
        >>> keep = CheckpointCallback(save_freq=10_000, save_path="agents")
        >>> agent.learn(40_000, callback=keep)  # doctest: +SKIP
    """

    def __init__(
        self, save_freq: int, save_path: str | Path, name_prefix: str = "agent", verbose: int = 0
    ):
        super().__init__(verbose)
        self.save_freq = _interval("save_freq", save_freq)
        self.save_path, self.name_prefix = Path(save_path), name_prefix
        self._before = 0

    def _on_training_start(self) -> None:
        self._before = self.num_timesteps

    def _on_step(self) -> bool:
        before, self._before = self._before, self.num_timesteps
        if self.num_timesteps // self.save_freq > before // self.save_freq:
            path = self.save_path / f"{self.name_prefix}_{self.num_timesteps}_steps"
            self.model.save(path)
            if self.verbose:
                print(f"saved {path}")
        return True


class EvalCallback(BaseCallback):
    """Deploy the policy every `eval_freq` environment steps, and save the best agent so far.

    An agent whose mean cost is within the limit is better than any that is not; of two within it
    the one of higher reward is better, of two beyond it the one of lower cost. Training is the same
    with and without it, if the environment can be made again or put back. `best.json` beside the
    best agent is what a resumed training compares with.

    Examples:
        >>> evaluate = EvalCallback(best_model_save_path="best")
        >>> agent.learn(60_000, callback=evaluate)  # doctest: +SKIP
        >>> best = safecritic.load("best/best_model")  # doctest: +SKIP
    """

    def __init__(
        self,
        eval_env: Any = None,
        callback_on_new_best: BaseCallback | None = None,
        n_eval_episodes: int = 10,
        eval_freq: int = 5_000,
        best_model_save_path: str | Path | None = None,
        seed: int = 20_000,
        verbose: int = 1,
    ):
        super().__init__(verbose)
        self.eval_env, self.callback_on_new_best = eval_env, callback_on_new_best
        self.n_eval_episodes, self.seed = n_eval_episodes, seed
        self.eval_freq = _interval("eval_freq", eval_freq)
        self.folder = None if best_model_save_path is None else Path(best_model_save_path)
        self.evaluations: list[dict[str, float]] = []  # step and means of each
        self.best: dict[str, float] | None = None
        self._before = 0

    def _init_callback(self) -> None:
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_training_start(self) -> None:
        self._before = self.num_timesteps
        if self.folder is not None and self._before and self.best is None:
            self.best = read_json(self.folder / "best.json", BestFile) or None

    def _on_step(self) -> bool:
        before, self._before = self._before, self.num_timesteps
        if self.num_timesteps // self.eval_freq == before // self.eval_freq:
            return True
        evaluation = self.model.evaluate(self.n_eval_episodes, self.seed, self.eval_env)
        means = {name: evaluation.means[name] for name in ("reward", "cost", "success")}
        row = {"step": self.num_timesteps, **means}
        self.evaluations.append(row)
        if self.verbose:
            verdict = "" if evaluation.verdict is None else f": {evaluation.verdict}"
            print(f"step {row['step']:,}  reward {row['reward']:.2f}{verdict}")
        limit = math.inf if evaluation.cost_limit is None else evaluation.cost_limit
        if self.best is not None and _rank(row, limit) <= _rank(self.best, limit):
            return True
        self.best = row
        if self.folder is not None:
            self.model.save(self.folder / "best_model")
            write_json(self.folder / "best.json", {x: row[x] for x in ("step", "reward", "cost")})
        return self.callback_on_new_best is None or self.callback_on_new_best.on_step()


def _rank(row: dict[str, float], limit: float) -> tuple[bool, float]:
    """Return what the better of two evaluations has more of."""
    within = row["cost"] <= limit
    return within, row["reward"] if within else -row["cost"]


def _interval(name: str, steps: int) -> int:
    if steps < 1:
        raise ValueError(f"{name} must be >= 1 environment step, got {steps}")
    return steps


class StableBaselinesCallback(BaseCallback):
    """A callback written for Stable-Baselines3: its hooks are called, its logger is the agent's.

    It reads `model`, `num_timesteps`, `n_calls`, `locals`, `training_env` and `logger` as there.
    What it records appears in TensorBoard, and in the metrics of other callbacks.
    """

    def __init__(self, callback: Any):
        super().__init__()
        self.callback = callback

    def _init_callback(self) -> None:
        self.callback.init_callback(self.model)

    def _on_training_start(self) -> None:
        self.callback.on_training_start(self.locals, self.globals)
        self.callback.on_rollout_start()

    def _on_step(self) -> bool:
        self.callback.update_locals(self.locals)
        return self.callback.on_step() is not False

    def _on_training_end(self) -> None:
        self.callback.on_rollout_end()
        self.callback.on_training_end()


def is_stable_baselines(callback: Any) -> bool:
    """Return whether a callback is one of Stable-Baselines3's, which is not imported for it."""
    return any(
        kind.__module__ == "stable_baselines3.common.callbacks" and kind.__name__ == "BaseCallback"
        for kind in type(callback).__mro__
    )


class Logger:
    """Collects what callbacks record until the next line of metrics, as in Stable-Baselines3."""

    def __init__(self) -> None:
        self.name_to_value: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Keep a number, in the place of an earlier one of this name."""
        self.name_to_value[key] = float(value)
        self._counts[key] = 1

    def record_mean(self, key: str, value: Any, exclude: Any = None) -> None:
        """Keep the mean of the numbers recorded under this name."""
        count = self._counts.get(key, 0)
        before = self.name_to_value.get(key, 0.0)
        self.name_to_value[key] = (before * count + float(value)) / (count + 1)
        self._counts[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Nothing: a line is written at every log interval."""

    def take(self) -> dict[str, float]:
        """Return what was recorded since the last call."""
        values, self.name_to_value, self._counts = self.name_to_value, {}, {}
        return values


def as_callback(callback: Any, *more: BaseCallback) -> CallbackList:
    """Return what `learn(callback=...)` accepts, and `more`, as one list of callbacks."""
    given = callback if isinstance(callback, list | tuple) else [callback]
    callbacks = []
    for each in given:
        if isinstance(each, BaseCallback):
            callbacks.append(each)
        elif is_stable_baselines(each):
            callbacks.append(StableBaselinesCallback(each))
        elif callable(each):
            callbacks.append(FunctionCallback(each))
        elif each is not None:
            raise TypeError(
                "callback must be a BaseCallback, a function f(locals, globals) or a list of "
                f"them, got {type(each).__name__}"
            )
    return CallbackList([*callbacks, *more])


class Progress(BaseCallback):
    """A progress bar in a terminal, plain lines elsewhere."""

    def __init__(self, until: int, stream: TextIO | None = None, seconds_between_lines: float = 15):
        super().__init__()
        self.until, self.stream = until, stream or sys.stderr
        self.seconds_between = seconds_between_lines
        self.last: dict[str, float] = {}
        self._bar: Any = None

    def _on_training_start(self) -> None:
        from rich.console import Console

        console = Console(file=self.stream)
        self._times: deque[tuple[float, int]] = deque(maxlen=30)
        self._tick = 0.0
        if console.is_terminal:
            self._bar = _bar(console)
            self._task = self._bar.add_task(
                "train", total=self.until, completed=self.num_timesteps, text=""
            )
            self._bar.start()
        self._show()

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self.last = row

    def _on_step(self) -> bool:
        if time.monotonic() >= self._tick:
            self._show()
        return True

    def _on_status(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, text=text)
            self._bar.refresh()
        else:
            print(text, file=self.stream, flush=True)

    def _show(self) -> None:
        now = time.monotonic()
        self._times.append((now, self.num_timesteps))
        self._tick = now + (0.25 if self._bar is not None else self.seconds_between)
        if self._bar is not None:
            text = fitting(self._parts(), self._bar.console.width - BAR_COLUMNS)
            self._bar.update(self._task, completed=self.num_timesteps, text=text)
        elif self.num_timesteps:
            print(f"step {'  '.join(self._parts())}", file=self.stream, flush=True)

    def _parts(self) -> list[str]:
        """Return the rate, the remaining time and the numbers of the last episodes."""
        (then, first), (now, last) = self._times[0], self._times[-1]
        until = max(self.until, self.num_timesteps)
        parts = [f"{self.num_timesteps:,}/{until:,}"]
        if now > then:
            rate = (last - first) / (now - then)
            parts.append(f"{rate:,.0f} steps/s")
            if rate:
                minutes, seconds = divmod(int((until - last) / rate), 60)
                parts.append(f"{minutes}:{seconds:02d} left")
        if self.last:
            parts += [f"reward {self.last['reward']:.2f}", f"cost {self.last['cost']:.2f}"]
            success = [row["success"] for row in self.model.recent_episodes]
            if known := [value for value in success if not math.isnan(value)]:
                parts.append(f"success {100 * sum(known) / len(known):.0f}%")
            if not math.isnan(self.last["multiplier"]):
                parts.append(f"multiplier {self.last['multiplier']:.3f}")
        return parts

    def _on_training_end(self) -> None:
        self._show()
        if self._bar is not None:
            self._bar.stop()


BAR_COLUMNS = 20  # of a terminal: the bar, its percentage and the gaps


def fitting(parts: list[str], width: int) -> str:
    """Return as many parts as fit on a line, with narrow gaps if that helps."""
    for gap in ("  ", " "):
        if len(gap.join(parts)) <= width:
            return gap.join(parts)
    return fitting(parts[:-1], width) if len(parts) > 1 else parts[0]


def _bar(console: Any) -> Any:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    # cut off at the end of a narrow terminal instead of wrapped
    one_line = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:.0f}%"),
        TextColumn("{task.fields[text]}", table_column=one_line),
        console=console,
        refresh_per_second=4,
    )


class WandbError(RuntimeError):
    """W&B did not start the run: no login, no connection, or a setting it rejects."""


class WandbCallback(BaseCallback):
    """Send the numbers that TensorBoard gets to Weights & Biases, by environment step.

        agent.learn(60_000, out="runs/one", callback=WandbCallback("my-project"))

    Keywords are passed to `wandb.init` and override the ones chosen here. The id of the W&B run is
    saved in the run folder (wandb.json), so that a resumed run continues the same W&B run.
    """

    def __init__(self, project: str, **init_kwargs: Any):
        super().__init__()
        # a folder wandb/ that W&B wrote looks like a package, but has no origin
        spec = importlib.util.find_spec("wandb")
        if spec is None or spec.origin is None:
            raise ImportError("wandb is not installed: pip install wandb")
        self.project, self.init_kwargs = project, init_kwargs
        self._run: Any = None

    def _on_training_start(self) -> None:
        import wandb

        self._earlier_error = sys.exc_info()[1]
        chosen = {"project": self.project, "config": self.model._description(), "resume": "allow"}
        folder = self.model.run_folder
        if folder is not None:
            chosen["name"] = folder.resolve().name
            known = read_json(folder / "wandb.json", WandbRun)
            if known:
                chosen["id"] = known["id"]
        try:
            self._run = wandb.init(**(chosen | self.init_kwargs))
        except wandb.Error as error:
            raise WandbError(f"W&B did not start: {' '.join(str(error).split())}") from error
        if folder is not None:
            write_json(folder / "wandb.json", {"id": self._run.id, "project": self._run.project})

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self._send(episode_scalars(row), int(row["step"]))

    def _on_log(self, metrics: dict[str, float]) -> None:
        self._send(metrics, self.num_timesteps)

    def _send(self, values: dict[str, float], step: int) -> None:
        # a killed run repeats the steps since its checkpoint, and W&B accepts no step twice
        if step >= self._run.starting_step:
            self._run.log(finite(values), step=step)

    def _on_training_end(self) -> None:
        # an error that the caller was already handling is not from this training
        failed = sys.exc_info()[1] is not self._earlier_error
        self._run.finish(exit_code=int(failed))


class TrackioCallback(BaseCallback):
    """Send the numbers that TensorBoard gets to Trackio, which keeps them on this machine.

        agent.learn(60_000, out="runs/one", callback=TrackioCallback("my-project"))

    `trackio show` opens its dashboard. Keywords are passed to `trackio.init`. A resumed run goes on
    under its name, that of its folder; the steps since its last checkpoint appear twice.
    """

    def __init__(self, project: str, **init_kwargs: Any):
        super().__init__()
        if importlib.util.find_spec("trackio") is None:
            raise ImportError("trackio is not installed: pip install trackio")
        self.project, self.init_kwargs = project, init_kwargs
        self._run: Any = None

    def _on_training_start(self) -> None:
        import trackio

        chosen = {"config": self.model._description(), "resume": "allow", "embed": False}
        if self.model.run_folder is not None:
            chosen["name"] = self.model.run_folder.resolve().name
        self._run = trackio.init(self.project, **(chosen | self.init_kwargs))

    def _on_episode_end(self, row: dict[str, float]) -> None:
        self._run.log(finite(episode_scalars(row)), step=int(row["step"]))

    def _on_log(self, metrics: dict[str, float]) -> None:
        self._run.log(finite(metrics), step=self.num_timesteps)

    def _on_training_end(self) -> None:
        self._run.finish()
