"""The README's Python does what it says, as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    for long, short in (("40_000", "1_040"), ("episodes=10", "episodes=1")):
        assert code.count(long) == 1
        code = code.replace(long, short)
    monkeypatch.chdir(tmp_path)
    there: dict[str, object] = {}
    exec(compile(code, str(README), "exec"), there)
    assert there["done"]
    assert list(tmp_path.iterdir()) == [tmp_path / "usc-CarGoal1"]
