"""The explorer: one HTML file in which the scenes of navigation runs are dragged about.

    safecritic explore runs/usc-SafetyCarGoal2-v0-seed0

The page computes observations, networks and maps itself (explorer.js), from what is gathered here:
the task's numbers, the deployed networks of the runs, a few scenes and episodes.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from safecritic.core import style
from safecritic.core.files import write_text
from safecritic.evaluate.cost_map import SIZE, has_maps
from safecritic.report.data import title
from safecritic.report.page import _policy as content_policy
from safecritic.run.episode import discounted_sums
from safecritic.run.rollout import Rollout
from safecritic.runtime.decide import CLIP, EDGES, LARGEST_EXPONENT, NORM_EPSILON, SHARPNESS, SPENT
from safecritic.tasks.adapter import make_again
from safecritic.tasks.drawing import robot_shapes
from safecritic.tasks.navigation import objects
from safecritic.tasks.navigation.lidar import BINS
from safecritic.tasks.navigation.pictures import (
    buttons_are_seen,
    pose_now,
    scene_now,
    sensed_at_rest,
)
from safecritic.tasks.navigation.robots import CAR, POINT

SCENES = 6  # to begin with
# the robot's own forward, and what its two actions do: speed ahead, turn to the left
DRIVES: dict[str, Any] = {
    CAR.name: {"ahead": [0.0, -1.0], "mix": [[0.5, 0.5], [0.5, -0.5]]},
    POINT.name: {"ahead": [1.0, 0.0], "mix": [[1.0, 0.0], [0.0, 1.0]]},
}

Arrays = dict[str, Any]


def write(agents: Sequence[Any], path: Path, episodes: int = 2, seed: int = 10_000) -> Path:
    """Write the page of one run or of several of one task; episode i starts from seed + i."""
    tasks = [agent.environment["task"] for agent in agents]
    if len(set(tasks)) > 1:
        raise ValueError(
            f"the runs were trained on {', '.join(dict.fromkeys(tasks))}: only runs of one task "
            "have the same scenes"
        )
    envs = [make_again(agent.environment, None, agent.config.action_repeat)[0] for agent in agents]
    if not has_maps(envs[0]):
        raise ValueError(
            f"{tasks[0]} cannot be explored: only tasks on the floor with lidars can, such as "
            "CarGoal1 or SafetyPointGoal1-v0"
        )
    data = {
        "task": _task(envs[0].unwrapped, tasks[0]),
        "scenes": [_scene(envs[0], seed + number) for number in range(SCENES)],
        "runs": [
            _run(agent, env, range(seed, seed + episodes))
            for agent, env in zip(agents, envs, strict=True)
        ],
        "decide": {
            "clip": CLIP,
            "epsilon": NORM_EPSILON,
            "sharpness": SHARPNESS,
            "largest": LARGEST_EXPONENT,
            "spent": SPENT,
        },
        "cells": SIZE,
        "quantities": style.QUANTITIES,
    }
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    env = jinja2.Environment(autoescape=True, loader=loader, trim_blocks=True, lstrip_blocks=True)
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    script = loader.get_source(env, "explorer.js")[0]
    colours = style.SCENE | {"predicted": style.PREDICTED} | style.COLOURS
    text = env.get_template("explorer.html").render(
        task=tasks[0],
        # products of matrices run as WebAssembly that the script assembles
        policy=content_policy(script).replace("script-src", "script-src 'wasm-unsafe-eval'"),
        colours={name.replace("_", "-"): colour for name, colour in colours.items()},
        script=script,
        data=data,
    )
    write_text(path, text)
    return path


def _task(task: Any, name: str) -> dict[str, Any]:
    """Return a task's numbers: what stands in its arena, and how its robot senses and moves."""
    arena, robot = task.arena, task.robot
    sensors, position, rotation = sensed_at_rest(robot)
    readings = [reading for reading, _ in robot.readings]
    return {
        "name": name,
        "robot": robot.name.lower(),
        "extent": arena.extent,
        "bounded": arena.start is None,
        "walls": arena.walls,
        "kinds": arena.kinds,
        "bins": BINS,
        "range": task.lidar_range,
        "magnetometer": 3 * readings.index("magnetometer"),  # its place in the observation
        "field": task.model.opt.magnetic.tolist(),
        "rest": {"sensors": sensors.tolist(), "position": position, "rotation": rotation},
        "seconds": task.dt,
        "actions": robot.actions,
        "shapes": [[shape.points.tolist(), shape.fill, shape.outlined]
                   for shape in robot_shapes(robot.name)],
        "radii": {
            "goal": objects.GOAL_RADIUS,
            "hazards": arena.hazard_radius,
            "buttons": objects.BUTTON_RADIUS,
            "pillars": objects.PILLAR_RADIUS,
            "vases": objects.BOX_HALF,
            "gremlins": objects.BOX_HALF,
            "push_box": arena.box,
            "path": objects.GREMLIN_PATH,
            "circle": objects.CIRCLE_RADIUS,
        },
    } | DRIVES[robot.name]  # fmt: skip


