"""A report is made without JAX: it opens a study on a machine, or in a second, that has none."""

import subprocess
import sys

MODULES = [
    "safecritic.core.style",
    "safecritic.agents.methods",
    "safecritic.evaluate.episodes",
    "safecritic.evaluate.measures",
    "safecritic.study.table",
    "safecritic.report.build",
    "safecritic.report.explorer",
]
SCRIPT = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(module, *(name for name in sys.modules if "jax" in name), sep=",")
"""


def test_importing_them_imports_no_jax() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *MODULES], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == MODULES
