"""Cost maps: the errors of cases worked by hand, and the maps of a scene with known hazards."""

import math
from typing import Any

import numpy as np
import pytest

import safecritic
from safecritic.evaluate import cost_map
from safecritic.run.rollout import FunctionPolicy
from safecritic.tasks.adapter import make_env


def test_errors_by_hand() -> None:
    truth = np.array([[0.0, 0.0], [0.0, 1.0]])
    prediction = np.array([[2.0, 2.0], [4.0, 4.0]])  # scaled: 0 below, 1 above
    errors = cost_map.errors(prediction, truth, truth > 0, cell=0.5)
    # d/dx: 0 against (0, 2); d/dy: 2 everywhere against (0, 2): differences 0, 2 and 2, 0, twice
    assert errors.gradient_mse == pytest.approx((0 + 0 + 4 + 4 + 4 + 4 + 0 + 0) / 8)
    # inside 1, outside (0 + 0 + 1) / 3; the truth's contrast is 1
    assert errors.contrast_error == pytest.approx(1 / 3)
    assert errors.entropy_error == pytest.approx(math.log(2))
    assert cost_map.errors(truth, truth, truth > 0) == (0.0, 0.0, 0.0)


def test_scale_and_shift_do_not_matter_but_shape_does() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((8, 8))
    inside = truth > 0.7
    assert cost_map.errors(3 * truth + 5, truth, inside) == pytest.approx((0, 0, 0), abs=1e-12)
    flipped = cost_map.errors(-truth, truth, inside)
    assert flipped.gradient_mse > 0.1
    assert flipped.contrast_error > 0.5


def test_maps_without_anything_in_them() -> None:
    flat = np.full((4, 4), 7.0)
    assert cost_map.scaled(flat).tolist() == np.zeros((4, 4)).tolist()
    assert cost_map.entropy(cost_map.scaled(flat)) == pytest.approx(math.log(16))
    assert cost_map.contrast(flat, np.zeros((4, 4), bool)) == 0.0
    one = np.zeros((4, 4))
    one[2, 1] = 1.0
    assert cost_map.entropy(one) == 0.0


def test_cells_lie_row_by_row_with_x_fastest() -> None:
    places = cost_map.poses(2.0, 4, 0.5)
    assert places[0].tolist() == [-1.5, -1.5, 0.5]
    assert places[1].tolist() == [-0.5, -1.5, 0.5]
    assert places[4].tolist() == [-1.5, -0.5, 0.5]


def test_the_instant_truth_is_where_the_hazards_are() -> None:
    env: Any = safecritic.make("CarGoal1")
    env.reset(seed=0)
    truth = cost_map.instant_map(env, 64, (0.0,))
    places = cost_map.poses(env.arena.extent, 64, 0.0)[:, :2]
    away = np.linalg.norm(places[:, None] - env.layout["hazards"][None], axis=2).min(axis=1)
    assert (truth.ravel()[away <= 0.2] > 0).all()
    vases = np.linalg.norm(places[:, None] - env.layout["vases"][None, :, :2], axis=2).min(axis=1)
    assert (truth.ravel()[(away > 0.2) & (vases > 0.5)] == 0).all()


def test_the_rolled_truth_of_a_car_that_stays() -> None:
    env, _ = make_env("CarGoal1")
    env.reset(seed=0)
    gamma, size = 0.5, 6
    standing = cost_map.instant_map(env.unwrapped, size, (0.0,))
    rolled = cost_map.rolled_map(FunctionPolicy(lambda obs: np.zeros(2)), env, gamma, size, 0.0)
    goal = env.unwrapped.layout["goal"]
    places = cost_map.poses(env.unwrapped.arena.extent, size, 0.0)[:, :2]
    there = (np.linalg.norm(places - goal, axis=1) < 0.32).reshape(size, size)
    expected = standing * (1 - gamma**6) / (1 - gamma)  # 3 / (1 - gamma) steps
    vase = env.unwrapped.layout["vases"][0, :2]  # is pushed away by a car put inside it
    apart = (np.linalg.norm(places - vase, axis=1) > 0.5).reshape(size, size)
    assert (expected[~there & apart] > 0).any()
    np.testing.assert_allclose(rolled[~there & apart], expected[~there & apart])
