"""How the steps of a run are compiled: options for XLA, and a cache of compiled steps on disk."""

import functools
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax

from safecritic import _jax  # noqa: F401

# Small products by XLA's own code instead of its library: faster when the weights are the right
# factor and are read along their rows, as `networks.dense` arranges it.
_CPU_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}
# What runs once takes longer to compile than to run: fewer passes, a quarter of the time.
_ONCE_OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def compiler_options() -> dict[str, str] | None:
    """Return XLA's options for what runs at every step; None if this XLA does not know them."""
    return known(_CPU_OPTIONS)


@functools.cache
def once_options() -> dict[str, Any] | None:
    """Return XLA's options for what runs once; None if this XLA does not know them."""
    return known(_ONCE_OPTIONS)


def known(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return options for the CPU if this XLA knows them and runs on one, else None."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(0)
    except Exception:  # its type differs between versions of JAX
        return None
    return dict(options)


def jit(function: Any, *, donate: bool = False, once: bool = False, **fixed: Any) -> Any:
    """Compile a function that runs at every step, or `once`, with the keyword arguments `fixed`.

    With `donate` the memory of its first argument is reused for the result.
    """
    return jax.jit(
        functools.partial(function, **fixed),
        donate_argnums=(0,) if donate else (),
        compiler_options=once_options() if once else compiler_options(),
    )


def use_compilation_cache() -> None:
    """Keep compiled steps in `cache_folder`, so that the next start need not compile them."""
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    folder = cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_folder() -> Path | None:
    """Return the folder of compiled steps, or None if there is to be none.

    It is in the folder that SAFECRITIC_CACHE names, or else in the user's cache folder. There is
    none if SAFECRITIC_CACHE is "off" or the folder cannot be written.
    """
    chosen = os.environ.get("SAFECRITIC_CACHE", "")
    if chosen == "off":
        return None
    if chosen:
        folder = Path(chosen)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA", Path.home())) / "safecritic"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "safecritic"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safecritic"
    folder /= f"jax-{_processor()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor() -> str:
    """Return a digest of the processor's features.

    Machines that share a home folder may not be able to run each other's compiled code.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.processor() + platform.machine()
    return hashlib.sha256(features.encode()).hexdigest()[:8]
