"""The policy that acts when deployed: checked observations in, finite actions out, a budget kept.

    policy = load("policy.safecritic")
    policy.reset()                   # an episode begins
    action = policy(observation)     # at every control step
    policy.spend(cost)               # what that step cost

`agent.policy()` returns the same object, made in memory. A call that cannot be answered (no
observation, a wrong shape, a number that is not finite or out of range, a call that comes too late,
a network, a clock or a threshold that fails) is answered by the declared fallback, counted and
reported. Nothing that happens in operation raises.
"""

import math
import reprlib
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .file import Contents, PolicyFileError, read
from .memory import Memory, Row
from .network import Decision, Graph, Network

Engine = Literal["numpy", "onnx"]
Fallback = Literal["hold", "zero", "raise"] | Callable[["Policy", str], Any] | Any


OUTSIDE = 1.0 + 1e-6  # of [-1, 1], for rounding
SAME = 1e-3  # difference of two actions in [-1, 1] that is none to a plant
DEBT = 1e30  # beyond the budget: more is the same to a screen


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

    Loading one runs no code of its file and needs no network. It remembers one episode: two robots,
    or two threads, need a policy each. Calls from two threads at once wait for each other, and are
    reported as `shared`.

    Args:
        source: a policy file, or what one holds.
        engine: "numpy", or "onnx" for the file's graph in ONNX Runtime.
        fallback: what answers a call that the policy cannot: "hold", "zero", an action in the
            environment's unit, or a function of the policy and the reason that returns one; or
            "raise" for a ValueError. Without it, what the contract declares.
        clock: seconds, to notice late calls. None in a simulation that does not run in real time.
        screen: False switches the screen off.
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
        self._lock = threading.RLock()
        self.veto: Callable[[Decision], str] | None = None  # a reason not to do it, or ""
        self._zero = self._made(np.clip(0.0, self.network.low, self.network.high))
        self.reset()

    def _read_contract(self, contents: Contents) -> None:
        contract = self.contract
        try:
            self.network = Network(contract["network"], contents.arrays)
        except ValueError as error:
            raise PolicyFileError(f"the network does not fit its parameters: {error}") from error
        certificate = contents.certificate or {}  # void for another policy or environment
        valid = certificate.get("policy_sha256") == contract["policy_sha256"]
        valid = valid and certificate["environment"]["task"] == contract["task"]
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
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool) and rows < 1:
            raise ValueError(f"rows must be >= 1, got {rows}")
        if rows is None or isinstance(rows, int | np.integer):
            self.batch = None if rows is None else int(rows)
            self.resume(Memory([self._first_row() for _ in range(self.batch or 1)]))
        else:
            for at in np.flatnonzero(np.broadcast_to(rows, (len(self.memory),))):
                self.memory.rows[at], self._lasts[at] = self._first_row(), self._zero
        self._called: float | None = None

    def _first_row(self) -> Row:
        return Row(self._zero.unit_action, np.ravel(self._zero.action))

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
        with self._lock:
            rows = self.memory.rows
            for row, given in zip(rows, _costs(cost, len(rows)), strict=True):
                try:
                    value = math.nan if np.ma.is_masked(given) else float(given)
                except Exception:  # whatever it is, it is no cost
                    value = math.nan
                if 0.0 <= value < math.inf:
                    row.pending += value
                else:
                    row.spent, row.pending = max(row.cost, self.limit), 0.0
                    detail = f"a cost must be finite and >= 0, got {_shown(given)}"
                    self._report("bad cost", f"{detail}: no budget is left")

    # ------------------------------------------------------------ acting

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the action of this control step; of a batch after `reset(rows=N)`."""
        lock = self._lock
        if not lock.acquire(blocking=False):
            lock.acquire()
            self._report("shared", "two threads call one policy: load one for each")
        try:
            late = "" if self.clock is None or self._late_after is None else self._late()
            if self.batch is None:
                return self._act(0, observation, late)
            try:
                rows = self.flatten(observation, (self.batch,))
            except Exception:  # whatever somebody's observation raises
                expected = f"({self.batch}, {self.network.obs_dim})"
                text = f"observations must have shape {expected}, got {_shape(observation)}"
                self.counts["calls"] += self.batch
                failed = [self.fail("wrong shape", text, at) for at in range(self.batch)]
                return np.stack([decision.action for decision in failed])
            return np.stack([self._act(at, row, late) for at, row in enumerate(rows)])
        finally:
            lock.release()

    def _late(self) -> str:
        """Return by how much this call is late, or why that cannot be known."""
        assert self.clock is not None
        try:
            now, before = float(self.clock()), self._called
            if not math.isfinite(now):
                raise ValueError(f"the clock says {now}")
        except Exception as error:  # somebody's function
            return f"the clock failed: {_shown(error)}"
        self._called = now
        if before is not None and now - before > self._late_after:
            most = f"{self._late_after:g} s are allowed"
            return f"{now - before:.3f} s after the last call, {most}"
        return ""

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
        try:
            return self._decide(obs, at)
        except _Unusable as error:
            fault, detail = error.args
        except Exception as error:  # whatever an engine or a threshold raises, a robot acts
            fault, detail = "engine failed", _shown(error)
        return self.fail(fault, detail, at)

    def _decide(self, obs: np.ndarray, at: int) -> Decision:
        row = self.memory.rows[at]
        obs = np.array(obs, np.float32)  # a copy: the caller may use its array again
        remaining = np.array([max(self.limit - row.cost, -DEBT)], np.float32)
        made = self._engine(obs[None], remaining, self.screen)
        action, unit, proposed, *values = (x[0] for x in made[:-1])
        self._require_action(unit)
        q_cost, q_proposed, u, screened, changed = (x.item() for x in values)
        changed = changed and _differ(unit, proposed)
        decision = Decision(action, unit, proposed, q_cost, q_proposed, u, screened, changed)
        refusal = self.veto(decision) if self.veto is not None else ""
        if refusal:  # before it is the last one, which "hold" would repeat
            raise _Unusable("threshold", refusal)
        row.spent, row.pending = row.cost, 0.0
        self.counts["decisions"] += 1
        self.counts["screened"] += decision.screened
        self.counts["changed"] += decision.changed
        row.unit_action, row.action, row.kept = decision.unit_action, decision.action, 0
        self._lasts[at] = decision._replace(action=self._shaped(decision.action))
        return self._lasts[at]

    def _require_action(self, unit: np.ndarray) -> None:
        """Raise unless this is an action in [-1, 1]: whatever made it, it becomes a command."""
        values = unit.tolist()
        if len(values) != self.network.action_dim or not all(
            -OUTSIDE <= x <= OUTSIDE for x in values
        ):
            raise _Unusable("engine failed", f"the network gave {_shown(values)}")

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
                self._report("fallback failed", _shown(error))
        elif fallback == "hold" and row.kept < self._hold_at_most:
            row.kept += 1
            decision = self._lasts[at]
        row.held = 0
        row.unit_action, row.action = decision.unit_action, np.ravel(decision.action)
        self._lasts[at] = decision._replace(fault=fault)
        return self._lasts[at]

    def _checked_action(self, action: Any) -> np.ndarray:
        """Return an action as a flat vector within the bounds; raise ValueError if it is none."""
        flat = _numbers(action).ravel()
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
        try:
            if self.on_fault is not None:
                self.on_fault(fault, detail)
            elif self.counts[fault] == 1:
                text = f"{fault}: {detail}" if detail else fault
                warnings.warn(f"the fallback answers ({text})", FaultWarning, stacklevel=5)
        except Exception:  # somebody's function, or warnings that are errors: it is counted
            self.counts["report failed"] += 1

    def _checked(self, observation: Any) -> np.ndarray:
        """Return an observation as a vector; raise with what is wrong with it."""
        if observation is None:
            raise _Unusable("no observation", "")
        try:
            row = self.flatten(observation)
        except Exception as error:  # whatever somebody's observation raises
            detail = f"{self._least.size} numbers expected, got {_shape(observation)}"
            raise _Unusable("wrong shape", f"{detail}: {_shown(error)}") from error
        inside = (row >= self._least) & (row <= self._most)  # a NaN is neither
        if not inside.all():
            wrong = np.flatnonzero(~inside)
            first, name = wrong[0], self.contract["observation"]["names"][wrong[0]]
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            detail = f"{name} (number {first}) is {row[first]:g}{more}"
            finite = np.isfinite(row[wrong]).all()
            raise _Unusable("out of range" if finite else "not finite", detail)
        return row

    def flatten(self, observation: Any, lead: tuple[int, ...] | None = ()) -> np.ndarray:
        """Return an observation as a vector (O,), or as many as `lead` says, as in training.

        Shapes and kinds of its parts are those of the environment, or a part is flat; with None any
        number of observations is taken, one after the other.
        """
        parts, size = self._parts, self.network.obs_dim
        nested = isinstance(observation, tuple) and parts and parts[0]["path"]
        if nested or isinstance(observation, Mapping):
            pieces = [_part(observation, part, lead) for part in parts]
            return np.concatenate(pieces, axis=-1)
        array, shape = _numbers(observation), (size,)
        if parts and not parts[0]["path"]:
            if parts[0]["discrete"] is not None and array.shape[-1:] != shape:
                return _part(array, parts[0], lead)
            shape = tuple(parts[0]["shape"])
        return _rows(array, shape, size, lead)


def _numbers(value: Any) -> np.ndarray:
    """Return an array of real numbers; text, objects, complex and masked ones are refused."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("numbers expected, got a masked array")
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"numbers expected, got {array.dtype}")
    return np.asarray(array, np.float64)


