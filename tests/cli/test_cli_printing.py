"""Durations and tables for people; every logged number explained in the documentation."""

import re

import pytest

from helpers.commands import TESTS
from safecritic.agents import methods
from safecritic.cli import printing
from safecritic.core.interface import EnvSpec
from safecritic.run import compiled as off_policy
from safecritic.run import on_policy
from safecritic.run.folder import CRITIC_COLUMNS, EPISODE_COLUMNS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert printing.duration(seconds) == text


def test_a_table_leaves_out_columns_without_values(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", "-", printing.number(1234.567)), ("b", "-", printing.number(None))]
    printing.print_table(("name", "absent", "value"), rows, "title")
    title, header, _, first, second = filter(str.strip, capsys.readouterr().out.splitlines())
    assert title == "title"
    assert header.split() == ["name", "value"]
    assert (first.split(), second.split()) == (["a", "1,234.57"], ["b", "-"])


@pytest.mark.parametrize("width", ["80", "40"])
def test_a_table_for_a_narrow_terminal_is_cut_off_nowhere(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    header = ("method", "reward", "cost", "deployed reward", "deployed cost", "deployed success")
    row = ("usc-no-screen", "-2.60±0.11", "35.00±1.10", "-22.22±0.12", "22.00±0.01", "100±0")
    printing.print_table(header, [row])
    words = capsys.readouterr().out.split()
    assert set(row) <= set(words)
    assert [words.count(word) for word in ("deployed", "reward", "cost")] == [3, 2, 2]


def test_every_logged_number_is_explained() -> None:
    text = (TESTS.parent / "docs" / "metrics.md").read_text()
    explained = set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))
    names = {f"episode/{name}" for name in EPISODE_COLUMNS} | set(CRITIC_COLUMNS)
    names |= {"step", "time/steps_per_second"}
    configs = [
        (method, methods.make_config(name, paper_defaults=paper))
        for name, method in methods.METHODS.items()
        for paper in (False, True)
    ]
    for method, config in configs:
        compile_agent = (on_policy if method.on_policy else off_policy).compile_agent
        names |= set(compile_agent(method.load_agent(config), config, EnvSpec(4, 2)).metrics)
    assert names - explained == set()
    assert explained - names == set()
