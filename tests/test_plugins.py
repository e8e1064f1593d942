"""Packages outside of this one add to it through entry points; a folder on the path is enough."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import safecritic
from helpers.flags import with_quick

SOURCE = Path(safecritic.__file__).parents[1]

METHOD = """
from safecritic.agents import methods


def register():
    methods.register(
        methods.Method(
            "my-method",
            "MyMethod",
            "Mine",
            "a conservative critic without a screen",
            "takes other actions to cost more",
            agent="safecritic.agents.usc",
            settings="USCSettings",
            parts=("conservative",),
            defaults={"gamma": 0.875},
        )
    )
"""


USE = """
import sys, safecritic
from safecritic import cli
assert "MyMethod" in dir(safecritic) and "MyMethod" in safecritic.__all__
assert cli.main(["methods"]) == 0
assert "jax" not in sys.modules
try:
    cli.main(["train", "my-method", "--help"])
except SystemExit:
    pass
from safecritic import MyMethod
agent = MyMethod("CarGoal1", hidden=(8,), conservative={"weight": 0.5})
assert (agent.method, agent.config.gamma, agent.config.screen) == ("my-method", 0.875, None)
assert agent.config.conservative.weight == 0.5
"""


def install(folder: Path, name: str, code: str, value: str) -> None:
    """Leave a module and its metadata in a folder, as an installer does."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[safecritic.plugins]\n{name} = {value}\n")


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages of a folder installed; runs are compiled quickly."""
    path = os.pathsep.join([str(folder), str(SOURCE)])
    environ = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}
    environ["XLA_FLAGS"] = with_quick(os.environ)
    return subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, check=True
    )


def test_a_plugin_adds_a_method(tmp_path: Path) -> None:
    install(tmp_path, "my_plugin", METHOD, "my_plugin:register")
    table, usage, text = python(tmp_path, "-c", USE).stdout.partition("usage: ")
    (row,) = (line for line in table.splitlines() if "my-method" in line)
    assert " ".join(row.split()) == "my-method Mine a conservative critic without a screen"
    assert usage
    assert "--gamma" in text
    assert "0.875" in text


@pytest.mark.slow
def test_a_plugin_may_name_a_module(tmp_path: Path) -> None:
    install(tmp_path, "my_plugin", METHOD + "\nregister()\n", "my_plugin")
    for first in ("safecritic", "my_plugin"):
        python(tmp_path, "-W", "error", "-c", f"import {first}, safecritic; safecritic.MyMethod")


@pytest.mark.slow
def test_a_plugin_that_fails_is_named_and_left_out(tmp_path: Path) -> None:
    install(
        tmp_path,
        "bad_plugin",
        "def register():\n    raise OSError('no disk')\n",
        "bad_plugin:register",
    )
    install(tmp_path, "gone_plugin", "", "gone_plugin.nowhere:register")
    install(tmp_path, "my_plugin", METHOD, "my_plugin:register")
    run = python(tmp_path, "-c", "import safecritic; safecritic.MyMethod")
    assert "plugin 'bad_plugin' (bad_plugin:register) failed: OSError: no disk" in run.stderr
    assert "plugin 'gone_plugin' (gone_plugin.nowhere:register) failed: ModuleNotF" in run.stderr
    assert run.stderr.count("RuntimeWarning") == 2


def test_a_function_of_a_module_that_imports_safecritic_first_is_explained(tmp_path: Path) -> None:
    install(tmp_path, "my_plugin", METHOD, "my_plugin:register")
    run = python(tmp_path, "-c", "import my_plugin")
    assert "import safecritic before it, or let the entry point name a module" in run.stderr


EVERYTHING = """
import numpy as np
from gymnasium.spaces import Box
import gymnasium

from safecritic.agents import methods
from safecritic.evaluate import measures
from safecritic.report import tables
from safecritic.tasks import registry


class Corridor(gymnasium.Env):
    observation_space = Box(-2.0, 2.0, (1,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-0.5, 0.5)), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x = float(np.clip(self.x + 0.2 * float(action[0]), -2.0, 2.0))
        self.steps += 1
        info = {"cost": float(self.x > 1.0), "success": self.x > 1.5}
        return np.array([self.x], np.float32), self.x, info["success"], self.steps >= 15, info


def action_size(agent, critic, evaluation):
    if critic is None:
        return None
    actions = critic.actions(evaluation.observations)
    return {"mean": float(np.abs(actions).mean())}, {"action_size/actions": actions}


def action_table(study, folder):
    rows = [
        [run.job.method, f"{run.measures['action_size']['mean']:.3f}"]
        for run in study.runs
        if run.done and "action_size" in run.measures
    ]
    return tables.Table("action-size", "Size of the actions", "Mean |a|.", ["method", "size"], rows)


methods.register(
    methods.Method(
        "cautious",
        "Cautious",
        "Cautious SC",
        "a conservative critic without influence",
        "takes other actions to cost more",
        parts=("conservative",),
        defaults={"conservative.weight": 0.05},
        **methods.SAFETY_CRITIC,
    )
)
registry.register(registry.Task("Corridor", "walk", "1 beyond 1", 2.0, Corridor))
measures.register(measures.Measure("action_size", action_size))
tables.register("Actions", action_table)
"""

STUDY = """
methods = ["sc", "cautious"]
tasks = ["Corridor"]
seeds = [0]
steps = 150
deployment_episodes = 2
[settings]
hidden = [8]
batch_size = 8
learning_starts = 60
buffer_size = 200
[method.cautious]
conservative.near_policy = true
"""


@pytest.mark.slow
def test_everything_from_outside_reaches_command_line_study_and_page(tmp_path: Path) -> None:
    """A method, a task and a measure of another package: listed, trained, measured and shown."""
    install(tmp_path, "outside", EVERYTHING, "outside")
    (tmp_path / "grid.toml").write_text(STUDY)
    lists = "from safecritic import cli; cli.main(['methods']); cli.main(['tasks'])"
    listed = python(tmp_path, "-c", lists).stdout
    assert "cautious" in listed
    assert "Corridor" in listed
    out = tmp_path / "study"
    words = ["study", str(tmp_path / "grid.toml"), "--out", str(out), "--workers", "1"]
    assert "2 of 2 runs are done" in python(tmp_path, "-m", "safecritic", *words).stdout
    settings = json.loads((out / "runs" / "cautious-Corridor-seed0" / "config.json").read_text())
    assert settings["config"]["conservative.weight"] == 0.05
    assert settings["config"]["influence"] is False
    python(tmp_path, "-m", "safecritic", "report", str(out))
    page = (out / "report" / "index.html").read_text()
    for text in ("Cautious SC", "Corridor", "Size of the actions"):
        assert text in page
    table = (out / "report" / "tables" / "action-size.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table] == ["method", "sc", "cautious"]
    assert all(0 < float(line.split(",")[1]) <= 1 for line in table[1:])
