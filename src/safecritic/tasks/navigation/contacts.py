"""Contacts between two boxes as the original's engine had them.

MuJoCo 2.3.3 halved the depth of a contact with a face of the second box, and of no other. The model
has parameters for that law in all contacts between boxes (`model.py`), so the depth of the others
is doubled here, after the engine has found the contacts. A step is then the original's to rounding.
"""

import mujoco
import numpy as np

STRAIGHT = 1e-9  # a normal whose other components are less is that of a face


class Contacts:
    """The contacts of one simulation, mended between the two halves of a substep."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.model, self.data = model, data
        self._box = model.geom_type == mujoco.mjtGeom.mjGEOM_BOX

    def step(self) -> None:
        """Simulate one substep."""
        mujoco.mj_step1(self.model, self.data)
        self.mend()
        mujoco.mj_step2(self.model, self.data)

    def forward(self) -> None:
        """Compute all that follows from the state."""
        model, data = self.model, self.data
        mujoco.mj_forward(model, data)
        if self.mend():
            mujoco.mj_sensorVel(model, data)
            mujoco.mj_fwdActuation(model, data)
            mujoco.mj_fwdAcceleration(model, data)
            mujoco.mj_fwdConstraint(model, data)
            mujoco.mj_rnePostConstraint(model, data)
            mujoco.mj_sensorAcc(model, data)

    def mend(self) -> bool:
        """Double the depths that the original did not halve; return whether there were any."""
        model, data = self.model, self.data
        geoms = data.contact.geom
        if not geoms[:, 0].any():  # nothing but the floor is touched
            return False
        boxes = self._box[geoms].all(axis=1)
        mended = False
        for k in np.flatnonzero(boxes):
            contact = data.contact[k]
            normal = data.geom_xmat[geoms[k, 1]].reshape(3, 3).T @ contact.frame[:3]
            if sorted(map(abs, normal.tolist()))[1] > STRAIGHT:
                contact.dist, mended = 2.0 * contact.dist, True
        if mended:
            mujoco.mj_makeConstraint(model, data)
            mujoco.mj_island(model, data)
            mujoco.mj_projectConstraint(model, data)
            mujoco.mj_fwdVelocity(model, data)
        return mended
