"""The verdict on a task, from runs whose ends are known."""

from dataclasses import replace
from pathlib import Path

from safecritic.core import files
from safecritic.report import data
from safecritic.report.verdict import Verdict, verdict, verdicts
from safecritic.study import grid
from safecritic.study.table import Run
from studies import Outcome, write_limits_study, write_outcomes


def judge(out: Path, **outcomes: list[Outcome]) -> Verdict:
    """Return the verdict on CarGoal1, whose limit is 1."""
    return verdict(data.read(write_outcomes(out, outcomes)), "CarGoal1")


def runs(cost: float, success: float | None, reward: float, n: int = 5) -> list[Outcome]:
    """Return n runs around these numbers, the same ones for every method."""
    return [(cost, success, reward + 0.01 * at) for at in range(n)]


def test_the_highest_success_within_the_limit_is_taken(tmp_path: Path) -> None:
    one = judge(
        tmp_path,
        ddpg=runs(3.0, 1.0, 9.0),  # best, but not within the limit
        sc=runs(0.2, 0.5, 8.0),  # more reward, less success
        usc=runs(0.8, 0.9, 6.0),
    )
    assert (one.method, one.kind) == ("usc", "take")
    assert one.about == "CarGoal1, limit 1, 900 steps"
    assert one.text == (
        "take USC: success 90 ± 0 %, reward 6.02 ± 0.01, cost 0.80 ± 0.00, within the limit in 5 "
        "of 5 seeds; no other method that keeps the limit does as well."
    )


def test_no_cost_is_paid_for_less_than_a_hundredth(tmp_path: Path) -> None:
    def sure(cost: float, reward: float) -> list[Outcome]:
        return [(cost, 1.0, reward)] * 5

    one = judge(tmp_path / "near", ddpg=sure(0.9, 6.0), usc=sure(0.2, 5.95))
    assert one.method == "usc"
    assert one.text.endswith("; DDPG does as well at more cost.")
    far = judge(tmp_path / "far", ddpg=sure(0.9, 6.0), usc=sure(0.2, 5.93))
    assert far.method == "ddpg"
    assert far.text.endswith("; no other method that keeps the limit does as well.")


def test_with_equal_success_reward_decides_and_equals_are_named(tmp_path: Path) -> None:
    one = judge(
        tmp_path,
        sc=runs(0.2, 1.0, 5.995),
        csc=runs(0.2, 1.0, 4.0),
        usc=runs(0.2, 1.0, 6.0),
    )
    assert one.method == "usc"
    assert one.text.endswith("; SC cannot be told apart from it.")


def test_of_equals_the_one_of_least_cost_is_taken(tmp_path: Path) -> None:
    one = judge(
        tmp_path,
        ddpg=runs(0.9, 1.0, 6.003),
        sc=[(0.1 + 0.2 * at, 1.0, 6.0 + 0.01 * at) for at in range(5)],
        csc=runs(0.1, 1.0, 4.0),  # cheap, but it earns less
        usc=runs(0.2, 1.0, 6.0),
    )
    assert one.method == "usc"
    assert one.text.endswith("; DDPG does as well at more cost; SC cannot be told apart from it.")


def test_without_success_reward_decides(tmp_path: Path) -> None:
    one = judge(tmp_path, sc=runs(0.2, None, 3.0), usc=runs(0.2, None, 2.0))
    assert one.method == "sc"
    assert one.text.startswith("take SC: reward 3.02")


def test_no_method_keeps_the_limit(tmp_path: Path) -> None:
    near = [(cost, 1.0, 1.0) for cost in (0.5, 2.0, 2.0, 2.0, 2.0)]
    one = judge(tmp_path, sc=runs(3.0, 1.0, 1.0), usc=near)
    assert (one.method, one.kind) == ("", "none")
    assert one.text == (
        "no method keeps the limit; nearest is USC: cost 1.70 ± 0.30, within it in 1 of 5 seeds."
    )


def test_steps_are_named_where_methods_differ_in_them(tmp_path: Path) -> None:
    outcomes = {"sc": runs(0.2, 1.0, 2.0), "usc": runs(0.2, 1.0, 3.0)}
    study = write_outcomes(tmp_path, outcomes, method={"sc": {"steps": 800}})
    one = verdict(data.read(study), "CarGoal1")
    assert one.about == "CarGoal1, limit 1, 800 to 900 steps"
    assert one.text.startswith("take USC after 900 steps: success 100")


def test_too_few_seeds(tmp_path: Path) -> None:
    one = judge(tmp_path, sc=runs(0.2, 0.2, 9.0, n=3), usc=runs(0.2, 0.9, 2.0, n=3))
    assert (one.method, one.kind) == ("usc", "ahead")  # by success, as far as can be seen
    assert one.text.startswith("USC is ahead: ")
    assert one.text.endswith("; 3 seeds are too few to tell methods apart.")


