"""The candidate actions of the screen."""

import numpy as np
import pytest

from safecritic.core import screening


@pytest.mark.parametrize(("dim", "number", "fixed"), [(2, 16, 9), (4, 16, 16), (6, 16, 1)])
def test_a_grid_has_the_largest_lattice_that_fits_and_the_rest_fills_the_box(dim, number, fixed):
    drawn = screening.grid(dim, number)
    assert drawn.shape == (number, dim)
    assert np.isin(drawn[:fixed], [-1.0, 0.0, 1.0]).all()
    assert len(np.unique(drawn[:fixed], axis=0)) == fixed
    assert not np.isin(drawn[fixed:], [-1.0, 0.0, 1.0]).any()
    assert np.abs(screening.grid(dim, 500).mean(axis=0)).max() < 0.05
    assert np.abs(screening.grid(dim, 500).std(axis=0) - 0.58).max() < 0.08
