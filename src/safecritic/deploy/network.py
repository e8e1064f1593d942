"""The deployed network of an agent: a description as JSON and its arrays, out of the state.

What an agent is made of is read from its state and settings, so a method of a plugin exports too if
it is built like one of ours; `export` compares the result with the agent itself.
"""

from typing import Any

import numpy as np

from safecritic.agents import paper
from safecritic.core import scaling
from safecritic.core.screening import CANDIDATES, grid

CANDIDATES_SEED = 0  # of the candidates that the paper's agent draws anew at every decision

Arrays = dict[str, np.ndarray]


def extract(agent: Any, tolerance: float | None = None) -> tuple[dict[str, Any], Arrays]:
    """Return description and arrays of what an agent does when it is deployed."""
    state, config = agent.training.device.agent, agent.config
    environment, spec = agent.environment, agent.training.spec
    printed = isinstance(config, paper.PaperSettings)
    plain = printed and not config.as_used  # inputs as they are, Q_C unbounded
    arrays: Arrays = {}
    size = float(np.asarray(scaling.unit_sizes(state.units).cost))
    about: dict[str, Any] = {
        "observation": spec.obs_dim,
        "action": spec.action_dim,
        "near": [] if plain else list(spec.proximity),
        "scaled": not plain,
        "actor": _actor(agent, state, arrays, printed),
        "safety": None,
        "reward": None,
        "cost_unit": size,
        "influence": False,
        "screen": None,
        "cost_limit": float(config.cost_limit),
        "action_low": np.ravel(environment["action_low"]).astype(float).tolist(),
        "action_high": np.ravel(environment["action_high"]).astype(float).tolist(),
    }
    if not plain:
        arrays["mean"] = np.asarray(state.scaler.mean, np.float32)
        arrays["std"] = np.asarray(scaling.std(state.scaler), np.float32)
    safety = None if printed and not config.safety_critic else getattr(state, "safety", None)
    if safety is not None:
        about["safety"] = _add_layers(arrays, "safety", safety[0]) | {"clipped": not plain}
        curvature = getattr(state, "curvature", None)
        if curvature is not None and not printed:  # printed, it is that of a batch
            about["influence"] = True
            arrays["whitener"] = np.asarray(curvature[0].whitener, np.float32)
    screen = getattr(config, "screen", None)
    if safety is not None and screen:
        if tolerance is None:
            tolerance = trained_tolerance(agent)
        if printed:
            rng = np.random.default_rng(CANDIDATES_SEED)
            drawn = paper.STD * rng.standard_normal((paper.CANDIDATES, spec.action_dim))
            arrays["candidates"] = drawn.astype(np.float32)
        else:
            about["reward"] = _add_layers(arrays, "reward", state.reward[0])
            arrays["candidates"] = grid(spec.action_dim, CANDIDATES)
        about["screen"] = {
            "tolerance": tolerance / size if printed else tolerance,
            "price": 0.0 if printed else max(float(state.multiplier), 1.0),
            "around": printed,
            "budget": not printed,
        }
    elif tolerance is not None:
        raise ValueError(
            f"{agent.method} has no screen here, so there is no tolerance to set (--tolerance)"
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite: this agent has diverged and is not deployed")
    return about, arrays


def trained_tolerance(agent: Any) -> float:
    """Return the tolerance of the screen that an agent has: the one that was set, or more."""
    if isinstance(agent.config, paper.PaperSettings):
        return agent.config.tolerance
    learned = getattr(agent.training.device.agent, "tolerance", None)
    return float(agent.config.screen.tolerance if learned is None else learned)


def _actor(agent: Any, state: Any, arrays: Arrays, printed: bool) -> dict[str, Any]:
    """Add the layers of the deployed actor; return what is between and behind them."""
    if hasattr(state, "actor"):
        # the slow copy, where there is one
        actor = state.actor if printed else getattr(state, "target_actor", state.actor)
        return _add_layers(arrays, "actor", actor) | {"activation": "relu", "squash": "tanh"}
    if hasattr(getattr(state, "policy", None), "mean"):
        layers = _add_layers(arrays, "actor", state.policy.mean)
        return layers | {"activation": "tanh", "squash": "clip"}
    raise ValueError(
        f"{agent.method} cannot be exported: its state has neither `actor` nor `policy.mean`, "
        f"but {', '.join(getattr(state, '_fields', ()))}"
    )


def _add_layers(arrays: Arrays, name: str, layers: Any) -> dict[str, Any]:
    for at, layer in enumerate(layers):
        for key, array in layer.items():
            arrays[f"{name}/{at}/{key}"] = np.asarray(array, np.float32)
    return {"layers": len(layers)}
