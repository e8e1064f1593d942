"""The agent classes: keywords, signatures and docstrings agree with the settings; types."""

import dataclasses
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import gymnasium
import pytest

import safecritic
from probes import SMALL, KeptPoint
from safecritic import DDPG, SC, USC
from safecritic.agent_classes import Values, agent_class
from safecritic.agents import methods
from safecritic.agents.methods import METHODS, Method
from safecritic.core.settings import group_types
from safecritic.tasks import TASKS
from safecritic.tasks.adapter import DECLARATIONS

pytestmark = pytest.mark.usefixtures("quick_runs")

SOURCE = Path(safecritic.__file__).parents[1]


BUILT_IN = [method.name for method in methods._TABLE]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_signature_has_every_setting_with_its_default(name: str) -> None:
    parameters = dict(inspect.signature(agent_class(name)).parameters)
    assert parameters.pop("env").annotation == str | gymnasium.Env
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    assert (defaults.pop("seed"), defaults.pop("paper_defaults")) == (0, False)
    of_the_task = [defaults.pop(key) for key in ("cost_limit", "action_repeat")]
    assert of_the_task == [None, None]
    assert defaults.pop("cost") is None
    declarations = {key: defaults.pop(key, "absent") for key in DECLARATIONS}
    without_cost = False if name == "ddpg" else "absent"
    assert declarations == dict.fromkeys(DECLARATIONS) | {"no_cost": without_cost}
    config = methods.make_config(name)
    own = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    absent = {"cost_limit", "action_repeat"} | {key for key, x in own.items() if x is None}
    assert defaults == {key: x for key, x in own.items() if key not in absent}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_declared_keywords_are_those_of_the_signature(name: str) -> None:
    """For type checkers they are written down by hand, in `agent_classes.py`."""
    kind = agent_class(name)
    (declared,) = get_args(kind.__init__.__annotations__["settings"])
    keywords = get_type_hints(declared)
    signature = dict(inspect.signature(kind).parameters)
    del signature["env"]
    assert keywords.keys() == signature.keys()
    for key, group in group_types(methods.get(name).settings_type()).items():
        if key in keywords:
            switch = bool if key in methods.get(name).parts else group
            assert keywords.pop(key) == group | Values | switch
    plain = {key: parameter.annotation for key, parameter in signature.items() if key in keywords}
    assert keywords == plain


def test_the_docstring_explains_every_keyword() -> None:
    text = inspect.getdoc(USC) or ""
    assert text.startswith("Uncertain safety critic: influence-weighted conservatism")
    lines = text.splitlines()
    assert "    critic_lr: step size of the reward critic (Adam) (default: 0.001)" in lines
    assert "        top: number of samples of each batch that are refined, " in text
    assert text.count("False leaves it out.") == 4
    for name in inspect.signature(USC).parameters:
        assert any(line.startswith(f"    {name}: ") for line in lines), name
    assert "refinement" not in (SC.__doc__ or "")
    assert USC.__init__.__qualname__ == "USC.__init__"


def test_a_subclass_has_its_own_signature_and_is_loaded_as_itself(tmp_path: Path) -> None:
    class Mine(DDPG):
        def __init__(self, env: Any, size: int):
            super().__init__(env, **(SMALL | {"hidden": (size, size)}))

    assert list(inspect.signature(Mine).parameters) == ["env", "size"]
    assert Mine.__doc__ is None
    Mine(KeptPoint(), 8).save(tmp_path / "agent")
    assert type(Mine.load(tmp_path / "agent")) is Mine


def test_classes_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(USC)) is USC


def test_the_limit_is_the_tasks_unless_given() -> None:
    assert DDPG("CarGoal2", **SMALL).config.cost_limit == TASKS["CarGoal2"].cost_limit == 5.0
    assert DDPG("CarGoal2", cost_limit=None, **SMALL).config.cost_limit == 5.0
    assert DDPG("CarGoal2", cost_limit=2.0, **SMALL).config.cost_limit == 2.0
    assert DDPG(KeptPoint(), cost_limit=None, **SMALL).config.cost_limit == 1.0


def test_a_registered_method_has_its_class() -> None:
    row = Method(
        "mine", "Mine", "Mine", "DDPG of mine", "none", "safecritic.agents.ddpg", "DDPGSettings",
        defaults={"gamma": 0.5},
    )  # fmt: skip
    methods.register(row)
    try:
        kind = safecritic.Mine
        assert "Mine" in dir(safecritic)
        assert kind(KeptPoint(), **SMALL).config.gamma == 0.5
        assert inspect.signature(kind).parameters["gamma"].default == 0.5
    finally:
        del METHODS["mine"]
    with pytest.raises(AttributeError, match="no attribute 'Mine'"):
        _ = safecritic.Mine


def test_importing_the_package_imports_no_jax() -> None:
    code = "import sys, safecritic; dir(safecritic); assert 'jax' not in sys.modules"
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


RIGHT = """
from safecritic import USC, agent_class

agent = USC("CarGoal1", cost_limit=1.0, gamma=0.9, hidden=(8, 8), screen=False).learn(10)
USC("CarGoal1", screen={"tolerance": 0.1}, refinement=True)
agent.predict([0.0])
agent_class("usc")("CarGoal1", seed=1)
"""
WRONG = """
from safecritic import SC, USC

USC("CarGoal1", cost_limt=1.0)
USC("CarGoal1", gamma="a")
SC("CarGoal1", screen=0.3)
SC("CarGoal1", refinement=False)
"""


# no keyword has a type of these packages, and reading them takes most of mypy's time
TYPES = """
[mypy]
strict = True
[mypy-jax.*,optax.*,matplotlib.*,scipy.*,PIL.*,plotly.*,mujoco.*,gymnasium_robotics.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "types.ini").write_text(TYPES)
    command = [sys.executable, "-m", "mypy", "--config-file", "types.ini", "right.py", "wrong.py"]
    environ = os.environ | {"MYPYPATH": str(SOURCE)}
    environ.pop("PYTHONPATH", None)
    result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    errors = [line for line in result.stdout.splitlines() if ": error: " in line]
    assert not [line for line in errors if line.startswith("right.py")], result.stdout
    wrong = [line for line in errors if line.startswith("wrong.py")]
    expected = {
        4: 'Unexpected keyword argument "cost_limt" for "USC"; did you mean "cost_limit"?',
        5: 'Argument "gamma" to "USC" has incompatible type "str"; expected "float"',
        6: 'Argument "screen" to "SC" has incompatible type "float"',
        7: 'Unexpected keyword argument "refinement" for "SC"',
    }
    assert len(wrong) == len(expected), result.stdout
    for (number, message), line in zip(expected.items(), wrong, strict=True):
        assert line.startswith(f"wrong.py:{number}: "), line
        assert message in line