def _scene(env: Any, seed: int) -> dict[str, Any]:
    """Return where everything stands at a reset."""
    env.reset(seed=seed)
    return {"name": f"scene {seed}"} | _things(env.unwrapped)


def _things(task: Any) -> dict[str, Any]:
    """Return where everything stands now: x, y and perhaps the turn of each, by kind."""
    scene = scene_now(task, (), (), "", None)
    lone = {"goal": scene.goal, "push_box": scene.push_box}
    things: Arrays = {kind: [place] for kind, place in lone.items() if place is not None}
    things |= {kind: getattr(scene, kind)
               for kind in ("hazards", "vases", "buttons", "gremlins", "pillars")}  # fmt: skip
    things["centres"] = scene.gremlin_centres
    return {
        "agent": [float(number) for number in scene.agent],
        "button": scene.goal_button,
        "things": {kind: np.asarray(x, float).tolist() for kind, x in things.items() if len(x)},
    }


def _run(agent: Any, env: Any, seeds: Sequence[int]) -> dict[str, Any]:
    """Return a run: its network as it is deployed, and what it did in some episodes."""
    policy = agent.policy()
    return {
        "name": f"{title(agent.method)}, seed {agent.seed}",
        "about": f"{agent.num_timesteps:,} steps of training",
        "colour": style.method_style(agent.method).colour,
        "repeat": agent.config.action_repeat,
        "network": network_data(policy),
        "episodes": [_episode(policy, env, seed, agent.config.gamma) for seed in seeds],
    }


def network_data(policy: Any) -> dict[str, Any]:
    """Return a deployed network: its numbers, and its arrays packed."""
    parts = policy.network.parts
    arrays: Arrays = {name: getattr(parts, name) for name in ("mean", "std", "gains", "whitener",
                                                              "candidates")}  # fmt: skip
    for name in ("actor", "safety", "reward"):
        for at, layer in enumerate(getattr(parts, name) or ()):
            arrays |= {f"{name}/{at}/{key}": layer[key] for key in "wbgo" if key in layer}
    return {
        "activation": parts.activation,
        "squash": parts.squash,
        "clipped": parts.clipped,
        "unit": float(parts.cost_unit),
        "around": parts.around,
        "budget": parts.budget,
        "tolerance": float(parts.tolerance),
        "price": float(parts.price),
        "limit": policy.limit,
        "encoding": {"near": parts.near.tolist(), "edges": EDGES},
        "arrays": pack(arrays),
    }


def _episode(policy: Any, env: Any, seed: int, gamma: float) -> dict[str, Any]:
    """Run an episode as `evaluate` does; return what was seen, decided and paid."""
    rollout, task = Rollout(env), env.unwrapped
    rollout.reset(seed=seed)
    start, rows = _things(task), []
    seen = _seen(rollout, task)
    for made in rollout.play(policy):
        done = policy.last
        rows.append(seen | {
            "action": done.unit_action,
            "proposed": done.proposed,
            "q_cost": done.q_cost,
            "influence": done.influence,
            "screened": done.screened,
            "changed": done.changed,
            "reward": made.reward,
            "cost": made.cost,
        })  # fmt: skip
        seen = _seen(rollout, task)
    columns: Arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    realised = discounted_sums(columns["cost"], gamma)
    if not made.terminated and gamma < 1:  # what followed was not seen
        realised[-round(1.0 / (1.0 - gamma)) :] = np.nan
    columns["realised"] = realised
    return {"seed": seed, "success": made.success, "start": start, "columns": pack(columns)}


def _seen(rollout: Rollout, task: Any) -> Arrays:
    """Return what a decision is about to see, as far as it moves."""
    assert rollout.obs is not None
    now, (position, rotation) = _things(task), pose_now(task)
    moving = ("goal", "vases", "gremlins", "push_box")
    return {
        "sensors": rollout.obs[: task.robot.sensed],
        "position": position,
        "rotation": rotation,
        "button": -1 if now["button"] is None else now["button"],
        "seen": buttons_are_seen(task),
        **{f"things/{kind}": now["things"][kind] for kind in moving if kind in now["things"]},
    }


def pack(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays as one text: float32 in base64, with the place and the shape of each."""
    index, pieces, start = {}, [], 0
    for name, array in arrays.items():
        if array is not None:
            piece = np.asarray(array, "<f4")
            index[name] = [start, list(piece.shape)]
            pieces.append(piece.ravel())
            start += piece.size
    return {"index": index, "bytes": base64.b64encode(np.concatenate(pieces).tobytes()).decode()}
