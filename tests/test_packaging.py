"""What a release holds: the package, and not the runs behind the results."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import safecritic

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True
    )
    return out


def test_the_source_distribution_is_small_and_builds_on(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    assert path.stat().st_size < 5e6
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not [name for name in names if name.startswith("results/") or name.endswith(".npz")]
    assert {"pyproject.toml", "README.md", "LICENSE", "src/safecritic/py.typed"} <= names


def test_the_wheel_has_the_package_alone(built: Path) -> None:
    (path,) = built.glob("*.whl")
    assert path.stat().st_size < 2e6
    names = zipfile.ZipFile(path).namelist()
    folder = f"safecritic-{PROJECT['version']}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"safecritic", folder}
    assert "safecritic/study/shipped/quick.toml" in names


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == safecritic.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]


def test_the_workflows_run_on_the_versions_that_are_promised() -> None:
    folder = ROOT / ".github" / "workflows"
    jobs = {path.stem: yaml.safe_load(path.read_text())["jobs"] for path in folder.glob("*.yml")}
    promised = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "3." in text}
    for job in (jobs["checks"]["tests"], jobs["release"]["install"]):
        assert set(job["strategy"]["matrix"]["python"]) == promised
