"""Watch a policy in operation: what it expects, what it does not know, how fast it answers.

    policy = Monitor(load("policy.safecritic"), log="operation.jsonl")
    action = policy(observation)     # as the policy itself; one line per second in the terminal

A threshold that is exceeded lets the fallback answer instead of the policy.
"""

import contextlib
import json
import math
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from .network import Decision
from .policy import FaultWarning, Policy


class Threshold(NamedTuple):
    """Largest allowed values; None allows anything.

    Examples:
        >>> threshold = Threshold(influence=0.98, cost=2.0)
    """

    q_cost: float | None = None  # of the action about to be taken
    influence: float | None = None  # of the same: near 1 if unlike the training data
    cost: float | None = None  # of the episode so far
    latency: float | None = None  # s, of the decision before


class Monitor:
    """A policy with a rolling view of its last decisions; call it as the policy.

    Args:
        policy: the policy.
        every: seconds between two lines.
        window: decisions in the rolling view.
        stream: where the lines go, by default stderr; None for none.
        log: file to append a line of JSON each to.
        threshold: values beyond which the fallback answers.
        clock: seconds.

    Examples:
        >>> monitor = Monitor(load("policy.safecritic"), stream=None, threshold=Threshold(cost=2.0))
        >>> action = monitor(observation)
        >>> monitor.spend(0.0)
        >>> monitor.close()
    """

    def __init__(
        self,
        policy: Policy,
        *,
        every: float = 1.0,
        window: int = 200,
        stream: TextIO | None = sys.stderr,
        log: str | Path | None = None,
        threshold: Threshold | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.policy, self.every, self.stream, self.clock = policy, every, stream, clock
        self.threshold = threshold or Threshold()
        self._log = None if log is None else open(log, "a")  # noqa: SIM115
        self._seen: deque[Decision] = deque(maxlen=window)
        self._latency: deque[float] = deque(maxlen=window)
        self._known = policy.contract.get("training", {}).get("influence")
        self._start = self._last = clock()
        self._before = policy.counts.copy()
        self.spend, self.reset = policy.spend, policy.reset
        self._newest: Decision | None = None  # of this call
        policy.veto = self._veto

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the action of this control step: the policy's, or the fallback's."""
        before, self._newest = self._time(), None
        action = self.policy(observation)
        try:  # what watches must not stop what acts
            now = self._time()
            if self._newest is not None:
                self._latency.append(now - before)
            if not now - self._last < self.every:
                self._last = now
                self.write()
        except Exception as error:
            self._failed(error)
        return action

    def _time(self) -> float:
        try:
            return float(self.clock())
        except Exception as error:  # somebody's function
            self._failed(error)
            return math.nan

    def _failed(self, error: Exception) -> None:
        """Count what could not be watched or written, and say it once."""
        self.policy.counts["monitor failed"] += 1
        if self.policy.counts["monitor failed"] == 1:
            with contextlib.suppress(Exception):  # where warnings are errors
                warnings.warn(f"the monitor failed: {error!r}", FaultWarning, stacklevel=3)

    def close(self) -> None:
        """Write the last line and close the log."""
        try:
            self.write()
            if self._log is not None:
                self._log.close()
        except Exception as error:  # a full disk
            self._failed(error)

    def _veto(self, new: Decision) -> str:
        """Add a decision to the view; return the threshold that it exceeds, or nothing."""
        self._newest = new
        self._seen.append(new)
        latency = self._latency[-1] if self._latency else 0.0
        values = (new.q_cost, new.influence, self.policy.spent, latency)
        for name, value, most in zip(Threshold._fields, values, self.threshold, strict=True):
            if most is not None and value > most:
                return f"{name} {value:.4g} above {most:g}"
        return ""

    def unfamiliar(self, influence: float) -> float:
        """Return the share of the training data whose influence was lower; NaN if unknown."""
        if self._known is None or math.isnan(influence):
            return math.nan
        return float(np.interp(influence, self._known["values"], self._known["shares"]))

    def view(self) -> dict[str, Any]:
        """Return the rolling view; a number that does not exist is None."""
        seen = [(x.q_cost, x.influence, x.screened, x.changed) for x in self._seen]
        q, u, screened, changed = np.array(seen or [(math.nan,) * 4], float).T
        latency = np.array(self._latency or [math.nan])
        counts = self.policy.counts - self._before
        view = {
            "time": self.clock() - self._start,
            "calls": counts["calls"],
            "decisions": counts["decisions"],
            "q_cost": q[-1],
            "q_cost_mean": q.mean(),
            "influence": u[-1],
            "influence_high": u.max(),
            "unfamiliar": self.unfamiliar(float(u.max())),
            "screened": screened.mean(),
            "changed": changed.mean(),
            "cost": self.policy.spent,
            "remaining": self.policy.remaining,
            "latency_p50": np.quantile(latency, 0.5),
            "latency_p99": np.quantile(latency, 0.99),
            "latency_max": latency.max(),
            "faults": counts["faults"],
        }
        numbers = {name: np.asarray(x).item() for name, x in view.items()}
        return {name: x if math.isfinite(x) else None for name, x in numbers.items()}

    def line(self) -> str:
        """Return the rolling view as one line."""
        view = self.view()

        def shown(name: str, form: str, factor: float = 1.0) -> str:
            return "-" if view[name] is None else format(factor * view[name], form)

        text = (
            f"{shown('time', '8.1f')} s  cost {shown('cost', '.2f')} of {self.policy.limit:g}"
            f"  Q_C {shown('q_cost', '.3f')}  u {shown('influence', '.3f')}"
            f"  screened {shown('screened', '.0%')}"
            f"  {shown('latency_p50', '.2f', 1e3)} ms (worst {shown('latency_max', '.2f', 1e3)})"
            f"  faults {view['faults']}"
        )
        new = view["unfamiliar"] is not None and view["unfamiliar"] >= 0.999
        return text + ("  I have not seen this: u above 99.9% of training" if new else "")

    def write(self) -> None:
        """Write the view now, to the terminal and to the log."""
        if self.stream is not None:
            print(self.line(), file=self.stream, flush=True)
        if self._log is not None:
            self._log.write(json.dumps(self.view(), allow_nan=False) + "\n")
            self._log.flush()
