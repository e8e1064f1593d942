"""How the steps of a run are compiled: options for XLA, and a cache of compiled steps on disk."""

import functools
import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax


def jit(function: Any, *, donate: bool = False, **fixed: Any) -> Any:
    """Compile a function with fixed keywords; `donate` reuses the memory of its first argument."""
    return jax.jit(functools.partial(function, **fixed), donate_argnums=(0,) if donate else ())


def use_compilation_cache() -> None:
    """Keep compiled steps in `cache_folder`, so that the next start need not compile them."""
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    folder = cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_folder() -> Path | None:
    """Return the folder of compiled steps, in the one SAFECRITIC_CACHE names or the user's.

    None if SAFECRITIC_CACHE is "off" or the folder cannot be written.
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
    """Return a digest of the processor's features: others may not run its compiled code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.processor() + platform.machine()
    return hashlib.sha256(features.encode()).hexdigest()[:8]
