"""A report is made without JAX: it opens a study on a machine, or in a second, that has none."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "safecritic.style",
        "safecritic.evaluation.evaluate",
        "safecritic.evaluation.measures",
        "safecritic.methods",
        "safecritic.study.table",
        "safecritic.report.build",
    ],
)
def test_importing_it_imports_no_jax(module: str) -> None:
    script = f"import sys, {module}; print([name for name in sys.modules if 'jax' in name])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
