"""Certify what the next episode may cost, from fresh episodes of the exported policy.

Two statements, neither of which assumes a distribution; both assume that the next episode is drawn
like the certifying ones, in no particular order (exchangeable episodes):

    split conformal   P(cost of the next episode <= bound) >= confidence, with bound the k-th
                      smallest of n costs, k = ceil((n + 1) confidence)
    Clopper-Pearson   with this confidence, the share of episodes above the limit is at most the
                      rate at which so few of n would be above it only with 1 - confidence

A tolerance is chosen on other episodes than those that certify it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safecritic.deploy.export import Exported, prepare
from safecritic.run.folder import versions
from safecritic.runtime.policy import Policy
from safecritic.tasks.repeat import single_steps

EPISODES, CONFIDENCE = 99, 0.95
SEED = 1_000_000  # far from the seeds of training and of `evaluate`
CALIBRATION_SEED = 2_000_000
FACTORS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0)  # of the tolerance, the largest first
ASSUMPTION = (
    "The next episode is drawn like these: the same task, robot, sensors and surroundings, and no "
    "trend from one episode to the next (exchangeable episodes)."
)

Advance = Callable[[int, int], None]


# The two bounds


def least_episodes(confidence: float) -> int:
    """Return the least number of episodes for which the conformal bound is finite."""
    return math.ceil(round(confidence / (1.0 - confidence), 9))


def conformal_bound(costs: Sequence[float] | np.ndarray, confidence: float) -> float:
    """Return the split-conformal bound on the next cost; infinite for too few costs."""
    rank = math.ceil(round((len(costs) + 1) * confidence, 9))
    return float(np.sort(costs)[rank - 1]) if rank <= len(costs) else math.inf


def rate_bound(above: int, episodes: int, confidence: float) -> float:
    """Return the Clopper-Pearson upper bound on a rate: `above` of `episodes` were seen."""
    from scipy.stats import beta

    if above >= episodes:
        return 1.0
    return float(beta.ppf(confidence, above + 1, episodes - above))


# Episodes


class Costs(NamedTuple):
    """What episodes of a policy cost."""

    costs: list[float]
    rewards: list[float]
    faults: int

    def measured(self, limit: float, confidence: float) -> dict[str, Any]:
        """Return the bounds and the costs they are made from."""
        above = sum(cost > limit for cost in self.costs)
        bound = conformal_bound(self.costs, confidence)
        return {
            "bound": bound if math.isfinite(bound) else None,
            "above": above,
            "rate_bound": rate_bound(above, len(self.costs), confidence),
            "mean_cost": float(np.mean(self.costs)),
            "mean_reward": float(np.mean(self.rewards)),
            "faults": self.faults,
            "costs": self.costs,
            "rewards": self.rewards,
        }


def run_episode(policy: Policy, env: Any, seed: int) -> tuple[float, float]:
    """Run one episode through the runtime, step by step; return its cost and its reward."""
    policy.reset()
    obs, _ = env.reset(seed=seed)
    reward_sum, ended = 0.0, False
    while not ended:
        policy(obs)
        obs, reward, terminated, truncated, info = env.step(policy.last.unit_action)
        policy.spend(info["cost"])
        reward_sum += float(reward)
        ended = terminated or truncated
    return policy.spent, reward_sum


def run_episodes(
    policy: Policy, env: Any, episodes: int, seed: int, advance: Advance | None = None
) -> Costs:
    """Run episodes, number i from seed + i, in an environment that holds no actions itself."""
    before = policy.counts["faults"]
    rows = []
    for number in range(episodes):
        rows.append(run_episode(policy, env, seed + number))
        if advance is not None:
            advance(number + 1, episodes)
    costs, rewards = (list(column) for column in zip(*rows, strict=True))
    return Costs(costs, rewards, policy.counts["faults"] - before)


# Certificates


def certify(
    agent: Any,
    *,
    episodes: int = EPISODES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
    choose_tolerance: bool = False,
    tolerance: float | None = None,
    env: Any = None,
    advance: Advance | None = None,
) -> dict[str, Any]:
    """Return a certificate of an agent's exported policy, as JSON.

    Args:
        agent: the agent.
        episodes: fresh episodes with the screen on, and as many with it off.
        confidence: of both bounds.
        seed: episode i starts from this seed + i.
        choose_tolerance: take the largest tolerance whose conformal bound is within the limit, on
            calibration episodes of their own.
        tolerance: the screen's, instead of the one it was trained with.
        env: in place of a fresh environment made from the agent's id.
        advance: called with the episodes done and their number.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence} (--confidence)")
    least = least_episodes(confidence)
    if episodes < least:
        raise ValueError(
            f"episodes must be >= {least} for a confidence of {confidence:g}, got {episodes}: "
            "with fewer, no finite bound holds (--episodes)"
        )
    if choose_tolerance and tolerance is not None:
        raise ValueError("tolerance contradicts choose_tolerance: give one of the two")
    with agent.lent_env("certify", env) as (used, _), single_steps(used) as (stepped, _):
        chosen: dict[str, Any] | None = None
        if choose_tolerance:
            chosen = choose(agent, stepped, episodes, confidence, advance)
            tolerance = chosen["tolerance"]
        exported = prepare(agent, tolerance=tolerance, onnx=False)
        on = _measure(exported, stepped, True, episodes, confidence, seed, advance)
        has_screen = exported.contract["network"]["screen"] is not None
        off = None
        if has_screen:
            off = _measure(exported, stepped, False, episodes, confidence, seed, advance)
    contract = exported.contract
    certificate = {
        "policy_sha256": contract["policy_sha256"],
        "method": contract["method"],
        "task": contract["task"],
        "cost_limit": contract["cost_limit"],
        "tolerance": tolerance,
        "episodes": episodes,
        "seed": seed,
        "confidence": confidence,
        "screen_on": on if has_screen else None,
        "screen_off": off if has_screen else on,
        "choice_of_tolerance": chosen,
        "assumption": ASSUMPTION,
        "versions": versions(),
    }
    return {"statement": statement(certificate), **certificate}


