"""The Point's motion while it touches nothing, without the engine.

Three numbers and their rates, ten updates a step. The Point's body axes make the mass matrix
constant, M = [[m, 0, 0], [0, m, k], [0, k, I]], so each update of MuJoCo's semi-implicit Euler,
(M + h D) a = F, is linear but for the limits of the servo. It agrees with the engine to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

MASS = 4 / 3 * math.pi * 0.1**3 + 0.1**3  # kg, of the sphere and the arrow
LEVER = 0.1**3 * 0.1  # kg m, mass times the offset of its centre
INERTIA = 0.4 * (MASS - 0.1**3) * 0.1**2 + 0.1**3 * (0.1**2 / 6 + 0.1**2)  # kg m2, about z
DRAG, TURN_DRAG = 0.01, 0.005  # N s/m, N m s
GEAR, LIMIT = 0.3, 0.05  # of both motors
GRAVITY, FIELD = 9.81, 0.5

State = tuple[float, float, float, float, float, float]
# from a state (x, y, yaw and their rates) and an action to the state after a step and the sensors
Glide = Callable[[State, float, float], tuple[State, list[float]]]


def point_glide(timestep: float = 0.002, substeps: int = 10) -> Glide:
    """Return the function that moves a Point for a step."""
    h = timestep
    mass, inertia = MASS + h * DRAG, INERTIA + h * TURN_DRAG
    scale = h / (mass * inertia - LEVER**2)
    # what an update adds: to the speed ahead, and to that to the left and the turn rate
    per_drag, per_spin, per_push = h * DRAG / mass, h * LEVER / mass, h / mass
    left_left, left_turn = -scale * inertia * DRAG, scale * LEVER * TURN_DRAG
    left_torque = -scale * LEVER * GEAR
    turn_left, turn_turn = scale * LEVER * DRAG, -scale * mass * TURN_DRAG
    turn_torque = scale * mass * GEAR
    keep_ahead, keep_left, keep_turn = 1.0 - per_drag, 1.0 + left_left, 1.0 + turn_turn
    determinant = MASS * INERTIA - LEVER**2
    cos, sin, times = math.cos, math.sin, range(substeps)

    def glide(state: State, thrust: float, turn: float) -> tuple[State, list[float]]:
        x, y, yaw, vx, vy, w = state
        thrust = GEAR * min(LIMIT, max(-LIMIT, thrust))
        turn = min(1.0, max(-1.0, turn))
        push = per_push * thrust
        c, s = cos(yaw), sin(yaw)
        for _ in times:
            ahead, left = c * vx + s * vy, c * vy - s * vx
            torque = turn - GEAR * w
            if torque > LIMIT:
                torque = LIMIT
            elif torque < -LIMIT:
                torque = -LIMIT
            ahead = keep_ahead * ahead + per_spin * w * w + push
            old = left
            left = keep_left * left + left_turn * w + left_torque * torque
            w = keep_turn * w + turn_left * old + turn_torque * torque
            vx, vy = c * ahead - s * left, s * ahead + c * left
            x += h * vx
            y += h * vy
            yaw += h * w
            c, s = cos(yaw), sin(yaw)
        ahead, left = c * vx + s * vy, c * vy - s * vx
        torque = GEAR * min(LIMIT, max(-LIMIT, turn - GEAR * w)) - TURN_DRAG * w
        sensors = [
            (thrust - DRAG * ahead + LEVER * w * w) / MASS,
            (-INERTIA * DRAG * left - LEVER * torque) / determinant,
            GRAVITY, ahead, left, 0.0, 0.0, 0.0, w, -FIELD * s, -FIELD * c, 0.0,
        ]  # fmt: skip
        return (x, y, yaw, vx, vy, w), sensors

    return glide
