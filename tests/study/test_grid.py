"""What a study's file means, and which mistakes in it are named."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from safecritic.agents.methods import make_config
from safecritic.cli import options
from safecritic.core.settings import flatten
from safecritic.run.watch import RunWarning
from safecritic.study import driver, grid, table
from safecritic.study.grid import StudyError
from safecritic.tasks.registry import method_defaults
from studies import write_file


def test_a_file_is_a_grid_with_every_setting_resolved(tmp_path: Path) -> None:
    jobs = grid.read(write_file(tmp_path))
    assert [job.name for job in jobs] == [
        "ddpg-KeptPoint-v0-seed0",
        "rcpo-KeptPoint-v0-seed0",
        "ddpg-KeptPoint-v0-seed1",
        "rcpo-KeptPoint-v0-seed1",
    ]
    ddpg, rcpo = jobs[:2]
    assert (ddpg.steps, ddpg.train_episodes, ddpg.deployment_episodes) == (900, None, 2)
    assert (rcpo.settings["multiplier.lr"], rcpo.settings["hidden"]) == (0.5, [16, 16])
    assert "multiplier.lr" not in ddpg.settings
    assert ddpg.settings["gamma"] == 0.95  # a default is written down too


def test_budgets_and_settings_of_a_task_and_a_method() -> None:
    content = {
        "methods": ["ddpg", "cpo"],
        "tasks": ["CarGoal1", "cargoal2"],
        "seeds": [3],
        "train_episodes": 50,
        "method": {"cpo": {"steps": 16_000}},
        "task": {"CarGoal2": {"cost_limit": 7.0, "steps": 5_000}},
    }
    jobs = {(job.method, job.task): job for job in grid.jobs_of(content)}
    assert jobs["ddpg", "CarGoal1"].steps == 40_000  # what the method needs
    assert jobs["ddpg", "CarGoal2"].steps == 5_000
    assert jobs["cpo", "CarGoal2"].steps == 16_000  # the method's own word goes last
    limits = [jobs["ddpg", task].settings["cost_limit"] for task in ("CarGoal1", "CarGoal2")]
    assert limits == [1.0, 7.0]
    assert jobs["cpo", "CarGoal1"].train_episodes == 50


def test_steps_times_follow_the_task() -> None:
    content = {
        "methods": ["ddpg", "cpo"],
        "tasks": ["CarGoal1", "CarGoal2"],
        "seeds": [3],
        "steps": 7_000,
        "method": {"cpo": {"steps_times": 10}},
        "task": {"CarGoal2": {"steps": 5_000}},
    }
    steps = {(job.method, job.task): job.steps for job in grid.jobs_of(content)}
    assert steps["cpo", "CarGoal1"] == 10 * steps["ddpg", "CarGoal1"] == 70_000
    assert steps["cpo", "CarGoal2"] == 10 * steps["ddpg", "CarGoal2"] == 50_000


NEAR = {"near_policy": True}


def test_a_variant_is_its_method_with_settings_of_its_own(tmp_path: Path) -> None:
    content = {
        "methods": ["usc", "usc-near"],
        "tasks": ["CarGoal1"],
        "seeds": [0],
        "steps": 7_000,
        "method": {"usc": {"screen": {"tolerance": 0.5}, "kl_weight": 0.25}},
        "variant": {"usc-near": {"method": "USC", "conservative": NEAR, "screen.tolerance": 0.125}},
    }
    plain, near = jobs = grid.jobs_of(content)
    assert [job.name for job in jobs] == ["usc-CarGoal1-seed0", "usc-near-CarGoal1-seed0"]
    assert [job.label for job in jobs] == ["usc", "usc-near"]
    assert plain.method == near.method == "usc"
    assert {k: x for k, x in near.settings.items() if plain.settings[k] != x} == {
        "conservative.near_policy": True,
        "screen.tolerance": 0.125,
    }
    grid.open_folder(tmp_path, jobs, "variants.toml")
    assert grid.read_folder(tmp_path) == jobs
    rows = [run.method for run in table.read(tmp_path).runs]
    assert rows == ["usc", "usc-near"]


def test_paper_defaults_of_all_or_of_a_variant() -> None:
    content: dict[str, Any] = {"methods": ["usc", "usc-printed"], "tasks": ["CarGoal1"]}
    content |= {"seeds": [0], "variant": {"usc-printed": {"method": "usc", "gamma": 0.5}}}
    printed = make_config("usc", method_defaults("CarGoal1"), paper_defaults=True)
    assert printed.action_repeat == 1

    def repeats(more: dict[str, Any]) -> list[int]:
        return [job.settings["action_repeat"] for job in grid.jobs_of(content | more)]

    assert repeats({}) == [4, 4]
    assert repeats({"paper_defaults": True}) == [1, 1]
    content["variant"]["usc-printed"]["paper_defaults"] = True
    assert repeats({}) == [4, 1]
    job = grid.jobs_of(content)[1]
    assert job.settings == json.loads(json.dumps(flatten(printed))) | {"gamma": 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["usc", "USC"]}, "listed twice"),
        ({"methods": ["usc", "uscc"]}, "unknown method 'uscc'"),
        ({"variant": {"usc": {"method": "usc"}}}, "needs a name that no method has"),
        ({"methods": ["USC"], "variant": {"USC": {"method": "sc"}}}, "needs a name that no method"),
        ({"methods": [""], "variant": {"": {"method": "usc"}}}, "needs a name that no method has"),
        ({"variant": {"mine": {"method": "usc"}}}, r"\[variant.mine\] is not among the methods"),
        (
            {"methods": ["a b"], "variant": {"a b": {"method": "usc"}}},
            "letters, digits, - and _",
        ),
        ({"methods": ["mine"], "variant": {"mine": {}}}, "must say of which method"),
        (
            {"methods": ["mine"], "variant": {"mine": {"method": "usc", "tolerances": 1.0}}},
            "tolerances",
        ),
        (
            {
                "methods": ["mine"],
                "limits": [1],
                "variant": {"mine": {"method": "usc", "cost_limit": 1.0}},
            },
            r"CarGoal1 has limits, and \[variant.mine\] sets cost_limit",
        ),
        ({"method": "usc"}, r"method must be a table, \[method.NAME\] on a line of its own: 'usc'"),
        ({"settings": 3}, r"settings must be a table, \[settings\] on a line"),
        ({"variant": {"mine": 3}}, r"variant.mine must be a table, \[variant.mine\]: 3"),
        ({"task": {"CarGoal1": 3}}, r"task.CarGoal1 must be a table"),
        ({"paper_defaults": 1}, "paper_defaults must be true or false"),
        ({"method": {"usc": {"steps_times": 10}}}, "steps_times needs the steps"),
        ({"steps": 5, "method": {"usc": {"steps_times": 0}}}, "steps_times must be a whole number"),
        ({"steps": 5, "method": {"usc": {"steps": 6, "steps_times": 2}}}, "steps_times needs"),
    ],
)
def test_mistakes_in_variants_are_named(change: dict[str, Any], message: str) -> None:
    content = {"methods": ["usc"], "tasks": ["CarGoal1"], "seeds": [0]} | change
    with pytest.raises(ValueError, match=message):
        grid.jobs_of(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metods": []}, "unknown key 'metods': did you mean methods"),
        ({"methods": ["ucs"]}, "unknown method 'ucs'"),
        ({"tasks": ["CarGaol1"]}, "unknown task 'CarGaol1'"),
        ({"seeds": []}, "seeds must be a list of one or more int"),
        ({"seeds": [-1]}, "seeds must be a whole number >= 0"),
        ({"seeds": [1, 1]}, "listed twice"),
        ({"retries": -1}, "retries must be a whole number >= 0"),
        ({"memory_gb": 0}, "memory_gb must be a number > 0"),
        ({"memory_gb": "2 GB"}, "memory_gb must be a number > 0"),
        ({"steps": 0.5}, "steps must be a whole number >= 1"),
        ({"settings": {"gama": 0.9}}, "no method here has a setting 'gama': did you mean gamma"),
        ({"settings": {"gamma": 2.0}}, "gamma must be in"),
        ({"limits": 1.0}, "limits must be a list of one or more numbers >= 0, got 1.0"),
        ({"limits": []}, "limits must be a list of one or more numbers"),
        ({"limits": [-1]}, "limits must be a list of one or more numbers"),
        ({"limits": [float("inf")]}, "limits must be a list of one or more numbers"),
        ({"limits": [True]}, "limits must be a list of one or more numbers"),
        ({"limits": [1, 2, 1.0]}, "limits has 1 twice"),
        ({"limits": [1], "settings": {"cost_limit": 2.0}}, r"and \[settings\] sets cost_limit"),
        ({"settings": {"limits": [1]}}, "no method here has a setting 'limits'"),
        ({"method": {"usc": {}}}, r"\[method.usc\] is not among the methods"),
        ({"method": {"ddpg": {"tolerance": 1.0}}}, "unknown setting 'tolerance' of ddpg"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    content = {"methods": ["ddpg"], "tasks": ["CarGoal1"], "seeds": [0]} | change
    with pytest.raises(ValueError, match=message):
        grid.jobs_of(content)


HALL = "own_envs:Hall-v0"


def test_what_is_declared_about_an_environment() -> None:
    of_hall = {"cost_key": "damage", "proximity": "lidar", "cost_limit": 2.0}
    content = {
        "methods": ["ddpg", "rcpo"],
        "tasks": ["CarGoal1", HALL],
        "seeds": [0],
        "task": {HALL: of_hall},
    }
    jobs = {(job.method, job.task): job for job in grid.jobs_of(content)}
    assert jobs["ddpg", "CarGoal1"].declared == {}
    job = jobs["rcpo", HALL]
    assert job.declared == {"cost_key": "damage", "proximity": [0, 1]}
    assert (job.settings["cost_limit"], "proximity" in job.settings) == (2.0, False)
    content["task"] = {HALL: of_hall | {"proximity": ["speed"]}}
    with pytest.raises(ValueError, match=r"proximity 2 \(in 'speed'\) is bounded to"):
        grid.jobs_of(content)
    content["task"] = {HALL: {"no_cost": True}}
    with pytest.raises(ValueError, match="rcpo learns to keep costs within a limit"):
        grid.jobs_of(content)
    content["settings"] = {"cost_key": "damage"}
    with pytest.raises(ValueError, match=r"cost_key belongs to an environment: put it under"):
        grid.jobs_of(content)


def test_a_default_limit_is_a_warning_for_each_environment(tmp_path: Path) -> None:
    content = {"methods": ["ddpg", "rcpo"], "tasks": ["CarGoal1", HALL], "seeds": [0, 1]}
    with pytest.warns(RunWarning) as given:
        grid.jobs_of(content | {"task": {HALL: {"cost_key": "damage"}}})
    (warning,) = given
    assert str(warning.message).startswith(f"no cost limit is known for {HALL}: 1 per episode")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid.jobs_of(content | {"methods": ["ddpg"]})
        grid.jobs_of(content | {"method": {"rcpo": {"cost_limit": 3.0}}})


@pytest.mark.slow
def test_shipped_studies() -> None:
    sizes = {name: len(grid.read(path)) for name, path in grid.shipped().items()}
    assert sizes == {
        "ablations.toml": 4 * 2 * 5,
        "benchmark.toml": 22 * (4 * 5 + 4 * 3),
        "critics.toml": 3 * 3 * 2 * 10,
        "limits.toml": 5 * 2 * 6 * 5,
        "paper.toml": 8 * 6 * 5,
        "printed.toml": 6 * 3 * 3,
        "quick.toml": 16,
        "tasks.toml": 8 * 6 * 5,
    }
    assert grid.find("quick") == grid.find("quick.toml")
    assert all(name in str(options.FILE) for name in sizes)  # the help names each
    with pytest.raises(StudyError, match=r"nor one of ablations\.toml, benchmark\.toml"):
        grid.find("nothing.toml")


def test_a_method_with_fewer_seeds() -> None:
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1"], "seeds": [0, 1, 2]}
    jobs = grid.jobs_of(content | {"method": {"ddpg": {"seeds": [0, 1]}}})
    assert [(job.method, job.seed) for job in jobs] == [
        ("ddpg", 0),
        ("sc", 0),
        ("ddpg", 1),
        ("sc", 1),
        ("sc", 2),
    ]
    with pytest.raises(StudyError, match=r"seeds of ddpg has 7, which is not among"):
        grid.jobs_of(content | {"method": {"ddpg": {"seeds": [0, 7]}}})


def test_only_some_cells() -> None:
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1", "CarGoal2"], "seeds": [0, 1]}
    jobs = grid.jobs_of(content)
    assert grid.only(jobs, ()) == jobs
    assert [job.name for job in grid.only(jobs, ["CarGoal2/sc/1", "CarGoal1/ddpg"])] == [
        "ddpg-CarGoal1-seed0",
        "ddpg-CarGoal1-seed1",
        "sc-CarGoal2-seed1",
    ]
    assert len(grid.only(jobs, ["*/sc"])) == 4
    with pytest.raises(StudyError, match=r"did you mean CarGoal2/sc/1 .*--only"):
        grid.only(jobs, ["CarGoal2/sc/11"])


def test_every_limit_is_a_run_of_every_constrained_method(tmp_path: Path) -> None:
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1", "CarGoal2"], "seeds": [0]}
    jobs = grid.jobs_of(content | {"limits": [0, 0.25], "task": {"CarGoal2": {"limits": [5]}}})
    assert [(job.name, job.settings["cost_limit"]) for job in jobs] == [
        ("ddpg-CarGoal1-seed0", 1.0),  # it does not look at the limit
        ("sc-CarGoal1-limit0-seed0", 0.0),
        ("sc-CarGoal1-limit0.25-seed0", 0.25),
        ("ddpg-CarGoal2-seed0", 5.0),
        ("sc-CarGoal2-limit5-seed0", 5.0),
    ]
    grid.open_folder(tmp_path, jobs, "limits.toml")
    assert grid.read_folder(tmp_path) == jobs


def test_a_limit_for_one_method_and_limits_for_a_task_contradict() -> None:
    content = {"methods": ["sc"], "tasks": ["CarGoal1", "CarGoal2"], "seeds": [0]}
    content |= {"task": {"CarGoal2": {"limits": [1]}}}
    with pytest.raises(StudyError, match=r"CarGoal2 has limits, and \[method.sc\] sets cost_limit"):
        grid.jobs_of(content | {"method": {"sc": {"cost_limit": 2.0}}})
    content["task"]["CarGoal1"] = {"cost_limit": 3.0}  # the other task keeps its one limit
    names = [job.name for job in grid.jobs_of(content)]
    assert names == ["sc-CarGoal1-seed0", "sc-CarGoal2-limit1-seed0"]


def test_a_study_without_limits_is_written_as_before(tmp_path: Path) -> None:
    jobs = grid.jobs_of({"methods": ["sc"], "tasks": ["CarGoal1"], "seeds": [0]})
    grid.open_folder(tmp_path, jobs, "one.toml")
    (record,) = grid.read_study(tmp_path)["jobs"]
    assert list(record) == [
        "method",
        "task",
        "seed",
        "steps",
        "train_episodes",
        "deployment_episodes",
        "settings",
        "declared",
        "checkpoint_every",
        "retries",
        "memory_gb",
    ]


def test_limits_given_are_no_default_limit() -> None:
    content = {"methods": ["rcpo"], "tasks": [HALL], "seeds": [0], "limits": [1, 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid.jobs_of(content | {"task": {HALL: {"cost_key": "damage"}}})


def test_retries_and_memory_are_kept_in_the_folder(tmp_path: Path) -> None:
    content = {"methods": ["ddpg"], "tasks": ["CarGoal1"], "seeds": [0]}
    (plain,) = grid.jobs_of(content)
    assert (plain.retries, plain.memory_gb) == (2, None)
    (job,) = grid.jobs_of(content | {"retries": 0, "memory_gb": 1.5})
    grid.open_folder(tmp_path, [job], "here")
    assert grid.read_folder(tmp_path) == [job]
    assert (job.retries, job.memory_gb) == (0, 1.5)


def test_no_more_workers_than_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cores", lambda: 8)
    monkeypatch.setattr(driver, "memory", lambda: 10 * 10**9)
    content = {"methods": ["ddpg"], "tasks": ["CarGoal1"], "seeds": [0]}
    for needed, workers in ((None, 8), (1, 8), (3, 3), (50, 1)):
        more = {} if needed is None else {"memory_gb": needed}
        assert driver.as_many_as_fit(grid.jobs_of(content | more)) == workers


def test_not_toml_and_not_a_study(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="is not valid TOML"):
        grid.read(write_file(tmp_path, "methods = ["))
    with pytest.raises(StudyError, match=r"has no study\.json"):
        grid.read_folder(tmp_path)
