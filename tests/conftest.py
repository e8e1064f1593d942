"""Quick runs compile without optimisation; the whole suite, as CI runs it, tests what users run."""

import os

import pytest

pytest.register_assert_rewrite("fakes")


def pytest_configure(config: pytest.Config) -> None:
    # before any test module imports JAX, in the workers of xdist too
    if config.option.markexpr == "not slow":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0".strip()
