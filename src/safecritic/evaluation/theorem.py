"""Theorem 1 checked on trained critics: does the penalty grow with uniform alternatives?

For a state s, m alternatives a_i from a sampler P, z_i = c (Q_C(s, a_i) - mu) with c = 1/sigma of
the batch, the theorem claims (appendix, for a threshold tau above L = min Q_C, p_P the chance of
Q_C >= tau under P, premise p_pi < p_unif)

    E LSE_unif - E LSE_pi  >=  c (tau - L) ((1 - p_pi)^m - (1 - p_unif)^m) - log m

Left and right are estimated from the same draws of both samplers. Where the right side is not
above 0 the bound says nothing; `log m` makes that common. The step of the proof before it, without
LSE and log m, compares expected maxima. There the paper subtracts one lower bound from another,
which is not valid, so this step is checked by itself:

    E max_unif - E max_pi  >=  (tau - L) ((1 - p_pi)^m - (1 - p_unif)^m)

Our default form of the penalty is mirrored (docs/safety-critics.md): its gap is that of LSE(-z).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

STATES, DRAWS = 256, 512  # states, and actions of each sampler in each state
NUMBERS = (1, 2, 4, 8, 16, 32, 64)  # m
LEAST_GAP = 0.02  # the least p_unif - p_pi that fulfils the premise


class Check(NamedTuple):
    """The result for one m: shares of the states and means over them."""

    m: int
    premise: float  # share with a threshold that fulfils the premise
    left: float  # mean gap of the penalty, uniform minus policy
    right: float  # mean bound, at the threshold where it is largest
    larger: float  # share of states where the penalty is larger under uniform alternatives
    holds: float  # share where left >= right
    says_something: float  # share where right > 0
    maxima_hold: float  # share where the step before, on expected maxima, holds
    mirrored_left: float  # mean gap of the mirrored penalty


def check(
    uniform: np.ndarray,
    policy: np.ndarray,
    sigma: float,
    numbers: Sequence[int] = NUMBERS,
    thresholds: int = 19,
) -> list[Check]:
    """Estimate both sides for each m from Q_C of R draws in S states, (S, R) for each sampler.

    The R draws are cut into R // m groups of m. For every state the threshold is chosen, among
    `thresholds` quantiles of its values, that fulfils the premise and makes the right side
    largest; in states without one the bound is taken at tau = L, where it is -log m.
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
    scale = 1.0 / sigma
    checks = []
    for m in numbers:
        if m > uniform.shape[1]:
            break
        hits = (1 - chance_policy) ** m - (1 - chance_uniform) ** m
        best = np.max(np.where(allowed, height * hits, 0.0), axis=1)
        right = scale * best - np.log(m)
        left = _mean_lse(scale * uniform, m) - _mean_lse(scale * policy, m)
        maxima = _groups(uniform, m).max(axis=2).mean(axis=1)
        maxima = maxima - _groups(policy, m).max(axis=2).mean(axis=1)
        mirrored = _mean_lse(-scale * uniform, m) - _mean_lse(-scale * policy, m)
        checks.append(
            Check(
                m=int(m),
                premise=float(allowed.any(axis=1).mean()),
                left=float(left.mean()),
                right=float(right.mean()),
                larger=float((left > 0).mean()),
                holds=float((left >= right).mean()),
                says_something=float((right > 0).mean()),
                maxima_hold=float((maxima >= best).mean()),
                mirrored_left=float(mirrored.mean()),
            )
        )
    return checks


def sigma_epsilon(config: Any) -> float:
    """Return eps of Eq. 3, also for a critic that is trained without the term."""
    if not hasattr(config, "conservative"):
        return 1e-6
    return 1e-2 if config.conservative is None else config.conservative.sigma_epsilon


def check_critic(critic: Any, obs: np.ndarray, config: Any, seed: int) -> list[Check]:
    """Check a critic on states the deployed policy met: its own noise against uniform actions."""
    rng = np.random.default_rng(seed)
    states = obs[rng.permutation(len(obs))[:STATES]]
    own = critic.actions(states)
    sigma = float(critic.q_cost(states, own).std()) + sigma_epsilon(config)
    shape = (len(states), DRAWS, own.shape[1])
    noise = config.noise_sigma * rng.standard_normal(shape)
    samples = {
        "uniform": rng.uniform(-1.0, 1.0, shape),
        "policy": np.clip(own[:, None] + noise, -1.0, 1.0),
    }
    rows = np.repeat(states, DRAWS, axis=0)
    values = {
        name: critic.q_cost(rows, actions.astype(np.float32).reshape(-1, shape[2]))
        for name, actions in samples.items()
    }
    size = (len(states), DRAWS)
    return check(values["uniform"].reshape(size), values["policy"].reshape(size), sigma)


def measure(agent: Any, critic: Any, evaluation: Any) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Measure both sides of Theorem 1 for a safety critic."""
    if critic is None:
        return None
    checks = check_critic(critic, evaluation.observations, agent.config, agent.seed)
    return [one._asdict() for one in checks], {}


def _groups(values: np.ndarray, m: int) -> np.ndarray:
    number = values.shape[1] // m
    return values[:, : number * m].reshape(len(values), number, m)


def _mean_lse(z: np.ndarray, m: int) -> np.ndarray:
    return logsumexp(_groups(z, m), axis=2).mean(axis=1)
