"""FetchReach: bring the hand of an arm to a point in space, slowly and smoothly.

The arm, its control, its start pose and its targets are those of gymnasium-robotics'
FetchReachDense-v4: the same seed and actions give the same numbers. Only the model file of that
package is used; its environment class is not, which avoids its name look-ups and its upper limit on
the MuJoCo version.

    observation (9)  hand position (m), hand velocity (metres per step of 0.04 s), target (m)
    action (3)       displacement of the hand's set point in units of 0.05 m, in [-1, 1]; the
                     fingers stay closed
    benchmark        reward -distance, + 5 on arrival (distance < 0.05 m), which ends the episode;
                     500 steps
    original         reward -distance; never ends early; 50 steps
    cost, in both    1 if |velocity| > 0.01, plus 1000 sum((velocity - velocity before)^2)

A target is drawn in a cube of 0.3 m around the hand's start, so about one in fifty is reached at
once.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box

from safecritic.tasks import drawing
from safecritic.tasks.common import MujocoTask, check_options

VELOCITY_LIMIT = 0.01
JERK_WEIGHT = 1000.0
GOAL_RADIUS = 0.05
GOAL_BONUS = 5.0
GOAL_RANGE = 0.15
SUBSTEPS = 20
REACH_PER_STEP = 0.05
PARTS = ("cost", "cost_velocity", "cost_jerk", "reward_distance", "reward_goal")

# the package's start: base position, then the hand's offset from where it hangs
BASE = {"robot0:slide0": 0.4049, "robot0:slide1": 0.48, "robot0:slide2": 0.0}
HAND_OFFSET = (-0.498, 0.005, -0.431 + 0.2)
# added to the hand's quaternion; after normalisation it turns the hand back down
HAND_DOWN = (1.0, 0.0, 1.0, 0.0)


def load_model() -> mujoco.MjModel:
    """Return gymnasium-robotics' Fetch arm, the weld to its set point reset as in the package."""
    package = find_spec("gymnasium_robotics")
    if package is None or package.origin is None:
        raise DependencyNotInstalled(
            "FetchReach needs the arm's model file: pip install gymnasium-robotics"
        )
    path = Path(package.origin).parent / "envs" / "assets" / "fetch" / "reach.xml"
    model = mujoco.MjModel.from_xml_path(str(path))
    model.eq_data[0, :7] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    return model


