"""Gremlins: boxes that circle a fixed point, simulated only while something can touch them.

A gremlin is welded to a carrier that runs on a circle of radius 0.35 m. Left alone, its motion is a
function of time, the same for all gremlins and all episodes: it leaps from the centre onto the
circle and follows the carrier with a small lag. So a gremlin that nothing touches is *parked*: its
body sleeps far away, its weld is off, and its pose is read from that function. It is woken, with
the pose and velocity of the function, when the car comes near, and parked again once the car is
away and it has returned to its course.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import mujoco
import numpy as np

from safecritic.tasks.navigation.model import SUBSTEPS, build_model
from safecritic.tasks.navigation.objects import GREMLIN_HEIGHT, VASE_HEIGHT
from safecritic.tasks.navigation.objects import GREMLIN_PATH as RADIUS
from safecritic.tasks.navigation.robots import Robot

CARRIER_HEIGHT = 0.1

# A robot reaches 0.216 m from its origin, the box 0.142 m, and both together move at most 0.06 m
# in a step, so a gremlin further away than WAKE cannot be touched in the next step.
WAKE = 0.45
PARK = 0.6
# Deviation from the course, in metres (ten times this in metres per second), that still counts as
# being on it. Gremlins start on the floor and reach their course within 20 steps.
ON_COURSE = 1e-6
AWAKE_AT_START = 0.64  # s; at first gremlins leap up to 3 m/s
TRANSIENT = 4.0  # s after which the course is a plain rotation to 1e-12

_NEVER = int(mujoco.mjtSleepPolicy.mjSLEEP_NEVER)
_ALLOWED = int(mujoco.mjtSleepPolicy.mjSLEEP_ALLOWED)
# A sleeping body wakes when a force acts on it; this one is lost in the first addition.
_NUDGE = 1e-300


def carrier_position(time: float) -> tuple[float, float, float]:
    """Return where a carrier is, relative to the centre of its circle on the floor."""
    return RADIUS * math.sin(time), RADIUS * math.cos(time), CARRIER_HEIGHT


class Course:
    """The course of a gremlin left alone, simulated once for each timestep there is."""

    def __init__(self, robot: Robot) -> None:
        self.timestep, self.transient = robot.timestep, round(TRANSIENT / robot.timestep)
        model = build_model(robot, gremlins=1)
        data = mujoco.MjData(model)
        data.qpos[:2] = 50.0, 50.0
        model.eq_data[0, 3:10] = 0, 0, 0.1, 1, 0, 0, 0
        self.offset, self.velocity = np.zeros((2, self.transient + 1, 3))
        for k in range(self.transient + 1):
            self.offset[k] = data.qpos[robot.nq : robot.nq + 3] - (0, 0, 0.1)
            self.velocity[k] = data.qvel[robot.nv : robot.nv + 3]
            data.mocap_pos[0] = carrier_position(data.time)
            mujoco.mj_step(model, data)
        self._xy: list[tuple[float, float]] = [(x, y) for x, y, _ in self.offset.tolist()]

    def at(self, time: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return offset and velocity at a time; None between two substeps of the transient."""
        substep = time / self.timestep
        nearest = round(substep)
        if nearest <= self.transient:
            known = abs(substep - nearest) < 1e-6
            return (self.offset[nearest], self.velocity[nearest]) if known else None
        angle = time - self.transient * self.timestep
        c, s = math.cos(angle), math.sin(angle)
        clockwise = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return clockwise @ self.offset[-1], clockwise @ self.velocity[-1]

    def offset_at(self, time: float) -> tuple[float, float]:
        """Return x and y of `at`, more cheaply, for times at which it is known."""
        substep = round(time / self.timestep)
        if substep <= self.transient:
            return self._xy[substep]
        angle = time - self.transient * self.timestep
        c, s = math.cos(angle), math.sin(angle)
        x, y = self._xy[-1]
        return c * x + s * y, c * y - s * x


course_of = functools.cache(Course)


