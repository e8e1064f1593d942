"""Which bodies sleep: no part of MuJoCo's state, but it decides what moves next."""

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

# a list of places, the number of them in use, and what they count
_LISTS = {
    "body_awake_ind": ("nbody_awake", "nbody"),
    "parent_awake_ind": ("nparent_awake", "nbody"),
    "dof_awake_ind": ("nv_awake", "nv"),
}
_NAMES = ("tree_asleep", "tree_awake", "body_awake", *_LISTS, "ntree_awake")
_NAMES += tuple(count for count, _ in _LISTS.values())


def get_sleep(data: mujoco.MjData) -> dict[str, np.ndarray]:
    """Return the record of sleeping bodies."""
    return {f"sleep_{name}": np.array(getattr(data, name)) for name in _NAMES}


def set_sleep(data: mujoco.MjData, record: Mapping[str, Any]) -> None:
    """Continue from what `get_sleep` returned."""
    for name in _NAMES:
        value = np.asarray(record[f"sleep_{name}"])
        if value.ndim:
            getattr(data, name)[:] = value
        else:
            setattr(data, name, int(value))


def check_sleep(model: mujoco.MjModel, record: Mapping[str, Any]) -> None:
    """Refuse a record that would make MuJoCo read beyond its arrays."""
    sleep = {name: np.asarray(record[f"sleep_{name}"]) for name in _NAMES}
    good = 0 <= sleep["ntree_awake"] <= model.ntree
    for name, (count, size) in _LISTS.items():
        used, most = int(sleep[count]), getattr(model, size)
        places = sleep[name][: max(used, 0)]
        good = good and 0 <= used <= most and bool(((places >= 0) & (places < most)).all())
    # trees that sleep name the next one of their group, in a ring
    asleep = sleep["tree_asleep"]
    rings = np.flatnonzero(asleep >= 0)
    if not good or sorted(asleep[rings].tolist()) != rings.tolist():
        raise ValueError("checkpoint has a record of sleeping bodies that cannot be: it is damaged")
