"""An empty working folder, since commands write into the present one; sources read once."""

import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def sources_read_once() -> Iterator[None]:
    """Keep the source of each class, from which every command takes the help of its options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "getsource", functools.cache(inspect.getsource))
        yield
