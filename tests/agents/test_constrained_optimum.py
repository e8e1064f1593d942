"""Every constrained method finds the constrained optimum of a problem where it is known."""

import numpy as np
import pytest

from probes import Road
from safecritic.agent_classes import agent_class
from safecritic.core.multiplier import AIM

OFF_POLICY = {
    "hidden": (32, 32),
    "learning_starts": 300,
    "gamma": 0.5,  # a step's grip says nothing of the next
    "tau": 0.02,
    "noise_sigma": 0.05,
}
CRITIC = OFF_POLICY | {"safety.steps": 1}
# quick enough for a few thousand decisions
MULTIPLIER = {"multiplier.lr": 3e-3, "multiplier.start": 0.3}
SAFETY = CRITIC | MULTIPLIER | {"kl_weight": 0.02, "screen": False}

# the same run: starting others, at every call of `learn`, takes longer than they save
ONE_PROCESS = {"rollout_envs": 2, "rollout_workers": 1}

RUNS = {
    "ddpg": (3_000, OFF_POLICY),
    "pid-lag": (6_000, CRITIC | {"multiplier.ki": 2e-3}),
    "rcpo": (7_500, OFF_POLICY | MULTIPLIER),
    "cpo": (60_000, {"hidden": (32, 32), "gamma": 0.9, "rollout_steps": 2_000, **ONE_PROCESS}),
    "sc": (7_500, SAFETY),
    "csc": (7_500, SAFETY),
    "usc": (7_500, SAFETY),
}


PIECES = 5  # of the end of training, after each of which the policy is deployed


def trained(name, seed=0):
    """Trained, and the mean cost and reward of the policies along the last sixth of training.

    Deterministic policies of a few thousand steps still waver around the limit.
    """
    steps, settings = RUNS[name]
    # the relative rule stays below the limit on purpose
    limit = Road.LIMIT / (AIM if "multiplier.lr" in settings else 1.0)
    agent = agent_class(name)("probes:Road-v0", seed=seed, cost_limit=limit, **settings)
    agent.learn(steps - steps // 6)
    found = []
    for piece in range(PIECES):
        agent.learn(steps // 6 // PIECES)
        found.append(agent.evaluate(episodes=20, seed=20 * piece).means)
    return agent, {key: np.mean([means[key] for means in found]) for key in ("cost", "reward")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name != "ddpg"])
def test_ends_at_the_budget_with_the_best_reward(name):
    agent, deployed = trained(name)
    costs = [row["cost"] for row in agent.recent_episodes]
    assert np.mean(costs) == pytest.approx(Road.LIMIT, rel=0.1)
    assert deployed["cost"] == pytest.approx(Road.LIMIT, rel=0.1)
    assert deployed["reward"] == pytest.approx(Road.BEST, rel=0.1)


@pytest.mark.slow
def test_ddpg_does_not():
    _, deployed = trained("ddpg")
    assert deployed["cost"] > 3 * Road.LIMIT
    assert deployed["reward"] > 1.5 * Road.BEST


def test_the_optimum_is_what_the_probe_says():
    """The stated policy costs the limit and earns the stated reward; faster on good grip loses."""
    grip = np.random.default_rng(0).uniform(0.5, 1.5, 400_000)
    speed = 1.0 / (2.0 * Road.MULTIPLIER * grip)
    assert speed.max() <= 1.0
    assert 10 * np.mean(grip * speed**2) == pytest.approx(Road.LIMIT, rel=2e-3)
    assert 10 * np.mean(speed) == pytest.approx(Road.BEST, rel=2e-3)
    same = np.sqrt(Road.LIMIT / 10 / grip.mean())  # one speed for every grip, the same cost
    assert 10 * same < 0.97 * Road.BEST
