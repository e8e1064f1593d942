"""The verdicts on the paper's claims, from runs whose ends are known."""

from pathlib import Path

import pytest

from safecritic.report import claims, data
from studies import Outcome, write_limits_study, write_outcomes


def study_of(out: Path, task: str = "CarButton1", **outcomes: list[Outcome]) -> data.Study:
    return data.read(write_outcomes(out, outcomes, tasks=[task]))


def costs(*values: float, success: float = 1.0) -> list[Outcome]:
    return [(value, success, 6.0) for value in values]


@pytest.mark.parametrize(
    ("usc", "verdict"),
    [
        ((1.0, 1.1, 1.2, 1.3), claims.HOLDS),  # 77% less
        ((1.0, 4.5, 5.5, 7.5), claims.OPEN),  # about the same, 40% less not excluded
        ((4.0, 4.1, 4.2, 4.3), claims.FAILS),  # less beyond chance, but not by 39%
        ((9.0, 9.1, 9.2, 9.3), claims.FAILS),  # more
    ],
)
def test_a_claim_of_a_size(tmp_path: Path, usc: tuple[float, ...], verdict: str) -> None:
    study = study_of(tmp_path, ddpg=costs(4.9, 5.0, 5.1, 5.2), usc=costs(*usc))
    (row,) = [x for x in claims.claims_table(study, tmp_path).rows if "nearly 40%" in x[0]]
    assert row[1] == "-37%"  # of the paper's 9.50 and 5.97
    assert row[-1] == verdict


def test_without_a_size_the_sign_decides_beyond_chance(tmp_path: Path) -> None:
    study = study_of(tmp_path, ddpg=costs(4.9, 5.0, 5.1, 5.2), usc=costs(4.0, 4.1, 4.2, 4.3))
    found = claims.differs(study, "CarButton1", claims.DEPLOYED, "usc", "ddpg", -1.0)
    assert found is not None
    assert (found.verdict, found.seeds) == (claims.HOLDS, "4, 4")
    assert found.here.startswith("-18% [")
    back = claims.differs(study, "CarButton1", claims.DEPLOYED, "ddpg", "usc", -1.0)
    assert back is not None
    assert back.verdict == claims.FAILS


def test_three_seeds_tell_nothing(tmp_path: Path) -> None:
    study = study_of(tmp_path, ddpg=costs(9.0, 9.1, 9.2), usc=costs(1.0, 1.1, 1.2))
    for found in (
        claims.differs(study, "CarButton1", claims.DEPLOYED, "usc", "ddpg", -1.0),
        claims.no_less(study, "CarButton1", claims.EARNED, "usc", "ddpg"),
    ):
        assert found is not None
        assert found.verdict == claims.OPEN


def test_no_less_allows_a_twentieth(tmp_path: Path) -> None:
    def runs(reward: float) -> list[Outcome]:
        return [(1.0, 1.0, reward + 0.001 * at) for at in range(4)]

    for number, (reward, verdict) in enumerate(
        [(6.1, claims.HOLDS), (5.8, claims.HOLDS), (5.6, claims.FAILS)]
    ):
        study = study_of(tmp_path / str(number), ddpg=runs(6.0), usc=runs(reward))
        found = claims.no_less(study, "CarButton1", claims.EARNED, "usc", "ddpg")
        assert found is not None
        assert found.verdict == verdict, reward


def test_the_best_other_is_who_it_is_compared_with(tmp_path: Path) -> None:
    study = study_of(tmp_path, ddpg=costs(3.0, 3.1), sc=costs(2.0, 2.1), usc=costs(1.0, 1.1))
    found = claims.differs(study, "CarButton1", claims.DEPLOYED, "usc", "best", -1.0)
    assert found is not None
    assert found.here.startswith("against SC: -")


def test_limit_and_success(tmp_path: Path) -> None:
    study = study_of(tmp_path, ddpg=costs(5.9, 6.0, 6.1), usc=costs(1.0, 1.2, success=1.0))
    limit = claims.breaks_the_limit(study, "CarButton1", "ddpg")
    kept = claims.breaks_the_limit(study, "CarButton1", "usc")
    assert limit is not None
    assert kept is not None
    assert (limit.verdict, kept.verdict) == (claims.HOLDS, claims.FAILS)
    assert limit.here == "6.00 [5.75, 6.25], limit 5, within it 0 of 3"
    success = claims.always_succeeds(study, "CarButton1", "usc")
    assert success is not None
    assert (success.here, success.verdict) == ("100.0%: 2 of 2 episodes", claims.HOLDS)
    failed = study_of(tmp_path / "failed", usc=[(1.0, 1.0, 6.0), (1.0, 0.0, 6.0)])
    success = claims.always_succeeds(failed, "CarButton1", "usc")
    assert success is not None
    assert success.verdict == claims.FAILS


def test_one_run_is_no_level(tmp_path: Path) -> None:
    study = study_of(tmp_path, ddpg=costs(9.0))
    found = claims.breaks_the_limit(study, "CarButton1", "ddpg")
    assert found is not None
    assert (found.here[:5], found.verdict) == ("9.00,", claims.OPEN)


def test_a_claim_holds_if_all_its_tests_do() -> None:
    def finding(verdict: str) -> claims.Finding:
        return claims.Finding("CarGoal1", "", "", "", verdict)

    holds, fails, unknown = (finding(x) for x in (claims.HOLDS, claims.FAILS, claims.OPEN))
    assert claims.verdict([holds, holds]) == claims.HOLDS
    assert claims.verdict([holds, unknown]) == claims.OPEN
    assert claims.verdict([holds, unknown, fails]) == claims.FAILS


def test_what_was_not_run_is_left_out(tmp_path: Path) -> None:
    study = study_of(tmp_path / "one", sc=costs(1.0, 1.1))
    assert claims.claims_table(study, tmp_path).empty
    swept = data.read(write_limits_study(tmp_path / "swept"))
    assert claims.tests_table(swept, tmp_path).empty
    short = study_of(tmp_path / "two", ddpg=costs(9.0, 9.1))
    assert "fewer steps" in claims.claims_table(short, tmp_path).warning


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.004, "+0%"),
        (0.5, "+50%"),
        (149.0, "150 times"),
        (6.6e7, ">1000 times"),
        (-2e3, "<-1000 times"),
    ],
)
def test_how_a_change_is_written(value: float, text: str) -> None:
    assert claims._percent(value) == text
