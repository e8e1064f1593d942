"""The study that others are compared with, run once."""

from pathlib import Path

import pytest

from helpers.once import made_once


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the file of a study long enough to be disturbed, and its folder, finished."""
    # here, because this file may be read before tests/conftest.py has set XLA's flags
    from studies import FILE, finish, write_file

    def make(folder: Path) -> None:
        folder.mkdir()
        file = write_file(folder, FILE.replace("steps = 900", "steps = 6_000"))
        finish(folder / "study", file)

    folder = made_once(tmp_path_factory, "study", make)
    return folder / "small.toml", folder / "study"
