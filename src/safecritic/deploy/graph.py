"""The deployed network as one ONNX graph, written node by node from its description.

observation (N, O) float   raw, as the environment gives it
left (N,) float            what is left of the budget
screen () bool             False switches the screen off
  -> action (N, A) double  in the environment's own unit
     unit_action, proposed (N, A), q_cost, influence (N,) float, screened, changed (N,) bool
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from safecritic.runtime.network import NORM_EPSILON, Network

OPSET = 17
IR_VERSION = 9  # read by every ONNX Runtime since 1.15


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "an ONNX graph needs the onnx package: pip install 'safecritic[deploy]', or leave the "
            "graph out (--no-onnx); NumPy then runs the file"
        ) from error
    return onnx


class Builder:
    """Nodes and constants of a graph; every method adds a node and returns its output's name."""

    def __init__(self, outer: "Builder | None" = None):
        self.onnx = _onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        # counted through all subgraphs, where names must be unique too
        self._names: list[int] = [0] if outer is None else outer._names

    def name(self) -> str:
        self._names[0] += 1
        return f"t{self._names[0]}"

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        name = self.name()
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name."""
        output = output or self.name()
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    # ------------------------------------------------------------ parts of a network

    def raised(self, x: str, power: float) -> str:
        """Return closenesses in [0, 1] to a power, a whole one by squares."""
        x = self.add("Clip", x, self.constant(0.0), self.constant(1.0))
        if power != int(power) or power < 1:
            return self.add("Pow", x, self.constant(power))
        result, rest = "", int(power)
        while rest:
            if rest & 1:
                result = self.add("Mul", result, x) if result else x
            rest >>= 1
            if rest:
                x = self.add("Mul", x, x)
        return result

    def normalise(self, sums: str, layer: dict[str, np.ndarray]) -> str:
        """Return a layer's sums, normalised if it has a gain."""
        if "g" in layer:
            gain, offset = self.constant(layer["g"]), self.constant(layer["o"])
            epsilon = float(NORM_EPSILON)
            sums = self.add("LayerNormalization", sums, gain, offset, axis=-1, epsilon=epsilon)
        return sums

    def critic(self, layers: list[dict[str, np.ndarray]], sums: str) -> tuple[str, str]:
        """Return raw values (N,) and the last hidden layer from the first layer's sums (N, H).

        The sums have their bias already.
        """
        hidden = self.add("Relu", self.normalise(sums, layers[0]))
        for layer in layers[1:-1]:
            hidden = self.add("Relu", self.normalise(self.dense(hidden, layer), layer))
        out = self.dense(hidden, layers[-1])
        return self.add("Squeeze", out, self.constant([-1], np.int64)), hidden

    def dense(self, x: str, layer: dict[str, np.ndarray]) -> str:
        """Return a layer's sums with its bias, of rows (N, .): one node, with a Relu behind it."""
        return self.add("Gemm", x, self.constant(layer["w"]), self.constant(layer["b"]))

    def reshaped(self, x: str, *shape: int) -> str:
        return self.add("Reshape", x, self.constant(shape, np.int64))

    def first_sums(
        self, layers: list[dict[str, np.ndarray]], seen: str, gains: np.ndarray | float = 1.0
    ) -> str:
        """Return what the observation adds to the first layer of a critic, with its bias."""
        weights = np.atleast_1d(gains)[:, None] * layers[0]["seen"]
        return self.add("Gemm", seen, self.constant(weights), self.constant(layers[0]["b"]))

    def joint_sums(self, layers: list[dict[str, np.ndarray]], first: str, action: str) -> str:
        """Return the first layer's sums of an action (N, A), given what the observation adds."""
        return self.add("Add", first, self.add("MatMul", action, self.constant(layers[0]["done"])))

    def softplus(self, z: str, k: float) -> str:
        """Return log(1 + exp(k z)) / k."""
        return self.add(
            "Div", self.add("Softplus", self.add("Mul", z, self.constant(k))), self.constant(k)
        )

    def cost_output(self, z: str, about: dict[str, Any]) -> str:
        """Return Q_C of one member."""
        if about["output"] == "linear":
            return z
        if about["output"] == "clipped":
            return self.add("Relu", z)
        positive = self.softplus(z, about["sharpness"])
        if about["output"] == "softplus":
            return positive
        # bound (1 - exp(-x)) as 2 exp(-x / 2) sinh(x / 2): no digits are lost near 0
        half = self.add("Div", positive, self.constant(2.0 * about["bound"]))
        fall = self.add("Exp", self.add("Neg", half))
        product = self.add("Mul", fall, self.add("Sinh", half))
        return self.add("Mul", product, self.constant(2.0 * about["bound"]))

    def slope(self, z: str, about: dict[str, Any]) -> str:
        """Return the derivative of what the influence sees."""
        if about["output"] == "linear":
            return self.add("Add", self.add("Mul", z, self.constant(0.0)), self.constant(1.0))
        slope = self.add("Sigmoid", self.add("Mul", z, self.constant(about["sharpness"])))
        if about["output"] == "bounded":
            positive = self.softplus(z, about["sharpness"])
            share = self.add("Div", positive, self.constant(-about["bound"]))
            slope = self.add("Mul", slope, self.add("Exp", share))
        return slope

    def aggregate(self, qs: list[str], value: str) -> str:
        """Return the Q_C of all members."""
        if len(qs) == 1:
            return qs[0]
        return self.add("Max" if value == "max" else "Mean", *qs)


