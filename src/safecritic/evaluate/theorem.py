"""Theorem 1 checked on trained critics: does the penalty grow with uniform alternatives?

For a state s, m alternatives a_i from a sampler P, z_i = c (Q_C(s, a_i) - mu) with c = 1/sigma of
the batch, the theorem claims (appendix, for a threshold tau above L = min Q_C, p_P the chance of
Q_C >= tau under P, premise p_pi < p_unif)

    E LSE_unif - E LSE_pi  >=  c (tau - L) ((1 - p_pi)^m - (1 - p_unif)^m) - log m

Both sides are estimated from the same draws of both samplers; where the right one is not above 0
the bound says nothing. The step of the proof before it compares expected maxima: there the paper
subtracts one lower bound from another, which is not valid, so this step is checked by itself:

    E max_unif - E max_pi  >=  (tau - L) ((1 - p_pi)^m - (1 - p_unif)^m)

Our form of the penalty is mirrored: its gap is that of LSE(-z).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp

STATES, DRAWS = 256, 512  # states, and actions of each sampler in each state
NUMBERS = (1, 2, 4, 8, 16, 32, 64)  # m
LEAST_GAP = 0.02  # the least p_unif - p_pi that fulfils the premise


def check(
    uniform: np.ndarray,
    policy: np.ndarray,
    sigma: float,
    numbers: Sequence[int] = NUMBERS,
    thresholds: int = 19,
) -> list[dict[str, float]]:
    """Estimate both sides for each m from Q_C of R draws in S states, (S, R) for each sampler.

    Each state has the one of `thresholds` quantiles that fulfils the premise and makes the right
    side largest, or else L.
    """
    uniform, policy = np.asarray(uniform, np.float64), np.asarray(policy, np.float64)
    if uniform.shape != policy.shape or uniform.ndim != 2:
        raise ValueError(
            f"uniform and policy must both be (S, R), got {uniform.shape} and {policy.shape}"
        )
    both = np.concatenate([uniform, policy], axis=1)
    low = both.min(axis=1)
    levels = np.quantile(both, np.linspace(0.05, 0.95, thresholds), axis=1).T  # (S, T)
    chance_uniform = (uniform[:, None, :] >= levels[:, :, None]).mean(axis=2)
    chance_policy = (policy[:, None, :] >= levels[:, :, None]).mean(axis=2)
    allowed = (chance_uniform - chance_policy > LEAST_GAP) & (levels > low[:, None])
    height = np.where(allowed, levels - low[:, None], 0.0)
    checks = []
    for m in numbers:
        if m > uniform.shape[1]:
            break

        def gap(reduce: Callable[..., np.ndarray], scale: float, m: int = m) -> np.ndarray:
            """Return the mean over groups of m of a reduction, uniform minus policy, (S,)."""
            groups = (scale * x[:, : x.shape[1] // m * m] for x in (uniform, policy))
            first, last = (reduce(x.reshape(len(x), -1, m), axis=2).mean(axis=1) for x in groups)
            return first - last

        hits = (1 - chance_policy) ** m - (1 - chance_uniform) ** m
        best = np.max(np.where(allowed, height * hits, 0.0), axis=1)
        left, right = gap(logsumexp, 1.0 / sigma), best / sigma - np.log(m)
        means = {
            "premise": allowed.any(axis=1),  # share of states, as those without a comment are
            "left": left,  # mean gap of the penalty, uniform minus policy
            "right": right,  # mean bound, at the threshold where it is largest
            "larger": left > 0,
            "holds": left >= right,
            "says_something": right > 0,
            "maxima_hold": gap(np.max, 1.0) >= best,  # the step before, on expected maxima
            "mirrored_left": gap(logsumexp, -1.0 / sigma),  # mean gap of the mirrored penalty
        }
        checks.append({"m": int(m)} | {name: float(x.mean()) for name, x in means.items()})
    return checks


def check_critic(critic: Any, obs: np.ndarray, config: Any, seed: int) -> list[dict[str, float]]:
    """Check a critic on states the deployed policy met: its own noise against uniform actions."""
    from safecritic.core.conservative import SIGMA_EPSILON  # it needs JAX, reports have none

    rng = np.random.default_rng(seed)
    states = obs[rng.permutation(len(obs))[:STATES]]
    policy_actions = critic.actions(states)
    sigma = float(critic.q_cost(states, policy_actions).std()) + SIGMA_EPSILON
    shape = (len(states), DRAWS, policy_actions.shape[1])
    noise = config.noise_sigma * rng.standard_normal(shape)
    uniform = rng.uniform(-1.0, 1.0, shape)
    near = np.clip(policy_actions[:, None] + noise, -1.0, 1.0)
    rows = np.repeat(states, DRAWS, axis=0)
    flat = (actions.astype(np.float32).reshape(-1, shape[2]) for actions in (uniform, near))
    at_uniform, at_policy = (critic.q_cost(rows, actions).reshape(shape[:2]) for actions in flat)
    return check(at_uniform, at_policy, sigma)


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure both sides of Theorem 1 for a safety critic."""
    if critic is None:
        return None
    checks = check_critic(critic, evaluation.observations, agent.config, agent.seed)
    return checks, {}
