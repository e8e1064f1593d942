"""Several environments with six values at once.

They begin a new episode in the step that ends one, as those of Safety Gymnasium do: the observation
is the first of the new episode, the last of the old one is in `infos["final_observation"]`, its
info in `infos["final_info"]`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper

from safecritic.safety_gymnasium.making import make as make_one
from safecritic.tasks import FiveValues
from safecritic.tasks.vector import ThreadVectorEnv


class SafetySyncVectorEnv(VectorWrapper):
    """Environments with six values, stepped by threads; arrays of all of them come back.

    Args:
        env_fns: make one environment each.
        settings: of processes and their memory in the original, without effect here.
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], *settings: Any, **more: Any) -> None:
        fives = [partial(_five, make) for make in env_fns]
        super().__init__(ThreadVectorEnv(fives, autoreset_mode=AutoresetMode.SAME_STEP))

    def step(self, actions: Any) -> Any:
        """Step all environments; the cost comes third."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        ended = terminated | truncated
        cost = infos.pop("cost", np.zeros(self.num_envs))
        infos.pop("_cost", None)
        if ended.any():
            last = infos["final_info"]
            cost = np.where(ended, last["cost"], cost)
            infos |= {
                "final_observation": infos.pop("final_obs"),
                "_final_observation": ended,
                "final_info": _each(last, ended),
                "_final_info": ended,
            }
            infos.pop("_final_obs")
        return obs, reward, cost, terminated, truncated, infos


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """The same: what the original does with processes, threads do here."""


def _five(make: Callable[[], Any]) -> FiveValues:
    return FiveValues(make())


def _each(infos: dict[str, Any], ended: np.ndarray) -> np.ndarray:
    """Return the info of each environment that ended, None for the others."""
    listed = np.full(len(ended), None, dtype=object)
    for at in np.flatnonzero(ended):
        names = [name for name in infos if not name.startswith("_")]
        listed[at] = {name: infos[name][at] for name in names if infos[f"_{name}"][at]}
    return listed


def make(
    env_id: str,
    num_envs: int = 1,
    asynchronous: bool = True,
    wrappers: Callable[[Any], Any] | Iterable[Callable[[Any], Any]] | None = None,
    disable_env_checker: bool | None = None,
    **settings: Any,
) -> SafetySyncVectorEnv:
    """Make several environments of one id; `wrappers` are put around each of them."""
    around = [wrappers] if callable(wrappers) else list(wrappers or ())

    def one() -> Any:
        env = make_one(env_id, **settings)
        for wrapper in around:
            env = wrapper(env)
        return env

    return (SafetyAsyncVectorEnv if asynchronous else SafetySyncVectorEnv)([one] * num_envs)