def build(network: Network) -> bytes:
    """Return the graph of a network, checked by ONNX's own checker."""
    onnx = _onnx()
    about = network.about
    b = Builder()
    obs, left = "observation", "left"
    x = obs
    if about["closeness"] and about["sharpened"] != "no":
        near = b.add("Gather", obs, b.constant(about["closeness"], np.int64), axis=1)
        near = b.raised(near, about["sharpening"])
    if about["closeness"] and about["sharpened"] == "beside":
        x = b.add("Concat", obs, near, axis=1)
    if about["scaling"] == "running":
        x = b.add("Sub", x, b.constant(network.mean))
        x = b.add("Div", x, b.constant(network.spread))
        x = b.add("Clip", x, b.constant(-about["clip"]), b.constant(about["clip"]))

    hidden = x
    for layer in network.actor[:-1]:
        sums = b.normalise(b.dense(hidden, layer), layer)
        hidden = b.add("Tanh" if about["actor"]["activation"] == "tanh" else "Relu", sums)
    out = b.dense(hidden, network.actor[-1])
    if about["actor"]["output"] == "tanh":
        action = b.add("Tanh", out, output="proposed")
    else:
        action = b.add("Clip", out, b.constant(-1.0), b.constant(1.0), output="proposed")

    if network.safety:
        seen, gains = x, np.ones(network.inputs, np.float32)  # gains within the first layer
        if about["closeness"] and about["sharpened"] != "no":
            gains[:] = about["gain"]
            if about["sharpened"] == "beside":
                gains[network.obs_dim :] = 1.0
            else:
                # scattered into their places by a product with a matrix of zeros and ones
                place = np.zeros((len(network.closeness), network.inputs), np.float32)
                place[np.arange(len(network.closeness)), network.closeness] = about["sharp_size"]
                gains[network.closeness] = 0.0
                sharp = b.add("MatMul", near, b.constant(place))
                seen = b.add("Add", b.add("Mul", x, b.constant(gains)), sharp)
                gains[:] = 1.0
        firsts = [b.first_sums(layers, seen, gains) for layers in network.safety]
        tried = None if about["screen"] is None else Tried(b, network, action)
        passes = []
        for first, layers in zip(firsts, network.safety, strict=True):
            own = b.joint_sums(layers, first, action)
            # with a screen, the candidates in the same pass: the dearest decision is the one that
            # counts, and the weights are read once
            passes.append(b.critic(layers, own) if tried is None else tried.all(layers, first, own))
        value = about["safety"]["value"]
        q = b.aggregate([b.cost_output(z, about["safety"]) for z, _ in passes], value)
        raw, hiddens = [z for z, _ in passes], [h for _, h in passes]
        zero = b.constant(0.0)
        if tried is not None:
            q_all, all_passes = q, passes
            q, raw = tried.own(q), [tried.own(z) for z in raw]
            hiddens = [tried.own(h) for h in hiddens]
        nowhere = b.add("Greater", b.add("Mul", q, zero), zero)  # False everywhere
        changed = nowhere
        if tried is None:
            b.add("Identity", nowhere, output="screened")
        else:
            tolerance = _tolerance(b, about, left)
            screened = b.add("And", b.add("Greater", q, tolerance), "screen", output="screened")
            state = [action, q, nowhere, *raw, *hiddens]
            search = partial(
                _search,
                network=network,
                x=x,
                tried=tried,
                q_all=q_all,
                passes=all_passes,
                tolerance=tolerance,
                screened=screened,
                state=state,
            )
            action, q, changed, *taken = _branch(b, screened, state, search)
            members = len(network.safety)
            raw, hiddens = taken[:members], taken[members:]
        b.add("Mul", q, b.constant(about["cost_unit"]), output="q_cost")
        b.add("Identity", changed, output="changed")
    else:
        zero = b.constant(0.0)
        nothing = b.add("Mul", left, zero)
        b.add("Greater", nothing, zero, output="screened")
        b.add("Greater", nothing, zero, output="changed")
        b.add("Expand", b.constant(np.nan), b.add("Shape", left), output="q_cost")
    if network.whiteners:
        _influence(b, network, raw, hiddens)
    else:
        b.add("Expand", b.constant(np.nan), b.add("Shape", left), output="influence")

    b.add("Identity", action, output="unit_action")
    double = b.add("Cast", action, to=onnx.TensorProto.DOUBLE)
    one, half = b.constant(1.0, np.float64), b.constant(0.5, np.float64)
    unit = b.add("Clip", double, b.constant(-1.0, np.float64), one)
    if network.unit_box:
        b.add("Identity", unit, output="action")
    else:
        share = b.add("Mul", b.add("Add", unit, one), half)
        rest = b.add("Mul", b.add("Sub", one, share), b.constant(network.low, np.float64))
        most = b.add("Mul", share, b.constant(network.high, np.float64))
        b.add("Add", rest, most, output="action")
    return _model(onnx, b, network)


