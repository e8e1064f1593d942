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
from typing import Any

import numpy as np

from safecritic.deploy.export import Exported, prepare
from safecritic.run.folder import versions
from safecritic.run.rollout import Rollout
from safecritic.runtime.policy import Policy
from safecritic.tasks.repeat import single_steps

EPISODES, CONFIDENCE = 99, 0.95
SEED = 1_000_000  # far from the seeds of training and of `evaluate`
CALIBRATION_SEED = 2_000_000
FACTORS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0)  # of the tolerance, the largest first


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

    return float(beta.ppf(confidence, above + 1, episodes - above)) if above < episodes else 1.0


def certify(
    agent: Any,
    *,
    episodes: int = EPISODES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
    choose_tolerance: bool = False,
    tolerance: float | None = None,
    env: Any = None,
    advance: Callable[[int, int], None] = lambda done, number: None,
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
    chosen: dict[str, Any] | None = None
    with agent._lent_env("certify", env) as (used, _), single_steps(used) as (stepped, _):

        def measure(exported: Exported, first: int, screen: bool = True) -> dict[str, Any]:
            seeds = range(first, first + episodes)
            return _measure(exported, stepped, seeds, screen, confidence, advance)

        if choose_tolerance:
            chosen = choose(agent, lambda exported: measure(exported, CALIBRATION_SEED))
            chosen |= {"episodes": episodes, "seed": CALIBRATION_SEED}
            tolerance = chosen["tolerance"]
        exported = prepare(agent, tolerance=tolerance, onnx=False)
        contract = exported.contract
        has_screen = contract["network"]["screen"] is not None
        on = measure(exported, seed) if has_screen else None
        off = measure(exported, seed, screen=False)
    certificate = {
        **{name: contract[name] for name in ("policy_sha256", "method", "task", "cost_limit")},
        "tolerance": tolerance,
        "episodes": episodes,
        "seed": seed,
        "confidence": confidence,
        "screen_on": on,
        "screen_off": off,
        "choice_of_tolerance": chosen,
        "versions": versions(),
    }
    return {"statement": statement(certificate), **certificate}


def _measure(
    exported: Exported,
    env: Any,
    seeds: range,
    screen: bool,
    confidence: float,
    advance: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return the bounds and the costs they are made from, of episodes step by step."""
    policy = Policy(exported.contents, clock=None, screen=screen, on_fault=lambda *_: None)
    rollout, costs, rewards = Rollout(env), [], []
    for seed in seeds:
        obs, reward = rollout.reset(seed=seed), 0.0
        policy.reset()
        while not rollout.episode.ended:
            policy(obs)
            step = rollout.step(policy.last.unit_action)
            policy.spend(step.cost)
            obs, reward = step.next_obs, reward + step.reward
        costs.append(policy.spent)
        rewards.append(reward)
        advance(len(costs), len(seeds))
    above, bound = sum(cost > policy.limit for cost in costs), conformal_bound(costs, confidence)
    return {
        "bound": bound,
        "above": above,
        "rate_bound": rate_bound(above, len(costs), confidence),
        "mean_cost": float(np.mean(costs)),
        "mean_reward": float(np.mean(rewards)),
        "faults": policy.counts["faults"],
        "costs": costs,
        "rewards": rewards,
    }


def choose(agent: Any, measure: Callable[[Exported], dict[str, Any]]) -> dict[str, Any]:
    """Return the largest tolerance whose bound is within the limit, or that of least bound."""
    screen, limit = getattr(agent.config, "screen", None), float(agent.config.cost_limit)
    if not screen:
        raise ValueError(
            f"{agent.method} has no screen, so there is no tolerance to choose (--choose-tolerance)"
        )
    trained = agent.config.tolerance if screen is True else screen.tolerance
    tried: list[dict[str, Any]] = []
    for factor in FACTORS:
        made = measure(prepare(agent, tolerance=factor * trained, onnx=False))
        row = {"tolerance": factor * trained, "bound": made["bound"], "reward": made["mean_reward"]}
        tried.append(row)
        if row["bound"] <= limit:
            break
    best = min(tried, key=lambda row: max(row["bound"], limit))
    within = best["bound"] <= limit
    return {"tolerance": best["tolerance"], "within_limit": within, "tried": tried}


def statement(certificate: dict[str, Any]) -> str:
    """Return the sentences that a person can sign."""
    made = certificate["screen_on"] or certificate["screen_off"]
    share, n = f"{100 * certificate['confidence']:g}%", certificate["episodes"]
    screen = "with its screen on" if certificate["screen_on"] else "without a screen"
    text = (
        f"The next episode of the policy {certificate['policy_sha256'][:12]} "
        f"({certificate['method']} on {certificate['task']}, {screen}) costs at most "
        f"{made['bound']:.4g} with a probability of at least {share}. With a confidence of {share}"
        f", at most {100 * made['rate_bound']:.2g}% of its episodes cost more than the limit of "
        f"{certificate['cost_limit']:g}: {made['above']} of {n} fresh episodes did. This assumes "
        "that the next episode is drawn like those: the same task, robot, sensors and "
        "surroundings, and no trend from one episode to the next (exchangeable episodes). It is "
        "void for any other parameters."
    )
    if made["faults"]:
        text += f" The fallback answered {made['faults']} calls in these episodes."
    return text
