"""The deployed network as one ONNX graph, written node by node from its description.

observation (N, O) float   raw, as the environment gives it
left (N,) float            what is left of the budget
screen () bool             False switches the screen off
  -> action (N, A) double  in the environment's own unit
     unit_action, proposed (N, A), q_cost, influence (N,) float, screened, changed (N,) bool
"""

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
        """Return raw values (N, 1) and the last hidden layer from the first layer's sums (N, H).

        The sums have their bias already.
        """
        hidden = self.add("Relu", self.normalise(sums, layers[0]))
        for layer in layers[1:-1]:
            hidden = self.add("Relu", self.normalise(self.dense(hidden, layer), layer))
        return self.dense(hidden, layers[-1]), hidden

    def dense(self, x: str, layer: dict[str, np.ndarray]) -> str:
        """Return a layer's sums with its bias, of rows (N, .): one node, with a Relu behind it."""
        return self.add("Gemm", x, self.constant(layer["w"]), self.constant(layer["b"]))

    def flat(self, x: str, output: str = "") -> str:
        """Return (N, 1, ...) without its second axis."""
        return self.add("Squeeze", x, self.constant([1], np.int64), output=output)

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
                where = np.zeros((len(network.closeness), network.inputs), np.float32)
                where[np.arange(len(network.closeness)), network.closeness] = about["sharp_size"]
                gains[network.closeness] = 0.0
                sharp = b.add("MatMul", near, b.constant(where))
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
        raw, hiddens = [z for z, _ in passes], [h for _, h in passes]
        outputs = [b.cost_output(z, about["safety"]) for z in raw]
        q = b.aggregate(outputs, about["safety"]["value"])  # (N, K + 1), or (N, 1)
        if tried is not None:
            place = _screen(b, network, x, tried, q, left)  # (N, 1), 0: the proposed action
            action = tried.action(place)
            q = b.add("GatherElements", q, place, axis=1)
            if network.whiteners:
                raw = [b.add("GatherElements", z, place, axis=1) for z in raw]
                hiddens = [b.add("GatherND", h, place, batch_dims=1) for h in hiddens]
        b.flat(b.add("Mul", q, b.constant(about["cost_unit"])), output="q_cost")
    else:
        tried = None
        b.add("Expand", b.constant(np.nan), b.add("Shape", left), output="q_cost")
    if tried is None:
        for name in ("screened", "changed"):
            b.add("Less", left, left, output=name)  # False everywhere
        b.add("Identity", action, output="unit_action")
        action = "unit_action"
    if network.whiteners:
        _influence(b, network, raw, hiddens)
    else:
        b.add("Expand", b.constant(np.nan), b.add("Shape", left), output="influence")

    double = b.add("Cast", action, to=onnx.TensorProto.DOUBLE)
    one, half = b.constant(1.0, np.float64), b.constant(0.5, np.float64)
    ends = (b.constant(-1.0, np.float64), one)
    unit = b.add("Clip", double, *ends, output="action" if network.unit_box else "")
    if not network.unit_box:
        share = b.add("Mul", b.add("Add", unit, one), half)
        rest = b.add("Mul", b.add("Sub", one, share), b.constant(network.low, np.float64))
        most = b.add("Mul", share, b.constant(network.high, np.float64))
        b.add("Add", rest, most, output="action")
    return _model(onnx, b, network)


def _tolerance(b: Builder, about: dict[str, Any], left: str) -> str:
    """Return the screen's tolerance in the agent's units of cost, with the shape of `left`."""
    screen, size = about["screen"], b.constant(about["cost_unit"])
    if not screen["active"]:
        return b.add("Expand", b.constant(np.inf), b.add("Shape", left))
    if screen["tolerance_in"] == "budget":
        budget = b.add("Div", b.add("Max", left, b.constant(0.0)), size)
        tolerance = b.add("Mul", budget, b.constant(screen["tolerance"]))
        return b.add("Max", tolerance, b.constant(screen["least"]))
    fixed = b.constant(np.float32(screen["tolerance"]) / np.float32(about["cost_unit"]))
    return b.add("Expand", fixed, b.add("Shape", left))