def _tolerance(b: Builder, about: dict[str, Any], left: str) -> str:
    """Return the screen's tolerance (N,) in the agent's units of cost."""
    screen, size = about["screen"], b.constant(about["cost_unit"])
    if not screen["active"]:
        return b.add("Expand", b.constant(np.inf), b.add("Shape", left))
    if screen["tolerance_in"] == "budget":
        budget = b.add("Div", b.add("Max", left, b.constant(0.0)), size)
        tolerance = b.add("Mul", budget, b.constant(screen["tolerance"]))
        return b.add("Max", tolerance, b.constant(screen["least"]))
    fixed = b.constant(np.float32(screen["tolerance"]) / np.float32(about["cost_unit"]))
    return b.add("Expand", fixed, b.add("Shape", left))


def _branch(
    b: Builder, screened: str, state: list[str], search: Callable[[Builder], list[str]]
) -> list[str]:
    """Add the branch that searches only if a row is screened; return what replaces `state`.

    `state` is action, q, changed, and each member's raw output and hidden layer.
    """
    onnx = b.onnx
    # ReduceMax knows no bool
    flags = b.add("Cast", screened, to=onnx.TensorProto.INT32)
    any_row = b.add("Cast", b.add("ReduceMax", flags, keepdims=0), to=onnx.TensorProto.BOOL)

    keep = Builder(b)
    kept = [keep.add("Identity", name) for name in state]
    inside = Builder(b)
    searched = search(inside)
    outputs = [b.name() for _ in state]

    def graph(part: Builder, names: list[str], title: str) -> Any:
        kinds = [onnx.TensorProto.FLOAT] * len(names)
        kinds[2] = onnx.TensorProto.BOOL
        infos = [
            onnx.helper.make_tensor_value_info(n, k, None)
            for n, k in zip(names, kinds, strict=True)
        ]
        return onnx.helper.make_graph(part.nodes, title, [], infos, part.constants)

    b.nodes.append(
        onnx.helper.make_node(
            "If",
            [any_row],
            outputs,
            then_branch=graph(inside, searched, "search"),
            else_branch=graph(keep, kept, "keep"),
        )
    )
    return outputs


