"""The navigation tasks: a robot, objects, a sampler of scenes and a rule, put together.

The paper's four car tasks have two variants. `benchmark` is the paper's: the episode ends at the
goal or the right button; the reward is 3 for each metre nearer and 3 for arriving; the cost is 0.2
for every hazard the car's origin is in and every vase, gremlin or wrong button it touches.
`original` is Safety Gymnasium's: reward 1 and 1, cost 0 or 1, a new goal after each, 1,000 steps;
it can be compared with the original number by number (same physics, same observation, and the same
scene from the same seed). Safety Gymnasium's own ids ("SafetyPointPush1-v0") have this one alone.

What makes a step cheap: bodies at rest sleep, gremlins that nothing can touch are parked
(`gremlins.py`), a Point that nothing can touch glides without the engine (`glide.py`), the forward
pass that ends a step is the start of the next, and sensors are computed once per step instead of
once per substep. After the physics comes plain Python on some twenty points: measured between two
physics calls, with cold caches, it is twice as fast as the fifteen NumPy calls it replaces (19
against 45 microseconds for the lidars).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks.common import NOT_RESET, MujocoTask
from safecritic.tasks.drawing import Shade, draw_scene
from safecritic.tasks.navigation.alone import Alone
from safecritic.tasks.navigation.contacts import Contacts
from safecritic.tasks.navigation.gremlins import WAKE, Gremlins
from safecritic.tasks.navigation.layout import Layout, check_start
from safecritic.tasks.navigation.lidar import BINS, LIDAR_RANGE, lidar, rotation_matrix
from safecritic.tasks.navigation.model import SUBSTEPS, build_model
from safecritic.tasks.navigation.objects import (
    BUTTON_HEIGHT,
    MOVABLE,
    PILLAR_HEIGHT,
    VASE_HEIGHT,
    Arena,
)
from safecritic.tasks.navigation.pictures import scene_now
from safecritic.tasks.navigation.rules import (
    DEAD_TIME,
    ORIGINAL,
    PARTS,
    RULES,
    VASE_SPEED,
    parts_of,
)
from safecritic.tasks.navigation.sampler import (
    MAX_LAYOUTS,
    PlacementError,
    RandomStream,
    sample_goal,
    sample_layout,
    sample_layouts,
)
from safecritic.tasks.navigation.sleep import check_sleep, get_sleep, set_sleep

TOUCHING = 0.5  # m between origins; beyond it the robot touches no vase, gremlin, button or pillar
CLEAR = 0.1  # m between footprints; beyond it nothing can meet in a step
CONVERGED = 1e-14  # solver's tolerance; 1e-8 stops the engine of today before the original's did
LARGEST_NUMBER = 1e6  # m, m/s, m/s2; beyond it the simulation has diverged


class Navigation(MujocoTask):
    """A robot among objects, such as "CarGoal1" or "SafetyPointPush2-v0" (`rules.py`).

    Args:
        task: the name of the task.
        variant: "benchmark" or "original"; a Safety Gymnasium id has the second only.
        extent: half side of the arena in metres, instead of the task's own.
        park_gremlins: False simulates every gremlin all the time.
        placement: "stream" draws scenes as Safety Gymnasium does, seed for seed; "batch" draws
            them from another stream with the same distribution, several times faster for Button
            tasks. Default: "batch" for Button tasks in the benchmark variant, else "stream".
        button_timer: dead time at reset in steps; 0 as in Safety Gymnasium 1.0.0, 10 as in 1.2.0.
        settings: `render_mode`, `horizon`, `action_repeat`, see `MujocoTask`.
    """

    horizons: ClassVar[dict[str, int]] = {"benchmark": 1000, "original": 1000}

    def __init__(
        self,
        task: str = "CarGoal1",
        variant: str | None = None,
        *,
        extent: float | None = None,
        park_gremlins: bool = True,
        placement: str | None = None,
        button_timer: int = 0,
        **settings: Any,
    ) -> None:
        robot, form, variants = parts_of(task)
        variant = variants[0] if variant is None else variant
        if variant not in variants:
            raise ValueError(f"variant must be one of {list(variants)}, got {variant!r}")
        if settings.get("horizon") is None:
            settings["horizon"] = form.horizon
        self.task, self.robot, self.form = task, robot, form
        arena = replace(form.arena, box=robot.push_box[0])
        if extent is not None:
            arena = replace(arena, extent=extent)
        if not arena.extent > 0:
            raise ValueError(f"extent must be > 0, got {extent}")
        self.arena: Arena = arena
        solids = ("vases", "gremlins", "buttons", "pillars", "push_box")
        model = build_model(robot, **{kind: getattr(arena, kind) for kind in solids})
        super().__init__(model, variant, **settings)
        self.dt = SUBSTEPS * robot.timestep
        self.metadata = self.metadata | {"render_fps": round(1 / self.dt)}
        allowed = ["stream", "batch"] if arena.gremlins else ["stream"]
        self.placement = placement or allowed[-1 if variant == "benchmark" else 0]
        if self.placement not in allowed:
            raise ValueError(f"placement must be one of {allowed} for {task}, got {placement!r}")
        self.rules = RULES[variant]
        if variant == ORIGINAL:
            model.opt.tolerance = CONVERGED
            # the solution is the same from any start, and nearer to that without constraints: 8%
            model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_WARMSTART)
            # the older algorithm for a cylinder on a box
            model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
        self.has_goal = arena.goal_keepout > 0
        self.cost_unit = self.rules.cost or 1.0
        most = arena.hazards + arena.vases + arena.gremlins + max(arena.buttons - 1, 0)
        self.cost_max = 1.0 if self.rules.cost is None else self.rules.cost * most
        costs = form.costs
        if self.rules.cost is not None:
            costs = ("hazards", arena.boxes, *(("buttons",) if arena.buttons else ()))
        self._cost_names = [f"cost_{part}" for part in costs]
        self._paid = [PARTS[part] for part in form.costs]
        self.first_timer = int(button_timer)
        self._list_points()
        # views into the simulation, valid for its lifetime
        self._position, self._rotation = self.data.xpos[1], self.data.xmat[1]
        self._first_body, self._first_geom = 1 + robot.bodies, 1 + robot.geoms  # of the objects
        number = arena.counts.get(arena.boxes, 0)
        self._box_places = self.data.xpos[self._first_body : self._first_body + number]
        self._sensors = self.data.sensordata[: 3 * len(robot.readings)]
        self._balls = [self.data.qpos[start : start + 4] for start in robot.balls]
        self._flags = int(self.model.opt.disableflags)
        self._no_sensors = self._flags | int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self._gremlins: Gremlins | None = None
        if arena.gremlins:
            self._gremlins = Gremlins(robot, model, self.data, arena.gremlins, park_gremlins)
        self._list_solids()
        self._choose_ways()
        # the robot now: position, rotation matrix row by row, sensors
        self._here, self._turned, self._sensed = [0.0] * 3, [0.0] * 9, [0.0] * len(self._sensors)
        self._stream: RandomStream | None = None
        self._pool: list[Layout] = []  # placed and not used yet ("batch")
        self._attempts = 64
        self._layout: Layout = {}
        self._goal_button = 0
        self._timer = 0
        self._drawn_until = 0  # steps for which the original's stream has been read so far
        self._last_distance = 0.0
        self._nearest = 0.0  # m to the nearest hazard's edge, at the last finite state
        self._view: tuple[Any, ...] | None = None  # after the last step, while not observed

    def _list_points(self) -> None:
        """Give everything that is seen a place among the points, and lidars in the observation."""
        arena, robot = self.arena, self.robot
        # x, y and distance, kind by kind
        self._starts = [0]
        self._slices: dict[str, slice] = {}
        for kind in arena.kinds:
            self._starts.append(self._starts[-1] + arena.counts.get(kind, 1))
            self._slices[kind] = slice(*self._starts[-2:])
        self._points: list[Any] = [(0.0, 0.0)] * self._starts[-1]
        self._distances = [0.0] * self._starts[-1]  # from the robot's origin, on the floor
        nothing = slice(0, 0)
        self._goal_row = self._slices.get("goal", nothing).start
        self._hazards = self._slices.get("hazards", nothing)
        self._boxes = self._slices.get(arena.boxes, nothing)
        self.lidar_range = 2 * LIDAR_RANGE if arena.circle else LIDAR_RANGE
        size = robot.sensed + BINS * len(arena.kinds)
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        low[robot.sensed :], high[robot.sensed :] = 0.0, 1.0
        self.proximity = tuple(range(robot.sensed, size))
        self.observation_space = Box(low, high, dtype=np.float64)
        self.action_space = Box(-1.0, 1.0, (len(robot.actions),), dtype=np.float64)

    def _list_solids(self) -> None:
        """Give everything that can be touched a place among the counts of contacts."""
        arena = self.arena
        # geoms of the boxes, then of the buttons, then of the pillars
        self._first_button = arena.vases + arena.gremlins + 5 * arena.push_box
        ends = {arena.boxes: self._first_button, "buttons": arena.buttons, "pillars": arena.pillars}
        self._geoms: dict[str, slice] = {}
        self._solids = 0
        for kind, number in ends.items():
            self._geoms[kind] = slice(self._solids, self._solids + number)
            self._solids += number
        solid = [kind for kind in (*MOVABLE, "buttons", "pillars") if kind in self._slices]
        self._counted = [self._slices[kind] for kind in solid if kind != "push_box"]
        self._kept_away = [
            (
                self._slices[kind],
                WAKE if kind == "gremlins" else arena.footprint(kind) + self.robot.reach + CLEAR,
            )
            for kind in solid
        ]

    def _choose_ways(self) -> None:
        """Choose how the world is simulated, and the robot alone while it can touch nothing."""
        robot, model = self.robot, self.model
        exact = self.arena.boxes and self.variant == ORIGINAL
        self._contacts: Contacts | None = None
        if exact:
            self._contacts = Contacts(model, self.data)
            if self._gremlins is not None:
                self._gremlins.substep = self._contacts.step
        # ways for the robot to go on while nothing can be touched
        self._glide = robot.glide() if robot.glide else None
        self._alone: Alone | None = None
        if self._glide is None and exact:
            self._alone = Alone(robot, model)
        self._may_glide = self._glide is not None or self._alone is not None
        self._robot_qpos, self._robot_qvel = self.data.qpos[: robot.nq], self.data.qvel[: robot.nv]
        self._moved = False  # by gliding, since the last forward pass

    # ---------------------------------------------------------------- reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode, in a random scene or in the one given by options.

        `options={"layout": {...}, "state": {...}}`: a layout places all objects of the task; a
        state has any of qpos, qvel, time, goal, goal_button, button_timer. Both have the form of
        `env.unwrapped.layout` and `env.unwrapped.state`.
        """
        layout, state = check_start(self.arena, self.robot, options, self.model.nq, self.model.nv)
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
        return self._begin(obs), self._tell_hazard({})

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
        raise PlacementError(self.arena)

    def _start(self, state: Mapping[str, Any]) -> None:
        """Put every body where the layout says, then where the state says."""
        model, data, layout = self.model, self.data, self._layout
        mujoco.mj_resetData(model, data)
        self._fill_layout()
        pose = self.robot.pose(*layout["agent"])
        data.qpos[: len(pose)] = pose
        if self._gremlins is not None:
            self._gremlins.place(layout["gremlins"])
        elif self.arena.boxes:
            placed = layout[self.arena.boxes]
            boxes, turn = data.qpos[self.robot.nq :].reshape(-1, 7), placed[:, 2] / 2
            boxes[:, :2] = placed[:, :2]
            boxes[:, 2] = self.arena.box if self.arena.push_box else VASE_HEIGHT
            boxes[:, 3], boxes[:, 6] = np.cos(turn), np.sin(turn)
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
        self._settle_fixed()
        self._forward()
        self._moved = False
        self._read()
        if not self._sane():
            self._phase = NOT_RESET
            raise ValueError(
                "state cannot be simulated: its qpos or qvel are out of range; start from "
                "env.unwrapped.state"
            )
        self._measure()
        self._last_distance = self.form.rule.left(self)

    def _fill_layout(self) -> None:
        """Copy fixed objects into the list of points, and solid ones into the model too."""
        layout = self._layout
        if self.arena.hazards:
            self._points[self._hazards] = layout["hazards"].tolist()
        first = self._first_body + 2 * self.arena.gremlins + self.arena.push_box
        for kind, height in (("buttons", BUTTON_HEIGHT), ("pillars", PILLAR_HEIGHT)):
            if kind in layout:
                self._points[self._slices[kind]] = layout[kind].tolist()
                bodies = self.model.body_pos[first : first + len(layout[kind])]
                bodies[:, :2], bodies[:, 2] = layout[kind], height
        if "goal" in layout:
            self._points[self._goal_row] = layout["goal"].tolist()

    def _settle_fixed(self) -> None:
        """Move fixed bodies in the simulation, which skips them while bodies may sleep."""
        if self.arena.buttons or self.arena.pillars:
            flags = int(self.model.opt.enableflags)
            self.model.opt.enableflags = 0
            mujoco.mj_kinematics(self.model, self.data)
            self.model.opt.enableflags = flags

    def _choose_button(self, index: int) -> None:
        self._goal_button = int(index)
        self._points[self._goal_row] = self._layout["buttons"][self._goal_button].tolist()

    # ---------------------------------------------------------------- step

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Apply the action for ten updates of the physics."""
        self.data.ctrl[:] = action
        glides = self._may_glide and self._clear()
        try:
            if glides:
                self._glide_on(action)
            else:
                self._simulate()
                self._read()
        except mujoco.FatalError:
            return self._give_up()
        if not self._sane():
            return self._give_up()
        self._measure()
        touched = None if glides else self._touched()
        reward, info = self._reward(touched)
        cost = self._cost(touched, info)
        if self._timer:
            self._timer -= 1
        terminated = info["success"] and not (self.rules.endless and self._next_goal(info))
        self._view = self._look()
        if self._gremlins is not None:
            self._gremlins.park(self._distances[self._boxes])
        info["cost"] = cost
        return reward, terminated, self._finish(terminated), self._tell_hazard(info)

    def _clear(self) -> bool:
        """Return whether nothing else moves, and nothing can be touched in the next step."""
        if self._gremlins is not None and not self._gremlins.all_parked:
            return False
        distances = self._distances
        return self.data.ntree_awake <= 1 and all(
            min(distances[where]) > limit for where, limit in self._kept_away
        )

    def _glide_on(self, action: np.ndarray) -> None:
        """Move the robot for a step without the rest of the world."""
        qpos, qvel = self._robot_qpos, self._robot_qvel
        if self._alone is not None:
            self._alone.current = self._alone.current and self._moved
            self._alone.step(qpos, qvel, action)
            self._here, self._turned, self._sensed = self._alone.read()
        else:
            assert self._glide is not None
            before = (*qpos.tolist(), *qvel.tolist())
            after, self._sensed = self._glide(before, *action.tolist())
            qpos[:], qvel[:] = after[:3], after[3:]
            sine, cosine = -2.0 * self._sensed[9], -2.0 * self._sensed[10]  # the magnetometer's
            self._here = [*after[:2], self.robot.height]
            self._turned = [cosine, -sine, 0.0, sine, cosine, 0.0, 0.0, 0.0, 1.0]
        self.data.time += self.dt
        self._moved = True
        if self._gremlins is not None:
            self._gremlins.pass_by()

    def _simulate(self) -> None:
        model, data = self.model, self.data
        model.opt.disableflags = self._no_sensors
        try:
            if self._gremlins is not None:
                self._gremlins.step(self._distances[self._boxes])
            else:
                if self._moved and self._contacts is not None:
                    self._contacts.step()
                elif self._moved:
                    mujoco.mj_step(model, data)
                else:
                    # positions and velocities are those of the forward pass that ended the last
                    mujoco.mj_step2(model, data)
                if self._contacts is None:
                    mujoco.mj_step(model, data, SUBSTEPS - 1)
                else:
                    for _ in range(SUBSTEPS - 1):
                        self._contacts.step()
        finally:
            model.opt.disableflags = self._flags
        self._moved = False
        self._forward()

    def _forward(self) -> None:
        if self._contacts is None:
            mujoco.mj_forward(self.model, self.data)
        else:
            self._contacts.forward()

    def _read(self) -> None:
        """Copy what the forward pass found out about the robot."""
        self._here, self._turned = self._position.tolist(), self._rotation.tolist()
        self._sensed = self._sensors.tolist()

    def _velocity(self) -> list[float]:
        return self._robot_qvel[:2].tolist()

    def _sane(self) -> bool:
        """Return whether all numbers of the simulation still have a physical size."""
        numbers = [*self._sensed, *self._here]
        return (
            max(numbers) < LARGEST_NUMBER
            and min(numbers) > -LARGEST_NUMBER
            and not any(map(math.isnan, numbers))
        )

    def _measure(self) -> None:
        """Update where the movable objects are, and how far everything is from the robot."""
        if self._gremlins is not None:
            self._points[self._boxes] = self._gremlins.positions()
        elif self.arena.boxes:
            self._points[self._boxes] = self._box_places[:, :2].tolist()
        here_x, here_y, _ = self._here
        self._distances = [math.hypot(x - here_x, y - here_y) for x, y in self._points]

    def _touched(self) -> np.ndarray | None:
        """Count contact points with each solid geom; None if nothing is within reach."""
        distances = self._distances
        if all(min(distances[where]) > TOUCHING for where in self._counted):
            return None
        pairs = np.sort(self.data.contact.geom, axis=1)
        robot, other = pairs[:, 0], pairs[:, 1] - self._first_geom
        mine = (robot >= 1) & (robot < self._first_geom) & (other >= 0)
        return np.bincount(other[mine], minlength=self._solids)

    def _touches(self, touched: np.ndarray | None, kind: str) -> int:
        """Return how many objects of this kind the robot touches."""
        return 0 if touched is None else int(np.count_nonzero(touched[self._geoms[kind]]))

    def _wrong_buttons(self, touched: np.ndarray | None) -> int:
        if touched is None or not self.arena.buttons:
            return 0
        pressed = self._touches(touched, "buttons")
        return pressed - int(touched[self._first_button + self._goal_button] > 0)

    def _nearest_hazard(self) -> float:
        return min(self._distances[self._hazards])

    def _vase_moves(self) -> bool:
        if self._moved:
            return False  # all sleep while the robot glides
        speed = self.data.qvel[self.robot.nv :].reshape(-1, 6)[:, :3]
        return bool((np.einsum("ij,ij->i", speed, speed) >= VASE_SPEED**2).any())

    def _reward(self, touched: np.ndarray | None) -> tuple[float, dict[str, Any]]:
        rule = self.form.rule
        nearer = self.rules.distance * rule.gain(self)
        met = rule.met(self, touched)
        info: dict[str, Any] = {rule.part: nearer, "success": met}
        reward = nearer
        if self.has_goal:
            info["reward_goal"] = bonus = self.rules.bonus if met else 0.0
            reward += bonus
            if met and self.rules.endless:
                info["goal_met"] = True
        if self.rules.endless:
            reward = min(rule.largest, max(-rule.largest, reward))
        return reward, info

    def _cost(self, touched: np.ndarray | None, info: dict[str, Any]) -> float:
        """Return the cost of the step; its parts go into `info`."""
        unit = self.rules.cost
        if unit is not None:
            radius = self.arena.hazard_radius
            inside = sum(d <= radius for d in self._distances[self._hazards])
            # wrong buttons are free here too while a given state is in the dead time
            wrong = 0 if self._timer else self._wrong_buttons(touched)
            counts = (inside, self._touches(touched, self.arena.boxes), wrong)
            info.update({name: unit * n for name, n in zip(self._cost_names, counts, strict=False)})
            return unit * sum(counts)
        total = 0.0
        for name, part in zip(self._cost_names, self._paid, strict=True):
            if not (self._timer and name == "cost_buttons"):
                info[name] = paid = float(part(self, touched))
                total = max(total, paid)
        info["cost_sum"] = total
        return total

    def _next_goal(self, info: dict[str, Any]) -> bool:
        """Set a new goal in the same scene; return False if there is no room for one."""
        assert self._stream is not None
        self._catch_up(self._steps + 1)
        if self.arena.buttons:
            self._choose_button(self._stream.choice(self.arena.buttons))
            self._timer = DEAD_TIME
        else:
            scene = self._layout | {"agent": np.array(self._here[:2])}
            if self.arena.boxes:
                scene[self.arena.boxes] = np.array(self._points[self._boxes])
            goal = sample_goal(self.arena, self._stream, scene)
            if goal is None:
                info["placement_failed"] = True
                return False
            self._points[self._goal_row] = goal.tolist()
        self._measure()
        self._last_distance = self.form.rule.left(self)
        return True

    def _catch_up(self, steps: int) -> None:
        """Skip the number that the original draws in every step, only where it matters."""
        assert self._stream is not None
        self._stream.advance(steps - self._drawn_until)
        self._drawn_until = steps

    def _give_up(self) -> tuple[float, bool, bool, dict[str, Any]]:
        """End an episode whose simulation diverged, at the last finite observation."""
        self._finish(True)
        info: dict[str, Any] = {self.form.rule.part: 0.0, "success": False}
        info |= dict.fromkeys(self._cost_names, 0.0)
        if self.has_goal:
            info["reward_goal"] = 0.0
        if self.rules.cost is None:
            info["cost_sum"] = 0.0
        if self.arena.hazards:
            info["hazard_distance"] = self._nearest
        return 0.0, False, True, info | {"cost": 0.0, "diverged": True}

    # ---------------------------------------------------------------- observation

    def _observed(self) -> np.ndarray:
        if self._view is not None:
            self._obs, self._view = self._seen(*self._view), None
        return self._obs

    def _observe(self) -> np.ndarray:
        return self._seen(*self._look())

    def _look(self) -> tuple[Any, ...]:
        """Copy what an observation is computed from; steps between decisions pay no more."""
        return (
            self._sensed,
            self._here,
            self._turned,
            [ball.tolist() for ball in self._balls],
            self._points.copy(),
            bool(self._timer and self.arena.buttons),
        )

    def _seen(
        self, sensors: Any, position: Any, rotation: Any, balls: Any, points: Any, unseen: bool
    ) -> np.ndarray:
        """Return the observation from what `_look` copied; `unseen`: the buttons are."""
        lidars = lidar(points, self._starts, position, rotation, self.lidar_range)
        if unseen:
            lidars[:BINS] = [0.0] * BINS  # the buttons' lidar comes first
        matrices = [number for ball in balls for number in rotation_matrix(*ball)]
        return np.array([*sensors, *matrices, *lidars])

    def _tell_hazard(self, info: dict[str, Any]) -> dict[str, Any]:
        """Add the metres from the robot's origin to the nearest hazard's edge; negative inside."""
        if self.arena.hazards:
            self._nearest = self._nearest_hazard() - self.arena.hazard_radius
            info["hazard_distance"] = self._nearest
        return info

    # ---------------------------------------------------------------- pictures

    @property
    def position(self) -> np.ndarray:
        """The robot's x and y, for the trail in drawings."""
        return np.array(self._here[:2])

    @property
    def heading(self) -> float:
        """The robot's rotation about z."""
        return math.atan2(self._turned[3], self._turned[0])

    def draw(
        self,
        trail: Any = (),
        trail_cost: Any = (),
        caption: str = "",
        size: int = 480,
        shade: Shade | None = None,
    ) -> np.ndarray:
        """Draw the scene from above, over a map if given."""
        return draw_scene(scene_now(self, trail, trail_cost, caption, shade), size)

    # ---------------------------------------------------------------- layout and state

    @property
    def layout(self) -> Layout:
        """Where everything stood at the reset, as `reset` takes it."""
        return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self._layout.items()}

    @property
    def state(self) -> dict[str, Any]:
        """Where everything is now, as `reset` takes it together with the layout."""
        state = super().state
        if self.has_goal:
            state["goal"] = np.array(self._points[self._goal_row])
        if self._gremlins is not None:
            qpos, qvel = self._gremlins.poses()
            state["qpos"][self.robot.nq :], state["qvel"][self.robot.nv :] = (
                qpos.ravel(),
                qvel.ravel(),
            )
        if self.arena.buttons:
            state |= {"goal_button": self._goal_button, "button_timer": self._timer}
        return state

    # ---------------------------------------------------------------- checkpoints

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        checkpoint = super().get_checkpoint() | get_sleep(self.data)
        for name, value in self._layout.items():
            rows = [np.asarray(layout[name]) for layout in self._pool]
            checkpoint[f"layout_{name}"] = np.asarray(value)
            checkpoint[f"pool_{name}"] = np.array(rows).reshape(-1, *np.shape(value))
        counters = [self._goal_button, self._timer, self._drawn_until, self._attempts]
        checkpoint["counters"] = np.array(counters, dtype=np.int64)
        if self.has_goal:
            checkpoint["goal"] = np.array(self._points[self._goal_row])
        checkpoint["last_distance"] = np.array(self._last_distance)
        checkpoint["stream"] = np.zeros(0) if self._stream is None else self._stream.get_state()
        if self._may_glide:
            checkpoint["moved"] = np.array(self._moved)
        if self._gremlins is not None:
            checkpoint |= self._gremlins.get_checkpoint()
        return checkpoint

    def set_checkpoint(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        self._check_checkpoint(checkpoint)  # before the layout changes
        layout, pool = _unstack(checkpoint, "layout_"), _unstack(checkpoint, "pool_")
        if layout:
            self._layout = _plain(layout)
            self._fill_layout()
            if self._gremlins is not None:
                self._gremlins.place(self._layout["gremlins"])
                self._gremlins.set_checkpoint(checkpoint)
        super().set_checkpoint(checkpoint)
        self._settle_fixed()
        set_sleep(self.data, checkpoint)
        self._forward_from(checkpoint["physics"])
        if self._contacts is not None:
            self._contacts.mend()
        self._read()
        self._moved = self._may_glide and bool(checkpoint["moved"])
        if self._alone is not None:
            self._alone.current = False
        size = len(pool["agent"]) if pool else 0
        self._pool = [_plain({name: v[k] for name, v in pool.items()}) for k in range(size)]
        self._view = None
        counters = checkpoint["counters"].tolist()
        self._goal_button, self._timer, self._drawn_until, self._attempts = counters
        if self.has_goal:
            self._points[self._goal_row] = checkpoint["goal"].tolist()
        self._last_distance = float(checkpoint["last_distance"])
        self._stream = None
        if checkpoint["stream"].size:
            self._stream = RandomStream(0)
            self._stream.set_state(checkpoint["stream"])
        if layout:
            self._measure()

    def _check_forms(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        super()._check_forms(checkpoint)
        check_sleep(self.model, checkpoint)
        stream, buttons = np.asarray(checkpoint["stream"]), max(self.arena.buttons, 1)
        if stream.size and (stream.shape != (627,) or not 0 <= stream[-3] <= 624):
            raise ValueError("checkpoint has a stream that is no state of MT19937: it is damaged")
        counters = np.asarray(checkpoint["counters"])
        if counters.shape != (4,) or not 0 <= counters[0] < buttons:
            raise ValueError(f"checkpoint has a goal button outside 0 to {buttons - 1}")

    def _identity(self) -> str:
        settings = f"arena +-{self.arena.extent}, placement {self.placement}"
        return f"{self.task}, variant {self.variant}, horizon {self.horizon}, {settings}"


def _unstack(checkpoint: Mapping[str, np.ndarray], prefix: str) -> Layout:
    return {k.removeprefix(prefix): v for k, v in checkpoint.items() if k.startswith(prefix)}


def _plain(layout: Layout) -> Layout:
    """Return the layout with the goal button as a plain number."""
    return {k: int(v) if k == "goal_button" else np.array(v) for k, v in layout.items()}