class Gremlins:
    """The gremlins of one environment: moves, parks and wakes them, and tells where they are."""

    def __init__(
        self, robot: Robot, model: mujoco.MjModel, data: mujoco.MjData, count: int, park: bool
    ):
        self.model, self.data, self.count, self.may_park = model, data, count, park
        self.timestep, self.course = robot.timestep, course_of(robot)
        self._step_times = self.timestep * np.arange(SUBSTEPS)
        self.substep: Callable[[], None] = lambda: mujoco.mj_step(model, data)
        self._awake_at_start = round(AWAKE_AT_START / (SUBSTEPS * self.timestep))
        self.centres = np.zeros((count, 3))
        self.turns = np.zeros((count, 4))
        self.parked = np.zeros(count, dtype=bool)
        self._centres: list[list[float]] = []
        self._parked_count = 0
        self.steps = 0
        self._moved = False  # since the forward pass that ended the last step
        first = model.body("gremlin0").id
        self._bodies = np.arange(first, first + count)
        self._trees = model.body_treeid[self._bodies]
        self._positions = data.xpos[first : first + count]
        self._qpos = data.qpos[robot.nq : robot.nq + 7 * count].reshape(count, 7)
        self._qvel = data.qvel[robot.nv : robot.nv + 6 * count].reshape(count, 6)

    def place(self, layout: np.ndarray) -> None:
        """Put every gremlin at the centre of its circle (n x 3: x, y, rotation), awake."""
        self.centres[:, :2] = layout[:, :2]
        self.centres[:, 2] = GREMLIN_HEIGHT
        self._centres = self.centres[:, :2].tolist()
        self.turns[:] = 0.0
        self.turns[:, 0], self.turns[:, 3] = np.cos(layout[:, 2] / 2), np.sin(layout[:, 2] / 2)
        self.model.eq_data[:, 3:6] = self.centres
        self.model.eq_data[:, 6:10] = self.turns
        self._weld(np.arange(self.count), True)
        self._qpos[:, :3], self._qpos[:, 3:] = self.centres, self.turns
        self.parked[:] = False
        self._parked_count = 0
        self.steps = 0
        self._moved = False

    def place_carriers(self) -> None:
        """Put the carriers where the last substep left them; at time 0, at the origin."""
        time = self.data.time
        self.data.mocap_pos[:] = carrier_position(time - self.timestep) if time > 0 else 0.0

    def step(self, distances: list[float]) -> None:
        """Simulate one control step of the whole model; distances from the car are before it."""
        if min(distances) < WAKE:
            near = np.flatnonzero(self.parked & (np.array(distances) < WAKE))
            if len(near):
                self._wake(near)
        model, data = self.model, self.data
        if self._parked_count == self.count:
            if self._moved:
                mujoco.mj_step(model, data)
            else:
                # the forward pass that ended the last step still holds
                mujoco.mj_step2(model, data)
            mujoco.mj_step(model, data, SUBSTEPS - 1)
        else:
            phase = data.time + self._step_times
            data.mocap_pos[:, 2] = CARRIER_HEIGHT
            carriers = data.mocap_pos[:, :2]
            for place in RADIUS * np.column_stack([np.sin(phase), np.cos(phase)]):
                carriers[:] = place
                self.substep()
            data.xfrc_applied[:] = 0.0
        self._moved = False
        self.steps += 1

    @property
    def all_parked(self) -> bool:
        """Whether none is simulated."""
        return self._parked_count == self.count

    def pass_by(self) -> None:
        """Let a step pass that the robot took without the engine, all gremlins being parked."""
        self.steps, self._moved = self.steps + 1, True

    def positions(self) -> list[list[float]]:
        """Return x and y of each gremlin now, simulated or read from the course."""
        if not self._parked_count:
            return self._positions[:, :2].tolist()
        dx, dy = self.course.offset_at(self.data.time)
        places = [[x + dx, y + dy] for x, y in self._centres]
        if self._parked_count < self.count:
            for i in np.flatnonzero(~self.parked):
                places[i] = self._positions[i, :2].tolist()
        return places

    def park(self, distances: list[float]) -> None:
        """Park those on their course and far from the car; distances are after the step."""
        if self._parked_count == self.count or max(distances) < PARK:
            return
        late = self.may_park and self.steps >= self._awake_at_start
        now = self.course.at(self.data.time) if late else None
        if now is None:
            return
        offset, velocity = (part.tolist() for part in now)
        chosen = [
            i
            for i, distance in enumerate(distances)
            if distance > PARK and not self.parked[i] and self._on_course(i, offset, velocity)
        ]
        if chosen:
            self._put_away(np.array(chosen))

    def _on_course(self, i: int, offset: list[float], velocity: list[float]) -> bool:
        """Return whether a gremlin is on its course; mostly the first comparison decides."""
        x, y, z, *turn = self._qpos[i].tolist()
        centre_x, centre_y = self._centres[i]
        dx, dy, dz = offset
        drift = max(abs(x - centre_x - dx), abs(y - centre_y - dy), abs(z - GREMLIN_HEIGHT - dz))
        if drift >= ON_COURSE:
            return False
        *speed, a, b, c = self._qvel[i].tolist()
        slip = max(abs(v - w) for v, w in zip(speed, velocity, strict=True))
        turned = 1.0 - abs(sum(p * q for p, q in zip(turn, self.turns[i].tolist(), strict=True)))
        return slip < 10 * ON_COURSE and max(abs(a), abs(b), abs(c)) < 1e-4 and turned < 1e-9

    def _put_away(self, chosen: np.ndarray) -> None:
        self.parked[chosen], self._moved = True, True
        self._parked_count += len(chosen)
        self._weld(chosen, False)
        self._qpos[chosen], self._qvel[chosen] = (0.0, 0.0, VASE_HEIGHT, 1.0, 0.0, 0.0, 0.0), 0.0
        self._qpos[chosen, 0] = 100.0 + 2.0 * chosen

    def _wake(self, chosen: np.ndarray) -> None:
        qpos, qvel = self.poses()
        self._qpos[chosen], self._qvel[chosen] = qpos[chosen], qvel[chosen]
        self._weld(chosen, True)
        self.data.xfrc_applied[self._bodies[chosen], 0] = _NUDGE
        self.parked[chosen] = False
        self._parked_count -= len(chosen)

    def _weld(self, chosen: np.ndarray, on: bool) -> None:
        """Switch welds; MuJoCo lets no body sleep that is welded to a carrier."""
        self.data.eq_active[chosen] = on
        self.model.eq_active0[chosen] = on  # for other data made from this model
        self.model.tree_sleep_policy[self._trees[chosen]] = _NEVER if on else _ALLOWED

    def poses(self) -> tuple[np.ndarray, np.ndarray]:
        """Return qpos (n x 7) and qvel (n x 6) of all gremlins, as if none were parked."""
        qpos, qvel = self._qpos.copy(), self._qvel.copy()
        if self._parked_count:
            now = self.course.at(self.data.time)
            assert now is not None, "gremlins are parked only where their course is known"
            offset, velocity = now
            qpos[self.parked, :3] = (self.centres + offset)[self.parked]
            qpos[self.parked, 3:] = self.turns[self.parked]
            qvel[self.parked, :3], qvel[self.parked, 3:] = velocity, 0.0
        return qpos, qvel

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        """Return what MuJoCo's state does not hold."""
        counters = np.array([self.steps, self._moved], dtype=np.int64)
        return {"gremlins_parked": self.parked.copy(), "gremlins_counters": counters}

    def set_checkpoint(self, checkpoint: Mapping[str, np.ndarray]) -> None:
        """Continue from `get_checkpoint`, after `place`; MuJoCo's state has the bodies."""
        self.parked[:] = checkpoint["gremlins_parked"]
        self._parked_count = int(self.parked.sum())
        steps, moved = checkpoint["gremlins_counters"]
        self.steps, self._moved = int(steps), bool(moved)
        self._weld(np.flatnonzero(self.parked), False)
