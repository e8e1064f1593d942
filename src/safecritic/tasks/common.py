"""What every MuJoCo task needs: checked input, an orderly episode, exact checkpoints."""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium.error import ResetNeeded

from safecritic.tasks.repeat import join_infos

LARGEST_COORDINATE = 1e10  # beyond this MuJoCo itself calls a coordinate bad

NOT_RESET, RUNNING, ENDED = 0, 1, 2

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION  # all that decides what MuJoCo does next

Shapes = Mapping[str, tuple[int, ...]]


def check_action(action: Any, space: gymnasium.Space) -> np.ndarray:
    """Return the action as a float vector, within its bounds or not; others are a ValueError."""
    # on so few numbers a Python sum is faster than NumPy, and NaN and infinity survive it
    fits = isinstance(action, np.ndarray) and action.dtype in FLOATS and action.shape == space.shape
    if fits and math.isfinite(sum(action.tolist())):
        return action
    advice = ": pass one vector per step (a vector environment takes a batch), and if it is not "
    return check_array("action", action, space.shape, advice + "finite, check the policy's output")


def check_array(name: str, value: Any, shape: Any, advice: str = "") -> np.ndarray:
    """Return a float64 copy of `value`, which must be finite and have this shape."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be numbers of shape {shape}, got {value!r}{advice}"
        ) from error
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {array.shape}{advice}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}{advice}")
    return array


def check_options(
    options: Mapping[str, Any] | None, layout: Shapes, state: Shapes
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the layout (or None) and state of `reset(options=...)`, of these shapes."""
    options = {} if options is None else options
    _refuse_unknown("options", options, ("layout", "state"))
    checked = []
    for part, shapes in (("layout", layout), ("state", state)):
        given = options.get(part)
        if given is not None:
            _refuse_unknown(f'options["{part}"]', given, shapes)
            given = {k: check_array(f"{part}[{k!r}]", v, shapes[k]) for k, v in given.items()}
        checked.append(given)
    return checked[0], checked[1] or {}


def _refuse_unknown(name: str, given: Any, keys: Collection[str]) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a dict, got {type(given).__name__}")
    unknown = [key for key in given if key not in keys]
    if unknown:
        known = ", ".join(keys) or "none"
        raise ValueError(f"{name} has unknown keys {unknown}; known keys: {known}")


def rng_to_array(rng: np.random.Generator) -> np.ndarray:
    """Return the whole state of a random generator as a text, in JSON."""
    return np.array(json.dumps(rng.bit_generator.state))


def rng_from_array(array: np.ndarray) -> np.random.Generator:
    """Return the generator that `rng_to_array` was given."""
    bits = np.random.PCG64()
    try:
        bits.state = json.loads(str(array))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(
            f"rng must be the state of a PCG64 generator, as get_checkpoint() returns it ({error})"
        ) from error
    return np.random.Generator(bits)


