"""The commands and snippets of the README, "ten minutes" and "your own environment", as printed.

Each page is one shell session, from top to bottom, in an empty folder, with a new home and a new
virtual environment into which the page's own words install this package; only its dependencies
are borrowed from the environment that runs the tests. Two things differ from what is printed:
ADDRESS is a copy of this working tree, and runs, evaluations and films are short (`SHORTER`).
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from helpers.flags import with_quick
from helpers.once import made_once

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
STEPS = 1_100  # a hundred more than the warm-up

# what is put behind a command, where the last option of a name counts
SHORTER = {
    "safecritic train --resume": f"--steps {STEPS + 200}",
    "safecritic train": f"--steps {STEPS}",
    "safecritic evaluate": "--episodes 2",
    "safecritic limits": f"--steps {STEPS} --episodes 2",
    "safecritic certify": "--episodes 1 --confidence 0.5",
    "safecritic dial": "--episodes 2",
    "safecritic show": "--every 20",
}
COMMAND = re.compile(r"safecritic [^&#\n]*[^&#\n ]")
# lines that are not run: they need what a test does not have
LEFT_OUT = [r".*--wandb PROJECT.*"]  # an account
STUDY = """\
methods = ["ddpg"]
tasks = ["CarGoal1"]
seeds = [0]
steps = 1_100
deployment_episodes = 1
"""

INSTALL = "docs/install.md"
PAGES = {  # the pages that are read in one session
    "README": ["README.md"],
    "ten-minutes": [INSTALL, "docs/ten-minutes.md"],
    "own-environment": [INSTALL, "docs/own-environment.md"],
}


def shorter(text: str) -> str:
    """Return a block with short runs, and without the lines that are left out."""

    def longer(match: re.Match[str]) -> str:
        options = (text for start, text in SHORTER.items() if match[0].startswith(start))
        return f"{match[0]} {next(options, '')}".rstrip()

    for pattern in LEFT_OUT:
        text = re.sub(pattern, "", text)
    text = re.sub(r"total_timesteps=[\d_]+", f"total_timesteps={STEPS}", text)
    text = re.sub(r"episodes=\d+", "episodes=2", text)
    return COMMAND.sub(longer, text)


def script(pages: list[str], address: Path) -> str:
    """Return the session of these pages as a shell script."""
    lines = ["set -e"]
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        text = re.sub(r"<!-- test command -->\n```sh\n.*?```", "", text, flags=re.DOTALL)
        for language, title, code in BLOCK.findall(text):
            if title:
                lines.append(f"cat > {title} <<'END_OF_FILE'\n{code}END_OF_FILE")
            elif language == "sh":
                if "study quick.toml" in code:  # a file here goes before the shipped one
                    lines.append(f"cat > quick.toml <<'END_OF_FILE'\n{STUDY}END_OF_FILE")
                lines += ["set -x", shorter(code).replace("ADDRESS", str(address)), "set +x"]
            elif language == "python":
                lines.append(f"python - <<'END_OF_SNIPPET'\n{shorter(code)}END_OF_SNIPPET")
    return "\n".join(lines)


def copy_of_the_tree(folder: Path) -> None:
    """Make a repository of the files that are in this one, committed or not."""
    folder.mkdir()
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "results/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    someone = ["-c", "user.name=reader", "-c", "user.email=reader@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*someone, "commit", "-q", "-m", "the tree"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def dependencies(folder: Path) -> None:
    """Fill a folder with links to what is installed here, without this package and pip."""
    folder.mkdir()
    for path in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        for entry in path.iterdir():
            if not re.match(r"_*(safecritic|pip|distutils)|.*\.pth$", entry.name):
                (folder / entry.name).symlink_to(entry)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without its repository")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_as_printed(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    address = made_once(tmp_path_factory, "repository", copy_of_the_tree)
    borrowed = made_once(tmp_path_factory, "dependencies", dependencies)
    (tmp_path / "home").mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    cache = os.environ.get("SAFECRITIC_CACHE") or Path.home() / ".cache" / "safecritic"
    env = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(borrowed),
        "PIP_NO_DEPS": "1",  # they are borrowed, and so is what builds the package
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this switch the other way round
        "PIP_NO_COMPILE": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "SAFECRITIC_CACHE": str(cache),
        "XLA_FLAGS": with_quick(os.environ),
    }
    text = script(PAGES[name], address)
    session = tmp_path / "session.sh"
    session.write_text(text)
    run = subprocess.run(
        ["bash", str(session)], cwd=folder, env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, f"{text}\n{run.stdout[-3000:]}\n{run.stderr[-6000:]}"


def test_commands_are_made_shorter_and_nothing_else_is_changed() -> None:
    line = "safecritic train ddpg A --steps 9 && safecritic show runs/a --map  # a film\n"
    assert shorter(line) == (
        "safecritic train ddpg A --steps 9 --steps 1100 && "
        "safecritic show runs/a --map --every 20  # a film\n"
    )
    assert shorter("safecritic train --resume a\n") == "safecritic train --resume a --steps 1300\n"
    assert shorter("x\nsafecritic train usc A --wandb PROJECT  # account\ny\n") == "x\n\ny\n"
    assert shorter("a.learn(total_timesteps=40_000)") == "a.learn(total_timesteps=1100)"
    assert shorter("safecritic export runs/a && ls\n") == "safecritic export runs/a && ls\n"
