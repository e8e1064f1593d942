"""The deployed network of an agent: a description as JSON and its arrays, out of the state.

What an agent is made of is read from its state and settings, so a method of a plugin exports too if
it is built like one of ours; `export` compares the result with the agent itself.
"""

import dataclasses
from typing import Any

import numpy as np

from safecritic.agents import scaling
from safecritic.agents.cost_critic import NO_BOUND
from safecritic.agents.ddpg import deployed_actor
from safecritic.critics.screening import Screen, grid

CANDIDATES_SEED = 0  # of candidates that are random in training

Arrays = dict[str, np.ndarray]


def extract(agent: Any, tolerance: float | None = None) -> tuple[dict[str, Any], Arrays]:
    """Return the description and the arrays of what an agent does when it is deployed.

    Args:
        agent: the agent.
        tolerance: the screen's, instead of the one it was trained with.
    """
    state, config = agent.training.device.agent, agent.config
    environment = agent.environment
    spec = agent.training.spec
    arrays: Arrays = {}
    actor, output, activation = _actor(agent, state)
    _add_layers(arrays, "actor", actor)
    safety = getattr(state, "safety", None)
    reward = getattr(state, "reward", None)
    screen = getattr(config, "screen", None)
    size = float(np.asarray(scaling.unit_sizes(state.units, config).cost))
    about: dict[str, Any] = {
        "observation": spec.obs_dim,
        "action": spec.action_dim,
        "inputs": scaling.input_size(spec, config),
        "scaling": config.observation_scaling,
        "clip": scaling.CLIP,
        "closeness": list(spec.closeness),
        "sharpening": float(config.sharpening),
        "sharpened": _sharpened(safety, config),
        "gain": float(getattr(config, "sharpening_gain", 1.0)),
        "sharp_size": scaling.SHARP_SIZE,
        "actor": {"layers": len(actor), "activation": activation, "output": output},
        "safety": None,
        "reward": None,
        "cost_unit": size,
        "influence": False,
        "screen": None,
        "cost_limit": float(config.cost_limit),
        "action_repeat": int(config.action_repeat),
        "action_low": np.ravel(environment["action_low"]).astype(float).tolist(),
        "action_high": np.ravel(environment["action_high"]).astype(float).tolist(),
    }
    if config.observation_scaling == "running":
        variance = np.maximum(np.asarray(state.scaler.var), np.float32(scaling.LEAST_VARIANCE))
        arrays["scaler/mean"] = np.asarray(state.scaler.mean, np.float32)
        arrays["scaler/spread"] = np.sqrt(variance, dtype=np.float32)
    if safety is not None:
        for member, layers in enumerate(safety):
            _add_layers(arrays, f"safety/{member}", layers)
        bound = float(np.asarray(state.cost_bound))
        about["safety"] = {
            "members": len(safety),
            "layers": len(safety[0]),
            "output": config.safety_output,
            "sharpness": float(config.output_sharpness),
            "bound": bound / size if bound < NO_BOUND else None,
            "value": config.safety_value,
        }
    if safety is not None and getattr(state, "curvature", None) is not None:
        about["influence"] = True
        for member, curvature in enumerate(state.curvature):
            arrays[f"influence/{member}/whitener"] = np.asarray(curvature.whitener, np.float32)
    if safety is not None and screen is not None and reward is not None:
        if tolerance is not None:
            screen = dataclasses.replace(screen, tolerance=tolerance)
        _add_layers(arrays, "reward", reward[0])
        about["reward"] = {"layers": len(reward[0])}
        known = config.units != "measured" or float(state.units.cost.size) > 0
        about["screen"], arrays["screen/candidates"] = _screen(screen, spec.action_dim, known)
        # of Q_C where nothing is within the tolerance; rounded as the agent rounds it
        price = np.float32(screen.screen_price) * np.maximum(np.float32(state.multiplier), 1)
        about["screen"]["price"] = float(price)
    elif tolerance is not None:
        raise ValueError(
            f"{agent.method} has no screen here, so there is no tolerance to set (--tolerance)"
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name} is not finite: this agent has diverged and cannot be deployed"
            )
    return about, arrays


def _actor(agent: Any, state: Any) -> tuple[Any, str, str]:
    """Return the layers of the actor, its last step and what is between its layers."""
    if hasattr(state, "actor"):
        # a method of a plugin may have no slow copy
        settled = hasattr(agent.config, "deployed_actor")
        actor = deployed_actor(state, agent.config) if settled else state.actor
        return actor, "tanh", "relu"
    if hasattr(getattr(state, "policy", None), "mean"):
        return state.policy.mean, "clip", "tanh"
    raise ValueError(
        f"{agent.method} cannot be exported: its state has neither `actor` nor `policy.mean`, "
        f"but {', '.join(getattr(state, '_fields', ()))}"
    )


def _sharpened(safety: Any, config: Any) -> str:
    """Return where the sharpened closenesses are: beside the observation, in its place, nowhere."""
    if config.sharpening == 1.0:
        return "no"
    if scaling.widens(config):
        return "beside"
    return "no" if safety is None else "in place"


def _screen(screen: Screen, dim: int, known: bool) -> tuple[dict[str, Any], np.ndarray]:
    """Return the screen's description and its candidates, which are the same at every decision."""
    number, rng = screen.screen_candidates, np.random.default_rng(CANDIDATES_SEED)
    about = {
        "tolerance": float(screen.tolerance),
        "tolerance_in": screen.tolerance_in,
        "least": float(screen.tolerance_least),
        "choice": screen.screen_choice,
        "candidates": "around" if screen.screen_from == "ou" else "fixed",
        "source": screen.screen_from,
        "seed": None if screen.screen_from == "grid" else CANDIDATES_SEED,
        "active": known,  # before the first cost there is no unit and nothing to screen for
        "escape": {
            "after": screen.escape_after,
            "for": screen.escape_for,
            "near": float(screen.escape_near),
        },
    }
    if screen.screen_from == "grid":
        candidates = grid(dim, number)
    elif screen.screen_from == "uniform":
        candidates = rng.uniform(-1.0, 1.0, (number, dim))
    elif screen.screen_from == "ou":
        candidates = screen.screen_spread * rng.standard_normal((number, dim))
    else:
        raise ValueError(f"candidates from {screen.screen_from!r} cannot be exported")
    return about, np.asarray(candidates, np.float32)


def _add_layers(arrays: Arrays, name: str, layers: Any) -> None:
    for at, layer in enumerate(layers):
        for key, array in layer.items():
            arrays[f"{name}/{at}/{key}"] = np.asarray(array, np.float32)
