"""The network of a policy file, decided with NumPy or, as its ONNX graph, in ONNX Runtime."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from . import decide, onnx_check
from .decide import Choice
from .file import PolicyFileError
from .schema import printable

Array = np.ndarray
PROBES = 16  # rows on which a graph must decide as the NumPy network before it may drive
CLOSE = 1e-3
TIES = 2  # of the probes that may fall the other way


class Decision(NamedTuple):
    """What was decided for one observation (A,) or for N of them (N, A).

    Examples:
        >>> action = policy(observation)
        >>> decision = policy.last
        >>> screened = decision.q_cost != decision.q_proposed
    """

    action: Array  # in the environment's own unit, shape and type
    unit_action: Array  # the same in [-1, 1]^A, flat
    proposed: Array  # the actor's own, before the screen
    q_cost: Any  # Q_C of the action, in the task's unit; NaN if it was not asked
    q_proposed: Any  # of the proposed action
    influence: Any  # u of the action: near 1 if unlike the training data; NaN if unknown
    screened: Any  # whether Q_C of the proposed action exceeded the tolerance
    changed: Any  # whether another action was taken
    fault: str | None = None  # why the fallback answered, None where it did not


def array_module(numpy: Any) -> Any:
    """Return NumPy with the functions of the array API, which NumPy 1 does not have."""
    if hasattr(numpy, "concat"):
        return numpy
    return SimpleNamespace(
        **vars(numpy),
        astype=lambda x, dtype: x.astype(dtype),
        concat=numpy.concatenate,
        matrix_transpose=lambda x: numpy.swapaxes(x, -1, -2),
        vecdot=lambda x, y: numpy.einsum("...i,...i->...", x, y),
    )


xp = array_module(np)


def where_screened(screened: Array, then: Callable[[], Array], otherwise: Array) -> Array:
    """Search only if a row is screened."""
    return then() if screened.any() else otherwise


class Network:
    """The network that a contract describes, on the arrays of the same file."""

    def __init__(self, about: dict[str, Any], arrays: dict[str, Array]):
        self.about, self.arrays = about, arrays
        self._unused = set(arrays)
        self.obs_dim, self.action_dim = int(about["observation"]), int(about["action"])
        near = np.array(about["near"], np.int64)
        if len(near) and not 0 <= near.min() <= near.max() < self.obs_dim:
            raise ValueError("proximity inputs outside of the observation")
        size = self.obs_dim + decide.RAMPS * len(near)
        self.low = np.array(about["action_low"], np.float64)
        self.high = np.array(about["action_high"], np.float64)
        if not self.low.shape == self.high.shape == (self.action_dim,):
            raise ValueError("action bounds of another length than the action")
        self.unit_box = bool((self.low == -1.0).all() and (self.high == 1.0).all())
        actor, safety, reward, screen = (about[x] for x in ("actor", "safety", "reward", "screen"))
        if screen is not None and safety is None:
            raise ValueError("a screen without a safety critic")
        joint = size + self.action_dim
        parts: dict[str, Any] = {"near": near, "cost_unit": np.float32(about["cost_unit"])}
        if about["scaled"]:
            parts |= {"mean": self._array("mean", (size,)), "std": self._array("std", (size,))}
            if not (parts["std"] > 0).all():
                raise ValueError("a std that is not positive")
        if safety is not None:
            layers = self._layers("safety", safety["layers"], joint, 1)
            parts |= {"safety": layers, "clipped": bool(safety["clipped"])}
            if len(near):
                parts["gains"] = decide.critic_gains(xp, size, len(near))
            if about["influence"]:
                width = layers[-1]["w"].shape[0] + 1
                parts["whitener"] = self._array("whitener", (width, width))
        if screen is not None:
            parts["candidates"] = self._array("candidates", (None, self.action_dim))
            parts |= {name: np.float32(screen[name]) for name in ("tolerance", "price")}
            parts |= {name: bool(screen[name]) for name in ("around", "budget")}
            parts["limit"] = float(about["cost_limit"])
            if reward is not None:
                parts["reward"] = self._layers("reward", reward["layers"], joint, 1)
        self.parts = decide.Network(
            self._layers("actor", actor["layers"], size, self.action_dim),
            str(actor["activation"]),
            str(actor["squash"]),
            **parts,
        )
        self._unscreened = self.parts._replace(candidates=None)
        if self._unused:
            raise ValueError(f"arrays that it does not have: {', '.join(sorted(self._unused)[:3])}")

    def _array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        if name not in self.arrays:
            raise ValueError(f"there is no array {name}")
        array = self.arrays[name]
        self._unused.discard(name)
        fits = array.ndim == len(shape) and all(
            n in (None, m) for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype != np.float32 or not array.size:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float32 {shape}")
        return np.ascontiguousarray(array)

    def _layers(self, name: str, number: int, size: int, last: int) -> tuple[dict[str, Any], ...]:
        if number < 2:
            raise ValueError(f"{name} has {number} layers, expected a hidden one and the last")
        layers = []
        for at in range(number):
            w = self._array(f"{name}/{at}/w", (size, last if at == number - 1 else None))
            size = w.shape[1]
            layer: dict[str, Any] = {"w": w, "b": self._array(f"{name}/{at}/b", (size,))}
            if f"{name}/{at}/g" in self.arrays:
                layer |= {key: self._array(f"{name}/{at}/{key}", (size,)) for key in "go"}
                # the mean over the units taken out of the weights, once
                layer["w"] = w - w.mean(axis=1, keepdims=True)
                layer |= {"b": layer["b"] - layer["b"].mean(), "centred": True}
            layers.append(layer)
        return tuple(layers)

    def decide(self, obs: Array, remaining: Array, screen: bool = True) -> Decision:
        """Return the decisions for observations (N, O), both arrays float32."""
        parts = self.parts if screen else self._unscreened
        return self.decision(decide.decide(xp, parts, obs, remaining, screen, where_screened))

    def screen(self, obs: Array, remaining: Array, proposed: Array) -> Decision:
        """Return the decisions for somebody else's actions (N, A) in [-1, 1], all float32."""
        parts = self.parts
        x = decide.inputs(xp, obs, parts.near, parts.mean, parts.std)
        tolerance = parts.tolerance + 0.0 * remaining
        if parts.budget:
            tolerance = decide.tolerance_left(xp, parts.tolerance, remaining, parts.limit)
        when = where_screened
        return self.decision(decide.screen(xp, parts, x, proposed, tolerance, when=when))

    def own_action(self, action: Array) -> Array:
        """Return actions (..., A) in [-1, 1] in the environment's bounds."""
        if self.unit_box:
            return np.minimum(np.maximum(action, -1.0), 1.0)
        share = (np.minimum(np.maximum(action.astype(np.float64), -1.0), 1.0) + 1.0) / 2.0
        # in this form -1 and 1 give the bounds exactly
        return (1.0 - share) * self.low + share * self.high

    def decision(self, choice: Choice) -> Decision:
        """Return a choice in the units of the task."""
        own, unit = self.own_action(choice.action), self.parts.cost_unit
        unknown, no = np.full(len(own), np.nan, np.float32), np.zeros(len(own), bool)
        u = unknown if choice.influence is None else choice.influence
        if choice.q_cost is None:
            return Decision(own, choice.action, choice.proposed, unknown, unknown, u, no, no)
        values = unit * choice.q_cost, unit * choice.q_proposed
        return Decision(own, choice.action, choice.proposed, *values, u, *choice[-2:])


