"""Parts of an observation, what is declared about them, and images, which are refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple, flatten

from own_envs import Camera, Hall
from safecritic.tasks.adapter import adapt
from safecritic.tasks.observations import parts, refuse_images, resolve_proximity

NESTED = Dict(
    {
        "body": Dict({"speed": Box(-3.0, 3.0, (2,)), "side": Discrete(3)}),
        "eyes": Tuple((Box(0.0, 1.0, (2,)), Box(0.0, 0.5, (1,)))),
    }
)
VECTOR = Box(np.array([-1.0, 0, 0, 0, 0]), np.array([1.0, 1, 1, 1, 2]))


def test_parts_stand_where_flatten_puts_them() -> None:
    listed = parts(NESTED)
    assert [part.name for part in listed] == ["body/side", "body/speed", "eyes/0", "eyes/1"]
    value = NESTED.sample()
    flat = flatten(NESTED, value)
    places = {part.name: slice(part.start, part.stop) for part in listed}
    np.testing.assert_array_equal(flat[places["body/speed"]], value["body"]["speed"])
    np.testing.assert_array_equal(flat[places["eyes/1"]], value["eyes"][1])
    assert listed[-1].stop == len(flat)


@pytest.mark.parametrize(
    ("given", "space", "places"),
    [
        ([1, 3], VECTOR, (1, 3)),
        ((np.int64(3), 1, 1), VECTOR, (1, 3)),
        (slice(1, 4), VECTOR, (1, 2, 3)),
        (slice(1, 4, 2), VECTOR, (1, 3)),
        ("1-2,3", VECTOR, (1, 2, 3)),
        (["1-2", 3], VECTOR, (1, 2, 3)),
        (2, VECTOR, (2,)),
        ([], VECTOR, ()),
        (["eyes"], NESTED, (5, 6, 7)),
        ("eyes/1", NESTED, (7,)),
        ("eyes/0, 7", NESTED, (5, 6, 7)),
    ],
)
def test_every_spelling_of_a_proximity(given: Any, space: Any, places: tuple[int, ...]) -> None:
    assert resolve_proximity(given, space) == places


@pytest.mark.parametrize(
    ("given", "space", "message"),
    [
        ([5], VECTOR, "proximity 5 is out of range: the observation has 5 numbers, 0 to 4"),
        ([-1], VECTOR, "proximity -1 is out of range"),
        ("2-9", VECTOR, "proximity 2-9 is out of range"),
        ("3-2", VECTOR, "proximity 3-2 is out of range"),
        (slice(2, 9), VECTOR, "is out of range"),
        (slice(2, 2), VECTOR, "is empty"),
        ([0], VECTOR, r"proximity 0 is bounded to \[-1, 1\], expected bounds within \[0, 1\]"),
        ([1, 4], VECTOR, r"proximity 4 is bounded to \[0, 2\]"),
        ("body", NESTED, r"proximity 3 \(in 'body/speed'\) is bounded to \[-3, 3\]"),
        ("eye", NESTED, "proximity must be places, .* got 'eye': did you mean eyes"),
        ("lidar", VECTOR, "got 'lidar': this observation has no named parts"),
        ([True], VECTOR, "proximity must be places, .* got True"),
        ([1.5], VECTOR, "proximity must be places, .* got 1.5"),
        (1.5, VECTOR, "proximity must be places, .* got 1.5"),
    ],
)
def test_a_proximity_that_cannot_be_one_is_refused(given: Any, space: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_proximity(given, space)


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (Box(0, 255, (8, 8, 3), np.uint8), "it is uint8"),
        (Box(0, 255, (3, 8, 8), np.uint8), "it is uint8"),
        (Box(0, 255, (8, 8), np.uint8), "it is uint8"),
        (Box(0.0, 1.0, (8, 8, 1), np.float32), "it is float32"),
        (Box(0.0, 1.0, (4, 8, 8, 1), np.float32), "it is float32"),
        (Dict({"eye": Box(0, 255, (8, 8, 3), np.uint8)}), "its part 'eye' is uint8"),
    ],
)
def test_images_are_refused_with_the_reason(space: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"must not be images: {named} of shape .* not pixels"):
        refuse_images(space)


def test_vectors_and_tables_are_no_images() -> None:
    refuse_images(Box(0, 255, (128,), np.uint8))
    refuse_images(Box(-1.0, 1.0, (4, 3), np.float32))
    refuse_images(NESTED)


def test_the_advice_for_what_is_no_image_works() -> None:
    with pytest.raises(TypeError, match="FlattenObservation"):
        adapt(Camera(), cost_key="damage")
    env = adapt(gymnasium.wrappers.FlattenObservation(Camera()), cost_key="damage")
    assert env.reset(seed=0)[0].shape == (8 * 8 * 3,)
    assert adapt(Hall(), cost_key="damage").reset(seed=0)[0].shape == (3,)
