"""Every public name has a docstring with an example, and the examples run."""

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import safecritic
from deploy import ready
from safecritic import runtime, tasks
from safecritic.api import Agent

MODULES = {"safecritic": safecritic, "safecritic.tasks": tasks, "safecritic.runtime": runtime}
TABLES = {"TASKS"}  # not documented by a docstring
PROPERTIES = {"num_timesteps", "recent_episodes", "logger"}  # one line says it all


def public() -> Iterator[tuple[str, Any]]:
    for where, module in MODULES.items():
        for name in module.__all__:
            if name not in TABLES:
                yield f"{where}.{name}", getattr(module, name)
    for name, value in vars(Agent).items():
        if not name.startswith("_") and name != "method" and name not in PROPERTIES:
            yield f"Agent.{name}", value


NAMES = dict(public())


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    text = inspect.getdoc(NAMES[name]) or ""
    summary = text.partition("\n")[0]
    assert len(summary) > 10
    assert doctest.DocTestParser().get_examples(text), name


@pytest.mark.slow
def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = ready.make("usc", "CarGoal1")
    agent.export("policy.safecritic", onnx=False)
    observation = safecritic.make("CarGoal1").reset(seed=0)[0]
    there = {"agent": agent, "observation": observation, "safecritic": safecritic}
    there |= {"gymnasium": __import__("gymnasium"), "policy": runtime.load("policy.safecritic")}
    for module in MODULES.values():
        there |= {name: getattr(module, name) for name in module.__all__}
    runner = doctest.DocTestRunner(verbose=False)
    for name, value in NAMES.items():
        parser = doctest.DocTestParser()
        test = parser.get_doctest(inspect.getdoc(value) or "", dict(there), name, None, 0)
        runner.run(test, clear_globs=True)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out
    assert runner.tries > len(NAMES)
    tasks.TASKS.pop("Corridor")