def _measure(
    exported: Exported,
    env: Any,
    screen: bool,
    episodes: int,
    confidence: float,
    seed: int,
    advance: Advance | None,
) -> dict[str, Any]:
    policy = Policy(exported.contents(), clock=None, screen=screen, on_fault=lambda *_: None)
    return run_episodes(policy, env, episodes, seed, advance).measured(policy.limit, confidence)


def choose(
    agent: Any, env: Any, episodes: int, confidence: float, advance: Advance | None
) -> dict[str, Any]:
    """Return the largest tolerance whose bound is within the limit, or that of least bound."""
    screen = getattr(agent.config, "screen", None)
    if screen is None:
        raise ValueError(
            f"{agent.method} has no screen, so there is no tolerance to choose (--choose-tolerance)"
        )
    limit = float(agent.config.cost_limit)
    tried = []
    for factor in FACTORS:
        tolerance = factor * screen.tolerance
        exported = prepare(agent, tolerance=tolerance, onnx=False)
        made = _measure(exported, env, True, episodes, confidence, CALIBRATION_SEED, advance)
        tried.append(
            {"tolerance": tolerance, "bound": made["bound"], "reward": made["mean_reward"]}
        )
        if made["bound"] <= limit:
            break
    best = min(tried, key=lambda row: (row["bound"] > limit, row["bound"] * (row["bound"] > limit)))
    return {
        "tolerance": best["tolerance"],
        "within_limit": best["bound"] <= limit,
        "tried": tried,
        "episodes": episodes,
        "seed": CALIBRATION_SEED,
    }


def statement(certificate: dict[str, Any]) -> str:
    """Return the sentences that a person can sign."""
    on = certificate["screen_on"]
    made = on or certificate["screen_off"]
    share, n = f"{100 * certificate['confidence']:g}%", certificate["episodes"]
    limit = certificate["cost_limit"]
    screen = "with its screen on" if on else "without a screen"
    text = (
        f"The next episode of the policy {certificate['policy_sha256'][:12]} "
        f"({certificate['method']} on {certificate['task']}, {screen}) costs at most "
        f"{made['bound']:.4g} with a probability of at least {share}. With a confidence of {share}"
        f", at most {100 * made['rate_bound']:.2g}% of its episodes cost more than the limit of "
        f"{limit:g}: {made['above']} of {n} fresh episodes did. This assumes that the next episode "
        "is drawn like those: the same task, robot, sensors and surroundings, and no trend from "
        "one episode to the next. It is void for any other parameters."
    )
    if made["faults"]:
        text += f" The fallback answered {made['faults']} calls in these episodes."
    return text