def test_a_method_with_too_few_seeds_does_not_spoil_the_others(tmp_path: Path) -> None:
    others = {"sc": runs(0.2, 1.0, 2.0), "usc": runs(0.2, 1.0, 3.0)}
    whole = judge(tmp_path / "whole", **others)
    more = judge(tmp_path / "more", **others, csc=runs(0.1, 1.0, 9.0, n=1))
    assert (more.method, more.kind) == (whole.method, whole.kind) == ("usc", "take")
    assert more.text == f"{whole.text[:-1]}; CSC has too few seeds to be compared."
    broken = {"sc": runs(3.0, 1.0, 2.0), "usc": runs(4.0, 1.0, 3.0)}
    none = judge(tmp_path / "none", **broken, csc=runs(0.1, 1.0, 9.0, n=1), ddpg=runs(5, 1, 1, n=1))
    assert none.kind == "none"
    assert none.text.endswith("in 0 of 5 seeds; DDPG and CSC have too few seeds to be compared.")


def test_one_method_alone(tmp_path: Path) -> None:
    kept = judge(tmp_path / "kept", usc=runs(0.2, 1.0, 1.0))
    assert kept.text.endswith("; no other method was run.")
    broken = judge(tmp_path / "broken", usc=runs(3.0, 1.0, 1.0))
    assert broken.text.startswith("USC does not keep the limit: cost 3.00 ± 0.00, within it in 0")
    few = judge(tmp_path / "few", usc=runs(0.2, 1.0, 1.0, n=1))
    assert few.text.startswith("USC keeps the limit: ")
    assert few.text.endswith("; no other method was run; 1 seed is too few to be sure of it.")


def test_the_only_one_that_keeps_it(tmp_path: Path) -> None:
    one = judge(tmp_path, sc=runs(3.0, 1.0, 9.0), usc=runs(0.2, 0.5, 1.0))
    assert one.method == "usc"
    assert one.text.endswith("; no other method keeps the limit.")


def test_a_limit_that_asks_for_nothing(tmp_path: Path) -> None:
    one = judge(tmp_path, ddpg=runs(0.2, 1.0, 9.0), usc=runs(0.2, 0.5, 1.0))
    assert one.method == "ddpg"
    assert "it looks at reward alone, so the limit asks for nothing" in one.text


def test_nothing_is_finished(tmp_path: Path) -> None:
    jobs = grid.jobs_of({"methods": ["sc", "usc"], "tasks": ["HalfCheetah"], "seeds": [0]})
    grid.open_folder(tmp_path, jobs, "new.toml")
    (one,) = verdicts(data.read(tmp_path))
    assert (one.kind, one.about, one.text) == (
        "empty",
        "HalfCheetah, limit 0.1",
        "no run is finished.",
    )


def test_each_limit_has_its_verdict(tmp_path: Path) -> None:
    found = {one.about: one.method for one in verdicts(data.read(write_limits_study(tmp_path)))}
    assert found == {
        "CarGoal1, limit 1, 900 steps": "usc",
        "CarGoal2, limit 0.5, 900 steps": "usc",
        "CarGoal2, limit 2, 900 steps": "usc",  # as much reward as SC at less cost
    }


def test_a_limit_kept_on_average_by_few_runs_is_not_kept(tmp_path: Path) -> None:
    costs = (0.0, 0.0, 1.5, 1.5, 1.5)
    one = judge(tmp_path, usc=[(cost, 1.0, 1.0) for cost in costs], sc=runs(3.0, 1.0, 1.0))
    assert one.text == (
        "no method keeps the limit; nearest is USC: cost 0.90 ± 0.37 on average, but within it in "
        "2 of 5 seeds."
    )
    few = judge(tmp_path / "few", usc=runs(3.0, 1.0, 1.0, n=2), sc=runs(3.0, 1.0, 1.0, n=2))
    assert few.text.endswith("in 0 of 2 seeds; 2 seeds are too few to be sure of it.")


def test_what_a_last_decision_adds_is_not_a_step_of_the_budget(tmp_path: Path) -> None:
    study = data.read(write_outcomes(tmp_path, {"usc": runs(0.2, 1.0, 1.0, n=3)}))
    for run, steps in zip(study.runs, (903, 900, 400), strict=True):
        content = files.read_json(run.path / "summary.json")
        files.write_json(run.path / "summary.json", content | {"steps": steps})
    job = study.runs[2].job  # ended by its episodes
    study.runs[2] = Run(replace(job, train_episodes=2), study.runs[2].path, True)
    assert [run.steps for run in study.runs] == [900, 900, 400]
    assert verdict(study, "CarGoal1").about == "CarGoal1, limit 1, 400 to 900 steps"