class FetchReach(MujocoTask):
    """A 7-joint arm that moves its hand to a target under limits on speed and jerk.

    Keywords are those of `MujocoTask`.

    `info` after a step: `cost` = `cost_velocity` + `cost_jerk`; `reward_distance` +
    `reward_goal` = the reward; `success` (at the target), `goal_distance` (m), `diverged`. When
    the simulation diverges the step is truncated with the last good observation, reward and
    cost 0.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012
    horizons: ClassVar[dict[str, int]] = {"benchmark": 500, "original": 50}

    def __init__(self, variant: str = "benchmark", **settings: Any) -> None:
        super().__init__(load_model(), variant, **settings)
        model = self.model
        self.dt = model.opt.timestep * SUBSTEPS
        self.observation_space = Box(-np.inf, np.inf, (9,), np.float64)
        self.action_space = Box(-1.0, 1.0, (3,), np.float32)
        self._benchmark = variant == "benchmark"
        self._grip = model.site("robot0:grip").id
        self._hand = next(
            body for body in (*model.eq_obj1id, *model.eq_obj2id) if model.body_mocapid[body] < 0
        )
        self._fingers = [
            model.joint(f"robot0:{side}_gripper_finger_joint").qposadr[0] for side in "lr"
        ]
        self._jacobian = np.zeros((3, model.nv))
        self._goal = np.zeros(3)
        self._find_start()

    def _find_start(self) -> None:
        """Pull the hand over the table, as the package does once; every episode starts there."""
        model, data = self.model, self.data
        for name, value in BASE.items():
            data.qpos[model.joint(name).qposadr[0]] = value
        mujoco.mj_forward(model, data)
        data.mocap_pos[0] = HAND_OFFSET + data.site_xpos[self._grip]
        data.mocap_quat[0] = HAND_DOWN
        for _ in range(10):
            mujoco.mj_step(model, data, nstep=SUBSTEPS)
        self._start_time = float(data.time)
        self._start_qpos = data.qpos.copy()
        self._start_qvel = data.qvel.copy()
        # targets are drawn around this point, one substep behind the start pose
        self._start_hand = data.site_xpos[self._grip].copy()

    @property
    def layout(self) -> dict[str, np.ndarray]:
        """The target: `goal` (3)."""
        return {"goal": self._goal.copy()}

    @property
    def state(self) -> dict[str, Any]:
        """The state with the target; the set point is none, every step puts it at the hand."""
        return super().state | {"goal": self._goal.copy()}

    @property
    def position(self) -> np.ndarray:
        """The hand's (x, y, z), for the trail in a drawing."""
        return self.data.site_xpos[self._grip].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode with a new target, or with that of `options["layout"]` or `["state"]`.

        Any key of `layout` and `state` may be left out; a goal in the state wins over the layout's.
        """
        model, data = self.model, self.data
        shapes = {"qpos": (model.nq,), "qvel": (model.nv,), "time": (), "goal": (3,)}
        layout, state = check_options(options, {"goal": (3,)}, shapes)
        given = {**(layout or {}), **state}
        super().reset(seed=seed)
        # drawn even when given, so that later resets do not depend on it
        goal = self._start_hand + self.np_random.uniform(-GOAL_RANGE, GOAL_RANGE, size=3)
        mujoco.mj_resetData(model, data)
        data.time = float(given.get("time", self._start_time))
        data.qpos[:] = given.get("qpos", self._start_qpos)
        data.qvel[:] = given.get("qvel", self._start_qvel)
        mujoco.mj_forward(model, data)
        self._goal = given.get("goal", goal)
        obs = self._begin(self._observe())
        return obs, {"goal_distance": _distance(obs[:3], self._goal)}

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Move the hand's set point for 0.04 s."""
        displacement = REACH_PER_STEP * action.clip(-1.0, 1.0)
        model, data = self.model, self.data
        data.mocap_pos[0] = data.xpos[self._hand] + displacement
        data.mocap_quat[0] = data.xquat[self._hand] + HAND_DOWN
        mujoco.mj_step(model, data, nstep=SUBSTEPS)
        data.qpos[self._fingers] = 0.0
        # the part of a forward pass that the observation and the next set point need
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        obs, before = self._observe(), self._obs
        diverged = self._diverged(obs)
        now = before if diverged else obs
        distance = _distance(now[:3], self._goal)
        info: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
        info |= {"success": False, "goal_distance": distance, "diverged": diverged}
        if diverged:
            return 0.0, False, True, info
        velocity, change = obs[3:6], obs[3:6] - before[3:6]
        arrived = distance < GOAL_RADIUS
        terminated = arrived and self._benchmark
        info["cost_velocity"] = float(np.sqrt(velocity.dot(velocity)) > VELOCITY_LIMIT)
        info["cost_jerk"] = JERK_WEIGHT * float(change.dot(change))
        info["cost"] = info["cost_velocity"] + info["cost_jerk"]
        info["reward_distance"] = -distance
        info["reward_goal"] = GOAL_BONUS if terminated else 0.0
        info["success"] = arrived
        self._obs = obs
        reward = info["reward_distance"] + info["reward_goal"]
        return reward, terminated, self._finish(terminated), info

    def _observe(self) -> np.ndarray:
        data = self.data
        mujoco.mj_jacSite(self.model, data, self._jacobian, None, self._grip)
        velocity = self._jacobian @ data.qvel * self.dt
        return np.concatenate((data.site_xpos[self._grip], velocity, self._goal))

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        return {**super().get_checkpoint(), "goal": self._goal.copy()}

    def set_checkpoint(self, checkpoint: Any) -> None:
        super().set_checkpoint(checkpoint)
        self._goal = np.array(checkpoint["goal"], dtype=np.float64)

    def draw(
        self, trail: Any = (), trail_cost: Any = (), caption: str = "", size: int = 480
    ) -> np.ndarray:
        """Draw both views without OpenGL; `trail` holds past `position`s."""
        return drawing.draw_fetch(
            self.model, self.data, self._goal, GOAL_RADIUS, trail, trail_cost, caption, size
        )


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    # with an axis, as in the package: without it the last bit differs
    return float(np.linalg.norm(a - b, axis=-1))
