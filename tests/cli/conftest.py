"""An empty working folder, since commands write into the present one."""

from pathlib import Path

import pytest


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path
