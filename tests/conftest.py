"""Quick rounds compile without optimisation; in the whole suite, as CI runs it, runs are compiled
as users' are, but for the modules that use `quick_runs`.
"""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("helpers")

from helpers.flags import with_quick  # noqa: E402


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the curves at the end of a run, which take longer to draw than a test to run."""
    monkeypatch.setattr("safecritic.api.draw_curves", lambda folder: None)


@pytest.fixture(scope="module")
def quick_runs() -> Iterator[None]:
    """Compile the runs of a module with fewer passes: it tests what is around them."""
    from helpers import quick  # not before XLA's flags are set

    with quick.quick_runs():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return one worker more than cores for the whole suite: some of its tests wait."""
    quick = config.option.markexpr == "not slow"
    return None if quick else len(os.sched_getaffinity(0)) + 1


def _keep_bytecode() -> None:
    """Where none is to be written beside the sources, keep it in the virtual environment.

    Hundreds of processes import JAX here: without bytecode that takes 2.7 s each instead of 1.
    """
    if sys.dont_write_bytecode:
        folder = Path(sys.prefix) / "bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, so that the others run beside it and not before it."""
    items.sort(key=lambda item: "test_a_page_runs_as_printed[README]" not in item.name)


def pytest_configure(config: pytest.Config) -> None:
    _keep_bytecode()
    # a full collection looks through all that JAX has traced: a tenth of the time by default
    gc.set_threshold(10_000, 50, 100)
    # before any test module imports JAX, in the workers of xdist too
    if config.option.markexpr == "not slow":
        os.environ["XLA_FLAGS"] = with_quick(os.environ)
