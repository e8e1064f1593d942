"""Many environments at once, stepped by threads.

    envs = safecritic.make_vec("SafetyAntVelocity-v1", 8, autoreset_mode="SameStep")
    envs = gymnasium.make_vec("safecritic/SafetyAntVelocity-v1", 8, autoreset_mode="SameStep")

MuJoCo lets other threads run while it simulates, which is most of a step, so that threads keep
several cores busy without the messages that processes need. Everything else is Gymnasium's
`SyncVectorEnv`: spaces, infos, autoreset modes, `options={"reset_mask": ...}`.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from safecritic.tasks import registry

Make = Callable[[], gymnasium.Env]


class _Ahead(gymnasium.Wrapper):
    """An environment whose next results a thread may have worked out already."""

    def __init__(self, make: Make) -> None:
        super().__init__(make())
        self.ready: deque[Any] = deque()

    def work(self, action: Any, ended: bool, mode: AutoresetMode) -> None:
        """Work out what `SyncVectorEnv.step` is going to ask for."""
        if ended and mode is AutoresetMode.NEXT_STEP:
            self.ready.append(self.env.reset())
        elif not ended or mode is AutoresetMode.SAME_STEP:
            step = self.env.step(action)
            self.ready.append(step)
            if mode is AutoresetMode.SAME_STEP and (step[2] or step[3]):
                self.ready.append(self.env.reset())

    def step(self, action: Any) -> Any:
        return self.ready.popleft() if self.ready else self.env.step(action)

    def reset(self, **settings: Any) -> Any:
        return self.ready.popleft() if self.ready else self.env.reset(**settings)


class ThreadVectorEnv(SyncVectorEnv):
    """`SyncVectorEnv`, stepped by several threads.

    Args:
        env_fns: make one environment each.
        threads: how many; by default one for every core, and none for a single environment.
        settings: keywords of `SyncVectorEnv`, such as `autoreset_mode`.
    """

    def __init__(
        self, env_fns: Iterable[Make], threads: int | None = None, **settings: Any
    ) -> None:
        super().__init__([partial(_Ahead, make) for make in env_fns], **settings)
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be >= 1, got {threads}")
        self.threads = min(threads or _cores(), self.num_envs)
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        if self._pool is None:
            return super().step(actions)
        envs: Sequence[Any] = self.envs
        ended = self._autoreset_envs.tolist()
        jobs = list(zip(envs, iterate(self.action_space, actions), ended, strict=True))
        waiting: list[Future[None]] = []
        try:
            for share in range(1, self.threads):
                waiting.append(self._pool.submit(self._work, jobs[share :: self.threads]))
            self._work(jobs[:: self.threads])
            for future in waiting:
                future.result()
            return super().step(actions)
        finally:
            wait(waiting)
            for env in envs:  # after an error some results were not asked for
                env.ready.clear()

    def _work(self, jobs: Any) -> None:
        for env, action, ended in jobs:
            env.work(action, ended, self.autoreset_mode)

    def close_extras(self, **settings: Any) -> None:
        """End the threads and close the environments."""
        if self._pool is not None:
            self._pool.shutdown()
        super().close_extras(**settings)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_vec(
    name: str,
    num_envs: int = 1,
    *,
    threads: int | None = None,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    wrappers: Sequence[Callable[[gymnasium.Env], gymnasium.Env]] = (),
    **settings: Any,
) -> ThreadVectorEnv:
    """Make several environments of a task, stepped by threads.

    Args:
        name: of the task, or its Gymnasium id.
        num_envs: how many environments.
        threads: how many threads; by default one for every core.
        autoreset_mode: "NextStep", "SameStep" or "Disabled".
        wrappers: put around every environment, the first one innermost.
        settings: keywords of the task.

    Examples:
        >>> envs = make_vec("CarGoal1", 2, autoreset_mode="SameStep")
        >>> obs, infos = envs.reset(seed=0)
        >>> obs.shape
        (2, 72)
    """

    def one() -> gymnasium.Env:
        env = registry.make(name, **settings)
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return ThreadVectorEnv([one] * num_envs, threads, autoreset_mode=autoreset_mode)


def __getattr__(name: str) -> Any:
    """Return what makes vectors of the task of this name, for Gymnasium's table of entry points."""
    if registry.find(name) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(make_vec, name)
