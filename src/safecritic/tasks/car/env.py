"""The car tasks: drive to the goal, or press the right button, without touching anything else.

Each has two variants. `benchmark` is the paper's: the episode ends at the goal or the right button;
the reward is 3 for each metre nearer and 3 for arriving; the cost is 0.2 for every hazard the car's
origin is in and every vase, gremlin or wrong button it touches. `original` is Safety Gymnasium's:
reward 1 and 1, cost 0 or 1, a new goal after each, 1,000 steps; it can be compared with the
original number by number (same physics, same observation, and the same scene from the same seed).

What makes a step cheap: bodies at rest sleep, gremlins that nothing can touch are parked
(`gremlins.py`), the forward pass that ends a step is the start of the next, and sensors are
computed once per step instead of once per substep. After the physics comes plain Python on some
twenty points: measured between two physics calls, with cold caches, it is twice as fast as the
fifteen NumPy calls it replaces (19 against 45 microseconds for the lidars).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import mujoco
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks.car.gremlins import Gremlins
from safecritic.tasks.car.layout import GOAL_RADIUS, HAZARD_RADIUS, Layout, check_start
from safecritic.tasks.car.lidar import BINS, lidar, rotation_matrix
from safecritic.tasks.car.model import (
    BUTTON_HEIGHT,
    CAR_FREE,
    CAR_NQ,
    CAR_NV,
    SUBSTEPS,
    VASE_HEIGHT,
    build_model,
    car_pose,
)
from safecritic.tasks.car.pictures import add_geoms, scene_now
from safecritic.tasks.car.placement import (
    MAX_LAYOUTS,
    PlacementError,
    RandomStream,
    does_not_fit,
    sample_goal,
    sample_layout,
    sample_layouts,
)
from safecritic.tasks.car.rules import ARENAS, DEAD_TIME, RULES, VASE_SPEED
from safecritic.tasks.common import NOT_RESET, MujocoTask
from safecritic.tasks.drawing import draw_scene

SENSORS = 15  # accelerometer, velocimeter, gyro, magnetometer, ball velocity: 3 each
FIRST_LIDAR = SENSORS + 9  # then the ball's rotation matrix
FIRST_BOX_BODY, FIRST_BOX_GEOM = 5, 9  # after the world's and the car's own
TOUCHING = 0.5  # m between origins; beyond it the car cannot touch anything
LARGEST_NUMBER = 1e6  # m, m/s, m/s2; beyond it the simulation has diverged


class View(NamedTuple):
    """The numbers that an observation is computed from."""

    sensors: list[float]
    position: list[float]
    rotation: list[float]
    ball: list[float]
    points: list[Any]
    buttons_unseen: bool


class CarTask(MujocoTask):
    """One of CarGoal1, CarGoal2, CarButton1, CarButton2.

    Args:
        task: the name of the task.
        variant: "benchmark" or "original".
        render_mode: None or "rgb_array".
        horizon: steps after which the episode is truncated (1,000).
        extent: half side of the arena in metres, instead of the task's own.
        park_gremlins: False simulates every gremlin all the time.
        placement: "stream" draws scenes as Safety Gymnasium does, seed for seed; "batch" draws
            them from another stream with the same distribution, several times faster for Button
            tasks. Default: "batch" for Button tasks in the benchmark variant, else "stream".
        button_timer: dead time at reset in steps; 0 as in Safety Gymnasium 1.0.0, 10 as in 1.2.0.
        action_repeat: steps for which an action is held, see `MujocoTask.step`.
    """

    horizons: ClassVar[dict[str, int]] = {"benchmark": 1000, "original": 1000}
    camera: ClassVar[dict[str, Any] | str] = "above"

    def __init__(
        self,
        task: str = "CarGoal1",
        variant: str = "benchmark",
        render_mode: str | None = None,
        horizon: int | None = None,
        extent: float | None = None,
        park_gremlins: bool = True,
        placement: str | None = None,
        button_timer: int = 0,
        action_repeat: int = 1,
    ) -> None:
        if task not in ARENAS:
            raise ValueError(f"task must be one of {list(ARENAS)}, got {task!r}")
        self.task = task
        self.arena = ARENAS[task] if extent is None else replace(ARENAS[task], extent=extent)
        arena = self.arena
        if not arena.extent > 0:
            raise ValueError(f"extent must be > 0, got {extent}")
        model = build_model(arena.vases, arena.gremlins, arena.buttons)
        super().__init__(model, variant, render_mode, horizon, action_repeat)
        batch = bool(arena.buttons) and variant == "benchmark"
        placement = placement or ("batch" if batch else "stream")
        if placement not in ("stream", "batch") or (placement == "batch" and not arena.buttons):
            allowed = ["stream", "batch"] if arena.buttons else ["stream"]
            raise ValueError(f"placement must be one of {allowed} for {task}, got {placement!r}")
        self.placement = placement
        self.rules = RULES[variant]
        self.cost_unit = self.rules.cost or 1.0
        wrong = max(arena.buttons - 1, 0)
        most = arena.hazards + arena.vases + arena.gremlins + wrong
        self.cost_max = 1.0 if self.rules.cost is None else self.rules.cost * most
        self.first_timer = int(button_timer)

        self.kinds = arena.kinds
        counts = [1 if kind == "goal" else getattr(arena, kind) for kind in self.kinds]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self._slices = {
            kind: slice(int(a), int(b))
            for kind, a, b in zip(self.kinds, starts[:-1], starts[1:], strict=True)
        }
        self._points: list[Any] = [(0.0, 0.0)] * int(starts[-1])  # x, y of everything seen
        self._goal_row = self._slices["goal"].start
        self._hazards = self._slices["hazards"]
        self._boxes = self._slices["gremlins" if arena.gremlins else "vases"]
        self._starts = [int(start) for start in starts]
        size = FIRST_LIDAR + BINS * len(self.kinds)
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        low[FIRST_LIDAR:], high[FIRST_LIDAR:] = 0.0, 1.0
        self.closeness = tuple(range(FIRST_LIDAR, size))
        self.observation_space = Box(low, high, dtype=np.float64)
        self.action_space = Box(-1.0, 1.0, (2,), dtype=np.float64)

        # views into the simulation, valid for its lifetime
        self._position, self._rotation = self.data.xpos[1], self.data.xmat[1].reshape(3, 3)
        boxes = arena.vases + arena.gremlins
        self._box_positions = self.data.xpos[FIRST_BOX_BODY : FIRST_BOX_BODY + boxes, :2]
        self._sensors, self._ball = self.data.sensordata[:SENSORS], self.data.qpos[9:13]
        self._flags = int(self.model.opt.disableflags)
        self._quiet = self._flags | int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self._gremlins = (
            Gremlins(self.model, self.data, arena.gremlins, park_gremlins)
            if arena.gremlins
            else None
        )
        self._stream: RandomStream | None = None
        self._pool: list[Layout] = []  # placed and not used yet ("batch")
        self._attempts = 64
        self._layout: Layout = {}
        self._goal_button = 0
        self._timer = 0
        self._drawn_until = 0  # steps for which the original's stream has been read so far
        self._last_distance = 0.0
        self._nearest = 0.0  # m to the nearest hazard's edge, at the last finite state
        self._distances = [0.0] * int(starts[-1])  # from the car's origin, on the floor
        self._view: View | None = None  # after the last step, as long as it is not observed

    # ---------------------------------------------------------------- reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode, in a random scene or in the one given by options.

        `options={"layout": {...}, "state": {...}}`: a layout places all objects of the task; a
        state has any of qpos, qvel, time, goal, goal_button, button_timer. Both have the form of
        `env.unwrapped.layout` and `env.unwrapped.state`.
        """
        layout, state = check_start(self.arena, options, self.model.nq, self.model.nv)
        super().reset(seed=seed)
        if seed is not None or self._stream is None:
            chosen = int(self.np_random.integers(2**31)) if seed is None else seed % 2**32
            self._stream, self._pool = RandomStream(chosen), []
            self._attempts = 64  # after a seed, perhaps only one layout is needed
        else:
            self._catch_up(self._steps)
        self._drawn_until = 0
        self._layout = layout if layout is not None else self._new_layout()
        self._start(state)
        self._view = None
        obs = self._observe()
        self._nearest = self._hazard_distance()
        return self._begin(obs), {"hazard_distance": self._nearest}

    def _new_layout(self) -> Layout:
        assert self._stream is not None
        if self.placement == "stream":
            return sample_layout(self.arena, self._stream)
        tried = 0
        while tried < MAX_LAYOUTS:
            if self._pool:
                return self._pool.pop()
            self._pool = sample_layouts(self.arena, self.np_random, self._attempts)
            tried += self._attempts
            self._attempts = 256  # many at once are cheaper for each
        raise PlacementError(does_not_fit(self.arena))

    def _start(self, state: Mapping[str, Any]) -> None:
        """Put every body where the layout says, then where the state says."""
        model, data, layout = self.model, self.data, self._layout
        mujoco.mj_resetData(model, data)
        self._fill_layout()
        data.qpos[:CAR_FREE] = car_pose(*layout["agent"])
        if self.arena.vases:
            boxes = data.qpos[CAR_NQ:].reshape(-1, 7)
            half = layout["vases"][:, 2] / 2
            boxes[:, :2], boxes[:, 2] = layout["vases"][:, :2], VASE_HEIGHT
            boxes[:, 3], boxes[:, 6] = np.cos(half), np.sin(half)
        if self._gremlins is not None:
            self._gremlins.place(layout["gremlins"])
        if "qpos" in state:
            data.qpos[:] = state["qpos"]
        if "qvel" in state:
            data.qvel[:] = state["qvel"]
        data.time = float(state.get("time", 0.0))
        if self._gremlins is not None:
            self._gremlins.place_carriers()
        self._timer = int(state.get("button_timer", self.first_timer))
        if self.arena.buttons:
            self._choose_button(state.get("goal_button", layout["goal_button"]))
        if "goal" in state:
            self._points[self._goal_row] = state["goal"].tolist()
        self._settle_buttons()
        mujoco.mj_forward(model, data)
        if not self._sane():
            self._phase = NOT_RESET
            raise ValueError(
                "state cannot be simulated: its qpos or qvel are out of range; start from "
                "env.unwrapped.state"
            )
        self._measure()
        self._last_distance = self._distances[self._goal_row]

    def _fill_layout(self) -> None:
        """Copy fixed objects into the list of points, and buttons into the model too."""
        layout = self._layout
        self._points[self._hazards] = layout["hazards"].tolist()
        if self.arena.buttons:
            self._points[self._slices["buttons"]] = layout["buttons"].tolist()
            first = FIRST_BOX_BODY + 2 * self.arena.gremlins
            self.model.body_pos[first : first + self.arena.buttons, :2] = layout["buttons"]
            self.model.body_pos[first : first + self.arena.buttons, 2] = BUTTON_HEIGHT
        else:
            self._points[self._goal_row] = layout["goal"].tolist()

    def _settle_buttons(self) -> None:
        """Move the buttons in the simulation, which skips fixed bodies while bodies may sleep."""
        if self.arena.buttons:
            flags = int(self.model.opt.enableflags)
            self.model.opt.enableflags = 0
            mujoco.mj_kinematics(self.model, self.data)
            self.model.opt.enableflags = flags

    def _choose_button(self, index: int) -> None:
        self._goal_button = int(index)
        self._points[self._goal_row] = self._layout["buttons"][self._goal_button].tolist()

    # ---------------------------------------------------------------- step

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Apply torques to the left and the right wheel for 0.04 s; they saturate at +-0.02."""
        self.data.ctrl[:] = action
        try:
            self._simulate()
        except mujoco.FatalError:
            return self._give_up()
        if not self._sane():
            return self._give_up()
        self._measure()
        touched = self._touched()
        terminated = False
        reward, info = self._reward(touched)
        cost = self._cost(touched, info)
        if self._timer:
            self._timer -= 1
        success = info["success"]
        if success:
            if self.rules.endless:
                terminated = not self._next_goal(info)
            else:
                terminated = True
        self._view = self._look()
        if self._gremlins is not None:
            self._gremlins.park(self._distances[self._boxes])
        info["cost"] = cost
        info["hazard_distance"] = self._nearest = self._hazard_distance()
        return reward, terminated, self._finish(terminated), info

    def _simulate(self) -> None:
        model, data = self.model, self.data
        model.opt.disableflags = self._quiet
        try:
            if self._gremlins is None:
                # positions and velocities are those of the forward pass that ended the last step
                mujoco.mj_step2(model, data)
                mujoco.mj_step(model, data, SUBSTEPS - 1)
            else:
                self._gremlins.step(self._distances[self._boxes])
        finally:
            model.opt.disableflags = self._flags
        mujoco.mj_forward(model, data)

    def _sane(self) -> bool:
        """Return whether all numbers of the simulation still have a physical size."""
        numbers = [*self._sensors.tolist(), *self._position.tolist()]
        return (
            max(numbers) < LARGEST_NUMBER
            and min(numbers) > -LARGEST_NUMBER
            and not any(map(math.isnan, numbers))
        )

    def _measure(self) -> None:
        """Update where the movable objects are, and how far everything is from the car."""
        if self._gremlins is None:
            self._points[self._boxes] = self._box_positions.tolist()
        else:
            self._points[self._boxes] = self._gremlins.positions()
        here_x, here_y, _ = self._position.tolist()
        self._distances = [math.hypot(x - here_x, y - here_y) for x, y in self._points]

    def _touched(self) -> np.ndarray | None:
        """Count contact points with each box, then each button; None if nothing is within reach."""
        distances = self._distances
        if min(distances[self._boxes]) > TOUCHING and (
            not self.arena.buttons or min(distances[self._slices["buttons"]]) > TOUCHING
        ):
            return None
        pairs = np.sort(self.data.contact.geom, axis=1)
        car, other = pairs[:, 0], pairs[:, 1] - FIRST_BOX_GEOM
        mine = (car >= 1) & (car < FIRST_BOX_GEOM) & (other >= 0)
        solids = self.arena.vases + self.arena.gremlins + self.arena.buttons
        return np.bincount(other[mine], minlength=solids)

    def _reward(self, touched: np.ndarray | None) -> tuple[float, dict[str, Any]]:
        distance = self._distances[self._goal_row]
        if self.arena.buttons:
            button = self.arena.gremlins + self._goal_button
            met = touched is not None and bool(touched[button])
        else:
            met = distance <= GOAL_RADIUS
        nearer = self.rules.distance * (self._last_distance - distance)
        bonus = self.rules.bonus if met else 0.0
        self._last_distance = distance
        reward = nearer + bonus
        if self.rules.endless:
            reward = min(10.0, max(-10.0, reward))
        return reward, {"reward_distance": nearer, "reward_goal": bonus, "success": met}

    def _cost(self, touched: np.ndarray | None, info: dict[str, Any]) -> float:
        """Return the cost of the step; its parts go into `info`."""
        arena, unit = self.arena, self.rules.cost
        inside = sum(d <= HAZARD_RADIUS for d in self._distances[self._hazards])
        boxes = arena.vases + arena.gremlins
        touching = 0 if touched is None else int(np.count_nonzero(touched[:boxes]))
        wrong = 0
        if arena.buttons and touched is not None:
            pressed = touched[boxes:].astype(bool)
            wrong = int(np.count_nonzero(pressed)) - int(pressed[self._goal_button])
        if unit is not None:
            # wrong buttons are free here too while a given state is in the dead time
            wrong = 0 if self._timer else wrong
            info["cost_hazards"] = unit * inside
            info["cost_gremlins" if arena.gremlins else "cost_vases"] = unit * touching
            if arena.buttons:
                info["cost_buttons"] = unit * wrong
            return unit * (inside + touching + wrong)
        # the border itself costs nothing, as in the original's sum of depths
        parts = {"hazards": min(self._distances[self._hazards]) < HAZARD_RADIUS}
        if self.task == "CarGoal2":
            parts["vases_contact"] = touching > 0
            parts["vases_velocity"] = self._vase_moves()
        if arena.buttons:
            parts["gremlins"] = touching > 0
            if not self._timer:
                parts["buttons"] = wrong > 0
        info.update({f"cost_{name}": float(on) for name, on in parts.items()})
        return float(any(parts.values()))

    def _vase_moves(self) -> bool:
        speed = self.data.qvel[CAR_NV:].reshape(-1, 6)[:, :3]
        return bool((np.einsum("ij,ij->i", speed, speed) >= VASE_SPEED**2).any())

    def _next_goal(self, info: dict[str, Any]) -> bool:
        """Set a new goal in the same scene; return False if there is no room for one."""
        assert self._stream is not None
        self._catch_up(self._steps + 1)
        if self.arena.buttons:
            self._choose_button(self._stream.choice(self.arena.buttons))
            self._timer = DEAD_TIME
        else:
            scene = self._layout | {
                "agent": self._position[:2],
                "vases": np.array(self._points[self._boxes]),
            }
            goal = sample_goal(self.arena, self._stream, scene)
            if goal is None:
                info["placement_failed"] = True
                return False
            self._points[self._goal_row] = goal.tolist()
        self._measure()
        self._last_distance = self._distances[self._goal_row]
        return True

    def _catch_up(self, steps: int) -> None:
        """Skip the number that the original draws in every step, only where it matters."""
        assert self._stream is not None
        self._stream.advance(steps - self._drawn_until)
        self._drawn_until = steps

    def _give_up(self) -> tuple[float, bool, bool, dict[str, Any]]:
        """End an episode whose simulation diverged, at the last finite observation."""
        self._finish(True)
        info: dict[str, Any] = {"reward_distance": 0.0, "reward_goal": 0.0, "success": False}
        info |= dict.fromkeys((f"cost_{part}" for part in self._cost_parts()), 0.0)
        info |= {"cost": 0.0, "hazard_distance": self._nearest, "diverged": True}
        return 0.0, False, True, info

    def _cost_parts(self) -> list[str]:
        boxes = "gremlins" if self.arena.gremlins else "vases"
        if self.rules.cost is not None:
            return ["hazards", boxes, *(["buttons"] if self.arena.buttons else [])]
        if self.arena.buttons:
            return ["hazards", "gremlins", "buttons"]
        return [
            "hazards",
            *(["vases_contact", "vases_velocity"] if self.task == "CarGoal2" else []),
        ]

    # ---------------------------------------------------------------- observation

    def _observed(self) -> np.ndarray:
        if self._view is not None:
            self._obs, self._view = self._seen(self._view), None
        return self._obs

    def _observe(self) -> np.ndarray:
        return self._seen(self._look())

    def _look(self) -> View:
        """Copy what an observation is computed from; steps between decisions pay no more."""
        return View(
            self._sensors.tolist(),
            self._position.tolist(),
            self._rotation.ravel().tolist(),
            self._ball.tolist(),
            self._points.copy(),
            bool(self._timer and self.arena.buttons),
        )

    def _seen(self, view: View) -> np.ndarray:
        """Return the observation of a view."""
        lidars = lidar(view.points, self._starts, view.position, view.rotation)
        if view.buttons_unseen:
            lidars[:BINS] = [0.0] * BINS  # the buttons' lidar comes first
        return np.array([*view.sensors, *rotation_matrix(*view.ball), *lidars])

    def _hazard_distance(self) -> float:
        """Return metres from the car's origin to the nearest hazard's edge; negative inside."""
        return min(self._distances[self._hazards]) - HAZARD_RADIUS

    # ---------------------------------------------------------------- pictures

    @property
    def position(self) -> np.ndarray:
        """The car's x and y, for the trail in drawings."""
        return self._position[:2].copy()

    @property
    def heading(self) -> float:
        """The car's rotation about z; it drives towards its own -y."""
        return math.atan2(self._rotation[1, 0], self._rotation[0, 0])

    def draw(
        self,
        trail: Any = (),
        trail_cost: Any = (),
        caption: str = "",
        size: int = 480,
        shade: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw the scene from above, without OpenGL, over a map of values in [0, 1] if given."""
        scene = scene_now(self, trail, trail_cost, caption)
        return draw_scene(replace(scene, shade=shade), size)

    def _decorate(self, scene: mujoco.MjvScene) -> None:
        add_geoms(self, scene)

    # ---------------------------------------------------------------- layout and state

    @property
    def layout(self) -> Layout:
        """Where everything stood at the reset, as `reset` takes it."""
        return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self._layout.items()}

    @property
    def state(self) -> dict[str, Any]:
        """Where everything is now, as `reset` takes it together with the layout."""
        state: dict[str, Any] = {
            "qpos": self.data.qpos.copy(),
            "qvel": self.data.qvel.copy(),
            "time": float(self.data.time),
            "goal": np.array(self._points[self._goal_row]),
        }
        if self._gremlins is not None:
            qpos, qvel = self._gremlins.poses()
            state["qpos"][CAR_NQ:], state["qvel"][CAR_NV:] = qpos.ravel(), qvel.ravel()
            state |= {"goal_button": self._goal_button, "button_timer": self._timer}
        return state

    # ---------------------------------------------------------------- checkpoints

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        checkpoint = super().get_checkpoint()
        # which bodies sleep is not part of MuJoCo's state, but decides what moves next
        checkpoint |= {f"sleep_{name}": np.array(getattr(self.data, name)) for name in _SLEEP}
        checkpoint |= {f"layout_{name}": np.asarray(v) for name, v in self._layout.items()}
        for name, value in self._layout.items():
            rows = [np.asarray(layout[name]) for layout in self._pool]
            checkpoint[f"pool_{name}"] = np.array(rows).reshape(-1, *np.shape(value))
        counters = [self._goal_button, self._timer, self._drawn_until, self._attempts]
        checkpoint["counters"] = np.array(counters, dtype=np.int64)
        checkpoint["goal"] = np.array(self._points[self._goal_row])
        checkpoint["last_distance"] = np.array(self._last_distance)
        checkpoint["stream"] = np.zeros(0) if self._stream is None else self._stream.get_state()
        if self._gremlins is not None:
            checkpoint |= self._gremlins.get_checkpoint()
        return checkpoint

    def set_checkpoint(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        self._check_checkpoint(checkpoint)  # before the layout changes
        layouts = _unstack(checkpoint, "layout_")
        if layouts:
            self._layout = layouts
            self._fill_layout()
            if self._gremlins is not None:
                self._gremlins.place(self._layout["gremlins"])
                self._gremlins.set_checkpoint(checkpoint)
        super().set_checkpoint(checkpoint)
        self._settle_buttons()
        for name in _SLEEP:
            value = checkpoint[f"sleep_{name}"]
            if value.ndim:
                getattr(self.data, name)[:] = value
            else:
                setattr(self.data, name, int(value))
        physics, signature = checkpoint["physics"], mujoco.mjtState.mjSTATE_INTEGRATION
        if np.isfinite(physics).all():
            mujoco.mj_forward(self.model, self.data)
            mujoco.mj_setState(self.model, self.data, physics, signature)
        pool = _unstack(checkpoint, "pool_")
        size = len(pool["agent"]) if pool else 0
        self._pool = [_plain({name: v[k] for name, v in pool.items()}) for k in range(size)]
        self._layout = _plain(self._layout)
        self._view = None
        counters = [int(n) for n in checkpoint["counters"]]
        self._goal_button, self._timer, self._drawn_until, self._attempts = counters
        self._points[self._goal_row] = checkpoint["goal"].tolist()
        self._last_distance = float(checkpoint["last_distance"])
        self._stream = None
        if checkpoint["stream"].size:
            self._stream = RandomStream(0)
            self._stream.set_state(checkpoint["stream"])
        if layouts:
            self._measure()

    def _check_forms(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        super()._check_forms(checkpoint)
        check_sleep(self.model, {name: checkpoint[f"sleep_{name}"] for name in _SLEEP})
        stream, buttons = np.asarray(checkpoint["stream"]), max(self.arena.buttons, 1)
        if stream.size and (stream.shape != (627,) or not 0 <= stream[-3] <= 624):
            raise ValueError("checkpoint has a stream that is no state of MT19937: it is damaged")
        counters = np.asarray(checkpoint["counters"])
        if counters.shape != (4,) or not 0 <= counters[0] < buttons:
            raise ValueError(f"checkpoint has a goal button outside 0 to {buttons - 1}")

    def _identity(self) -> str:
        settings = f"arena +-{self.arena.extent}, placement {self.placement}"
        return f"{self.task}, variant {self.variant}, horizon {self.horizon}, {settings}"


_SLEEP = (
    "tree_asleep",
    "tree_awake",
    "body_awake",
    "body_awake_ind",
    "parent_awake_ind",
    "dof_awake_ind",
    "ntree_awake",
    "nbody_awake",
    "nparent_awake",
    "nv_awake",
)


def check_sleep(model: mujoco.MjModel, sleep: Mapping[str, Any]) -> None:
    """Refuse a record of sleeping bodies that would make MuJoCo read beyond its arrays."""
    trees, bodies, dofs = model.ntree, model.nbody, model.nv
    counts = {
        "ntree_awake": trees,
        "nbody_awake": bodies,
        "nparent_awake": bodies,
        "nv_awake": dofs,
    }
    places = {
        "body_awake_ind": ("nbody_awake", bodies),
        "parent_awake_ind": ("nparent_awake", bodies),
        "dof_awake_ind": ("nv_awake", dofs),
    }
    good = all(0 <= int(sleep[name]) <= most for name, most in counts.items())
    for name, (count, most) in places.items():
        used = np.asarray(sleep[name])[: int(sleep[count])] if good else np.zeros(0)
        good = good and bool(((used >= 0) & (used < most)).all())
    # trees that sleep name the next one of their group, in a ring
    asleep = np.asarray(sleep["tree_asleep"])
    rings = np.flatnonzero(asleep >= 0)
    if not good or sorted(asleep[rings].tolist()) != rings.tolist():
        raise ValueError("checkpoint has a record of sleeping bodies that cannot be: it is damaged")


def _unstack(checkpoint: Mapping[str, np.ndarray], prefix: str) -> Layout:
    return {
        k.removeprefix(prefix): np.array(v) for k, v in checkpoint.items() if k.startswith(prefix)
    }


def _plain(layout: Layout) -> Layout:
    """Return the layout with the goal button as a plain number."""
    return {k: int(v) if k == "goal_button" else np.array(v) for k, v in layout.items()}
