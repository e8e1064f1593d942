"""A robot by itself in the engine, for steps in which it can touch nothing.

Bodies at rest cost time even asleep. Without a warm start the next state follows from position and
velocity alone, so the robot may go from the whole model to this one and back, to rounding.
"""

import mujoco
import numpy as np

from safecritic.tasks.navigation.model import SUBSTEPS, build_model
from safecritic.tasks.navigation.robots import Robot

_NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)


class Alone:
    """The robot on an empty floor, with the solver's settings of the whole model."""

    def __init__(self, robot: Robot, whole: mujoco.MjModel) -> None:
        self.model = build_model(robot)
        self.model.opt.tolerance = whole.opt.tolerance
        self.model.opt.disableflags |= whole.opt.disableflags
        self.data = mujoco.MjData(self.model)
        self.current = False  # it has the forward pass of the robot's state
        self._flags = int(self.model.opt.disableflags)
        self._position, self._rotation = self.data.xpos[1], self.data.xmat[1]

    def step(self, qpos: np.ndarray, qvel: np.ndarray, action: np.ndarray) -> None:
        """Simulate a step from this state, and write the next one over it."""
        model, data = self.model, self.data
        data.ctrl[:] = action
        model.opt.disableflags = self._flags | _NO_SENSORS
        try:
            if self.current:
                mujoco.mj_step2(model, data)
            else:
                data.qpos[:], data.qvel[:] = qpos, qvel
                mujoco.mj_step(model, data)
            mujoco.mj_step(model, data, SUBSTEPS - 1)
        finally:
            model.opt.disableflags = self._flags
        mujoco.mj_forward(model, data)
        qpos[:], qvel[:] = data.qpos, data.qvel
        self.current = True

    def read(self) -> tuple[list[float], list[float], list[float]]:
        """Return position, rotation and sensors."""
        data = self.data
        return self._position.tolist(), self._rotation.tolist(), data.sensordata.tolist()
