"""Comparisons of frames."""

import numpy as np


def differs(a, b):
    """Return where two frames differ by more than a shade, as a mask."""
    return np.abs(a.astype(int) - b.astype(int)).max(axis=-1) > 30
