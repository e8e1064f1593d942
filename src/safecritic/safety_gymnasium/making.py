"""How single environments are made from their ids."""

from typing import Any

import gymnasium

from safecritic.tasks import SixValues, registry

TWIN = "Gymnasium-v"  # in the ids of those with five values


def five_values(id: str, max_episode_steps: int | None = None, **settings: Any) -> gymnasium.Env:
    """Make an environment whose cost is in `info["cost"]`."""
    if max_episode_steps is not None:
        settings["horizon"] = max_episode_steps
    return registry.make(id.replace(TWIN, "-v"), **settings)


def make(
    id: str,
    max_episode_steps: int | None = None,
    autoreset: bool = False,
    apply_api_compatibility: bool | None = None,
    disable_env_checker: bool | None = None,
    **settings: Any,
) -> Any:
    """Make an environment with six values, or with five if its id says Gymnasium.

    Args:
        id: such as "SafetyPointGoal1-v0" or "SafetyPointGoal1Gymnasium-v0".
        max_episode_steps: after which an episode is truncated, instead of the task's.
        autoreset: whether to begin a new episode in the step that ends one.
        apply_api_compatibility: without effect, as is the next one: the tasks check themselves.
        disable_env_checker: see above.
        settings: keywords of the task, such as `render_mode="rgb_array"`.
    """
    env = five_values(id, max_episode_steps, **settings)
    if TWIN in id:
        return env
    if autoreset:
        from safecritic.safety_gymnasium.wrappers import SafeAutoResetWrapper

        return SafeAutoResetWrapper(SixValues(env))
    return SixValues(env)
