"""One look for every method, in every picture, and colours that colour-blind readers tell apart."""

from itertools import combinations

import numpy as np
import pytest

from safecritic.agents.methods import _TABLE
from safecritic.core import style
from safecritic.core.style import method_style

# Machado, Oliveira and Fernandes (2009): how linear RGB looks without one kind of cone
SEEN_BY = {
    "all cones": np.eye(3),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no blue": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, seen_by: str) -> np.ndarray:
    """Return CIELAB of a colour as it is seen."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(SEEN_BY[seen_by] @ linear, 0, 1) / (0.9505, 1.0, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen_by", SEEN_BY)
def test_the_colours_of_methods_stay_apart(seen_by: str) -> None:
    """15 is several times the least difference that is seen side by side."""
    for first, second in combinations([method.name for method in _TABLE], 2):
        colours = [lab(method_style(name).colour, seen_by) for name in (first, second)]
        assert np.linalg.norm(colours[0] - colours[1]) > 15, (first, second)


def test_the_main_method_is_not_black() -> None:
    lightness, *hue = lab(method_style("usc").colour, "all cones")
    assert lightness > 35
    assert np.hypot(*hue) > 40


def test_a_method_without_a_look_gets_a_spare_one_and_keeps_it() -> None:
    ours = {look[:3] for look in style.METHODS.values()}
    spare = [method_style(f"from-outside-{number}") for number in range(18)]
    assert len(set(spare)) == 18
    assert ours.isdisjoint(look[:3] for look in spare)
    assert method_style("from-outside-3") == spare[3]
