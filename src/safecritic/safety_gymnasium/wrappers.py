"""Safety Gymnasium's wrappers, by Gymnasium's own where these will do."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RescaleAction, TimeLimit

from safecritic.safety_gymnasium.making import five_values
from safecritic.tasks import FiveValues, SixValues

Gymnasium2SafetyGymnasium = SixValues
make_gymnasium_environment = five_values


def SafetyGymnasium2Gymnasium(env: Any) -> Any:
    """Return an environment, or several at once, with five values and the cost in `info`."""
    return _FiveValuesVector(env) if isinstance(env, VectorEnv) else FiveValues(env)


class _FiveValuesVector(VectorWrapper):
    def step(self, actions: Any) -> Any:
        obs, reward, cost, terminated, truncated, infos = self.env.step(actions)  # type: ignore[misc]
        return obs, reward, terminated, truncated, infos | {"cost": cost}


def with_gymnasium_wrappers(env: Any, *wrappers: Callable[[Any], Any]) -> Any:
    """Put Gymnasium's wrappers around an environment with six values."""
    for wrapper in (SafetyGymnasium2Gymnasium, *wrappers, Gymnasium2SafetyGymnasium):
        env = wrapper(env)
    return env


class SafeRescaleAction(RescaleAction):
    """Take actions from `min_action` to `max_action`."""

    def __init__(self, env: Any, min_action: Any, max_action: Any) -> None:
        space = env.action_space
        low, high = (np.full(space.shape, x, space.dtype) for x in (min_action, max_action))
        super().__init__(env, low, high)


class SafeTimeLimit(TimeLimit):
    """Truncate an episode after so many steps."""

    def step(self, action: Any) -> Any:
        """Step, and truncate if it was the last."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)  # type: ignore[misc]
        if self._elapsed_steps is not None:
            self._elapsed_steps += 1
            truncated = truncated or self._elapsed_steps >= self._max_episode_steps
        return obs, reward, cost, terminated, truncated, info


class SafeAutoResetWrapper(gymnasium.Wrapper, RecordConstructorArgs):
    """Begin a new episode in the step that ends one.

    The last observation and info of the old one are `info["final_observation"]` and
    `info["final_info"]`.
    """

    def __init__(self, env: Any) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> Any:
        """Step, and reset at the end of an episode."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)  # type: ignore[misc]
        if terminated or truncated:
            last = {"final_observation": obs, "final_info": info}
            obs, info = self.env.reset()
            info = info | last
        return obs, reward, cost, terminated, truncated, info


def SafeNormalizeObservation(env: Any, epsilon: float = 1e-8) -> Any:
    """Bring observations to mean 0 and variance 1, of one environment or several at once.

    `obs_rms` holds mean and variance so far.
    """
    kind = _NormalizeObservations if isinstance(env, VectorEnv) else _NormalizeObservation
    return kind(env, epsilon)


class _NormalizeObservation(NormalizeObservation):
    def step(self, action: Any) -> Any:
        obs, *middle, info = self.env.step(action)
        obs = self.observation(obs)
        if "final_observation" in info:
            info = info | {"original_final_observation": info["final_observation"]}
            info["final_observation"] = self.observation(info["final_observation"])
        return (obs, *middle, info)


class _NormalizeObservations(VectorWrapper):
    def __init__(self, env: Any, epsilon: float) -> None:
        super().__init__(env)
        shape = env.single_observation_space.shape
        self.obs_rms = gymnasium.wrappers.utils.RunningMeanStd(shape=shape, dtype=np.float64)
        self.epsilon = epsilon
        self.update_running_mean = True

    def _normal(self, obs: np.ndarray) -> np.ndarray:
        if self.update_running_mean:
            self.obs_rms.update(obs)
        normal = (obs - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + self.epsilon)
        return normal.astype(np.float32)

    def reset(self, **settings: Any) -> Any:
        obs, infos = self.env.reset(**settings)
        return self._normal(obs), infos

    def step(self, actions: Any) -> Any:
        obs, *middle, infos = self.env.step(actions)
        obs = self._normal(obs)
        if "final_observation" in infos:
            ended = infos["_final_observation"]
            last = infos["original_final_observation"] = infos["final_observation"]
            infos["final_observation"] = np.full_like(last, None)
            normal = self._normal(np.stack(list(last[ended])))
            for at, one in zip(np.flatnonzero(ended), normal, strict=True):
                infos["final_observation"][at] = one
        return (obs, *middle, infos)


class SafeNormalizeReward(NormalizeReward):
    """Divide the reward by the deviation of its discounted sum so far."""

    place = 1  # among the six values

    def step(self, action: Any) -> Any:
        """Step and divide."""
        values: list[Any] = list(self.env.step(action))
        kept = self.gamma * (1 - values[3])
        self.discounted_reward = self.discounted_reward * kept + float(values[self.place])
        if self.update_running_mean:
            self.return_rms.update(self.discounted_reward)
        values[self.place] /= np.sqrt(self.return_rms.var + self.epsilon)
        return tuple(values)


class SafeNormalizeCost(SafeNormalizeReward):
    """Divide the cost by the deviation of its discounted sum so far."""

    place = 2


class SafeUnsqueeze(gymnasium.Wrapper, RecordConstructorArgs):
    """Return everything as of a batch of one environment."""

    def __init__(self, env: Any) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def reset(self, **settings: Any) -> Any:
        """Reset."""
        obs, info = self.env.reset(**settings)
        return np.expand_dims(obs, 0), _expanded(info)

    def step(self, action: Any) -> Any:
        """Step; the action is one without a batch."""
        *values, info = self.env.step(action)
        return (*(np.expand_dims(value, 0) for value in values), _expanded(info))


def _expanded(info: dict[str, Any]) -> dict[str, Any]:
    return {k: np.expand_dims(v, 0) if isinstance(v, np.ndarray) else v for k, v in info.items()}
