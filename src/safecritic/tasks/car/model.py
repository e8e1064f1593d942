"""The MuJoCo model of the car tasks, written from measured numbers.

Goals and hazards take no part in the physics, so they are not in the model: the environment keeps
their positions and adds them to pictures. The model has, in the order that fixes qpos and qvel: the
car, then vases or gremlins, the gremlins' carriers, the buttons.

Three things differ from the original's model, to undo changes of the engine from MuJoCo 2.3.3 to
3.x: the torque scale of the welds (rotation rows are weighted by the rotational inverse weight
since 3.0, a factor 150 for the gremlin box), the solver's parameters for contacts between two boxes
(their depth is twice the old one since 3.4), and one contact point instead of several between a
wheel and a box (multiccd, now on by default).
"""

from __future__ import annotations

import itertools
import math

import mujoco

CAR_NQ, CAR_NV = 13, 11  # free joint 7/6, two wheels 1/1 each, ball 4/3
CAR_HEIGHT = 0.1
CAR_FREE = 7  # numbers of its position and rotation, first in qpos
VASE_HEIGHT = 0.1 - 4e-5  # where a vase settles under its own weight
GREMLIN_HEIGHT = 0.1
BUTTON_HEIGHT = 0.1
SUBSTEPS = 10
TIMESTEP = 0.004

CAR_BOXES = {  # name: half sizes, centre
    "agent": ((0.1, 0.1, 0.05), (0, 0, 0)),
    "back_bumper": ((0.1, 0.01, 0.05), (0, 0.15, 0)),
    "back_connector": ((0.01, 0.025, 0.03), (0, 0.125, 0)),
    "front_bumper": ((0.05, 0.01, 0.05), (0, -0.165, 0)),
    "front_connector": ((0.05, 0.03, 0.01), (0, -0.13, 0.04)),
}

CAR_COLOUR = "0.25 0.27 0.31 1"
VASE_COLOUR = "0.34 0.71 0.91 1"
GREMLIN_COLOUR = "0.80 0.47 0.65 1"
BUTTON_COLOUR = "0.90 0.62 0.00 1"


def _numbers(values) -> str:
    return " ".join(f"{v:.10g}" for v in values)


def _car() -> str:
    boxes = "\n".join(
        f'<geom name="{name}" type="box" size="{_numbers(size)}" pos="{_numbers(centre)}"/>'
        for name, (size, centre) in CAR_BOXES.items()
    )
    return f"""
    <body name="agent" pos="0 0 {CAR_HEIGHT}">
      <freejoint name="agent"/>
      <site name="agent" rgba="0 0 0 0"/>
      <camera name="follow" mode="track" pos="0 -2.2 2.4" xyaxes="1 0 0 0 0.74 0.67"/>
      {boxes}
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05"
              rgba="0.15 0.15 0.15 1"/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05"
              rgba="0.15 0.15 0.15 1"/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size="0.05" rgba="0.15 0.15 0.15 1"/>
      </body>
    </body>"""


def _box(name: str, height: float, colour: str, sleep: str) -> str:
    return f"""
    <body name="{name}" pos="0 0 {height!r}" sleep="{sleep}">
      <freejoint name="{name}"/>
      <geom name="{name}" type="box" size="0.1 0.1 0.1" density="0.001" rgba="{colour}"/>
    </body>"""


def _box_pairs(boxes: list[str]) -> str:
    """Return contacts between boxes with the force law of the engine the tasks were defined on."""
    partners = itertools.chain(
        itertools.product(CAR_BOXES, boxes), itertools.combinations(boxes, 2)
    )
    return "\n".join(
        f'<pair geom1="{a}" geom2="{b}" condim="6" friction="1 1 0.005 0.0001 0.0001" '
        'solref="0.02 1.41421356" solimp="0.9 0.95 0.002 0.5 2"/>'
        for a, b in partners
    )