class Tried:
    """The actions of a screened decision, the proposed one first and the K candidates after it."""

    def __init__(self, b: Builder, network: Network, proposed: str):
        self.b, self.proposed = b, proposed
        self.rows = len(network.candidates) + 1
        self.around = network.about["screen"]["candidates"] == "around"
        self.middle = b.constant([1], np.int64)
        if self.around:
            own = b.add("Unsqueeze", proposed, self.middle)
            sums = b.add("Add", own, b.constant(network.candidates))
            self.candidates = b.add("Clip", sums, b.constant(-1.0), b.constant(1.0))
            self.actions = b.add("Concat", own, self.candidates, axis=1)
        else:  # a row in the place of the proposed action
            self.actions = b.constant(np.pad(network.candidates, ((1, 0), (0, 0))))

    def all(
        self,
        layers: list[dict[str, np.ndarray]],
        first: str,
        own: str,
        b: Builder | None = None,
    ) -> tuple[str, str]:
        """Return raw values (N, K + 1) and hidden layers of a critic.

        `first` is what the observation adds to its first layer, `own` the sums of the proposed
        action; `b` is the part of the graph to add to.
        """
        b = b or self.b
        if self.around:
            share = b.add("MatMul", self.candidates, b.constant(layers[0]["done"]))
        else:
            share = b.constant(layers[0]["tried"])
        sums = b.add("Add", b.add("Unsqueeze", first, self.middle), share)
        sums = b.add("Concat", b.add("Unsqueeze", own, self.middle), sums, axis=1)
        # as rows: products of three axes are not fused with what follows them
        width, out = layers[0]["w"].shape[1], layers[-1]["w"].shape[0]
        raw, hidden = b.critic(layers, b.reshaped(sums, -1, width))
        return b.reshaped(raw, -1, self.rows), b.reshaped(hidden, -1, self.rows, out)

    def action(self, place: str) -> str:
        """Return the action in a place (N, 1), and say whether it is another than proposed."""
        b = self.b
        moved = b.add("Greater", place, b.constant(0, np.int64))
        b.flat(moved, output="changed")
        if self.around:
            return b.add("GatherND", self.actions, place, batch_dims=1, output="unit_action")
        chosen = b.flat(b.add("Gather", self.actions, place, axis=0))
        return b.add("Where", moved, chosen, self.proposed, output="unit_action")


def _screen(b: Builder, network: Network, x: str, tried: Tried, q: str, left: str) -> str:
    """Return the place (N, 1) of the action to take among those tried, of costs q (N, K + 1).

    The search is in a branch of its own, for batches in which some row is screened.
    """
    onnx = b.onnx
    tolerance = _tolerance(b, network.about, b.add("Unsqueeze", left, tried.middle))
    own = b.add("Gather", q, b.constant([0], np.int64), axis=1)
    screened = b.add("And", b.add("Greater", own, tolerance), "screen")  # (N, 1)
    b.flat(screened, output="screened")
    # ReduceMax knows no bool
    flags = b.add("Cast", screened, to=onnx.TensorProto.INT32)
    some = b.add("Cast", b.add("ReduceMax", flags, keepdims=0), to=onnx.TensorProto.BOOL)

    keep, search = Builder(b), Builder(b)
    kept = keep.add("Cast", screened, to=onnx.TensorProto.INT64)  # 0 everywhere
    best = _search(search, network, x, tried, q, tolerance)
    taken = search.add("Where", screened, best, search.constant(0, np.int64))

    def graph(part: Builder, name: str, title: str) -> Any:
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None)
        return onnx.helper.make_graph(part.nodes, title, [], [info], part.constants)

    then, otherwise = graph(search, taken, "search"), graph(keep, kept, "keep")
    return b.add("If", some, then_branch=then, else_branch=otherwise)


def _search(b: Builder, network: Network, x: str, tried: Tried, q: str, tolerance: str) -> str:
    """Return the place (N, 1) of the best action of each row, the first of equal ones.

    It is the one of best Q_R within the tolerance; where none is within, of best Q_R - price Q_C.
    With the choice "cost" it is the one of least Q_C.
    """
    if network.about["screen"]["choice"] == "cost":
        return b.add("ArgMin", q, axis=1, keepdims=1)
    assert network.reward is not None
    first = b.first_sums(network.reward, x)
    own = b.joint_sums(network.reward, first, tried.proposed)
    reward, _ = tried.all(network.reward, first, own, b)
    kept = b.add("Where", b.add("LessOrEqual", q, tolerance), reward, b.constant(-np.inf))
    some = b.add("Greater", b.add("ReduceMax", kept, axes=[1], keepdims=1), b.constant(-np.inf))
    priced = b.add("Sub", reward, b.add("Mul", q, b.constant(network.price)))
    return b.add("ArgMax", b.add("Where", some, kept, priced), axis=1, keepdims=1)


def _influence(b: Builder, network: Network, raw: list[str], hiddens: list[str]) -> None:
    """Add u of Eq. 1, the mean over the members."""
    us = []
    for z, features, whitener in zip(raw, hiddens, network.whiteners, strict=True):
        slope = b.slope(z, network.about["safety"])  # (N, 1)
        white = b.dense(features, {"w": whitener[:-1], "b": whitener[-1]})
        outside = b.add("ReduceSumSquare", white, axes=[1], keepdims=1)
        outside = b.add("Mul", outside, b.add("Mul", slope, slope))
        us.append(b.add("Div", outside, b.add("Add", outside, b.constant(1.0))))
    b.flat(us[0] if len(us) == 1 else b.add("Mean", *us), output="influence")


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
