"""Verdicts in words: each with the number that decides it."""

import numpy as np
import pytest

from safecritic.evaluate.verdict import of_bounds, of_costs, of_critic

SPREAD = np.tile([0.0, 2.0], 50)  # mean 1, 95% interval 0.8 to 1.2


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (1.5, "KEPT: mean cost 1 of 100 episodes, 95% interval 0.801 to 1.2, limit 1.5"),
        (0.5, "NOT KEPT: mean cost 1 of 100 episodes, 95% interval 0.801 to 1.2, limit 0.5"),
        (
            1.1,
            "CANNOT BE TOLD: mean cost 1 of 100 episodes, 95% interval 0.801 to 1.2, limit 1.1; "
            "about 500 episodes would tell",
        ),
        (
            1.0,
            "CANNOT BE TOLD: mean cost 1 of 100 episodes, 95% interval 0.801 to 1.2, limit 1; "
            "it is too close to the limit to be told",
        ),
    ],
)
def test_the_interval_of_the_mean_decides(limit: float, text: str) -> None:
    assert str(of_costs(SPREAD, limit)) == text


def test_as_many_episodes_as_it_says_would_tell() -> None:
    assert of_costs(np.tile(SPREAD, 5), 1.1).word == "KEPT"
    assert of_costs(np.tile(SPREAD, 3), 1.1).word == "CANNOT BE TOLD"


def test_near_enough_a_few_more_would_tell() -> None:
    assert of_costs(SPREAD, 1.19).reason.endswith("; a few more episodes would tell")


def test_few_costs_tell_nothing() -> None:
    assert of_costs([], 1.0).word == of_costs([0.0], 1.0).word == "CANNOT BE TOLD"
    assert of_costs([0.0] * 4, 1.0, of="seeds") == (
        "CANNOT BE TOLD",
        "cost 0 in each of 4 seeds only, limit 1",
    )
    assert of_costs([0.0] * 5, 0.0).word == "KEPT"
    assert of_costs([np.nan, *[3.0] * 5], 1.0).word == "NOT KEPT"


def test_five_costs_of_a_fifth_are_one() -> None:
    assert of_costs([sum([0.2] * 5) + 1e-9] * 5, 1.0).word == "KEPT"


def test_bounds_from_elsewhere() -> None:
    assert of_bounds(0.0, 0.9, 1.0, "next cost").word == "KEPT"
    assert of_bounds(1.1, 2.0, 1.0, "next cost").word == "NOT KEPT"
    assert (
        str(of_bounds(0.5, 2.0, 1.0, "next cost")) == "CANNOT BE TOLD: next cost 0.5 to 2, limit 1"
    )


@pytest.mark.parametrize(
    ("auc", "ratio", "word"),
    [
        (0.85, 1.2, "USEFUL"),
        (0.85, None, "USEFUL"),
        (0.52, 1.0, "USELESS"),
        (0.85, 16.3, "USELESS"),
        (0.85, 0.2, "USELESS"),
        (None, None, "CANNOT BE TOLD"),
    ],
)
def test_a_useless_critic_is_called_that(auc: float, ratio: float, word: str) -> None:
    assert of_critic(auc, ratio).word == word
