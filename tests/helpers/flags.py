"""Flags of XLA for quick compilation. Imports no JAX, which reads them once."""

from collections.abc import Mapping

# the emitters of fused loops take most of the time of compiling an update
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def with_quick(environ: Mapping[str, str]) -> str:
    """Return XLA_FLAGS with those for quick compilation."""
    return f"{environ.get('XLA_FLAGS', '')} {QUICK}".strip()
