"""The contract of a policy: what goes in and out, what was seen in training, what is refused.

Nothing here needs the network; `export` adds its description and its hash.
"""

import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from safecritic.core import scaling
from safecritic.deploy.names import names_of, period_of
from safecritic.run.folder import versions
from safecritic.run.watch import RunWarning
from safecritic.tasks.observations import leaves

WIDTH = 50.0  # stds around the mean within which a number without bounds is believed
SLACK = 1e-6  # beyond the bounds of a space, for rounding
LATE = 2.0  # periods after which a call is late
HOLD = 5  # decisions for which the fallback "hold" repeats an action
SHARES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
ROWS = 4096  # of the replay that the distributions are taken from


def plain(agent: Any, own: gymnasium.Env | None) -> dict[str, Any]:
    """Return what a policy in memory needs: it raises on bad input, and believes any number."""
    environment, config, n = agent.environment, agent.config, agent.training.spec.obs_dim
    return {
        "method": agent.method,
        "task": environment["task"],
        "steps": agent.num_timesteps,
        "seed": agent.seed,
        "cost_limit": float(config.cost_limit),
        "period": None,
        "action_repeat": int(config.action_repeat),
        "observation": {
            "names": [f"observation[{at}]" for at in range(n)],
            "low": [None] * n,
            "high": [None] * n,
            "parts": [] if own is None else _parts(own.observation_space),
        },
        "action": {
            "shape": list(np.shape(environment["action_low"])),
            "dtype": environment["action_dtype"],
        },
        "on_bad_input": {"fallback": "raise", "hold_at_most": 0, "late_after": None},
    }


def make(
    agent: Any, own: gymnasium.Env, fallback: Any = "hold", period: float | None = None
) -> dict[str, Any]:
    """Return the contract of an agent's policy file; see `export.prepare` for the arguments."""
    observation, action = names_of(agent.env, own)
    period = period_of(agent.env) if period is None else float(period)
    if period is not None and not period > 0:
        raise ValueError(f"period must be > 0 seconds, got {period} (--period)")
    rows = replay_rows(agent)
    low, high, sources = observation_bounds(agent, rows)
    box = {name: np.ravel(agent.environment[f"action_{name}"]) for name in ("low", "high")}
    content = plain(agent, own) | {"period": period}
    content["observation"] |= {
        **observation,
        "low": low,
        "high": high,
        "bounds_from": sources,
        "scaling": "included: give the raw observation",
    }
    content["action"] |= {
        **action,
        **{name: end.astype(float).tolist() for name, end in box.items()},
        "scaling": "included: the action is in the environment's own unit",
    }
    content["on_bad_input"] = {
        "fallback": _fallback(fallback, box["low"].size),
        "hold_at_most": HOLD * int(agent.config.action_repeat),
        "late_after": None if period is None else LATE * period,
    }
    return content | {"training": distributions(agent, rows), "versions": versions()}


def _parts(space: gymnasium.Space) -> list[dict[str, Any]]:
    """Return the parts of an observation in the order in which training flattens them."""
    return [
        {"path": list(path), "shape": list(leaf.shape or ()), "discrete": _values(leaf)}
        for path, leaf in leaves(space)
    ]


def _values(space: gymnasium.Space) -> list[list[int]] | None:
    """Return first value and number of values of each discrete number, None for other spaces."""
    if isinstance(space, Discrete):
        return [[int(space.start), int(space.n)]]
    if isinstance(space, MultiDiscrete):
        return np.stack([space.start.ravel(), space.nvec.ravel()], axis=1).tolist()
    return None


def _fallback(fallback: Any, size: int) -> Any:
    """Return the fallback as JSON; a function is given to the runtime, not to the file."""
    if isinstance(fallback, str) and fallback in ("hold", "zero"):
        return fallback
    try:
        action = np.asarray(fallback, np.float64).ravel()
    except (TypeError, ValueError):
        action = np.zeros(0)
    if isinstance(fallback, str) or action.size != size or not np.isfinite(action).all():
        raise ValueError(
            f"fallback must be 'hold', 'zero' or {size} finite numbers in the environment's unit"
            f", got {fallback!r} (--fallback); a function goes to the runtime, load(fallback=...)"
        )
    return action.tolist()


def replay_rows(agent: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return observations and actions of the replay, up to ROWS of them; None without a replay."""
    store = getattr(agent.training.device, "replay", None)
    size = 0 if store is None else int(store.size)
    if store is None or not size:
        return None
    taken = np.unique(np.linspace(0, size - 1, min(size, ROWS)).astype(int))
    return np.asarray(store.obs)[taken], np.asarray(store.action)[taken]


def observation_bounds(agent: Any, rows: Any) -> tuple[list[float], list[float], list[str]]:
    """Return the bounds within which an observation is believed, and where each is from.

    Without bounds of its own a number is believed within WIDTH stds of its mean in training, and as
    far beyond what the replay holds as that is wide.
    """
    space, scaler = agent.env.observation_space, agent.training.device.agent.scaler
    n = agent.training.spec.obs_dim
    mean, std = (np.asarray(x, np.float64)[:n] for x in (scaler.mean, scaling.std(scaler)))
    low, high = mean - WIDTH * std, mean + WIDTH * std
    if rows is not None:
        least, most = rows[0].min(axis=0), rows[0].max(axis=0)
        low = np.minimum(low, least - (most - least))
        high = np.maximum(high, most + (most - least))
    own = np.array([space.low.ravel(), space.high.ravel()], np.float64)
    known, slack = np.isfinite(own), np.array([[-SLACK], [SLACK]])
    if rows is not None:  # a declared bound that training has left would refuse what is normal
        left = np.array([least < own[0] - SLACK, most > own[1] + SLACK])
        if left.any():
            places = np.flatnonzero(left.any(axis=0))[:8].tolist()
            warnings.warn(
                f"the environment's observation_space is narrower than its observations, at "
                f"{places}: these are believed as far as training saw them; correct the space",
                RunWarning,
                stacklevel=2,
            )
            known = known & ~left
    low, high = np.where(known, own + slack, [low, high]).tolist()
    bounded = (known[0] & known[1]).tolist()
    return low, high, ["environment" if each else "training" for each in bounded]


def distributions(agent: Any, rows: Any) -> dict[str, Any]:
    """Return how Q_C and influence were distributed over the replay: values at SHARES."""
    size = agent.config.batch_size
    if rows is None or len(rows[0]) < size:
        return {}
    obs, action = rows
    # batches of the size of training: with the reference "batch" the influence depends on it
    starts = range(0, len(obs) - size + 1, size)
    pieces = [agent.values(obs[at : at + size], action[at : at + size]) for at in starts]
    known = {}
    for name in [name for name in ("q_cost", "influence") if name in pieces[0]]:
        values = np.quantile(np.concatenate([piece[name] for piece in pieces]), SHARES)
        if np.isfinite(values).all():
            known[name] = {"shares": list(SHARES), "values": values.tolist()}
    return known
