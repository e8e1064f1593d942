"""Runners with a speed limit: Safety Gymnasium's velocity tasks, and the paper's HalfCheetah.

Models, resets, observations and rewards are those of Gymnasium's v4 environments, so that the same
seed gives the same start; the cost of a step is 1 if its average speed is above the limit. The
speed is the forward one, of Ant and Humanoid that in the plane.

    robot         observation, action   reward per step
    HalfCheetah   17, 6                 v_x - 0.1 |action|^2
    Hopper        11, 3                 v_x + 1 - 0.001 |action|^2    until it falls
    Walker2d      17, 6                 v_x + 1 - 0.001 |action|^2    until it falls
    Swimmer        8, 2                 v_x - 0.0001 |action|^2
    Ant           27, 8                 v_x + 1 - 0.5 |action|^2      until it falls or jumps
    Humanoid     376, 17                1.25 v_x + 5 - 0.1 |action|^2 until it falls

Observed are joint positions without x (and y, where the robot moves in the plane) and velocities;
of the Humanoid also inertias, body velocities, actuator and contact forces. Actions beyond the
bounds are saturated by the motors but charged as given. Episodes last 1000 steps. There is no goal,
so `info["success"]` is always False.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks import drawing
from safecritic.tasks.common import MujocoTask, check_options

SPEED_LIMIT = 3.2096  # of the paper's HalfCheetah
SPEED_BOUND = 10.0  # of Hopper's and Walker2d's observed velocities
# up to 3.4 the margin of a contact was the larger of both geoms', now it is their sum
MARGINS_ADD = tuple(map(int, mujoco.__version__.split(".")[:2])) >= (3, 5)
SIDE = drawing.View()


@dataclass(frozen=True)
class Robot:
    """The numbers of one robot."""

    model: str  # among Gymnasium's assets
    substeps: int
    control: float  # weight of the squared action in the reward
    noise: float  # of positions and velocities at a reset
    names: tuple[str, ...]  # in info, of the parts of the reward: forward, control, alive
    normal: bool = False  # whether the noise of the velocities is normal, not uniform
    forward: float = 1.0  # weight of v_x in the reward
    alive: float = 0.0  # reward of every step
    place: str = "joints"  # what is taken for its position: joints, torso or mass
    hidden: int = 2  # coordinates that are not observed
    bounded: bool = False  # whether observed velocities are
    healthy: Callable[[np.ndarray, np.ndarray], bool] | None = None  # of qpos and qvel
    view: drawing.View = SIDE


def _hopper(qpos: np.ndarray, qvel: np.ndarray) -> bool:
    _, z, angle, *joints = qpos.tolist()
    rest = [*joints, *qvel.tolist()]
    return z > 0.7 and -0.2 < angle < 0.2 and min(rest) > -100 and max(rest) < 100


PARTS = ("reward_forward", "reward_ctrl", "reward_survive")
ROBOTS = {
    "HalfCheetah": Robot("half_cheetah", 5, 0.1, 0.1, ("reward_run", "reward_ctrl"), True,
                         hidden=1),
    "Hopper": Robot("hopper", 4, 1e-3, 5e-3, PARTS, alive=1.0, hidden=1, bounded=True,
                    healthy=_hopper),
    "Walker2d": Robot("walker2d", 4, 1e-3, 5e-3, PARTS, alive=1.0, hidden=1, bounded=True,
                      healthy=lambda qpos, _: 0.8 < qpos[1] < 2.0 and -1.0 < qpos[2] < 1.0),
    "Swimmer": Robot("swimmer", 4, 1e-4, 0.1, ("reward_fwd", "reward_ctrl"),
                     view=drawing.View(90.0, 5.0)),
    "Ant": Robot("ant", 5, 0.5, 0.1, PARTS, True, alive=1.0, place="torso",
                 healthy=lambda qpos, _: 0.2 <= qpos[2] <= 1.0,
                 view=drawing.View(30.0, 4.5, 0.4)),
    "Humanoid": Robot("humanoid", 5, 0.1, 0.01, ("reward_linvel", "reward_quadctrl",
                      "reward_alive"), forward=1.25, alive=5.0, place="mass",
                      healthy=lambda qpos, _: 1.0 < qpos[2] < 2.0,
                      view=drawing.View(12.0, 3.6, 0.9)),
}  # fmt: skip


def load_model(robot: Robot) -> mujoco.MjModel:
    """Return Gymnasium's model, with contacts as the original's engine had them."""
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    model = mujoco.MjModel.from_xml_path(str(assets / f"{robot.model}.xml"))
    if MARGINS_ADD:
        model.geom_margin[:] /= 2
    # one robot is one island: looking for more takes 5% of the time
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    if not (model.geom_contype | model.geom_conaffinity)[model.geom_bodyid > 0].any():
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)  # the Swimmer
    return model


class Velocity(MujocoTask):
    """A robot with a speed limit, as in Safety Gymnasium; keywords as in `MujocoTask`.

    `info` after a step: `cost` = `cost_velocity`; the parts of the reward, `x_position` (m),
    `x_velocity` (m/s) and, in the plane, `y_position`, `y_velocity` and `distance_from_origin`,
    by the original's names; `success` (False), `diverged`. When the simulation diverges the step
    is truncated with the last good observation, reward and cost 0.

    Args:
        robot: its name in `ROBOTS`.
        speed_limit: in m/s.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    horizons: ClassVar[dict[str, int]] = {"original": 1000}
    has_goal: ClassVar[bool] = False  # without a goal, success means nothing
    cost_max: ClassVar[float] = 1.0

    def __init__(
        self, robot: str, speed_limit: float, variant: str = "original", **settings: Any
    ) -> None:
        self.robot = ROBOTS[robot]
        super().__init__(load_model(self.robot), variant, **settings)
        model, data, hidden = self.model, self.data, self.robot.hidden
        self.name = robot
        self.speed_limit = speed_limit
        self.dt = model.opt.timestep * self.robot.substeps
        self.metadata = self.metadata | {"render_fps": round(1 / self.dt)}
        # views, from which an observation is copied
        self._observed_arrays = [data.qpos[hidden:], data.qvel]
        if robot == "Humanoid":
            for array in (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext):
                self._observed_arrays.append(array.reshape(-1))
        self._size = sum(map(len, self._observed_arrays))
        self._qpos, self._qvel = data.qpos, data.qvel
        self._mass_share = model.body_mass / model.body_mass.sum()
        self.observation_space = Box(-np.inf, np.inf, (self._size,), np.float64)
        low, high = model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = Box(low, high, dtype=np.float32)
        self._place = (0.0, 0.0)  # from which the next speed is measured
        self._speed = 0.0

    @property
    def planar(self) -> bool:
        """Whether it moves in a plane of x and y, not along x alone."""
        return self.robot.hidden == 2

    @property
    def position(self) -> np.ndarray:
        """The torso's (x, y, z), for the trail in a drawing."""
        mujoco.mj_kinematics(self.model, self.data)
        return self.data.xpos[1].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode near the model's pose, or at `options["state"]` (any of its keys)."""
        model, data, noise = self.model, self.data, self.robot.noise
        shapes = {name: np.shape(value) for name, value in self.state.items()}
        _, state = check_options(options, {}, shapes)
        super().reset(seed=seed)
        # drawn even when given, so that later resets do not depend on it
        qpos = model.qpos0 + self.np_random.uniform(-noise, noise, model.nq)
        if self.robot.normal:
            qvel = noise * self.np_random.standard_normal(model.nv)
        else:
            qvel = self.np_random.uniform(-noise, noise, model.nv)
        mujoco.mj_resetData(model, data)
        data.qpos[:] = state.get("qpos", qpos)
        data.qvel[:] = state.get("qvel", qvel)
        data.time = float(state.get("time", 0.0))
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_forward(model, data)
        self._place = self._measure()
        if "place" in state:
            self._place = tuple(state["place"].tolist())
        self._speed = float(data.qvel[0])
        return self._begin(self._observe()), {"x_position": self._place[0]}

    def _measure(self) -> tuple[float, float]:
        """Return x and y of what is taken for the robot's position.

        Ant's and Humanoid's are those of the last stage of the integrator, as in the original.
        """
        if self.robot.place == "joints":
            x, y = self._qpos[:2].tolist()
        elif self.robot.place == "torso":
            x, y = self.data.xpos[1, :2].tolist()
        else:
            x, y = (self._mass_share @ self.data.xipos[:, :2]).tolist()
        return x, y

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Apply the joint torques for `dt` seconds."""
        robot, data = self.robot, self.data
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, nstep=robot.substeps)
        if self.name == "Humanoid":
            mujoco.mj_rnePostConstraint(self.model, data)  # the contact forces
        obs = self._observe()
        before, terminated = self._place, False
        if diverged := self._diverged(obs):
            truncated = True
        else:
            self._obs, self._place = obs, self._measure()
            terminated = robot.healthy is not None and not robot.healthy(self._qpos, self._qvel)
            truncated = self._finish(terminated)
        x, y = self._place
        x_velocity, y_velocity = (x - before[0]) / self.dt, (y - before[1]) / self.dt
        self._speed = math.hypot(x_velocity, y_velocity) if robot.place != "joints" else x_velocity
        reward, parts = self._score(x - before[0], x_velocity, diverged, action)
        cost = float(self._too_fast())
        info = {"cost": cost, "cost_velocity": cost, **parts}
        info |= {"x_position": x, "x_velocity": x_velocity}
        if self.planar:
            info |= {
                "y_position": y,
                "y_velocity": y_velocity,
                "distance_from_origin": math.hypot(x, y),
                "forward_reward": robot.forward * x_velocity,
            }
        info |= {"success": False, "diverged": diverged}
        return reward, terminated, truncated, info

    def _score(
        self, way: float, velocity: float, diverged: bool, action: np.ndarray
    ) -> tuple[float, dict[str, float]]:
        """Return the reward of a step and its parts."""
        robot = self.robot
        forward, control, alive = robot.forward * velocity, 0.0, 0.0
        if not diverged:
            control, alive = robot.control * sum(u * u for u in action.tolist()), robot.alive
        parts = dict(zip(robot.names, (forward, -control, alive), strict=False))
        return forward + alive - control, parts

    def _too_fast(self) -> bool:
        return self._speed > self.speed_limit

    def _observe(self) -> np.ndarray:
        obs = np.concatenate(self._observed_arrays)
        if self.robot.bounded:
            rates = obs[-self.model.nv :]
            np.minimum(np.maximum(rates, -SPEED_BOUND, out=rates), SPEED_BOUND, out=rates)
        return obs

    @property
    def state(self) -> dict[str, Any]:
        """The state as `reset(options={"state": ...})` takes it; `get_checkpoint` is exact.

        `place` is from where the speed of the next step is measured.
        """
        return super().state | self._kept()

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        return super().get_checkpoint() | {"speed": np.array(self._speed)} | self._kept()

    def _kept(self) -> dict[str, np.ndarray]:
        """Return the place, where it does not follow from the joints."""
        return {} if self.robot.place == "joints" else {"place": np.array(self._place)}

    def set_checkpoint(self, checkpoint: Any) -> None:
        super().set_checkpoint(checkpoint)
        self._speed = float(checkpoint["speed"])
        x, y = checkpoint.get("place", self._qpos[:2])
        self._place = float(x), float(y)

    def _identity(self) -> str:
        return f"{self.name}, variant {self.variant}, horizon {self.horizon}"

    def draw(
        self, trail: Any = (), trail_cost: Any = (), caption: str = "", size: int = 480
    ) -> np.ndarray:
        """Draw the robot without OpenGL; `trail` holds past `position`s."""
        mujoco.mj_kinematics(self.model, self.data)
        return drawing.draw_runner(
            self.model,
            self.data,
            self.robot.view,
            trail,
            trail_cost,
            caption,
            self._speed,
            self.speed_limit,
            self._too_fast(),
            size,
        )


class HalfCheetah(Velocity):
    """The paper's runner, which is charged in both directions; keywords as in `MujocoTask`.

    "benchmark": reward is the way forward in a step (m), without control cost; cost 1 if
    |v_x| > 3.2096 m/s; 500 steps. "original": SafetyHalfCheetahVelocity-v1 with `reward_forward`
    for `reward_run`.
    """

    horizons: ClassVar[dict[str, int]] = {"benchmark": 500, "original": 1000}

    def __init__(self, variant: str = "benchmark", **settings: Any) -> None:
        super().__init__("HalfCheetah", SPEED_LIMIT, variant, **settings)

    def _score(
        self, way: float, velocity: float, diverged: bool, action: np.ndarray
    ) -> tuple[float, dict[str, float]]:
        if self.variant == "benchmark":
            return way, {"reward_forward": way, "reward_ctrl": -0.0}
        reward, parts = super()._score(way, velocity, diverged, action)
        return reward, {"reward_forward": parts.pop("reward_run"), **parts}

    def _too_fast(self) -> bool:
        speed = abs(self._speed) if self.variant == "benchmark" else self._speed
        return speed > self.speed_limit
