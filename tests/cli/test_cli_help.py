"""Help: quick, complete, and only what a method uses."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from safecritic import cli
from safecritic.agents import methods
from safecritic.core import settings

MOST_SETTINGS = 30
OF_EVERY_RUN = ("run", "environment", "output")  # groups that are no settings of the method
UNCLEAR = ("quiet", "sight", "dearer", "told", "doubt", "multipliers of", "that is none")
HEAVY = "('jax', 'mujoco', 'matplotlib')"
HELP: dict[str, str] = {}


@pytest.fixture
def read_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Return the function that returns the help of a command; each is made once."""
    monkeypatch.setenv("COLUMNS", "100")

    def read(command: str) -> str:
        if command not in HELP:
            with pytest.raises(SystemExit) as left:
                cli.main([*command.split(), "--help"])
            assert left.value.code == 0
            HELP[command] = capsys.readouterr().out
        return HELP[command]

    return read


def groups(text: str) -> dict[str, str]:
    """Return the text of each group of options; with boxes or, without UTF-8, without."""
    _, *parts = re.split(r"^(?:╭─)? ([\w ]*)(?:arguments|options) +─*╮?$", text, flags=re.MULTILINE)
    return dict(zip(map(str.strip, parts[::2]), parts[1::2], strict=True))


def flags(text: str) -> dict[str, str]:
    """Return what a text says of every flag at the start of a line; `--x, --no-x` is one."""
    _, *parts = re.split(r"^│? *--(?=\w)", text, flags=re.MULTILINE)
    named = [re.sub(r"[│|╰─╯\s]+", " ", part) for part in parts]
    return {part.partition(" ")[0].rstrip(","): part for part in named}


def own_flags(text: str) -> dict[str, str]:
    """Return what the help of `train METHOD` says of the method's settings."""
    shown = [flags(part) for title, part in groups(text).items() if title not in OF_EVERY_RUN]
    return {name: about for part in shown for name, about in part.items()}


def imported(command: str) -> tuple[str, str]:
    """Return what a command prints in a process of its own, and the heavy modules it imports."""
    script = (
        "import sys, contextlib; from safecritic import cli\n"
        f"with contextlib.suppress(SystemExit): cli.main({command.split()})\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    text, _, modules = run.stdout.rstrip().rpartition("\n")
    return text, modules


def test_help_and_lists_import_nothing_heavy() -> None:
    """Help is quick because of what it leaves out; a time would measure the machine."""
    overview, modules = imported("--help")
    assert modules == "[]"
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]", overview, re.MULTILINE)
    for command in ("train usc CarGoal1 --help", "evaluate --help", "tasks", "methods"):
        assert imported(command)[1] == "[]", command


@pytest.mark.parametrize("command", [*cli.COMMANDS, "train usc", "train --resume x"])
def test_every_command_has_help(command: str, read_help: Callable[[str], str]) -> None:
    text = read_help(command)
    assert f"usage: safecritic {command.removesuffix(' --resume x')}" in text
    for word in UNCLEAR:
        assert not re.search(rf"\b{word}\b", text), word
    if command == "evaluate":
        assert re.search(r"usage: safecritic evaluate .*RUN", text)
    if command == "show":
        assert "--format {gif,mp4,png}" in text
    if command == "train --resume x":
        assert "Resume a stopped run." in text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_tasks_and_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("CarGoal1", "CarButton2", "HalfCheetah", "FetchReach"))
    assert cli.main(["methods"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in methods.METHODS)


# Settings of a method


@pytest.mark.parametrize("name", methods.METHODS)
def test_help_shows_the_few_settings_of_the_method_each_with_a_sentence(
    name: str, read_help: Callable[[str], str]
) -> None:
    method = methods.get(name)
    shown = own_flags(read_help(f"train {name}"))
    assert len(shown) <= MOST_SETTINGS
    names = method.setting_names()
    parts = {f"no-{part}" for part in method.parts}
    assert shown.keys() == {x.replace("_", "-") for x in names if x not in method.parts} | parts
    for flag, about in shown.items():
        sentence = re.sub(r"^\S+( --\S+| [A-Z]+| \[.*?\]\]?)*|\(default: .*", "", about).strip()
        assert len(sentence.split()) >= 3, flag


def test_groups_stand_in_the_order_of_the_settings(read_help: Callable[[str], str]) -> None:
    text = read_help("train usc")
    parts = ["conservative", "influence", "refinement", "screen"]
    expected = ["positional", "", "safety", "multiplier", *parts, "switches", *OF_EVERY_RUN]
    assert list(groups(text)) == expected
    assert "The screen: replace actions" in groups(text)["screen"]
    assert list(flags(groups(text)["refinement"])) == [
        "refinement.top",
        "refinement.neighbours",
        "refinement.lr",
    ]


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("usc", {"cost-limit": "1.0", "steps": "40000", "screen.tolerance": "0.3"}),
        ("csc", {"conservative.near-policy": "True"}),
        ("cpo", {"steps": "500000", "gamma": "0.99"}),
        ("usc cargoal2", {"cost-limit": "5.0", "actor-lr": "0.0003"}),
        ("usc --seed 1 CarGoal2", {"cost-limit": "5.0"}),
        ("usc --out CarGoal2 HalfCheetah", {"cost-limit": "0.1"}),
        ("pid-lag --paper-defaults", {"actor-lr": "0.002", "safety.steps": "1"}),
        ("usc CarGoal2 --paper-defaults", {"cost-limit": "5.0", "actor-lr": "0.002"}),
    ],
)
def test_help_shows_the_defaults_in_force(
    command: str, defaults: dict[str, str], read_help: Callable[[str], str]
) -> None:
    text = read_help(f"train {command}")
    assert "[OPTIONS] TASK" in text  # also where the command already has one
    for flag, value in defaults.items():
        assert f"(default: {value})" in flags(text)[flag]


def test_help_in_python_is_the_help_of_the_command_line(read_help: Callable[[str], str]) -> None:
    """Both read the source: the one by tyro, the other by `settings.helps`."""
    for name in ("usc", "pid-lag", "cpo"):
        text = re.sub(r"[│|\s]+", " ", read_help(f"train {name}"))
        for setting, about in settings.helps(methods.get(name).settings_type()).items():
            assert about, setting
            assert about in text, setting