class MujocoTask(gymnasium.Env[np.ndarray, np.ndarray]):
    """A task on one MuJoCo model: order of reset and step, checkpoints, drawing.

    A subclass sets `horizons` and the spaces, and simulates one step in `_advance`.

    Args:
        model: what it simulates.
        variant: "benchmark" (the paper's form) or "original" (the task's own).
        render_mode: None or "rgb_array".
        horizon: steps after which an episode is truncated, instead of the variant's.
        action_repeat: steps for which `step` holds an action.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012
    holds_actions: ClassVar[bool] = True  # see `repeat.py`
    horizons: ClassVar[dict[str, int]]

    def __init__(
        self,
        model: mujoco.MjModel,
        variant: str = "benchmark",
        render_mode: str | None = None,
        horizon: int | None = None,
        action_repeat: int = 1,
    ) -> None:
        if variant not in self.horizons:
            raise ValueError(f"variant must be one of {list(self.horizons)}, got {variant!r}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        horizon = self.horizons[variant] if horizon is None else horizon
        for name, steps in (("horizon", horizon), ("action_repeat", action_repeat)):
            if int(steps) != steps or steps < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {steps}")
        # a diverged state must stay visible, not be replaced by the start pose
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        self.model, self.data = model, mujoco.MjData(model)
        self.variant, self.render_mode = variant, render_mode
        self.horizon, self.action_repeat = int(horizon), int(action_repeat)
        self._steps, self._phase, self._obs = 0, NOT_RESET, np.zeros(0)

    @property
    def reports_steps(self) -> bool:
        """Whether `info["steps"]` is the number of steps taken."""
        return self.action_repeat > 1

    # ---------------------------------------------------------------- order of reset and step

    def _begin(self, obs: np.ndarray) -> np.ndarray:
        """Start an episode at this observation."""
        if mujoco.get_mjcb_time() is None:
            # MuJoCo's own profiler, which every new MjData starts, takes up to 30% of a step
            mujoco.set_mjcb_time(None)
        self._steps, self._phase, self._obs = 0, RUNNING, obs
        return obs.copy()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold the action for `action_repeat` steps, or to the end of the episode if it is nearer.

        Above 1, `info` is that of all steps (`join_infos`), and `info["steps"]` their number.
        """
        if self._phase != RUNNING:
            late = "after the episode ended" if self._phase == ENDED else "before the first reset"
            raise ResetNeeded(f"step was called {late}: call env.reset() first")
        action = check_action(action, self.action_space)
        reward, terminated, truncated, info = self._advance(action)
        if self.action_repeat > 1:
            steps = 1
            while steps < self.action_repeat and self._phase == RUNNING:
                more, terminated, truncated, now = self._advance(action)
                steps += 1
                reward += more
                info = join_infos(info, now)
            info["steps"] = steps
        # a copy, because the caller may write into it and `_obs` is needed again
        return self._observed().copy(), reward, terminated, truncated, info

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Simulate one step; return reward, terminated, truncated and info."""
        raise NotImplementedError

    def _observed(self) -> np.ndarray:
        """Return the observation after the last finite step, which `_advance` may leave to this."""
        return self._obs

    def _finish(self, terminated: bool) -> bool:
        """Count the step; return whether the episode is truncated."""
        self._steps += 1
        truncated = self._steps >= self.horizon
        if terminated or truncated:
            self._phase = ENDED
        return truncated

    def _diverged(self, obs: np.ndarray) -> bool:
        """Return whether the simulation has diverged; if it has, end the episode."""
        if abs(sum(obs.tolist())) < LARGEST_COORDINATE:
            return False
        self._steps += 1
        self._phase = ENDED
        return True

    # ---------------------------------------------------------------- states and checkpoints

    @property
    def layout(self) -> dict[str, Any]:
        """What was placed at the reset, as `reset(options={"layout": ...})` takes it."""
        return {}

    @property
    def state(self) -> dict[str, Any]:
        """The state as `reset(options={"state": ...})` takes it; `get_checkpoint` is exact."""
        data = self.data
        return {"qpos": data.qpos.copy(), "qvel": data.qvel.copy(), "time": float(data.time)}

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        """Return everything that decides what this environment does next, as plain arrays.

        After `set_checkpoint`, here or in another one of the same class, variant and horizon, every
        later step and reset gives the same numbers to the last bit.
        """
        physics = np.empty(mujoco.mj_stateSize(self.model, PHYSICS))
        mujoco.mj_getState(self.model, self.data, physics, PHYSICS)
        return {
            "task": np.array(self._identity()),
            "physics": physics,
            "steps": np.array(self._steps, dtype=np.int64),
            "phase": np.array(self._phase, dtype=np.int64),
            "obs": self._obs.copy(),
            "rng": rng_to_array(self.np_random),
        }

    def set_checkpoint(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        """Continue from where `get_checkpoint` was called."""
        self._check_checkpoint(checkpoint)
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, checkpoint["physics"], PHYSICS)
        self._forward_from(checkpoint["physics"])
        self.np_random = rng_from_array(checkpoint["rng"])
        self._steps = int(checkpoint["steps"])
        self._phase = int(checkpoint["phase"])
        self._obs = np.array(checkpoint["obs"], dtype=np.float64)

    def _forward_from(self, physics: np.ndarray) -> None:
        """Compute what is no part of the state but the next step may start from."""
        if np.isfinite(physics).all():
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_setState(self.model, self.data, physics, PHYSICS)

    def _check_checkpoint(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        """Refuse a checkpoint of another task or MuJoCo version, before anything changes."""
        missing = sorted(self.get_checkpoint().keys() - checkpoint.keys())
        if missing:
            raise ValueError(f"checkpoint lacks {missing}: pass what get_checkpoint() returned")
        if str(checkpoint["task"]) != self._identity():
            raise ValueError(
                f"checkpoint belongs to {checkpoint['task']}, this environment is "
                f"{self._identity()}: make it with the same task, variant and horizon"
            )
        size = mujoco.mj_stateSize(self.model, PHYSICS)
        if np.shape(checkpoint["physics"]) != (size,):
            raise ValueError(
                f"checkpoint has physics of shape {np.shape(checkpoint['physics'])}, this model "
                f"needs ({size},): install the MuJoCo version it was written with"
            )
        rng_from_array(checkpoint["rng"])
        self._check_forms(checkpoint)

    def _check_forms(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        """Refuse arrays of other types, shapes or ranges: MuJoCo would read beyond its own."""
        for name, like in self.get_checkpoint().items():
            given = np.asarray(checkpoint[name])
            stacked = name.startswith("pool_")
            shapes = (given.shape[1:], like.shape[1:]) if stacked else (given.shape, like.shape)
            same = given.dtype.kind == like.dtype.kind and shapes[0] == shapes[1]
            empty = (stacked or name == "obs") and not given.size
            if like.dtype.kind != "U" and like.size and not (same or empty):
                raise ValueError(
                    f"checkpoint has {name} of {given.dtype} {given.shape}, expected {like.dtype} "
                    f"{like.shape}: pass what get_checkpoint() returned"
                )
            # physics may have diverged, which `set_checkpoint` knows how to treat
            free = given.dtype.kind != "f" or name in ("physics", "obs")
            if not free and not np.isfinite(given).all():
                raise ValueError(f"checkpoint has {name} that is not finite: it is damaged")
        steps, phase = int(checkpoint["steps"]), int(checkpoint["phase"])
        if not (0 <= steps <= self.horizon and NOT_RESET <= phase <= ENDED):
            raise ValueError(
                f"checkpoint is at step {steps} of {self.horizon}, phase {phase}: it is damaged"
            )

    def _identity(self) -> str:
        return f"{type(self).__name__}, variant {self.variant}, horizon {self.horizon}"

    # ---------------------------------------------------------------- pictures

    def render(self) -> np.ndarray | None:
        """Return a drawing of the scene (`render_mode="rgb_array"`), which needs no OpenGL."""
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs a task made with render_mode="rgb_array"')
            return None
        return self.draw()

    def draw(
        self, trail: Any = (), trail_cost: Any = (), caption: str = "", size: int = 480
    ) -> np.ndarray:
        """Draw the scene without OpenGL."""
        raise NotImplementedError
