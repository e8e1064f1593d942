"""The contract of a policy file: what goes in and out, what was seen in training, what is refused.

Nothing here needs the network; `export` adds its description and its hash.
"""

import math
from typing import Any

import gymnasium
import numpy as np

from safecritic.agents import scaling
from safecritic.deploy.names import names_of, period_of
from safecritic.run.folder import versions
from safecritic.tasks.observations import parts

WIDTH = 50.0  # spreads around the mean within which a number without bounds is believed
SLACK = 1e-6  # beyond the bounds of a space, for rounding
LATE = 2.0  # periods after which a call is late
HOLD = 5  # decisions for which the fallback "hold" repeats an action
SHARES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
ROWS = 4096  # of the replay that the distributions are taken from

BAD_INPUT = (
    "no observation, a wrong shape, a number that is not finite or outside of low and high, or a "
    "call later than late_after seconds after the one before: the fallback answers, and the call "
    "is counted and reported; a cost that is not finite or negative: no budget is left"
)


def make(
    agent: Any,
    own: gymnasium.Env,
    fallback: Any = "hold",
    period: float | None = None,
) -> dict[str, Any]:
    """Return the contract of an agent's policy.

    Args:
        agent: the agent, with its environment.
        own: the environment inside the adapter.
        fallback: "hold", "zero", or an action in the environment's unit.
        period: seconds of a control step; without it, what the environment says.
    """
    observation, action = names_of(agent.env, own)
    environment, config = agent.environment, agent.config
    period = period_of(agent.env) if period is None else float(period)
    if period is not None and not period > 0:
        raise ValueError(f"period must be > 0 seconds, got {period} (--period)")
    rows = replay_rows(agent)
    low, high, sources = observation_bounds(agent, rows)
    box = np.ravel(environment["action_low"]), np.ravel(environment["action_high"])
    return {
        "method": agent.method,
        "task": environment["task"],
        "steps": agent.num_timesteps,
        "seed": agent.seed,
        "cost_limit": float(config.cost_limit),
        "period": period,
        "action_repeat": int(config.action_repeat),
        "observation": {
            "names": observation.names,
            "units": observation.units,
            "low": low,
            "high": high,
            "bounds_from": sources,
            "parts": [
                {"name": part.name, "start": part.start, "stop": part.stop}
                for part in parts(own.observation_space)
            ],
            "scaling": "included: give the raw observation",
        },
        "action": {
            "names": action.names,
            "units": action.units,
            "low": box[0].astype(float).tolist(),
            "high": box[1].astype(float).tolist(),
            "shape": list(np.shape(environment["action_low"])),
            "dtype": environment["action_dtype"],
            "scaling": "included: the action is in the environment's own unit",
        },
        "on_bad_input": {
            "rule": BAD_INPUT,
            "fallback": _fallback(fallback, box[0].size),
            "hold_at_most": HOLD * int(config.action_repeat),
            "late_after": None if period is None else LATE * period,
        },
        "training": distributions(agent, rows),
        "versions": versions(),
    }


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
    if store is None or int(store.size) == 0:
        return None
    size = int(store.size)
    taken = np.unique(np.linspace(0, size - 1, min(size, ROWS)).astype(int))
    return np.asarray(store.obs)[taken], np.asarray(store.action)[taken]


def observation_bounds(agent: Any, rows: Any) -> tuple[list[float], list[float], list[str]]:
    """Return the bounds within which an observation is believed, and where each is from.

    A number without bounds of its own is believed within WIDTH spreads of its mean in training, and
    as far beyond what the replay holds as that is wide.
    """
    space: Any = agent.env.observation_space
    scaler = agent.training.device.agent.scaler
    n = agent.training.spec.obs_dim
    mean, var = (np.asarray(x, np.float64)[:n] for x in (scaler.mean, scaler.var))
    spread = np.sqrt(np.maximum(var, scaling.LEAST_VARIANCE))
    low, high = mean - WIDTH * spread, mean + WIDTH * spread
    if rows is not None:
        least, most = rows[0].min(axis=0), rows[0].max(axis=0)
        low = np.minimum(low, least - (most - least))
        high = np.maximum(high, most + (most - least))
    own_low, own_high = (np.ravel(end).astype(np.float64) for end in (space.low, space.high))
    bounded = np.isfinite(own_low) & np.isfinite(own_high)
    low = np.where(np.isfinite(own_low), own_low - SLACK, low)
    high = np.where(np.isfinite(own_high), own_high + SLACK, high)
    sources = ["environment" if known else "training" for known in bounded]
    return low.tolist(), high.tolist(), sources


def distributions(agent: Any, rows: Any) -> dict[str, Any]:
    """Return how Q_C and influence were distributed over the replay: values at SHARES."""
    if rows is None:
        return {}
    obs, action = rows
    size = agent.config.batch_size
    if len(obs) < size:
        return {}
    # batches of the size of training: with the reference "batch" the influence depends on it
    starts = range(0, len(obs) - size + 1, size)
    pieces = [agent.values(obs[at : at + size], action[at : at + size]) for at in starts]
    known = {}
    for name in ("q_cost", "influence"):
        if name in pieces[0]:
            values = np.concatenate([piece[name] for piece in pieces])
            quantiles = np.quantile(values, SHARES)
            if all(map(math.isfinite, quantiles)):
                known[name] = {"shares": list(SHARES), "values": quantiles.tolist()}
    return known
