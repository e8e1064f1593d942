"""Recorded episodes of the original car tasks, and environments put into their states."""

import functools

import numpy as np

from helpers.golden import golden_files, load_golden
from safecritic.tasks.car.env import CarTask

RECORDED = {
    "goal1": "CarGoal1",
    "goal2": "CarGoal2",
    "button1": "CarButton1",
    "button2": "CarButton2",
}


@functools.cache
def recordings(task: str) -> list[dict[str, np.ndarray]]:
    """Load the recorded episodes of a task."""
    return [load_golden(path) for path in golden_files(f"car_{task}_*.npz")]


def layout_of(run: dict[str, np.ndarray]) -> dict:
    """Return the layout of a recorded episode, as `reset` takes it."""
    layout: dict = {"agent": [*run["agent_xy0"], float(run["agent_rot0"])]}
    layout["hazards"] = run["hazards_pos0"][:, :2]
    if "buttons_pos0" in run:
        layout["buttons"] = run["buttons_pos0"][:, :2]
        layout["goal_button"] = int(run["goal_button"][0])
    else:
        layout["goal"] = run["goal_xy"][0]
    for name in ("vases", "gremlins"):
        if f"{name}_pos0" in run:
            layout[name] = np.column_stack([run[f"{name}_pos0"][:, :2], run[f"{name}_rot0"]])
    return layout


def state_of(run: dict[str, np.ndarray], i: int) -> dict:
    """Return the state before step `i` of a recorded episode, as `reset` takes it."""
    state = {"qpos": run["qpos"][i], "qvel": run["qvel"][i], "time": run["time"][i]}
    state["goal"] = run["goal_xy"][i]
    if "goal_button" in run:
        state |= {"goal_button": run["goal_button"][i], "button_timer": run["button_timer"][i]}
    return state


def touching(run: dict[str, np.ndarray], *kinds: str) -> np.ndarray:
    """Return whether the car touches one of these kinds, before every step."""
    counts = [run[f"contacts_{k}"] for k in kinds if f"contacts_{k}" in run]
    if not counts:
        return np.zeros(len(run["qpos"]), dtype=bool)
    return np.concatenate(counts, axis=1).any(axis=1)


def put(env: CarTask, run: dict[str, np.ndarray], i: int) -> np.ndarray:
    """Reset to the state before step `i` of a recorded episode; return the observation."""
    obs, _ = env.reset(options={"layout": layout_of(run), "state": state_of(run, i)})
    return obs
