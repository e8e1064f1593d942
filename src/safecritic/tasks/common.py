"""What every MuJoCo task needs: checked input, an orderly episode, exact checkpoints, a camera.

`check_action`, `check_array`, `check_options`, `rng_to_array` and `rng_from_array` stand alone;
`MujocoTask` uses them for a task with one model and one data object.
"""

import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium.error import ResetNeeded

from safecritic.tasks.repeat import join_infos

LARGEST_COORDINATE = 1e10  # beyond this MuJoCo itself calls a coordinate bad

NOT_RESET, RUNNING, ENDED = 0, 1, 2

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def check_action(action: Any, space: gymnasium.Space) -> np.ndarray:
    """Return the action as a float vector; what is no action is a ValueError.

    Arrays of float32 and float64 are returned as they are, anything else as float64. The space
    must be one-dimensional. Values outside its bounds pass: clipping is up to the task.
    """
    array = action
    if not (isinstance(action, np.ndarray) and action.dtype in FLOATS):
        try:
            array = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"action must be numbers of shape {space.shape}, got {action!r}: pass a float array"
            ) from error
    # on so few numbers a Python sum is faster than NumPy, and NaN and infinity survive it
    if array.shape == space.shape and math.isfinite(sum(array.tolist())):
        return array
    if array.shape != space.shape:
        hint = (
            " (one action per call: use a vector environment for a batch)" if array.ndim > 1 else ""
        )
        raise ValueError(f"action must have shape {space.shape}, got shape {array.shape}{hint}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"action must be finite, got {array.tolist()}: "
            "the policy has probably diverged; check its output before stepping"
        )
    return array


def check_array(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a float64 copy of `value`, which must be finite and have this shape."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers of shape {shape}, got {value!r}") from error
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return array


