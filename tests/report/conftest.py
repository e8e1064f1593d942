"""The report of real runs: those of `results/quick.parquet`, two seeds of every method."""

from pathlib import Path

import pytest

from safecritic.report.build import build

QUICK = Path(__file__).parents[2] / "results" / "quick.parquet"


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it once; return its folder."""
    return build(QUICK, tmp_path_factory.mktemp("report")).parent
