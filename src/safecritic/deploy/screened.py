"""The screen of a trained run as a Gymnasium wrapper round anybody's policy.

    env = Screened(gymnasium.make(...), USC.load("runs/usc-CarGoal1-seed0").policy())
    obs, info = env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(my_policy(obs))
    print(info["screened"], info["screen_changed"])

An action whose Q_C exceeds what the remaining budget tolerates is replaced by the best candidate.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from safecritic.runtime.policy import Policy
from safecritic.tasks.checks import check_cost, name_of


class Screened(gymnasium.Wrapper, RecordConstructorArgs):
    """An environment that does what a safety critic tolerates of the actions given to it.

    Args:
        env: the environment, in the form that the policy was trained on or in its own.
        policy: what `agent.policy()` or `safecritic.runtime.load` returns, of a method with a
            screen. It keeps the budget of the episode; only its critics are used.
    """

    def __init__(self, env: gymnasium.Env, policy: Policy):
        RecordConstructorArgs.__init__(self, policy=policy, _disable_deepcopy=True)
        gymnasium.Wrapper.__init__(self, env)
        if policy.network.parts.candidates is None:
            raise ValueError(
                f"{policy.contract['method']} has no screen: use a policy of sc, csc, usc-nr or usc"
            )
        space: Any = env.action_space
        size = policy.network.action_dim
        if not isinstance(space, gymnasium.spaces.Box) or space.low.size != size:
            raise ValueError(f"the policy is for {size} continuous actions, got {space}")
        self.policy, self._obs = policy, None
        self._low, self._high = (np.ravel(x).astype(np.float64) for x in (space.low, space.high))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with the whole budget."""
        self._obs, info = self.env.reset(**options)
        self.policy.reset()
        return self._obs, info

    def step(self, action: Any) -> Any:
        """Do the action, or another that is tolerated; `info` says which."""
        policy, space = self.policy, self.env.action_space
        flat = np.ravel(np.asarray(action, np.float64))
        if flat.shape != self._low.shape or not np.isfinite(flat).all():
            raise ValueError(f"action must be {self._low.size} finite numbers, got {action!r}")
        width = self._high - self._low
        share = (np.clip(flat, self._low, self._high) - self._low) / np.where(width > 0, width, 1)
        proposed = (2.0 * share - 1.0).astype(np.float32)[None]
        obs = policy.flatten(self._obs).astype(np.float32)[None]
        remaining = np.array([policy.remaining], np.float32)
        made = policy.network.screen(obs, remaining, proposed)
        done = flat
        if made.changed[0]:
            share = (made.unit_action[0].astype(np.float64) + 1.0) / 2.0
            done = (1.0 - share) * self._low + share * self._high
        result = self.env.step(done.reshape(space.shape or ()).astype(space.dtype))
        info = result[-1]
        cost = result[2] if len(result) == 6 else info.get("cost")
        policy.spend(check_cost(cost, name_of(self.env)))
        about = {"screened": bool(made.screened[0]), "screen_changed": bool(made.changed[0])}
        self._obs = result[0]
        return (*result[:-1], info | about)
