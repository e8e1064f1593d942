"""The car's lidars against the rule in its own words."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safecritic.tasks.navigation.lidar import lidar


def plain_lidar(objects: np.ndarray) -> np.ndarray:
    bins = np.zeros(16)
    for x, y in objects:
        distance, width = math.hypot(x, y), 2 * math.pi / 16
        angle = math.atan2(y, x) % (2 * math.pi)
        own = int(angle / width) % 16
        share, value = angle / width - int(angle / width), max(0.0, 3 - distance) / 3
        bins[own] = max(bins[own], value)
        bins[(own + 1) % 16] = max(bins[(own + 1) % 16], share * value)
        bins[own - 1] = max(bins[own - 1], (1 - share) * value)
    return bins


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-4, 4)] * 2), min_size=1, max_size=8), st.integers(0, 7))
def test_lidar_equals_the_rule(objects, cut):
    objects = [(x + 0.0, y + 0.0) for x, y in objects]  # -0.0 has an angle, but no meaning
    cut = min(cut, len(objects))
    flat = [1.0, 0, 0, 0, 1.0, 0, 0, 0, 1.0]
    out = lidar(objects, [0, cut, len(objects)], [0.0, 0.0, 0.1], flat)
    expected = np.concatenate([plain_lidar(g) for g in (objects[:cut], objects[cut:])])
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_lidar_bins_go_counter_clockwise_from_the_cars_x_axis():
    turned = [0.0, -1.0, 0, 1.0, 0.0, 0, 0, 0, 1.0]  # the car looks along world +y
    bins = lidar([(0.0, 1.5)], [0, 1], [0.0, 0.0, 0.0], turned)
    assert bins[0] == pytest.approx(0.5)  # straight along its +x
    assert bins[15] == pytest.approx(0.5)  # and the border counts fully for the bin before
    assert sum(bins) == pytest.approx(1.0)