def check_options(
    options: Mapping[str, Any] | None, layout_keys: Sequence[str], state_keys: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the layout and the state inside `reset(options=...)`; unknown keys are an error."""
    options = {} if options is None else options
    _known("options", options, ("layout", "state"))
    layout, state = (
        {} if options.get(key) is None else options[key] for key in ("layout", "state")
    )
    _known('options["layout"]', layout, layout_keys)
    _known('options["state"]', state, state_keys)
    return dict(layout), dict(state)


def _known(name: str, given: Any, keys: Sequence[str]) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be a dict, got {type(given).__name__}")
    unknown = [key for key in given if key not in keys]
    if unknown:
        known = ", ".join(keys) if keys else "none"
        raise ValueError(f"{name} has unknown keys {unknown}; known keys: {known}")


def rng_to_array(rng: np.random.Generator) -> np.ndarray:
    """Return the whole state of a PCG64 generator (Gymnasium's) as six uint64 numbers."""
    state: Any = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise ValueError(
            f"a checkpoint can hold only a PCG64 generator, got {state['bit_generator']}: "
            "seed with env.reset(seed=...) instead of replacing env.np_random"
        )
    wide = [state["state"]["state"], state["state"]["inc"]]
    words = [word for number in wide for word in (number >> 64, number & (2**64 - 1))]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def rng_from_array(array: np.ndarray) -> np.random.Generator:
    """Return the generator that `rng_to_array` was given."""
    array = np.asarray(array)
    if array.shape != (6,) or array.dtype != np.uint64:
        raise ValueError(
            f"rng must be six uint64 numbers, got {array.dtype} of shape {array.shape}: "
            "pass what get_checkpoint() returned"
        )
    high, low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in array)
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return np.random.Generator(bits)


class MujocoTask(gymnasium.Env[np.ndarray, np.ndarray]):
    """A task on one MuJoCo model: order of reset and step, checkpoints, rendering.

    A subclass sets `horizons`, `camera` and the spaces, and simulates one step in `_advance`.
    `action_repeat` is the number of those steps for which `step` holds an action.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012
    horizons: ClassVar[dict[str, int]]
    camera: ClassVar[dict[str, Any] | str] = {}

    def __init__(
        self,
        model: mujoco.MjModel,
        variant: str,
        render_mode: str | None,
        horizon: int | None,
        action_repeat: int = 1,
    ) -> None:
        if variant not in self.horizons:
            raise ValueError(f"variant must be one of {list(self.horizons)}, got {variant!r}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode must be None or one of {self.metadata['render_modes']}, "
                f"got {render_mode!r}"
            )
        horizon = self.horizons[variant] if horizon is None else horizon
        if int(horizon) != horizon or horizon < 1:
            raise ValueError(f"horizon must be a whole number of steps >= 1, got {horizon}")
        if int(action_repeat) != action_repeat or action_repeat < 1:
            raise ValueError(f"action_repeat must be a whole number >= 1, got {action_repeat}")
        # a diverged state must stay visible, not be replaced by the start pose
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        self.model = model
        self.data = mujoco.MjData(model)
        self.variant = variant
        self.horizon = int(horizon)
        self.action_repeat = int(action_repeat)
        self.render_mode = render_mode
        self._steps = 0
        self._phase = NOT_RESET
        self._obs = np.zeros(0)
        self._renderer: Any = None

    # ---------------------------------------------------------------- order of reset and step

    def _begin(self, obs: np.ndarray) -> np.ndarray:
        """Start an episode at this observation."""
        self._steps = 0
        self._phase = RUNNING
        self._obs = obs
        return obs.copy()

    def _require_reset(self) -> None:
        if self._phase == NOT_RESET:
            raise ResetNeeded("step was called before the first reset: call env.reset() first")
        raise ResetNeeded("step was called after the episode ended: call env.reset() first")

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold the action for `action_repeat` steps, or to the end of the episode if it is nearer.

        Reward, cost and their parts are the sums over these steps, `hazard_distance` is the least,
        `success` says if it held in one of them. With `action_repeat` above 1, `info["steps"]` is
        the number of steps taken. The observation is that after the last of them.
        """
        if self._phase != RUNNING:
            self._require_reset()
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

    # ---------------------------------------------------------------- checkpoints

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        """Return everything that decides what this environment does next, as plain arrays.

        After `set_checkpoint`, in this object or in a new one of the same class, variant and
        horizon, every later step and reset gives the same numbers to the last bit.
        """
        signature = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(mujoco.mj_stateSize(self.model, signature))
        mujoco.mj_getState(self.model, self.data, physics, signature)
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
        signature = mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.array(checkpoint["physics"], dtype=np.float64)
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, physics, signature)
        if np.isfinite(physics).all():
            # positions in space are not part of the state but the next step may start from them
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_setState(self.model, self.data, physics, signature)
        self.np_random = rng_from_array(checkpoint["rng"])
        self._steps = int(checkpoint["steps"])
        self._phase = int(checkpoint["phase"])
        self._obs = np.array(checkpoint["obs"], dtype=np.float64)

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
        physics = np.shape(checkpoint["physics"])
        size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_INTEGRATION)
        if physics != (size,):
            raise ValueError(
                f"checkpoint has physics of shape {physics}, this model needs ({size},): "
                "it was written with another MuJoCo version; install that one to continue"
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
            known = given.dtype.kind != "f" or name in ("physics", "obs")
            if not known and not np.isfinite(given).all():
                raise ValueError(f"checkpoint has {name} that is not finite: it is damaged")
        steps, phase = int(checkpoint["steps"]), int(checkpoint["phase"])
        if not (0 <= steps <= self.horizon and NOT_RESET <= phase <= ENDED):
            raise ValueError(
                f"checkpoint is at step {steps}, phase {phase}; expected 0 to {self.horizon} and "
                f"{NOT_RESET} to {ENDED}: it is damaged"
            )

    def _identity(self) -> str:
        return f"{type(self).__name__}, variant {self.variant}, horizon {self.horizon}"

    # ---------------------------------------------------------------- pictures

    def render(self) -> np.ndarray | None:
        """Return a picture of the scene by MuJoCo's renderer (`render_mode="rgb_array"`).

        Without OpenGL a warning says how to get it, and `draw()` makes the picture.
        """
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs a task made with render_mode="rgb_array"')
            return None
        if self._renderer is None:
            try:
                self._renderer = open_renderer(self.model)
            except RuntimeError as error:
                warnings.warn(str(error), stacklevel=2)
                self._renderer = False
        if self._renderer is False:
            return self.draw()
        mujoco.mj_kinematics(self.model, self.data)
        self._prepare_picture()
        self._renderer.update_scene(self.data, camera=make_camera(self.camera))
        self._decorate(self._renderer.scene)
        return self._renderer.render()

    @property
    def position(self) -> np.ndarray:
        """The robot's position, in the coordinates of the drawing's trail."""
        raise NotImplementedError

    def draw(
        self, trail: Any = (), trail_cost: Any = (), caption: str = "", size: int = 480
    ) -> np.ndarray:
        """Draw the scene without OpenGL."""
        raise NotImplementedError

    def _prepare_picture(self) -> None:
        """Place what is shown but not simulated."""

    def _decorate(self, scene: mujoco.MjvScene) -> None:
        """Add to the picture what is not in the model."""

    def close(self) -> None:
        """Close the renderer, if one is open."""
        if self._renderer:
            self._renderer.close()
        self._renderer = None


def open_renderer(model: mujoco.MjModel, width: int = 480, height: int = 480) -> Any:
    """Return MuJoCo's off-screen renderer; without one, a RuntimeError says how to get it."""
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
    model.vis.global_.offheight = max(model.vis.global_.offheight, height)
    try:
        return _renderer(model, width, height)
    except Exception as error:
        raise RuntimeError(
            f"MuJoCo has no OpenGL to render with ({error}). Without a screen, install EGL "
            "(packages libegl1 and libgl1, with or without a GPU), or libosmesa6 and set "
            "MUJOCO_GL=osmesa before Python starts. Or draw without OpenGL: env.unwrapped.draw(), "
            "or safecritic.tasks.drawing.record_episode for a whole episode."
        ) from error


def _renderer(model: mujoco.MjModel, width: int, height: int) -> Any:
    # MuJoCo asks for a window system by default; without a screen EGL works
    told = any(os.environ.get(name) for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"))
    contexts = sys.modules[mujoco.Renderer.__module__].gl_context
    chosen = before = contexts.GLContext
    if not told and sys.platform == "linux":
        from mujoco import egl

        chosen = egl.GLContext
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # tried beforehand, because a failed renderer makes the next one abort the process
        context = chosen(width, height)
        usable = bool(getattr(context, "_context", True))
        context.free()
        if not usable:
            raise RuntimeError("no window system")
        contexts.GLContext = chosen
        try:
            return mujoco.Renderer(model, height=height, width=width)
        finally:
            contexts.GLContext = before


def make_camera(settings: dict[str, Any] | str) -> mujoco.MjvCamera | str:
    """Return the name of a camera in the model as it is, or a free camera with these settings."""
    if isinstance(settings, str):
        return settings
    camera = mujoco.MjvCamera()
    for key, value in settings.items():
        setattr(camera, key, value)
    return camera
