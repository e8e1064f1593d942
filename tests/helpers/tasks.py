"""Which tasks a test goes through."""

import pytest

from safecritic.tasks import TASKS

PAPER = [name for name in TASKS if not name.startswith("Safety")]  # in two variants
VARIANTS = [
    (name, variant)
    for name in TASKS
    for variant in (("benchmark", "original") if name in PAPER else ("original",))
]
all_tasks = pytest.mark.parametrize("name", TASKS)
all_variants = pytest.mark.parametrize(("name", "variant"), VARIANTS)
