"""Help: quick, complete, and only what a method uses."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from safecritic import cli, methods
from safecritic.agents import settings

PARTS = {"conservatism": "conservative", "influence": "influence", "refinement": "refinement"}
PARTS |= {"screen": "screen"}
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


def titles(text: str) -> list[str]:
    """Return the titles of the groups; with boxes or, where the output is not UTF-8, without."""
    pattern = r"^(?:╭─)? ([\w ]*(?:arguments|options)) +─*╮?$"
    return [title.strip() for title in re.findall(pattern, text, re.MULTILINE)]


def flags(text: str) -> dict[str, str]:
    """Return what the help says of every flag."""
    one_line = re.sub(r"[│|\s]+", " ", text)
    _, *parts = re.split(r" --(?=\w)", one_line.partition("show this help message")[2])
    return {part.partition(" ")[0].rstrip(","): part for part in parts}


def test_help_imports_nothing_heavy() -> None:
    """Help is quick because of what it leaves out; a time would measure the machine."""
    script = (
        "import sys; from safecritic import cli; cli.main(['--help']);"
        "print([m for m in ('jax', 'mujoco', 'tyro', 'matplotlib', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]", run.stdout, re.MULTILINE)


def test_lists_import_no_jax() -> None:
    script = (
        "import sys; from safecritic import cli; cli.main(['tasks']); cli.main(['methods']);"
        "print([m for m in ('jax', 'mujoco', 'matplotlib') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", [*cli.COMMANDS, "train usc", "train --resume x"])
def test_every_command_has_help(command: str, read_help: Callable[[str], str]) -> None:
    text = read_help(command)
    assert f"usage: safecritic {command.removesuffix(' --resume x')}" in text
    if command == "train usc":
        assert "--cost-limit FLOAT" in text
        assert "--refine-neighbours INT" in text
    if command == "evaluate":
        assert re.search(r"usage: safecritic evaluate .*RUN", text)
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


@pytest.mark.parametrize(
    ("method", "groups"),
    [
        ("ddpg", ["learning"]),
        ("pid-lag", ["learning", "safety critic", "multiplier"]),
        ("rcpo", ["learning", "multiplier"]),
        ("cpo", ["learning", "trust region"]),
        ("sc", ["learning", "safety critic", "multiplier", "screen"]),
        ("csc", ["learning", "safety critic", "multiplier", "conservatism", "screen"]),
        (
            "usc-nr",
            ["learning", "safety critic", "multiplier", "conservatism", "influence", "screen"],
        ),
        ("usc", ["learning", "safety critic", "multiplier", *PARTS]),
    ],
)
def test_groups_stand_in_order(
    method: str, groups: list[str], read_help: Callable[[str], str]
) -> None:
    text = read_help(f"train {method}")
    titles_ = ("task and run", "environment", *groups, "output")
    options = [f"{title} options" for title in titles_]
    assert titles(text) == ["positional arguments", "options", *options]
    for title, part in PARTS.items():
        assert (f"--{part}, --no-{part} " in text) == (title in groups)


def test_help_shows_the_settings_of_the_method_alone(read_help: Callable[[str], str]) -> None:
    settings_of = {
        method.name: {name.replace("_", "-") for name in method.setting_names()}
        for method in methods.METHODS.values()
    }
    for method, own in settings_of.items():
        shown = flags(read_help(f"train {method}")).keys()
        assert own <= shown
        assert not shown & (set().union(*settings_of.values()) - own)
    assert "conservative-weight" not in flags(read_help("train sc"))


def test_settings_stand_in_the_group_that_declares_them(read_help: Callable[[str], str]) -> None:
    text = read_help("train usc")
    words = ("safety critic options", "--safety-n-step", "conservatism options", "--push-data")
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_choices_are_shown_as_choices(read_help: Callable[[str], str]) -> None:
    text = read_help("train usc")
    assert "--conservative-form {band,hinge,mirrored,flipped,printed}" in text
    assert "--safety-critics {1,2}" in text
    assert "--format {gif,mp4,png}" in read_help("show")


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("usc", {"cost-limit": "1.0", "alternatives-from": "uniform", "steps": "40000"}),
        ("csc", {"alternatives-from": "policy"}),
        ("cpo", {"steps": "500000", "gamma": "0.99"}),
        ("usc cargoal2", {"cost-limit": "5.0", "actor-lr": "0.0003"}),
        ("usc --seed 1 CarGoal2", {"cost-limit": "5.0"}),
        ("usc --out CarGoal2 HalfCheetah", {"cost-limit": "0.1"}),
        ("usc --paper-defaults", {"actor-lr": "0.002", "conservative-form": "printed"}),
        ("usc CarGoal2 --paper-defaults", {"cost-limit": "5.0", "tolerance": "0.3"}),
    ],
)
def test_help_shows_the_defaults_in_force(
    command: str, defaults: dict[str, str], read_help: Callable[[str], str]
) -> None:
    text = read_help(f"train {command}")
    assert "[OPTIONS] TASK" in text  # also where the command already has one
    for flag, value in defaults.items():
        assert f"(default: {value})" in flags(text)[flag]


def test_every_setting_is_explained() -> None:
    """The comment behind a setting is what --help says of it."""
    for method in methods.METHODS.values():
        kind = method.settings_type()
        groups = [kind, *settings.part_types(kind).values()]
        helps = {name: text for group in groups for name, text in settings.helps(group).items()}
        for field, _ in settings.setting_fields(kind, method.parts):
            assert helps.get(field.name), f"{method.name}: {field.name}"