class Graph:
    """A session of ONNX Runtime, on one thread, that decides as `Network.decide` does."""

    def __init__(self, graph: bytes | None, network: Network):
        if graph is None:
            raise PolicyFileError("the file has no ONNX graph: load it with engine='numpy'")
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                "engine 'onnx' needs ONNX Runtime: pip install onnxruntime, or use engine='numpy'"
            ) from error
        try:
            self.names = onnx_check.check(graph, network.obs_dim, Choice._fields)
        except onnx_check.GraphError as error:
            raise PolicyFileError(f"the ONNX graph is none of a policy: {error}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.network = network
        try:
            self.session: Any = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
            same = self._decides_the_same()
        except Exception as error:  # its exceptions have no common base
            text = printable(str(error)[:300])
            raise PolicyFileError(f"ONNX Runtime cannot run the graph: {text}") from error
        if not same:
            raise PolicyFileError(
                "the ONNX graph decides otherwise than the parameters of the same file: export the "
                "policy again, or load it with engine='numpy'"
            )

    def _decides_the_same(self) -> bool:
        """Return whether the graph does what the network does, row by row, now and not later."""
        network, rng = self.network, np.random.default_rng()
        parts = network.parts
        obs = rng.standard_normal((PROBES, network.obs_dim))
        if parts.mean is not None:
            obs = parts.mean[: network.obs_dim] + 2.0 * parts.std[: network.obs_dim] * obs
        obs = obs.astype(np.float32)
        remaining = (parts.limit * rng.uniform(-0.2, 1.0, PROBES)).astype(np.float32)
        for screen in (True, False):
            theirs = network.decide(obs, remaining, screen)
            rows = zip(obs[:, None], remaining[:, None], strict=True)
            made = [self.decide(row, left, screen) for row, left in rows]
            for name in ("proposed", "q_proposed", "unit_action", "q_cost", "influence"):
                mine = np.concatenate([getattr(x, name) for x in made])
                other = getattr(theirs, name)
                if mine.shape != other.shape:
                    return False
                apart = ~np.isclose(mine, other, CLOSE, CLOSE, equal_nan=True)
                if np.count_nonzero(apart.reshape(PROBES, -1).any(axis=1)) > TIES:
                    return False
        return True

    def decide(self, obs: Array, remaining: Array, screen: bool = True) -> Decision:
        """Return the decisions for observations (N, O), both arrays float32."""
        given = {"observation": obs, "remaining": remaining, "screen": np.array(screen)}
        made = self.session.run(self.names, given)
        return self.network.decision(Choice(**dict(zip(self.names, made, strict=True))))
