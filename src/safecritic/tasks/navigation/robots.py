"""Robots that drive on the floor: their part of the model, and what it adds to MuJoCo's arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from safecritic.tasks.navigation.glide import Glide, point_glide

Box = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Robot:
    """A robot as numbers; a new one is another row of them."""

    name: str
    timestep: float  # s, of the physics; a step has ten
    boxes: dict[str, Box]  # geoms that push light objects: half sizes, centre
    density: float
    body: str  # XML inside its body, beside the boxes
    actuators: str
    sensors: str
    height: float  # of its origin
    reach: float  # m from its origin to its farthest point on the floor
    nq: int
    nv: int
    bodies: int
    geoms: int
    readings: tuple[tuple[str, str], ...]  # its sensors of three numbers each, and their units
    actions: tuple[tuple[str, str], ...]  # what each does, and its unit
    balls: tuple[int, ...] = ()  # where its ball joints' rotations are in qpos
    free: bool = True  # on a free joint; else on x, y and a turn about z
    push_box: tuple[float, float] = (0.2, 0.001)  # half side and density of the box it pushes
    glide: Callable[[], Glide] | None = None  # its motion while it touches nothing, if known

    @property
    def sensed(self) -> int:
        """Numbers of an observation before the lidars: readings and the balls' matrices."""
        return 3 * len(self.readings) + 9 * len(self.balls)

    @property
    def rotations(self) -> tuple[int, ...]:
        """Where in qpos a quaternion begins."""
        return (3, *self.balls) if self.free else self.balls

    def pose(self, x: float, y: float, heading: float) -> tuple[float, ...]:
        """Return position and rotation when level on the floor, first in qpos."""
        if not self.free:
            return x, y, heading
        return x, y, self.height, math.cos(heading / 2), 0.0, 0.0, math.sin(heading / 2)


_SENSORS = (
    ("accelerometer", "m/s2"),
    ("velocimeter", "m/s"),
    ("gyro", "rad/s"),
    ("magnetometer", "as in the model"),
)
_SENSORS_XML = "\n".join(f'    <{name} site="agent"/>' for name, _ in _SENSORS)

CAR = Robot(  # drives towards its own -y
    name="Car",
    timestep=0.004,
    boxes={
        "agent": ((0.1, 0.1, 0.05), (0, 0, 0)),
        "back_bumper": ((0.1, 0.01, 0.05), (0, 0.15, 0)),
        "back_connector": ((0.01, 0.025, 0.03), (0, 0.125, 0)),
        "front_bumper": ((0.05, 0.01, 0.05), (0, -0.165, 0)),
        "front_connector": ((0.05, 0.03, 0.01), (0, -0.13, 0.04)),
    },
    density=5,
    body="""
      <freejoint name="agent"/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05"/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05"/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size="0.05"/>
      </body>""",
    actuators="""
    <motor name="left" joint="left" ctrlrange="-1 1" forcerange="-0.02 0.02"/>
    <motor name="right" joint="right" ctrlrange="-1 1" forcerange="-0.02 0.02"/>""",
    sensors=f'{_SENSORS_XML}\n    <ballangvel joint="rear"/>',
    height=0.1,
    reach=0.216,
    nq=13,  # free joint 7, two wheels 1 each, ball 4
    nv=11,
    bodies=4,
    geoms=8,
    readings=(*_SENSORS, ("rear ball velocity", "rad/s")),
    actions=(("left wheel", "0.02 N m"), ("right wheel", "0.02 N m")),
    balls=(9,),
    push_box=(0.125, 0.0005),
)

POINT = Robot(  # drives towards its own +x; its servo for the turn chatters, as the original's does
    name="Point",
    timestep=0.002,
    boxes={"pointarrow": ((0.05, 0.05, 0.05), (0.1, 0, 0))},
    density=1,
    body="""
      <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
      <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
      <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
      <geom name="agent" type="sphere" size="0.1" friction="1 0.01 0.01"/>""",
    actuators="""
    <motor name="x" site="agent" gear="0.3 0 0 0 0 0" ctrlrange="-1 1" forcerange="-0.05 0.05"/>
    <velocity name="z" joint="z" gear="0.3" ctrlrange="-1 1" forcerange="-0.05 0.05"/>""",
    sensors=_SENSORS_XML,
    height=0.1,
    reach=0.1582,
    nq=3,
    nv=3,
    bodies=1,
    geoms=2,
    readings=_SENSORS,
    actions=(("thrust", "0.05 of 0.015 N"), ("turn", "rad/s, of 0.3")),
    free=False,
    glide=point_glide,
)

ROBOTS = {robot.name: robot for robot in (CAR, POINT)}