class Tried:
    """The candidates of the screen in a graph: their passes, with the proposed action behind."""

    def __init__(self, b: Builder, network: Network, action: str):
        self.b, self.number = b, len(network.candidates)
        self.around = network.about["screen"]["candidates"] == "around"
        self.middle = b.constant([1], np.int64)
        self.actions = b.constant(network.candidates)
        if self.around:
            sums = b.add("Add", b.add("Unsqueeze", action, self.middle), self.actions)
            self.actions = b.add("Clip", sums, b.constant(-1.0), b.constant(1.0))

    def all(
        self,
        layers: list[dict[str, np.ndarray]],
        first: str,
        own: str,
        b: Builder | None = None,
    ) -> tuple[str, str]:
        """Return raw values (N, K + 1) and hidden layers of a critic, the proposed action last.

        `first` is what the observation adds to its first layer, `own` the sums of that action; `b`
        is the part of the graph to add to.
        """
        b = b or self.b
        if self.around:
            share = b.add("MatMul", self.actions, b.constant(layers[0]["done"]))
        else:
            share = b.constant(layers[0]["tried"])
        sums = b.add("Add", b.add("Unsqueeze", first, self.middle), share)
        sums = b.add("Concat", sums, b.add("Unsqueeze", own, self.middle), axis=1)
        # as rows: products of three axes are not fused with what follows them
        width, out = layers[0]["w"].shape[1], layers[-1]["w"].shape[0]
        raw, hidden = b.critic(layers, b.reshaped(sums, -1, width))
        rows = self.number + 1
        return b.reshaped(raw, -1, rows), b.reshaped(hidden, -1, rows, out)

    def own(self, values: str) -> str:
        """Return the values of the proposed action, (N, K + 1, ...) -> (N, ...)."""
        return self.b.add("Gather", values, self.b.constant(self.number, np.int64), axis=1)


