"""The MuJoCo model of a robot among objects, written from measured numbers.

Goals, hazards and walls take no part in the physics, so they are not in the model. It has, in the
order that fixes qpos and qvel: the robot, then vases, gremlins or the push box, the gremlins'
carriers, the buttons, the pillars.

A few things differ from the original's model, to undo changes of the engine from MuJoCo 2.3.3 to
3.x: the torque scale of the welds (rotation rows are weighted by the rotational inverse weight
since 3.0, a factor 150 for the gremlin box), the solver's parameters for contacts between two boxes
(the depth of most is twice the old one since 3.4; `contacts.py` sees to the others) and one contact
point instead of several between a cylinder and a box (multiccd, now on by default).
"""

from __future__ import annotations

import itertools
import math

import mujoco

from safecritic.tasks.navigation.objects import (
    BOX_HALF,
    BUTTON_HEIGHT,
    BUTTON_RADIUS,
    GREMLIN_HEIGHT,
    PILLAR_HEIGHT,
    PILLAR_RADIUS,
    VASE_HEIGHT,
)
from safecritic.tasks.navigation.robots import CAR, Robot

SUBSTEPS = 10


def _numbers(values) -> str:
    return " ".join(f"{v:.10g}" for v in values)


def _robot(robot: Robot) -> str:
    boxes = "\n".join(
        f'<geom name="{name}" type="box" size="{_numbers(size)}" pos="{_numbers(centre)}"/>'
        for name, (size, centre) in robot.boxes.items()
    )
    return f"""
    <body name="agent" pos="0 0 {robot.height}">{robot.body}
      <site name="agent"/>
      {boxes}
    </body>"""


def _box(name: str, height: float, sleep: str, geoms: str = "") -> str:
    geoms = geoms or (
        f'<geom name="{name}" type="box" size="{_numbers([BOX_HALF] * 3)}" density="0.001"/>'
    )
    return f"""
    <body name="{name}" pos="0 0 {height!r}" sleep="{sleep}">
      <freejoint name="{name}"/>
      {geoms}
    </body>"""


def _push_box(robot: Robot) -> tuple[list[str], str]:
    """Return the names of the box's geoms, a cube with four posts, and its body."""
    half, density = robot.push_box
    sizes = {"push_box0": ((half, half, half), (0.0, 0.0, 0.0))}
    for number, (x, y) in enumerate(itertools.product((-half, half), repeat=2), 1):
        sizes[f"push_box{number}"] = ((half / 2, half / 2, half), (x, y, 0.0))
    geoms = "\n".join(
        f'<geom name="{name}" type="box" size="{_numbers(size)}" pos="{_numbers(centre)}" '
        f'density="{density}"/>'
        for name, (size, centre) in sizes.items()
    )
    return list(sizes), _box("push_box", half, "allowed", geoms)


def _fixed(kind: str, number: int, height: float, geom: str) -> list[str]:
    return [
        f'<body name="{kind}{i}" pos="{4 + i} 0 {height}"><geom name="{kind}{i}" {geom}/></body>'
        for i in range(number)
    ]


def _box_pairs(robot: Robot, boxes: list[str]) -> str:
    """Return contacts between boxes with the force law of the engine the tasks were defined on."""
    apart = [pair for pair in itertools.combinations(boxes, 2) if "push_box" not in pair[0]]
    return "\n".join(
        f'<pair geom1="{a}" geom2="{b}" condim="6" friction="1 1 0.005 0.0001 0.0001" '
        'solref="0.02 1.41421356" solimp="0.9 0.95 0.002 0.5 2"/>'
        for a, b in itertools.chain(itertools.product(robot.boxes, boxes), apart)
    )


def model_xml(
    robot: Robot = CAR,
    vases: int = 0,
    gremlins: int = 0,
    buttons: int = 0,
    pillars: int = 0,
    push_box: int = 0,
) -> str:
    """Return the model as MuJoCo's XML."""
    names = [f"gremlin{i}" for i in range(gremlins)]
    boxes = [f"vase{i}" for i in range(vases)] + names
    bodies = [_box(f"vase{i}", VASE_HEIGHT, "allowed") for i in range(vases)]
    # MuJoCo lets no body sleep that is welded to a carrier
    bodies += [_box(name, GREMLIN_HEIGHT, "never") for name in names]
    if push_box:
        boxes, body = _push_box(robot)
        bodies.append(body)
    bodies += [f'<body name="carrier{i}" mocap="true"/>' for i in range(gremlins)]
    bodies += _fixed("button", buttons, BUTTON_HEIGHT, f'type="sphere" size="{BUTTON_RADIUS}"')
    size = f"{PILLAR_RADIUS} {PILLAR_HEIGHT}"
    bodies += _fixed("pillar", pillars, PILLAR_HEIGHT, f'type="cylinder" size="{size}"')
    welds = "\n".join(
        f'<weld name="gremlin{i}" body1="carrier{i}" body2="gremlin{i}" '
        f'solref="0.02 1.5" torquescale="{math.sqrt(150.0)!r}"/>'
        for i in range(gremlins)
    )
    newline = "\n"
    flags = 'sleep="enable"' if boxes else 'island="disable"'  # nothing could sleep: 5% faster
    return f"""
<mujoco model="safecritic navigation">
  <compiler angle="radian"/>
  <option timestep="{robot.timestep}" sleep_tolerance="1e-5">
    <flag autoreset="disable" multiccd="disable" {flags}/>
  </option>
  <size memory="8M"/>
  <default>
    <geom condim="6" density="{robot.density}"/>
    <joint damping="0.001"/>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="3.5 3.5 0.1"/>
    {_robot(robot)}
    {newline.join(bodies)}
  </worldbody>
  <equality>{welds}</equality>
  <contact>{_box_pairs(robot, boxes)}</contact>
  <actuator>{robot.actuators}</actuator>
  <sensor>{robot.sensors}</sensor>
</mujoco>"""


def build_model(robot: Robot = CAR, **objects: int) -> mujoco.MjModel:
    """Compile the model; every reset moves the objects to their places."""
    return mujoco.MjModel.from_xml_string(model_xml(robot, **objects))
