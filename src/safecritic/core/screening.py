"""The candidate actions of a screen; `runtime/decide.py` chooses among them (Algorithm 1)."""

import itertools

import numpy as np

CANDIDATES = 16  # actions among which a replacement is chosen, N


def grid(dim: int, number: int) -> np.ndarray:
    """Return `number` fixed actions (number, dim) that differ in what the plant does.

    First {-1, 0, 1}^dim, or the corners, or the centre: the largest of these that fits. The rest
    fills the box evenly (a Kronecker sequence).
    """
    first = np.zeros((1, dim))
    for levels in ((-1.0, 0.0, 1.0), (-1.0, 1.0)):
        if len(levels) ** dim <= number:
            first = np.array(list(itertools.product(levels, repeat=dim)))
            break
    ratio = 2.0  # the root of x^(dim + 1) = x + 1, whose powers are far from any fraction
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (dim + 1))
    steps = ratio ** -np.arange(1, dim + 1)
    rest = 2.0 * np.mod(0.5 + np.outer(np.arange(1, number - len(first) + 1), steps), 1.0) - 1.0
    return np.concatenate([first, rest]).astype(np.float32)
