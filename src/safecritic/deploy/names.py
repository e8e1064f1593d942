"""What the numbers of an observation and of an action are called, and in which unit they are.

An environment of your own may say it itself: attributes `observation_names`, `observation_units`,
`action_names`, `action_units` (a string for each number) and `dt`, the seconds of a step.
"""

from typing import Any, NamedTuple

import gymnasium

from safecritic.tasks.observations import parts

XYZ = ("x", "y", "z")
JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
UNKNOWN = "not declared"


class Names(NamedTuple):
    """Names and units of a vector's numbers."""

    names: list[str]
    units: list[str]


def _car(env: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    sensors = {
        "accelerometer": "m/s2",
        "velocimeter": "m/s",
        "gyro": "rad/s",
        "magnetometer": "as in the model",
        "rear ball velocity": "rad/s",
    }
    observation = [(f"{name} {axis}", unit) for name, unit in sensors.items() for axis in XYZ]
    observation += [(f"rear ball rotation {i}{j}", "1") for i in range(3) for j in range(3)]
    lidars = [f"{kind} lidar {at}" for kind in env.kinds for at in range(16)]
    observation += [(lidar, "1 - distance / 3 m") for lidar in lidars]
    return observation, [(f"{side} wheel", "0.02 N m") for side in ("left", "right")]


def _cheetah(env: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    observation = [("torso z", "m"), ("torso pitch", "rad")]
    observation += [(f"{joint} angle", "rad") for joint in JOINTS]
    observation += [("torso velocity x", "m/s"), ("torso velocity z", "m/s")]
    observation += [("torso pitch velocity", "rad/s")]
    observation += [(f"{joint} velocity", "rad/s") for joint in JOINTS]
    gears = env.model.actuator_gear[:, 0]
    return observation, [(f"{j} torque", f"{g:g} N m") for j, g in zip(JOINTS, gears, strict=True)]


def _fetch(env: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    kinds = {"hand": "m", "hand velocity": "m per step of 0.04 s", "target": "m"}
    observation = [(f"{name} {axis}", unit) for name, unit in kinds.items() for axis in XYZ]
    return observation, [(f"set point {axis}", "0.05 m") for axis in XYZ]


OURS = {"CarTask": _car, "HalfCheetah": _cheetah, "FetchReach": _fetch}


def names_of(env: gymnasium.Env, own: gymnasium.Env) -> tuple[Names, Names]:
    """Return the names of an environment's observation and action.

    Args:
        env: the adapted environment.
        own: the environment inside the adapter, whose spaces are its own.
    """
    base: Any = env.unwrapped
    described = OURS.get(type(base).__name__)
    if described is not None:
        observation, action = described(base)
    else:
        observation = []
        for part in parts(own.observation_space):
            size = part.stop - part.start
            name = part.name or "observation"
            observation += [(f"{name}[{at}]" if size > 1 else name, UNKNOWN) for at in range(size)]
        box: Any = own.action_space
        number = int(box.low.size)
        action = [(f"action[{at}]", UNKNOWN) for at in range(number)]
    return _declared(base, "observation", observation), _declared(base, "action", action)


def _declared(base: Any, what: str, rows: list[tuple[str, str]]) -> Names:
    """Return what the environment declares, and `rows` where it declares nothing."""
    columns = []
    for kind, column in (("names", [n for n, _ in rows]), ("units", [u for _, u in rows])):
        given = getattr(base, f"{what}_{kind}", None)
        if given is not None:
            given = [str(word) for word in given]
            if len(given) != len(column):
                raise ValueError(
                    f"{type(base).__name__}.{what}_{kind} must have {len(column)} entries, one for "
                    f"each number, got {len(given)}"
                )
        columns.append(column if given is None else given)
    return Names(*columns)


def period_of(env: gymnasium.Env) -> float | None:
    """Return the seconds of a control step, or None if the environment does not say."""
    dt = getattr(env.unwrapped, "dt", None)
    if dt is not None:
        return float(dt)
    rate = (getattr(env.unwrapped, "metadata", None) or {}).get("render_fps")
    return 1.0 / float(rate) if rate else None
