"""The calls of Safety Gymnasium on the tasks of this package, for code that was written for it.

    from safecritic import safety_gymnasium

    env = safety_gymnasium.make("SafetyHopperVelocity-v1")
    obs, info = env.reset(seed=0)
    obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())

`vector.make` makes several at once and `wrappers` has the wrappers of that package. Importing this
also registers the ids with five values, `gymnasium.make("SafetyHopperVelocityGymnasium-v1")`.
"""

import gymnasium

from safecritic.safety_gymnasium import vector, wrappers
from safecritic.safety_gymnasium.making import make
from safecritic.tasks import TASKS

__all__ = ["make", "vector", "wrappers"]


def _register_twins() -> None:
    """Tell Gymnasium the ids with five values, unless the original package has."""
    for name in TASKS:
        start, dash, version = name.partition("-")
        twin = f"{start}Gymnasium-{version}"
        if dash and twin not in gymnasium.registry:
            gymnasium.register(
                twin, "safecritic.safety_gymnasium.making:five_values", kwargs={"id": name}
            )


_register_twins()