def model_xml(vases: int = 0, gremlins: int = 0, buttons: int = 0) -> str:
    """Return the model as MuJoCo's XML."""
    boxes = [f"vase{i}" for i in range(vases)] + [f"gremlin{i}" for i in range(gremlins)]
    bodies = [_box(f"vase{i}", VASE_HEIGHT, VASE_COLOUR, "allowed") for i in range(vases)]
    bodies += [
        # MuJoCo lets no body sleep that is welded to a carrier
        _box(f"gremlin{i}", GREMLIN_HEIGHT, GREMLIN_COLOUR, "never")
        for i in range(gremlins)
    ]
    bodies += [f'<body name="carrier{i}" mocap="true"/>' for i in range(gremlins)]
    bodies += [
        f'<body name="button{i}" pos="{4 + i} 0 {BUTTON_HEIGHT}">'
        f'<geom name="button{i}" type="sphere" size="0.1" rgba="{BUTTON_COLOUR}"/></body>'
        for i in range(buttons)
    ]
    welds = "\n".join(
        f'<weld name="gremlin{i}" body1="carrier{i}" body2="gremlin{i}" '
        f'solref="0.02 1.5" torquescale="{math.sqrt(150.0)!r}"/>'
        for i in range(gremlins)
    )
    newline = "\n"
    return f"""
<mujoco model="safecritic car">
  <compiler angle="radian"/>
  <option timestep="{TIMESTEP}" sleep_tolerance="1e-5">
    <flag sleep="enable" autoreset="disable" multiccd="disable"/>
  </option>
  <size memory="8M"/>
  <visual>
    <global offwidth="1280" offheight="1280"/>
    <headlight ambient="0.3 0.3 0.3" diffuse="0.3 0.3 0.3" specular="0 0 0"/>
    <quality shadowsize="2048"/>
  </visual>
  <default>
    <geom condim="6" density="5" rgba="{CAR_COLOUR}"/>
    <joint damping="0.001"/>
  </default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.93 0.95 0.98"
             rgb2="0.70 0.78 0.88" width="64" height="64"/>
    <texture name="floor" type="2d" builtin="checker" rgb1="0.93 0.93 0.91"
             rgb2="0.88 0.88 0.86" width="64" height="64"/>
    <material name="floor" texture="floor" texrepeat="14 14"/>
  </asset>
  <worldbody>
    <light directional="true" castshadow="false" pos="0 0 4" dir="0.3 0.3 -1"
           diffuse="0.35 0.35 0.35" specular="0 0 0"/>
    <camera name="above" pos="0 0 7.5" fovy="36"/>
    <geom name="floor" type="plane" size="3.5 3.5 0.1" material="floor" rgba="1 1 1 1"/>
    {_car()}
    {newline.join(bodies)}
  </worldbody>
  <equality>{welds}</equality>
  <contact>{_box_pairs(boxes)}</contact>
  <actuator>
    <motor name="left" joint="left" ctrlrange="-1 1" forcerange="-0.02 0.02"/>
    <motor name="right" joint="right" ctrlrange="-1 1" forcerange="-0.02 0.02"/>
  </actuator>
  <sensor>
    <accelerometer site="agent"/>
    <velocimeter site="agent"/>
    <gyro site="agent"/>
    <magnetometer site="agent"/>
    <ballangvel joint="rear"/>
  </sensor>
</mujoco>"""


def car_pose(x: float, y: float, heading: float) -> tuple[float, ...]:
    """Return position and rotation of a level car on the floor, as in qpos."""
    turn = heading / 2
    return x, y, CAR_HEIGHT, math.cos(turn), 0.0, 0.0, math.sin(turn)


def build_model(vases: int = 0, gremlins: int = 0, buttons: int = 0) -> mujoco.MjModel:
    """Compile the model; every reset moves the objects to their places."""
    return mujoco.MjModel.from_xml_string(model_xml(vases, gremlins, buttons))
