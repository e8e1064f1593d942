"""A policy in operation: checked observations in, finite actions out, the budget kept.

    policy = load("policy.safecritic")
    policy.reset()                   # an episode begins
    action = policy(observation)     # at every control step
    policy.spend(cost)               # what that step cost

A call that cannot be answered (no observation, a wrong shape, a number that is not finite or out of
range, a call that comes too late) is answered by the declared fallback, counted and reported.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from .escape import Escape, Rule, differ
from .file import Contents, PolicyFileError, read
from .network import Decision, Network

Engine = Literal["numpy", "onnx"]
Fallback = Literal["hold", "zero"] | Callable[["Policy", str], Any] | Any
ROWS = 1024  # of a batch in one pass: more would only need more memory

MISSING, SHAPE, NOT_FINITE, OUT_OF_RANGE, LATE, COST, ENGINE, VETO = (
    "no observation",
    "wrong shape",
    "not finite",
    "out of range",
    "late",
    "bad cost",
    "engine failed",
    "threshold",
)


class FaultWarning(UserWarning):
    """The fallback answered a call; given once for each reason."""


def load(
    path: str | Path,
    *,
    engine: Engine = "numpy",
    fallback: Fallback | None = None,
    clock: Callable[[], float] | None = time.monotonic,
    screen: bool = True,
    on_fault: Callable[[str, str], None] | None = None,
) -> "Policy":
    """Load a policy file; it runs no code of the file and needs no network.

    Args:
        path: the file.
        engine: "numpy", or "onnx" for the file's graph in ONNX Runtime.
        fallback: what answers a call that the policy cannot: "hold", "zero", an action in the
            environment's unit, or a function of the policy and the reason that returns one.
            Without it, what the contract declares.
        clock: seconds, to notice late calls. None in a simulation that does not run in real time.
        screen: False switches the screen off.
        on_fault: function of (reason, detail), called for every such call. Without it, a
            FaultWarning for the first of each reason.
    """
    contents = read(path)
    try:
        return Policy(contents, engine, fallback, clock, screen, on_fault)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise PolicyFileError(
            f"{path} describes no policy that this version can run ({error!r}): use the runtime of "
            "the version of safecritic that wrote it"
        ) from error


class Policy:
    """A loaded policy. `last` is the last decision, `counts` what happened so far."""

    def __init__(
        self,
        contents: Contents,
        engine: Engine = "numpy",
        fallback: Fallback | None = None,
        clock: Callable[[], float] | None = time.monotonic,
        screen: bool = True,
        on_fault: Callable[[str, str], None] | None = None,
    ):
        self.contract = contents.contract
        self.screen, self.clock, self.on_fault = screen, clock, on_fault
        about = self.contract["network"]
        try:
            self.network = Network(about, contents.arrays)
        except ValueError as error:
            raise PolicyFileError(f"the network does not fit its parameters: {error}") from error
        self._decide: Callable[..., Decision] = self.network.decide
        if engine == "onnx":
            from .onnx import Graph

            if contents.graph is None:
                raise PolicyFileError("the file has no ONNX graph: load it with engine='numpy'")
            self._decide = Graph(contents.graph, self.network).decide
        elif engine != "numpy":
            raise ValueError(f"engine must be 'numpy' or 'onnx', got {engine!r}")
        self.engine = engine

        self.certificate: dict[str, Any] | None = None
        self.notes: list[str] = []
        if contents.certificate is not None:
            if contents.certificate.get("policy_sha256") == self.contract["policy_sha256"]:
                self.certificate = contents.certificate
            else:
                self.notes.append("the certificate is void: it was made for other parameters")

        observation, action = self.contract["observation"], self.contract["action"]
        self._low = np.array([_end(x, -np.inf) for x in observation["low"]], np.float64)
        self._high = np.array([_end(x, np.inf) for x in observation["high"]], np.float64)
        if not self._low.shape == self._high.shape == (self.network.obs_dim,):
            raise PolicyFileError("the contract's bounds do not fit its observation")
        # beyond these a number of the network is not finite: one comparison for all faults
        most = float(np.finfo(np.float32).max)
        self._least, self._most = np.maximum(self._low, -most), np.minimum(self._high, most)
        self._parts = observation["parts"]
        self._shape, self._dtype = tuple(action["shape"]), np.dtype(action["dtype"])
        self.limit = float(self.contract["cost_limit"])
        self.action_repeat = int(self.contract["action_repeat"])
        answers = self.contract["on_bad_input"]
        self._late_after = answers["late_after"]
        self._hold_at_most = int(answers["hold_at_most"])
        self.fallback: Fallback = answers["fallback"] if fallback is None else fallback
        if isinstance(self.fallback, str) and self.fallback not in ("hold", "zero"):
            raise ValueError(
                f"fallback must be 'hold', 'zero', an action or a function, got {self.fallback!r}"
            )
        if not (isinstance(self.fallback, str) or callable(self.fallback)):
            self._checked_action(self.fallback)  # raises now and not in operation
        self._escape = escape_of(self.network, self.limit)
        self.counts: Counter[str] = Counter()
        self.veto: Callable[[Decision], str] | None = None  # a reason not to do it, or ""
        self._left = np.zeros(1, np.float32)
        self._zero = self._made(np.clip(0.0, self.network.low, self.network.high), "start")
        self.reset()

    def __repr__(self) -> str:
        about = self.contract
        return (
            f"<policy of {about['method']} for {about['task']}, {about['policy_sha256'][:12]}, "
            f"{self.engine}, limit {self.limit:g}: {self.counts['calls']:,} calls>"
        )

    # ------------------------------------------------------------ budget

    def reset(self) -> None:
        """Begin an episode: the whole budget, no held action. The counts go on."""
        self.spent = 0.0
        self.last: Decision = self._zero
        if self._escape is not None:
            self._escape.reset()
        self._held = 0  # calls for which the last action is still to be held
        self._in_a_row = 0  # calls that the fallback has held the last action
        self._called: float | None = None

    @property
    def left(self) -> float:
        """What is left of the budget."""
        return self.limit - self.spent

    def spend(self, cost: float) -> None:
        """Add the cost of a control step; one that is no cost uses up the whole budget."""
        try:
            cost = float(cost)
        except (TypeError, ValueError):
            cost = math.nan
        if math.isfinite(cost) and cost >= 0.0:
            self.spent += cost
            return
        self.spent = max(self.spent, self.limit)
        self._report(COST, f"a cost must be finite and >= 0, got {cost}: no budget is left")

    # ------------------------------------------------------------ acting

    def __call__(self, observation: Any) -> np.ndarray:
        """Return the action of this control step, in the environment's own unit.

        A decision is held for `action_repeat` calls.
        """
        self.counts["calls"] += 1
        late = self._lateness()
        row, fault, detail = self._checked(observation)
        if late and not fault:
            fault, detail = LATE, late
        if fault:
            return self.fail(fault, detail).action.copy()
        if self._held:
            self._held -= 1
            self.counts["held"] += 1
            return self.last.action.copy()
        decision = self.decide(row)
        if decision.fault is None:
            self._held = self.action_repeat - 1
            decision = self._unstuck(row, decision)
        return decision.action.copy()

    def _unstuck(self, row: np.ndarray, decision: Decision) -> Decision:
        """Return another decision where the policy or its screen leads nowhere (`Escape`)."""
        if self._escape is None or not self.screen:
            return decision
        way = self._escape(row, decision.unit_action, self.spent, decision.proposed)
        if way is not None:
            gives_way = self._escape.gives_way
            self.counts["gave way" if gives_way else "escapes"] += 1
            own = self.network.own_actions(way[None])[0]
            self.last = decision._replace(
                action=own.reshape(self._shape).astype(self._dtype),
                unit_action=way,
                q_cost=math.nan,
                influence=math.nan,
                screened=True,
                changed=not gives_way,
            )
        return self.last

    def decide(self, row: np.ndarray) -> Decision:
        """Decide on a checked observation (O,) now, whatever is held."""
        self._left[0] = np.float32(self.limit) - np.float32(self.spent)
        try:
            many = self._decide(row[None], self._left, self.screen)
        except Exception as error:  # whatever an engine raises, the robot needs an action
            return self.fail(ENGINE, repr(error))
        action = many.action[0]
        if not math.isfinite(sum(action.tolist())):
            return self.fail(ENGINE, f"the network gave {action.tolist()}")
        decision = Decision(
            action.reshape(self._shape).astype(self._dtype),
            many.unit_action[0],
            many.proposed[0],
            float(many.q_cost[0]),
            float(many.influence[0]),
            bool(many.screened[0]),
            bool(many.changed[0]) and differ(many.unit_action[0], many.proposed[0]),
        )
        refusal = self.veto(decision) if self.veto is not None else ""
        if refusal:  # before it is the last one, which "hold" would repeat
            return self.fail(VETO, refusal)
        self.last = decision
        self._in_a_row = 0
        self.counts["decisions"] += 1
        self.counts["screened"] += self.last.screened
        self.counts["changed"] += self.last.changed
        return self.last

    def batch(self, observations: Any, spent: Any = 0.0) -> Decision:
        """Return decisions for observations (N, O), each by itself: nothing is held or spent.

        `spent` is the cost of the episode so far, one number or N. A row that is not finite or out
        of range gets the fallback's action and its reason in `fault`.
        """
        rows = np.asarray(observations, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.network.obs_dim:
            expected = f"(N, {self.network.obs_dim})"
            raise ValueError(f"observations must have shape {expected}, got {rows.shape}")
        n = len(rows)
        finite: Any = np.isfinite(rows).all(axis=1)
        inside = ((rows >= self._least) & (rows <= self._most)).all(axis=1)
        good = finite & inside
        usable = np.where(good[:, None], rows, 0.0).astype(np.float32)
        left = np.float32(self.limit) - np.broadcast_to(np.asarray(spent, np.float32), (n,))
        pieces = [
            self._decide(usable[at : at + ROWS], left[at : at + ROWS], self.screen)
            for at in range(0, n, ROWS)
        ]
        columns = [np.concatenate([piece[k] for piece in pieces]) for k in range(7)]
        faults = np.full(n, None, object)
        for at in np.flatnonzero(~good):
            faults[at] = OUT_OF_RANGE if finite[at] else NOT_FINITE
            answer = self._fallback_decision(faults[at])
            for column, value in zip(columns, answer, strict=False):
                column[at] = np.ravel(value) if np.ndim(value) else value
            self._report(faults[at], f"row {at} of a batch")
        own = columns[0].reshape(n, *self._shape).astype(self._dtype)
        return Decision._make([own, *columns[1:], faults])

    # ------------------------------------------------------------ what cannot be answered

    def fail(self, fault: str, detail: str = "") -> Decision:
        """Let the fallback answer this call, and report why."""
        self._report(fault, detail)
        self._held = 0
        self.last = self._fallback_decision(fault)
        return self.last

    def _fallback_decision(self, fault: str) -> Decision:
        fallback = self.fallback
        if isinstance(fallback, str):
            if fallback == "hold" and self._in_a_row < self._hold_at_most:
                self._in_a_row += 1
                return self.last._replace(fault=fault)
            return self._zero._replace(fault=fault)
        try:
            answer = fallback(self, fault) if callable(fallback) else fallback
            return self._made(self._checked_action(answer), fault)
        except Exception as error:  # the last line of defence must not raise
            self._report("fallback failed", repr(error))
            return self._zero._replace(fault=fault)

    def _checked_action(self, action: Any) -> np.ndarray:
        """Return an action as a flat vector within the bounds; raise ValueError if it is none."""
        flat = np.asarray(action, np.float64).ravel()
        if flat.shape != self.network.low.shape or not np.isfinite(flat).all():
            raise ValueError(
                f"the fallback's action must be {self.network.action_dim} finite numbers, "
                f"got {action!r}"
            )
        return np.clip(flat, self.network.low, self.network.high)

    def _made(self, own: np.ndarray, fault: str) -> Decision:
        """Return a decision that no network made."""
        width = self.network.high - self.network.low
        share = np.divide(
            own - self.network.low, width, out=np.full_like(own, 0.5), where=width > 0
        )
        unit = (2.0 * share - 1.0).astype(np.float32)
        action = own.reshape(self._shape).astype(self._dtype)
        return Decision(action, unit, unit, math.nan, math.nan, False, False, fault)

    def _report(self, fault: str, detail: str) -> None:
        self.counts["faults"] += 1
        self.counts[fault] += 1
        if self.on_fault is not None:
            self.on_fault(fault, detail)
        elif self.counts[fault] == 1:
            text = f"{fault}: {detail}" if detail else fault
            warnings.warn(f"the fallback answers ({text})", FaultWarning, stacklevel=4)

    def _lateness(self) -> str:
        """Return why this call is late, or nothing."""
        if self.clock is None or self._late_after is None:
            return ""
        now, before = self.clock(), self._called
        self._called = now
        if before is None or now - before <= self._late_after:
            return ""
        return f"{now - before:.3f} s after the last call, {self._late_after:g} s are allowed"

    def _checked(self, observation: Any) -> tuple[np.ndarray, str, str]:
        """Return an observation as a float32 vector, and what is wrong with it."""
        nothing = np.zeros(0, np.float32)
        if observation is None:
            return nothing, MISSING, ""
        try:
            if isinstance(observation, Mapping):
                parts = [np.ravel(observation[part["name"]]) for part in self._parts]
                observation = np.concatenate(parts)
            row = np.asarray(observation, np.float64).ravel()
        except (KeyError, TypeError, ValueError) as error:
            return nothing, SHAPE, repr(error)
        if row.shape != self._low.shape:
            return nothing, SHAPE, f"{self._low.size} numbers expected, got {np.shape(observation)}"
        if not ((row >= self._least) & (row <= self._most)).all():  # a NaN is neither
            places = np.flatnonzero(~np.isfinite(row))
            if len(places):
                return nothing, NOT_FINITE, self._named(places, row)
            places = np.flatnonzero((row < self._least) | (row > self._most))
            return nothing, OUT_OF_RANGE, self._named(places, row)
        return row.astype(np.float32), "", ""

    def _named(self, places: np.ndarray, row: np.ndarray) -> str:
        names = self.contract["observation"]["names"]
        first = int(places[0])
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        return f"{names[first]} (number {first}) is {row[first]:g}{more}"


def escape_of(network: Network, limit: float) -> Escape | None:
    """Return the escape of a policy, or None if it has none."""
    screen = network.about["screen"]
    escape = None if screen is None else screen.get("escape")
    if not escape or not escape["after"] or network.about["scaling"] != "running":
        return None
    size = network.obs_dim
    mean, spread = (x[:size].astype(np.float64) for x in (network.mean, network.spread))
    clip = float(network.about["clip"])
    rule = Rule(escape["after"], escape["for"], escape["near"], limit, mean, spread, clip)
    return Escape(rule)


def _end(value: float | None, unbounded: float) -> float:
    return unbounded if value is None else cast(float, value)
