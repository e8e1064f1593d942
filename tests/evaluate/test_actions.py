"""True costs of actions, and how well a prediction ranks them."""

import numpy as np
import pytest

from probes import KeptPoint, Point
from safecritic.evaluate.actions import costs_of_actions, rank_agreement
from safecritic.run.rollout import FunctionPolicy
from safecritic.run.stream import Stream
from safecritic.tasks.adapter import make_env


def test_the_costs_of_actions_are_those_of_the_same_state() -> None:
    """From x in [0.3, 0.4) a step forward costs 0.5, and so does staying there."""
    env, _ = make_env(KeptPoint())
    stream = Stream(env, 0, np.random.default_rng(0))
    stream.ready()
    while not 0.3 <= env.unwrapped.x < 0.4:
        stream.step(np.clip([10 * (0.35 - env.unwrapped.x)], -1, 1))
    before, taken = env.unwrapped.x, stream.episode.length
    stays = FunctionPolicy(lambda obs: np.zeros(1))
    actions = np.array([[1.0], [0.0], [-1.0]])
    found = costs_of_actions(stream, stays, actions, 0.5)
    # one decision, and 3 / (1 - 0.5) of the policy that stays where it is
    expected = 0.5 * sum(0.5**k for k in range(7))
    np.testing.assert_allclose(found, [expected, 0.0, 0.0])
    assert (env.unwrapped.x, stream.episode.length) == (before, taken)


def test_an_environment_that_cannot_be_put_back_is_refused() -> None:
    stream = Stream(make_env(Point())[0], 0, np.random.default_rng(0))
    stream.ready()
    with pytest.raises(ValueError, match="cannot be put back"):
        costs_of_actions(stream, FunctionPolicy(lambda obs: np.zeros(1)), np.zeros((1, 1)), 0.5)


def test_agreement_is_that_of_ranks_where_the_truth_differs() -> None:
    truth = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    predicted = np.array([[10.0, 20.0, 90.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [7.0, 7.0, 7.0]])
    assert rank_agreement(predicted, truth).tolist() == pytest.approx([1.0, -1.0, 0.0])
