"""The one place that steps an environment: typed transitions, and the record of the episode.

    rollout = Rollout(env)
    rollout.reset(seed=0)
    for transition in rollout.play(policy):  # to the end of the episode
        ...
    print(rollout.episode.cost)

Training, evaluation, certificates and films all step through it. What an environment returns is
checked at every step (`tasks.checks`).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from safecritic.run.episode import ACT_COLUMNS, Episode
from safecritic.tasks.checks import EnvError, StepChecks

UNKNOWN = (math.nan,) * len(ACT_COLUMNS)
LONGEST = 1_000_000  # steps of an episode that is waited for


class Transition(NamedTuple):
    """One decision and what came of it: numbers are floats, ends are booleans."""

    obs: np.ndarray  # (O,) float32, as is next_obs
    action: np.ndarray  # (A,)
    reward: float
    cost: float
    next_obs: np.ndarray
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    steps: int  # environment steps for which the action was held

    @property
    def success(self) -> bool:
        """Whether it reached the goal; not where the environment says nothing of success."""
        return bool(self.info.get("success", False))

    @property
    def ended(self) -> bool:
        """Whether the episode ended with it."""
        return self.terminated or self.truncated


class ActionError(ValueError):
    """A policy whose action was not finite; the environment has not seen it."""


class Rollout:
    """An environment, the observation to act on next, and the record of the open episode."""

    def __init__(self, env: Any):
        self.env = env
        self.checks = StepChecks(env)
        self.obs: np.ndarray | None = None  # None: to be reset
        self.episode = Episode()

    def reset(self, **options: Any) -> np.ndarray:
        """Begin an episode; return its observation."""
        try:
            result = self.env.reset(**options)
        except (Exception, SystemExit) as error:
            raise self._raised("reset", error) from error
        self.episode = Episode()
        self.obs = self.checks.check_reset(result)
        return self.obs

    def step(self, action: np.ndarray, predicted: tuple[float, ...] = UNKNOWN) -> Transition:
        """Take an action; `predicted` are the values of ACT_COLUMNS at the time of deciding."""
        assert self.obs is not None, "reset the environment first"
        if not math.isfinite(float(np.sum(action))):
            raise ActionError(f"the policy's action is not finite: {np.asarray(action).tolist()}")
        try:
            result = self.env.step(np.array(action))  # its own: it may write into it
        except (Exception, SystemExit) as error:
            raise self._raised("step", error) from error
        transition = Transition(self.obs, action, *self.checks.check_step(result))
        self.episode.add(transition, predicted)
        self.obs = transition.next_obs
        return transition

    def play(self, policy: Any, hold: int = 1) -> Iterator[Transition]:
        """Yield the transitions of a policy (as in `safecritic.runtime`) to the episode's end.

        `hold` is for an environment that does not hold actions itself: each serves so many steps.
        """
        policy.reset()
        number = 0
        while not self.episode.ended:
            self.require_end()
            if number % hold == 0:
                decision = policy.decide(self.obs)
                predicted = (decision.q_cost, decision.screened, decision.changed)
            number += 1
            transition = self.step(decision.unit_action, tuple(map(float, predicted)))
            self.episode.count_parts(transition.info)
            policy.spend(transition.cost)
            yield transition

    def require_end(self) -> None:
        """Raise if the open episode has become so long that nobody should wait for its end."""
        if len(self.episode.steps) >= LONGEST:
            raise EnvError(
                f"an episode of {self.checks.name} has not ended after {LONGEST:,} steps: bound "
                "it, gymnasium.wrappers.TimeLimit(env, max_episode_steps)"
            )

    def _raised(self, what: str, error: BaseException) -> EnvError:
        text = " ".join(str(error).split())[:400]
        return EnvError(f"{what} of {self.checks.name} raised {type(error).__name__}: {text}")


class FunctionPolicy:
    """A plain function obs -> action, without memory, as something that drives a rollout."""

    class Decision(NamedTuple):
        unit_action: np.ndarray
        q_cost: float = math.nan
        screened: float = math.nan
        changed: float = math.nan

    def __init__(self, function: Callable[[np.ndarray], Any]):
        self.function = function

    def reset(self) -> None:
        pass

    def decide(self, row: np.ndarray) -> Decision:
        """Return what the function says of an observation."""
        return self.Decision(np.asarray(self.function(row)))

    def spend(self, cost: float) -> None:
        pass
