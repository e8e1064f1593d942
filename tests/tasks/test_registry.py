"""The table of tasks: names, and rows from outside the package."""

from collections.abc import Iterator
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import safecritic
from probes import KeptPoint
from safecritic import cli
from safecritic.core.names import suggest
from safecritic.tasks import TASKS, Task, get, register
from safecritic.tasks.adapter import make_env
from safecritic.tasks.navigation.rules import SAFETY

ROW = Task("Corridor", "run to the end", "0.5 per step in the middle", 2.0, "probes:KeptPoint")


def test_the_table_is_the_papers() -> None:
    limits = {name: task.cost_limit for name, task in TASKS.items()}
    assert {name: limits.pop(name) for name in list(limits) if name.startswith("Safety")} == (
        dict.fromkeys((name for name in TASKS if name.startswith("Safety")), 25.0)
    )
    assert limits == {
        "CarGoal1": 1.0,
        "CarGoal2": 5.0,
        "CarButton1": 5.0,
        "CarButton2": 5.0,
        "FetchReach": 5.0,
        "HalfCheetah": 0.1,
    }
    assert get("safecritic/CarGoal1-v0") is get("cargoal1") is TASKS["CarGoal1"]


def test_safety_gymnasiums_ids_are_its_own() -> None:
    """Found under their full id, by the name alone, and under this package's namespace."""
    assert set(SAFETY) <= set(TASKS)
    for name in SAFETY:
        task = TASKS[name]
        plain = name.removesuffix("-v0").lower()
        assert task is get(f"safecritic/{name}") is get(plain)
        assert (task.id, task.cost_limit) == (f"safecritic/{name}", 25.0)
        assert task.has_goal == safecritic.make(name).unwrapped.has_goal
        assert task.has_goal == (not ("Circle" in name or "Run" in name))


@pytest.fixture
def corridor() -> Iterator[Task]:
    register(ROW)
    yield ROW
    del TASKS[ROW.name], gymnasium.registry[ROW.id]


def test_a_task_from_outside_is_made_like_any_other(corridor: Task) -> None:
    for env in (
        safecritic.make("corridor"),
        gymnasium.make("safecritic/Corridor-v0"),
        make_env("Corridor")[0],
    ):
        assert isinstance(env.unwrapped, KeptPoint)
        assert env.spec.id == "safecritic/Corridor-v0"
        obs, _ = env.reset(seed=0)
        np.testing.assert_array_equal(obs, KeptPoint().reset(seed=0)[0])
    assert get("safecritic/Corridor-v0") is corridor
    assert make_env("probes:safecritic/Corridor-v0")[1] == "Corridor"


def test_a_task_from_outside_is_listed(
    corridor: Task, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a row in a line
    assert cli.main(["tasks"]) == 0
    line = next(row for row in capsys.readouterr().out.splitlines() if "Corridor" in row)
    for text in ("run to the end", "0.5 per step in the middle", "2"):
        assert text in line


def test_a_class_and_settings_serve_as_entry_point() -> None:
    row = Task("Broken", "none", "none", 0.0, KeptPoint, {"bad_step": 3})
    register(row)
    try:
        assert safecritic.make("Broken").bad_step == 3
        assert safecritic.make("Broken", bad_step=4).bad_step == 4
        assert gymnasium.make("safecritic/Broken-v0").unwrapped.bad_step == 3
    finally:
        del TASKS["Broken"], gymnasium.registry["safecritic/Broken-v0"]


def test_a_name_is_given_once(corridor: Task) -> None:
    before = dict(TASKS)
    for name in ("CarGoal1", "corridor"):
        with pytest.raises(ValueError, match=f"there is a task '{name}' already"):
            register(replace(ROW, name=name))
    with pytest.raises(ValueError, match=r"letters, digits and underscores .*, got 'a/b'"):
        register(replace(ROW, name="a/b"))
    assert before == TASKS


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown task 'CarGaol1'; did you mean CarGoal1 or "):
        safecritic.make("CarGaol1")
    with pytest.raises(ValueError, match="unknown task 'xyz'; known: CarGoal1, CarGoal2"):
        safecritic.make("xyz")
    with pytest.raises(ValueError, match=r"'Hopper'; did you mean SafetyHopperVelocity-v1\?"):
        safecritic.make("Hopper")
    assert suggest("USC_NR", ["usc", "usc-nr", "ddpg"]) == "did you mean usc-nr?"
