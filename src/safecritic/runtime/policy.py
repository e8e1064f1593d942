"""The policy that acts when deployed: checked observations in, finite actions out, a budget kept.

    policy = load("policy.safecritic")
    policy.reset()                   # an episode begins
    action = policy(observation)     # at every control step
    policy.spend(cost)               # what that step cost

`agent.policy()` returns the same object, made in memory. A call that cannot be answered (no
observation, a wrong shape, a number that is not finite or out of range, a call that comes too late)
is answered by the declared fallback, counted and reported.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import escape
from .file import Contents, PolicyFileError, read
from .memory import Memory, Row
from .network import Decision, Graph, Network

Engine = Literal["numpy", "onnx"]
Fallback = Literal["hold", "zero", "raise"] | Callable[["Policy", str], Any] | Any


class FaultWarning(UserWarning):
    """The fallback answered a call; given once for each reason.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("ignore", FaultWarning)
        >>> action = policy(None)  # no observation: the fallback answers
    """


class _Unusable(Exception):
    """An observation that the fallback answers: the fault, and a detail."""


class Policy:
    """A policy. `last` is the last decision (of each row), `counts` what happened so far.

    Loading one runs no code of its file and needs no network.

    Args:
        source: a policy file, or what one holds.
        engine: "numpy", or "onnx" for the file's graph in ONNX Runtime.
        fallback: what answers a call that the policy cannot: "hold", "zero", an action in the
            environment's unit, or a function of the policy and the reason that returns one; or
            "raise" for a ValueError. Without it, what the contract declares.
        clock: seconds, to notice late calls. None in a simulation that does not run in real time.
        screen: False switches the screen off, and the escape with it.
        on_fault: function of (reason, detail), called for every such call. Without it, a
            FaultWarning for the first of each reason.

    Examples:
        >>> policy = load("policy.safecritic", clock=None)
        >>> policy.reset()
        >>> action = policy(observation)
        >>> policy.spend(0.0)
    """

    def __init__(
        self,
        source: str | Path | Contents,
        *,
        engine: Engine = "numpy",
        fallback: Fallback | None = None,
        clock: Callable[[], float] | None = time.monotonic,
        screen: bool = True,
        on_fault: Callable[[str, str], None] | None = None,
    ):
        contents = source if isinstance(source, Contents) else read(source)
        self.contract = contents.contract
        self.engine, self.screen, self.clock, self.on_fault = engine, screen, clock, on_fault
        self.fallback: Fallback
        try:
            self._read_contract(contents)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise PolicyFileError(
                f"this describes no policy that this version can run ({error!r}): use the runtime "
                "of the version of safecritic that wrote it"
            ) from error
        if engine not in ("numpy", "onnx"):
            raise ValueError(f"engine must be 'numpy' or 'onnx', got {engine!r}")
        self._engine: Callable[..., Decision] = self.network.decide
        if engine == "onnx":
            self._engine = Graph(contents.graph, self.network).decide
        if fallback is not None:
            self.fallback = fallback
        if isinstance(self.fallback, str) and self.fallback not in ("hold", "zero", "raise"):
            expected = "'hold', 'zero', an action or a function"
            raise ValueError(f"fallback must be {expected}, got {self.fallback!r}")
        if not (isinstance(self.fallback, str) or callable(self.fallback)):
            self._checked_action(self.fallback)  # raises now and not in operation
        self.counts: Counter[str] = Counter()
        self.veto: Callable[[Decision], str] | None = None  # a reason not to do it, or ""
        self._zero = self._made(np.clip(0.0, self.network.low, self.network.high))
        self.reset()

    def _read_contract(self, contents: Contents) -> None:
        contract = self.contract
        try:
            self.network = Network(contract["network"], contents.arrays)
        except ValueError as error:
            raise PolicyFileError(f"the network does not fit its parameters: {error}") from error
        certificate = contents.certificate or {}  # void if it was made for other parameters
        valid = certificate.get("policy_sha256") == contract["policy_sha256"]
        self.certificate = certificate if valid else None
        observation, action, answers = (
            contract[name] for name in ("observation", "action", "on_bad_input")
        )
        # beyond these a number of the network is not finite: one comparison for all faults
        most = float(np.finfo(np.float32).max)
        self._least = np.array([-most if x is None else max(x, -most) for x in observation["low"]])
        self._most = np.array([most if x is None else min(x, most) for x in observation["high"]])
        if not len(self._least) == len(self._most) == self.network.obs_dim:
            raise PolicyFileError("the contract's bounds do not fit its observation")
        self._parts = observation["parts"]
        self._shape, self._dtype = tuple(action["shape"]), np.dtype(action["dtype"])
        self.limit = float(contract["cost_limit"])
        self.action_repeat = int(contract["action_repeat"])
        self._late_after, self._hold_at_most = answers["late_after"], answers["hold_at_most"]
        self.fallback = answers["fallback"]
        about, parts = contract["network"]["screen"], self.network.parts
        self._rule: escape.Rule | None = None
        if self.screen and about is not None and about["escape"] and parts.mean is not None:
            mean, std = (x[: self.network.obs_dim].astype(float) for x in (parts.mean, parts.std))
            self._rule = escape.Rule(self.limit, mean, std)

    def __repr__(self) -> str:
        about = self.contract
        return (
            f"<policy of {about['method']} for {about['task']}, {about['policy_sha256'][:12]}, "
            f"{self.engine}, limit {self.limit:g}: {self.counts['calls']:,} calls>"
        )

    # ------------------------------------------------------------ memory

    def reset(self, rows: int | Sequence[bool] | np.ndarray | None = None) -> None:
        """Begin an episode: the whole budget, no held action. The counts go on.

        `rows` is a number of environments in lockstep, whose observations then come as a batch
        (N, O); or which of the N present ones begin anew, as N booleans. None: one environment.
        """
        if rows is None or isinstance(rows, int | np.integer):
            self.batch = None if rows is None else int(rows)
            self.resume(Memory([self._first_row() for _ in range(self.batch or 1)]))
        else:
            for at in np.flatnonzero(np.broadcast_to(rows, (len(self.memory),))):
                self.memory.rows[at], self._lasts[at] = self._first_row(), self._zero
        self._called: float | None = None

    def _first_row(self) -> Row:
        return Row.first(self.network.obs_dim, self._zero.unit_action, np.ravel(self._zero.action))

    def resume(self, memory: Memory) -> None:
        """Go on from what is remembered of the episodes."""
        self.memory = memory
        self._lasts = [
            self._zero._replace(action=self._shaped(row.action), unit_action=row.unit_action)
            for row in memory.rows
        ]

    def _shaped(self, action: np.ndarray, *lead: int) -> np.ndarray:
        """Return a flat action in the environment's own shape and type."""
        return action.reshape(*lead, *self._shape).astype(self._dtype)

    @property
    def last(self) -> Any:
        """The last decision, or a list of those of all rows."""
        return self._lasts[0] if self.batch is None else list(self._lasts)

    @property
    def spent(self) -> Any:
        """What the episode has cost so far: a number, or one for each row."""
        costs = [row.cost for row in self.memory.rows]
        return costs[0] if self.batch is None else np.array(costs)

    @property
    def remaining(self) -> Any:
        """What remains of the budget."""
        return self.limit - self.spent

    def spend(self, cost: Any) -> None:
        """Add the cost of a control step, or those of N rows; a bad one uses up the budget."""
        rows, plain = self.memory.rows, isinstance(cost, int | float)
        costs = [cost] * len(rows) if plain else np.broadcast_to(cost, len(rows)).tolist()
        for row, given in zip(rows, costs, strict=True):
            try:
                value = float(given)
            except (TypeError, ValueError):
                value = math.nan
            if 0.0 <= value < math.inf:
                row.pending += value
            else:
                row.spent, row.pending = max(row.cost, self.limit), 0.0
                detail = f"a cost must be finite and >= 0, got {given}: no budget is left"
                self._report("bad cost", detail)

    # ------------------------------------------------------------ acting

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the action of this control step; of a batch after `reset(rows=N)`."""
        late = ""
        if self.clock is not None and self._late_after is not None:
            now, before = self.clock(), self._called
            self._called = now
            if before is not None and now - before > self._late_after:
                most = f"{self._late_after:g} s are allowed"
                late = f"{now - before:.3f} s after the last call, {most}"
        if self.batch is None:
            return self._act(0, observation, late)
        try:
            rows = self.flatten(observation, (self.batch,))
        except (KeyError, TypeError, ValueError):
            rows = np.zeros(0)
        if rows.shape != (self.batch, self.network.obs_dim):
            raise ValueError(
                f"observations must have shape ({self.batch}, {self.network.obs_dim}), got "
                f"{np.shape(observation)}"
            )
        return np.stack([self._act(at, row, late) for at, row in enumerate(rows)])

    def _act(self, at: int, observation: Any, late: str) -> np.ndarray:
        self.counts["calls"] += 1
        row = self.memory.rows[at]
        try:
            obs = self._checked(observation)
            if late:
                raise _Unusable("late", late)
        except _Unusable as error:
            fault, detail = error.args
            return self.fail(fault, detail, at).action.copy()
        if row.held:
            row.held -= 1
            self.counts["held"] += 1
            return self._lasts[at].action.copy()
        decision = self.decide(obs, at)
        if decision.fault is None:
            row.held = self.action_repeat - 1
        return decision.action.copy()

    def decide(self, obs: np.ndarray, at: int = 0) -> Decision:
        """Decide on a flat observation (O,) of row `at` now, whatever is held."""
        row = self.memory.rows[at]
        obs = np.array(obs, np.float32)  # a copy: the caller may use its array again
        remaining = np.array([self.limit - row.cost], np.float32)
        try:
            made = self._engine(obs[None], remaining, self.screen)
        except Exception as error:  # whatever an engine raises, the robot needs an action
            return self.fail("engine failed", repr(error), at)
        action, unit, proposed, *values = (x[0] for x in made[:-1])
        if not math.isfinite(sum(unit.tolist())):
            return self.fail("engine failed", f"the network gave {unit.tolist()}", at)
        q_cost, q_proposed, u, screened, changed = (x.item() for x in values)
        changed = changed and escape.differ(unit, proposed)
        decision = Decision(action, unit, proposed, q_cost, q_proposed, u, screened, changed)
        refusal = self.veto(decision) if self.veto is not None else ""
        if refusal:  # before it is the last one, which "hold" would repeat
            return self.fail("threshold", refusal, at)
        paid, row.spent, row.pending = row.pending, row.cost, 0.0
        self.counts["decisions"] += 1
        self.counts["screened"] += decision.screened
        self.counts["changed"] += decision.changed
        if self._rule is not None:
            done = escape.answer(self._rule, row, obs, unit, proposed, paid)
            if done is not unit:
                self.counts["gave way" if row.gives_way else "escapes"] += 1
                decision = decision._replace(
                    action=self.network.own_action(done),
                    unit_action=done,
                    q_cost=decision.q_proposed if row.gives_way else math.nan,
                    influence=math.nan,
                    screened=True,
                    changed=not row.gives_way,
                )
        row.unit_action, row.action, row.kept = decision.unit_action, decision.action, 0
        self._lasts[at] = decision._replace(action=self._shaped(decision.action))
        return self._lasts[at]

    def take(self, unit_action: np.ndarray, row: Row) -> None:
        """Remember an action in [-1, 1] as if it had been decided here."""
        row.unit_action, row.action = unit_action, self.network.own_action(unit_action)
        row.spent, row.pending, row.held = row.cost, 0.0, self.action_repeat - 1

    def actions(self) -> np.ndarray:
        """Return the last actions of all rows, in the environment's own form."""
        return self._shaped(np.stack([row.action for row in self.memory.rows]), -1)

    # ------------------------------------------------------------ what cannot be answered

    def fail(self, fault: str, detail: str = "", at: int = 0) -> Decision:
        """Let the fallback answer this call, and report why."""
        if isinstance(self.fallback, str) and self.fallback == "raise":
            raise ValueError(f"no action for this observation: {fault}, {detail}".strip(", "))
        self._report(fault, detail)
        row, fallback, decision = self.memory.rows[at], self.fallback, self._zero
        if not isinstance(fallback, str):
            try:
                answer = fallback(self, fault) if callable(fallback) else fallback
                decision = self._made(self._checked_action(answer))
            except Exception as error:  # the last line of defence must not raise
                self._report("fallback failed", repr(error))
        elif fallback == "hold" and row.kept < self._hold_at_most:
            row.kept += 1
            decision = self._lasts[at]
        row.held = 0
        row.unit_action, row.action = decision.unit_action, np.ravel(decision.action)
        self._lasts[at] = decision._replace(fault=fault)
        return self._lasts[at]

    def _checked_action(self, action: Any) -> np.ndarray:
        """Return an action as a flat vector within the bounds; raise ValueError if it is none."""
        flat = np.asarray(action, np.float64).ravel()
        if flat.shape != self.network.low.shape or not np.isfinite(flat).all():
            raise ValueError(
                f"the fallback's action must be {self.network.action_dim} finite numbers, "
                f"got {action!r}"
            )
        return np.clip(flat, self.network.low, self.network.high)

    def _made(self, own: np.ndarray) -> Decision:
        """Return a decision that no network made."""
        low, width = self.network.low, self.network.high - self.network.low
        share = np.divide(own - low, width, out=np.full_like(own, 0.5), where=width > 0)
        unit = (2.0 * share - 1.0).astype(np.float32)
        unknown = (math.nan,) * 3
        return Decision(self._shaped(own), unit, unit, *unknown, False, False, "start")

    def _report(self, fault: str, detail: str) -> None:
        self.counts["faults"] += 1
        self.counts[fault] += 1
        if self.on_fault is not None:
            self.on_fault(fault, detail)
        elif self.counts[fault] == 1:
            text = f"{fault}: {detail}" if detail else fault
            warnings.warn(f"the fallback answers ({text})", FaultWarning, stacklevel=4)

    def _checked(self, observation: Any) -> np.ndarray:
        """Return an observation as a vector; raise with what is wrong with it."""
        if observation is None:
            raise _Unusable("no observation", "")
        try:
            row = self.flatten(observation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _Unusable("wrong shape", repr(error)) from error
        if row.shape != self._least.shape:
            detail = f"{self._least.size} numbers expected, got {np.shape(observation)}"
            raise _Unusable("wrong shape", detail)
        inside = (row >= self._least) & (row <= self._most)  # a NaN is neither
        if not inside.all():
            wrong = np.flatnonzero(~inside)
            first, name = wrong[0], self.contract["observation"]["names"][wrong[0]]
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            detail = f"{name} (number {first}) is {row[first]:g}{more}"
            finite = np.isfinite(row[wrong]).all()
            raise _Unusable("out of range" if finite else "not finite", detail)
        return row

    def flatten(self, observation: Any, lead: tuple[int, ...] = ()) -> np.ndarray:
        """Return an observation as a vector (O,), or as many as `lead` says, as in training."""
        nested = isinstance(observation, tuple) and self._parts and self._parts[0]["path"]
        if nested or isinstance(observation, Mapping):
            pieces = [_part(observation, part, lead) for part in self._parts]
            return np.concatenate(pieces, axis=-1)
        return np.asarray(observation, np.float64).reshape(*lead, -1)


def _part(observation: Any, part: dict[str, Any], lead: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of a part of a nested observation; a discrete one is 0 but for a 1."""
    for key in part["path"]:
        observation = observation[key]
    if part["discrete"] is None:
        return np.asarray(observation, np.float64).reshape(*lead, -1)
    values = np.asarray(observation, np.int64).reshape(*lead, -1)
    columns = [
        np.arange(start, start + size) == values[..., at : at + 1]
        for at, (start, size) in enumerate(part["discrete"])
    ]
    return np.concatenate(columns, axis=-1).astype(np.float64)


load = Policy  # as in `load("policy.safecritic")`
