"""HalfCheetah: run forward, but not too fast.

The model, its reset and its observation are those of Gymnasium's HalfCheetah-v5: the same seed
gives the same start. A speed limit is added as a cost, at half of what an unconstrained policy
reaches.

    observation (17)  joint positions without x (8), joint velocities (9)
    action (6)        joint torques in [-1, 1]
    benchmark         reward: metres moved forward in the step, no control cost;
                      cost 1 if |v_x| > 3.2096 m/s; 500 steps
    original          reward v_x - 0.1 sum(action^2); cost 1 if v_x > 3.2096 m/s; 1000 steps
                      (SafetyHalfCheetahVelocity-v1)

v_x is the average speed over the step. Episodes are truncated, never terminated. There is no goal,
so `info["success"]` is always False.
"""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium.envs.mujoco
import mujoco
import numpy as np
from gymnasium.spaces import Box

from safecritic.tasks import drawing
from safecritic.tasks.common import MujocoTask, check_array, check_options

SPEED_LIMIT = 3.2096
SUBSTEPS = 5
CONTROL_WEIGHT = 0.1
RESET_NOISE = 0.1


def load_model() -> mujoco.MjModel:
    """Return Gymnasium's half cheetah."""
    folder = Path(gymnasium.envs.mujoco.__file__).parent
    return mujoco.MjModel.from_xml_path(str(folder / "assets" / "half_cheetah.xml"))


class HalfCheetah(MujocoTask):
    """A planar two-legged runner with a speed limit.

    Args:
        variant: "benchmark" or "original", see the module's docstring.
        render_mode: None or "rgb_array".
        horizon: steps per episode instead of the variant's.
        action_repeat: steps for which an action is held, see `MujocoTask.step`.

    `info` after a step: `cost` = `cost_velocity`; `reward_forward` + `reward_ctrl` = the reward;
    `x_position` (m), `x_velocity` (m/s), `success` (False), `diverged`. When the simulation
    diverges the step is truncated with the last good observation, reward and cost 0.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    horizons: ClassVar[dict[str, int]] = {"benchmark": 500, "original": 1000}
    has_goal: ClassVar[bool] = False  # without a goal, success means nothing
    cost_max: ClassVar[float] = 1.0
    camera = "track"

    def __init__(
        self,
        variant: str = "benchmark",
        render_mode: str | None = None,
        horizon: int | None = None,
        action_repeat: int = 1,
    ) -> None:
        super().__init__(load_model(), variant, render_mode, horizon, action_repeat)
        self.dt = self.model.opt.timestep * SUBSTEPS
        self.observation_space = Box(-np.inf, np.inf, (17,), np.float64)
        self.action_space = Box(-1.0, 1.0, (self.model.nu,), np.float32)
        self._benchmark = variant == "benchmark"
        self._speed = 0.0

    @property
    def layout(self) -> dict[str, np.ndarray]:
        """Nothing: this task has nothing to place."""
        return {}

    @property
    def state(self) -> dict[str, Any]:
        """The state as `reset(options={"state": ...})` takes it; `get_checkpoint` is exact."""
        data = self.data
        return {"qpos": data.qpos.copy(), "qvel": data.qvel.copy(), "time": float(data.time)}

    @property
    def position(self) -> np.ndarray:
        """The torso's (x, z), for the trail in a drawing."""
        mujoco.mj_kinematics(self.model, self.data)
        return self.data.xpos[1, [0, 2]].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode near the model's pose, or at `options["state"]` (any of its keys)."""
        model, data = self.model, self.data
        _, state = check_options(options, (), ("qpos", "qvel", "time"))
        shapes = {"qpos": (model.nq,), "qvel": (model.nv,), "time": ()}
        state = {key: check_array(key, value, shapes[key]) for key, value in state.items()}
        super().reset(seed=seed)
        # drawn even when given, so that later resets do not depend on it
        qpos = model.qpos0 + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, model.nq)
        qvel = RESET_NOISE * self.np_random.standard_normal(model.nv)
        mujoco.mj_resetData(model, data)
        data.qpos[:] = state.get("qpos", qpos)
        data.qvel[:] = state.get("qvel", qvel)
        data.time = float(state.get("time", 0.0))
        mujoco.mj_forward(model, data)
        self._speed = float(data.qvel[0])
        return self._begin(self._observe()), {"x_position": float(data.qpos[0])}

    def _advance(self, action: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        """Apply the joint torques for 0.05 s."""
        data = self.data
        x_before = float(data.qpos[0])
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, nstep=SUBSTEPS)
        obs = self._observe()
        if diverged := self._diverged(obs):
            x_position, truncated = x_before, True
        else:
            self._obs, truncated = obs, self._finish(terminated=False)
            x_position = float(data.qpos[0])
        x_velocity = self._speed = (x_position - x_before) / self.dt
        control_cost = 0.0
        if self._benchmark:
            forward = x_position - x_before
            cost = float(abs(x_velocity) > SPEED_LIMIT)
        else:
            forward = x_velocity
            cost = float(x_velocity > SPEED_LIMIT)
            if not diverged:
                control_cost = CONTROL_WEIGHT * sum(u * u for u in action.tolist())
        info = {
            "cost": cost,
            "cost_velocity": cost,
            "reward_forward": forward,
            "reward_ctrl": -control_cost,
            "x_position": x_position,
            "x_velocity": x_velocity,
            "success": False,
            "diverged": diverged,
        }
        return forward - control_cost, False, truncated, info

    def _observe(self) -> np.ndarray:
        # faster than np.concatenate, which matters where a whole step takes 40 microseconds
        obs = np.empty(17)
        obs[:8] = self.data.qpos[1:]
        obs[8:] = self.data.qvel
        return obs

    def get_checkpoint(self) -> dict[str, np.ndarray]:
        return {**super().get_checkpoint(), "speed": np.array(self._speed)}

    def set_checkpoint(self, checkpoint: Any) -> None:
        super().set_checkpoint(checkpoint)
        self._speed = float(checkpoint["speed"])

    def draw(
        self,
        trail: np.ndarray | None = None,
        trail_cost: np.ndarray | None = None,
        caption: str = "",
        size: int = 480,
    ) -> np.ndarray:
        """Draw a side view without OpenGL; `trail` holds past `position`s."""
        mujoco.mj_kinematics(self.model, self.data)
        return drawing.draw_cheetah(
            self.model, self.data, trail, trail_cost, caption, self._speed, SPEED_LIMIT, size
        )
