"""The classes made from the table of methods: signatures, docstrings, stub, types."""

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import safecritic
from probes import SMALL, KeptPoint
from safecritic import DDPG, SC, USC, methods, signatures
from safecritic.agent_classes import agent_class
from safecritic.agents.settings import flatten
from safecritic.methods import METHODS, Method
from safecritic.tasks import TASKS
from safecritic.tasks.adapter import DECLARATIONS

pytestmark = pytest.mark.usefixtures("quick_runs")

SOURCE = Path(safecritic.__file__).parents[1]


@pytest.mark.parametrize("name", [method.name for method in methods._TABLE])
def test_the_signature_has_every_setting_with_its_default(name: str) -> None:
    parameters = dict(inspect.signature(agent_class(name)).parameters)
    assert parameters.pop("env").annotation == str | gymnasium.Env
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    assert (defaults.pop("seed"), defaults.pop("paper_defaults")) == (0, False)
    of_the_task = [defaults.pop(key) for key in ("cost_limit", "action_repeat")]
    assert of_the_task == [None, None]
    declarations = {key: defaults.pop(key, "absent") for key in DECLARATIONS}
    without_cost = False if name == "ddpg" else "absent"
    assert declarations == dict.fromkeys(DECLARATIONS) | {"no_cost": without_cost}
    names = methods.get(name).setting_names()
    config = flatten(methods.make_config(name))
    names = set(methods.get(name).setting_names()) - {"cost_limit", "action_repeat"}
    assert defaults == {key: config[key] for key in names}


def test_the_docstring_explains_every_keyword() -> None:
    text = inspect.getdoc(USC) or ""
    assert text.startswith("Uncertain safety critic: influence-weighted conservatism")
    lines = text.splitlines()
    assert "    gamma: discount of reward and cost (default 0.95)" in lines
    assert "    screen: False switches the screen off (default True)" in lines
    for name in inspect.signature(USC).parameters:
        assert any(line.startswith(f"    {name}: ") for line in lines), name
    assert "refine_top" not in (SC.__doc__ or "")
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
        assert "class Mine" not in signatures.stub()
    finally:
        del METHODS["mine"]
    with pytest.raises(AttributeError, match="no attribute 'Mine'"):
        _ = safecritic.Mine


def test_the_stub_is_up_to_date() -> None:
    text = signatures.STUB.read_text(encoding="utf-8")
    assert text == signatures.stub(), "write it again: python -m safecritic.signatures"


def test_importing_the_package_imports_no_jax() -> None:
    code = "import sys, safecritic; dir(safecritic); assert 'jax' not in sys.modules"
    environ = os.environ | {"PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


RIGHT = """
from safecritic import USC, agent_class

agent = USC("CarGoal1", cost_limit=1.0, gamma=0.9, hidden=(8, 8), screen=False).learn(10)
agent.predict([0.0])
agent_class("usc")("CarGoal1", seed=1)
"""
WRONG = """
from safecritic import SC, USC

USC("CarGoal1", cost_limt=1.0)
USC("CarGoal1", gamma="a")
SC("CarGoal1", safety_output="lin")
SC("CarGoal1", refine_top=3)
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
        6: "expected \"Literal['clipped', 'softplus', 'bounded', 'linear']\"",
        7: 'Unexpected keyword argument "refine_top" for "SC"',
    }
    assert len(wrong) == len(expected), result.stdout
    for (number, message), line in zip(expected.items(), wrong, strict=True):
        assert line.startswith(f"wrong.py:{number}: "), line
        assert message in line
