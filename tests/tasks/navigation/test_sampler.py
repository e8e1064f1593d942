"""Random scenes: the original's stream of numbers, and the faster one of the same distribution."""

import numpy as np
import pytest

from safecritic.tasks.navigation import sampler, world
from safecritic.tasks.navigation.rules import FORMS
from safecritic.tasks.navigation.sampler import (
    PlacementError,
    RandomStream,
    sample_layout,
    sample_layouts,
)
from safecritic.tasks.navigation.world import Navigation


@pytest.mark.parametrize(
    ("name", "extent"), [("CarGoal2", 0.8), ("CarButton1", 1.0), ("CarGoal1", 0.3)]
)
def test_an_arena_too_small_is_an_error_not_a_loop(name, extent, monkeypatch):
    for module in (sampler, world):
        monkeypatch.setattr(module, "MAX_LAYOUTS", 500)
    env = Navigation(name, extent=extent)
    with pytest.raises(PlacementError, match=r"arena of .*larger"):
        env.reset(seed=0)


def test_batch_and_stream_placement_have_one_distribution():
    """Means of place and of nearest distance agree within their standard errors."""
    arena, number = FORMS["Button1"].arena, 100
    random_stream, generator = RandomStream(0), np.random.default_rng(0)
    stream = [sample_layout(arena, random_stream) for _ in range(number)]
    batch = []
    while len(batch) < number:
        batch += sample_layouts(arena, generator, attempts=256)

    def measures(layouts):
        for layout in layouts:
            car = layout["agent"][:2]
            yield (
                np.abs(car).max(),
                np.abs(layout["gremlins"][:, :2]).mean(),
                np.abs(layout["buttons"]).mean(),
                np.hypot(*(layout["gremlins"][:, :2] - car).T).min(),
                np.hypot(*(layout["hazards"] - car).T).min(),
            )

    a, b = np.array(list(measures(stream))), np.array(list(measures(batch)))
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    assert (np.abs(a.mean(0) - b.mean(0)) < 4 * error).all()


def test_block_reading_is_the_scalar_stream():
    stream, plain = RandomStream(11), np.random.RandomState(11)
    for round_ in range(5):
        for _ in range(100 * round_ + 3):
            assert stream.uniform(-1, 2) == plain.uniform(-1, 2)
        assert stream.choice(4) == plain.choice(4)
        stream.advance(1)  # what the original's binomial(10, 1.0) uses up
        plain.binomial(10, 1.0)
    copy = RandomStream(0)
    copy.set_state(stream.get_state())
    assert [copy.uniform(0, 1) for _ in range(5)] == [plain.uniform(0, 1) for _ in range(5)]