def _search(
    b: Builder,
    network: Network,
    x: str,
    tried: Tried,
    q_all: str,
    passes: list[tuple[str, str]],
    tolerance: str,
    screened: str,
    state: list[str],
) -> list[str]:
    """Choose among the candidates in every row; take one where the row is screened and it helps."""
    about = network.about
    action, q, _, *rest = state
    members = len(network.safety)
    raw, hiddens = rest[:members], rest[members:]
    middle, number, others = tried.middle, tried.number, tried.actions
    sizes = b.constant([number, 1], np.int64)
    q_others = b.name()
    b.nodes.append(b.onnx.helper.make_node("Split", [q_all, sizes], [q_others, b.name()], axis=1))
    if about["screen"]["choice"] == "cost":
        best = b.add("ArgMin", q_others, axis=1, keepdims=1)
        q_best = b.add("GatherElements", q_others, best, axis=1)
        helps = b.add("Less", q_best, b.add("Unsqueeze", q, middle))
    else:
        assert network.reward is not None
        first = b.first_sums(network.reward, x)
        own = b.joint_sums(network.reward, first, action)
        rewards, _ = tried.all(network.reward, first, own, b)
        q_reward, own = b.name(), b.name()  # (N, K), (N, 1)
        b.nodes.append(b.onnx.helper.make_node("Split", [rewards, sizes], [q_reward, own], axis=1))
        within = b.add("LessOrEqual", q_others, b.add("Unsqueeze", tolerance, middle))
        least = b.add("ReduceMin", q_others, axes=[1], keepdims=1)
        some = b.add("LessOrEqual", least, b.add("Unsqueeze", tolerance, middle))  # (N, 1)
        price = b.constant(network.price)
        priced = b.add("Sub", q_reward, b.add("Mul", q_others, price))
        kept = b.add("Where", within, q_reward, b.constant(-np.inf))
        worth = b.add("Where", some, kept, priced)
        best = b.add("ArgMax", worth, axis=1, keepdims=1)
        q_best = b.add("GatherElements", q_others, best, axis=1)
        own = b.add("Sub", own, b.add("Unsqueeze", b.add("Mul", q, price), middle))
        better = b.add("Greater", b.add("GatherElements", worth, best, axis=1), own)
        helps = b.add("Or", some, better)
    helps = b.add("And", helps, b.add("Unsqueeze", screened, middle))  # (N, 1)
    flat = b.add("Squeeze", helps, middle)

    def take(values: str) -> str:
        """Return the row of the best candidate, (N, K, .) -> (N, .)."""
        return b.add("GatherND", values, best, batch_dims=1)

    if tried.around:
        chosen = take(others)
    else:
        chosen = b.add("Gather", others, b.add("Squeeze", best, middle), axis=0)
    new = [
        b.add("Where", helps, chosen, action),
        b.add("Where", flat, b.add("Squeeze", q_best, middle), q),
        b.add("Identity", flat),
    ]
    new += [b.add("Where", flat, take(z), z_0) for (z, _), z_0 in zip(passes, raw, strict=True)]
    new += [
        b.add("Where", helps, take(h), h_0) for (_, h), h_0 in zip(passes, hiddens, strict=True)
    ]
    return new


def _influence(b: Builder, network: Network, raw: list[str], hiddens: list[str]) -> None:
    """Add u of Eq. 1, the mean over the members."""
    us = []
    for z, features, whitener in zip(raw, hiddens, network.whiteners, strict=True):
        slope = b.slope(z, network.about["safety"])
        slope = b.add("Unsqueeze", slope, b.constant([1], np.int64))
        white = b.add("MatMul", b.add("Mul", features, slope), b.constant(whitener[:-1]))
        white = b.add("Add", white, b.add("Mul", slope, b.constant(whitener[-1])))
        square = b.add("Mul", white, white)
        outside = b.add("ReduceSum", square, b.constant([1], np.int64), keepdims=0)
        us.append(b.add("Div", outside, b.add("Add", outside, b.constant(1.0))))
    if len(us) == 1:
        b.add("Identity", us[0], output="influence")
    else:
        b.add("Mean", *us, output="influence")


def _model(onnx: Any, b: Builder, network: Network) -> bytes:
    proto, info = onnx.TensorProto, onnx.helper.make_tensor_value_info
    n, a = "N", network.action_dim
    inputs = [
        info("observation", proto.FLOAT, [n, network.obs_dim]),
        info("left", proto.FLOAT, [n]),
        info("screen", proto.BOOL, []),
    ]
    outputs = [
        info("action", proto.DOUBLE, [n, a]),
        info("unit_action", proto.FLOAT, [n, a]),
        info("proposed", proto.FLOAT, [n, a]),
        info("q_cost", proto.FLOAT, [n]),
        info("influence", proto.FLOAT, [n]),
        info("screened", proto.BOOL, [n]),
        info("changed", proto.BOOL, [n]),
    ]
    graph = onnx.helper.make_graph(b.nodes, "policy", inputs, outputs, b.constants)
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="safecritic",
    )
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())
