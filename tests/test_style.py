"""One look for every method, in every picture."""

from safecritic.methods import METHODS
from safecritic.style import method_style


def test_every_method_has_a_look_of_its_own() -> None:
    looks = {(style.colour, style.marker) for style in map(method_style, METHODS)}
    assert len(looks) == len(METHODS)


def test_a_method_without_a_look_gets_a_spare_one_and_keeps_it() -> None:
    ours = {method_style(name)[:3] for name in METHODS}
    spare = [method_style(f"from-outside-{number}") for number in range(18)]
    assert len(set(spare)) == 18
    assert ours.isdisjoint(style[:3] for style in spare)
    assert method_style("from-outside-3") == spare[3]
