"""What the numbers of an observation and of an action are called, and in which unit they are.

An environment of your own may say it itself: attributes `observation_names`, `observation_units`,
`action_names`, `action_units` (a string for each number) and `dt`, the seconds of a step.
"""

from typing import Any

import gymnasium

from safecritic.tasks.observations import parts

Rows = list[tuple[str, str]]  # name and unit of each number
Names = dict[str, list[str]]  # the same by "names" and "units"

XYZ = ("x", "y", "z")
SLIDES = {"rootx": "x", "rootz": "z", "slider1": "x", "slider2": "y"}  # of a torso
TURNS = {"rooty": "pitch", "free_body_rot": "yaw"}
UNKNOWN = "not declared"


def _navigation(env: Any) -> tuple[Rows, Rows]:
    observation = [(f"{name} {axis}", unit) for name, unit in env.robot.readings for axis in XYZ]
    balls = range(len(env.robot.balls))
    observation += [
        (f"rear ball rotation {i}{j}", "1") for _ in balls for i in range(3) for j in range(3)
    ]
    lidars = [f"{kind} lidar {at}" for kind in env.arena.kinds for at in range(16)]
    observation += [(lidar, f"1 - distance / {env.lidar_range:g} m") for lidar in lidars]
    return observation, list(env.robot.actions)


def _runner(env: Any) -> tuple[Rows, Rows]:
    """Return the names of a velocity task, by the joints of its model."""
    model = env.model
    angles: Rows = []
    rates: Rows = []
    joints = [model.joint(at).name for at in range(model.njnt)]
    for joint in joints:
        if joint == "root":  # a free joint
            angles += [(f"torso {axis}", "m") for axis in XYZ]
            angles += [(f"torso rotation {part}", "1") for part in ("w", *XYZ)]
            rates += [(f"torso velocity {axis}", "m/s") for axis in XYZ]
            rates += [(f"torso turn {axis}", "rad/s") for axis in XYZ]
        elif joint in SLIDES:
            angles.append((f"torso {SLIDES[joint]}", "m"))
            rates.append((f"torso velocity {SLIDES[joint]}", "m/s"))
        elif joint in TURNS:
            angles.append((f"torso {TURNS[joint]}", "rad"))
            rates.append((f"torso {TURNS[joint]} velocity", "rad/s"))
        else:
            angles.append((f"{joint} angle", "rad"))
            rates.append((f"{joint} velocity", "rad/s"))
    observation = angles[env.robot.hidden :] + rates
    if len(observation) < env.observation_space.shape[0]:  # the Humanoid
        bodies = [model.body(at).name for at in range(model.nbody)]
        dofs = [name for name, _ in rates]
        observation += [(f"{body} inertia {at}", "kg m2, kg m, kg") for body in bodies
                        for at in range(10)]  # fmt: skip
        observation += [(f"{body} motion {at}", "rad/s, m/s") for body in bodies for at in range(6)]
        observation += [(f"force on {dof}", "N, N m") for dof in dofs]
        observation += [(f"{body} contact {at}", "N m, N") for body in bodies for at in range(6)]
    driven = [joints[at] for at in model.actuator_trnid[:, 0]]
    gears = model.actuator_gear[:, 0]
    return observation, [(f"{j} torque", f"{g:g} N m") for j, g in zip(driven, gears, strict=True)]


def _fetch(env: Any) -> tuple[Rows, Rows]:
    kinds = {"hand": "m", "hand velocity": "m per step of 0.04 s", "target": "m"}
    observation = [(f"{name} {axis}", unit) for name, unit in kinds.items() for axis in XYZ]
    return observation, [(f"set point {axis}", "0.05 m") for axis in XYZ]


OURS = {
    "Navigation": _navigation,
    "HalfCheetah": _runner,
    "Velocity": _runner,
    "FetchReach": _fetch,
}


def names_of(env: gymnasium.Env, own: Any) -> tuple[Names, Names]:
    """Return the names of an environment's observation and action; `own` is inside the adapter."""
    base: Any = env.unwrapped
    described = OURS.get(type(base).__name__)
    if described is not None:
        observation, action = described(base)
    else:
        observation = []
        for part in parts(own.observation_space):
            name, size = part.name or "observation", part.stop - part.start
            observation += [(f"{name}[{at}]" if size > 1 else name, UNKNOWN) for at in range(size)]
        action = [(f"action[{at}]", UNKNOWN) for at in range(own.action_space.low.size)]
    return _declared(base, "observation", observation), _declared(base, "action", action)


def _declared(base: Any, what: str, rows: Rows) -> Names:
    """Return what the environment declares, and `rows` where it declares nothing."""
    found = {}
    for kind, column in zip(("names", "units"), zip(*rows, strict=True), strict=True):
        declared = getattr(base, f"{what}_{kind}", None)
        found[kind] = [str(word) for word in (column if declared is None else declared)]
        if len(found[kind]) != len(rows):
            raise ValueError(
                f"{type(base).__name__}.{what}_{kind} must have {len(rows)} entries, one for each "
                f"number, got {len(found[kind])}"
            )
    return found


def period_of(env: gymnasium.Env) -> float | None:
    """Return the seconds of a control step, or None if the environment does not say."""
    dt: Any = getattr(env.unwrapped, "dt", None)
    if dt is not None:
        return float(dt)
    rate = (getattr(env.unwrapped, "metadata", None) or {}).get("render_fps")
    return 1.0 / float(rate) if rate else None
