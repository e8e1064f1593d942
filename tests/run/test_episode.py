"""The record of an episode."""

import numpy as np

from probes import Point
from safecritic.run.episode import Episode, episode_row


def test_an_episode_row_by_hand() -> None:
    """Its length is in environment steps, its discount per decision."""
    steps = [
        # reward, cost, success, hazard, steps, q_cost, screened, changed
        (1.0, 0.0, 0.0, 0.9, 4.0, np.nan, np.nan, np.nan),
        (2.0, 0.5, 0.0, 0.1, 4.0, 0.3, 1.0, 0.0),
        (3.0, 1.0, 1.0, 0.5, 2.0, 0.5, 0.0, 0.0),
    ]
    row = episode_row(Episode(list(steps), terminated=True), 0.5, Point())
    assert row == {
        "length": 10,
        "reward": 6.0,
        "cost": 1.5,
        "contacts": 3.0,
        "discounted_cost": 0.5 * 0.5 + 0.25 * 1.0,
        "success": 1.0,
        "hazard_distance_mean": 0.5,
        "hazard_distance_min": 0.1,
        "q_cost": 0.4,
        "screened": 0.5,
        "screen_changed": 0.0,
        "terminated": 1.0,
    }
