"""Recorded stretches of the original navigation tasks, and environments put into their states."""

import functools
import math

import numpy as np

from helpers.golden import golden_files, load_golden
from safecritic.tasks.navigation.rules import parts_of
from safecritic.tasks.navigation.world import Navigation

_FORMS = [f"{kind}{level}" for kind in ("Goal", "Button", "Push", "Circle") for level in (1, 2)]
RECORDED = [f"Safety{robot}{form}-v0" for robot in ("Point", "Car") for form in [*_FORMS, "Run0"]]
CARS = {"SafetyCarGoal1-v0": "CarGoal1", "SafetyCarGoal2-v0": "CarGoal2"}
CARS |= {"SafetyCarButton1-v0": "CarButton1", "SafetyCarButton2-v0": "CarButton2"}  # the paper's
TURNING = ("vases", "gremlins", "push_box")  # placed with a rotation
EVERY = 4  # steps between two whole observations
_OF_EPISODES = ("met_at", "met_robot", "met_goal", "met_boxes", "exact", "exact_at")
_IN_TIME = ("robot", "accelerometer", "obs", "action", "goal_xy")  # numbers before time

Run = dict[str, np.ndarray]


@functools.cache
def recordings(task: str) -> list[Run]:
    """Load the recorded stretches of a task; `qpos` and `qvel` are as in the original."""
    (path,) = golden_files(f"{task}.npz")
    arrays = load_golden(path)
    robot, _, _ = parts_of(task)
    runs = []
    for number in range(len(arrays["seed"])):
        run = {k: a[number] for k, a in arrays.items() if k not in _OF_EPISODES}
        run |= {k: np.moveaxis(run[k], 0, -1) for k in _IN_TIME if k in run}
        qpos, qvel = run["robot"][:, : robot.nq], run["robot"][:, robot.nq :]
        if "objects" in run:
            objects = run["objects"].astype(np.float64)
            for (of, which), exact in zip(
                arrays.get("exact_at", ()), arrays.get("exact", ()), strict=True
            ):
                if of == number:
                    objects[which] = exact
            objects = np.moveaxis(objects, -1, 0)
            qpos = np.concatenate([qpos, objects[..., :7].reshape(len(qpos), -1)], axis=1)
            qvel = np.concatenate([qvel, objects[..., 7:].reshape(len(qvel), -1)], axis=1)
        run |= {"qpos": qpos, "qvel": qvel}
        if "met_at" in arrays:
            mine = arrays["met_at"][:, 0] == number
            run["met_at"] = arrays["met_at"][mine, 1]
            run |= {k: arrays[k][mine] for k in _OF_EPISODES[1:4] if k in arrays}
        runs.append(run)
    return runs


def layout_of(run: Run) -> dict:
    """Return the layout of a recorded episode, as `reset` takes it."""
    layout: dict = {"agent": run["agent0"]}
    kinds = ("hazards", "vases", "buttons", "gremlins", "pillars", "push_box")
    layout |= {kind: run[f"{kind}0"] for kind in kinds if f"{kind}0" in run}
    if "goal_button0" in run:
        layout["goal_button"] = int(run["goal_button0"])
    elif "goal0" in run:
        layout["goal"] = run["goal0"]
    return layout


def state_of(run: Run, i: int) -> dict:
    """Return the state before step `i` of a recorded stretch, as `reset` takes it."""
    qpos, qvel = run["qpos"][i].copy(), run["qvel"][i].copy()
    if len(run["robot"][i]) == 6:  # the original's Point counts from its start, along its axes
        x, y, turn = run["agent0"]
        axes = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        qpos[:2], qpos[2] = (x, y) + axes @ qpos[:2], turn + qpos[2]
        qvel[:2] = axes @ qvel[:2]
    state = {"qpos": qpos, "qvel": qvel, "time": run["time"][i]}
    if "goal_xy" in run:
        state["goal"] = run["goal_xy"][i]
    if "goal_button" in run:
        state |= {"goal_button": run["goal_button"][i], "button_timer": run["button_timer"][i]}
    return state


def touching(run: Run, *kinds: str) -> np.ndarray:
    """Return whether the robot touches one of these kinds (default: anything), at every state."""
    flags = [
        a for k, a in run.items() if k.startswith("contacts_") and (not kinds or k[9:] in kinds)
    ]
    if not flags:
        return np.zeros(len(run["qpos"]), dtype=bool)
    return np.concatenate(flags, axis=1).any(axis=1)


def put(env: Navigation, run: Run, i: int) -> np.ndarray:
    """Reset to the state before step `i` of a recorded stretch; return the observation."""
    obs, _ = env.reset(options={"layout": layout_of(run), "state": state_of(run, i)})
    return obs