def _rows(
    array: np.ndarray, shape: tuple[int, ...], size: int, lead: tuple[int, ...] | None
) -> np.ndarray:
    """Return an array (*lead, *shape), or (*lead, size), as (*lead, size)."""
    if lead is None:
        return array.reshape(-1)
    if array.shape not in ((*lead, size), (*lead, *shape)) and not (
        math.prod(lead) == 1 and array.shape in ((size,), shape)
    ):
        raise ValueError(f"shape {(*lead, *shape)} expected, got {array.shape}")
    return array.reshape(*lead, size)


def _differ(action: np.ndarray, proposed: np.ndarray) -> bool:
    """Return whether a plant can tell two actions (A,) apart: saturated candidates are the same."""
    pairs = zip(action.tolist(), proposed.tolist(), strict=True)
    return any(abs(x - y) > SAME for x, y in pairs)


def _part(observation: Any, part: dict[str, Any], lead: tuple[int, ...] | None) -> np.ndarray:
    """Return the numbers of a part of a nested observation; a discrete one is 0 but for a 1."""
    for key in part["path"]:
        observation = observation[key]
    array, shape = _numbers(observation), tuple(part["shape"])
    values = _rows(array, shape, math.prod(shape), lead)
    if part["discrete"] is None:
        return values
    many = values.reshape(-1, math.prod(shape))
    columns = [
        np.arange(start, start + size) == many[:, at, None]
        for at, (start, size) in enumerate(part["discrete"])
    ]
    if not all(column.any(axis=1).all() for column in columns):
        raise ValueError("a discrete number is none of its values")
    flat = np.concatenate(columns, axis=-1).astype(np.float64)
    return flat.reshape(-1) if lead is None else flat.reshape(*lead, -1)


def _costs(cost: Any, number: int) -> list[Any]:
    """Return a cost for each row; something that is none for each where they do not fit."""
    if isinstance(cost, int | float):
        return [cost] * number
    try:
        if isinstance(cost, np.ma.MaskedArray):
            raise TypeError("a masked array")
        return np.broadcast_to(np.asarray(cost), number).tolist()
    except Exception:
        return [_shown(cost)] * number


def _shape(value: Any) -> str:
    """Return the shape of something that may have none, for a message."""
    try:
        return str(np.shape(value))
    except Exception:
        return type(value).__name__


def _shown(value: Any) -> str:
    """Return something for a message, whatever its `repr` does."""
    try:
        return reprlib.repr(value)
    except Exception:
        return type(value).__name__


load = Policy  # as in `load("policy.safecritic")`
