"""What an ONNX graph is made of, before ONNX Runtime sees it: read, not run.

Operators without loops, branches, functions or files, on tensors whose sizes are known and small.
"""

import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

MOST_NODES = 5_000
MOST_NUMBERS = 2**24  # of one tensor
MOST_OF_ALL = 2**25
DEPTH = 8
ELEMENTWISE = {
    *("Add", "And", "Cast", "Div", "Equal", "Exp", "Greater", "GreaterOrEqual", "Identity"),
    *("Less", "LessOrEqual", "Max", "Min", "Mul", "Not", "Or", "Pow", "Sqrt", "Sub", "Tanh"),
    *("Where", "Abs", "Neg", "Relu", "Reciprocal", "Clip", "Sign"),
}
ALLOWED = ELEMENTWISE | {
    *("Constant", "ArgMax", "ArgMin", "Concat", "Gather", "MatMul", "ReduceSum", "ReduceMax"),
    *("ReduceMean", "Slice", "Squeeze", "Transpose", "Unsqueeze"),
}
TYPES: dict[int, Any] = {  # by the number that a tensor gives it
    kind: np.dtype(name)
    for kind, name in ((1, "<f4"), (6, "<i4"), (7, "<i8"), (9, "?"), (11, "<f8"))
}


class GraphError(ValueError):
    """A graph that is no decision."""


class Tensor(NamedTuple):
    shape: tuple[int, ...]
    value: np.ndarray | None  # of small constants of whole numbers: axes, places


# ---------------------------------------------------------------- protobuf


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message: an integer or the bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, value = key & 7, 0  # type: int, Any
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise GraphError("it is no ONNX graph")
        if at > len(data):
            raise GraphError("it is cut off")
        yield key >> 3, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise GraphError("it is cut off")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _text(value: Any) -> str:
    return bytes(value)[:200].decode("utf-8", errors="replace")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# ---------------------------------------------------------------- the graph


def check(graph: bytes, obs_dim: int, outputs: tuple[str, ...]) -> list[str]:
    """Return the names of a graph's outputs; GraphError unless it is a decision of one row."""
    try:
        return _check(memoryview(graph), obs_dim, outputs)
    except GraphError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, struct.error) as error:
        raise GraphError(f"it is no ONNX graph ({error})") from error


def _check(graph: memoryview, obs_dim: int, outputs: tuple[str, ...]) -> list[str]:
    bodies = []
    for number, value in fields(graph):
        if number == 7:
            bodies.append(value)
        elif number == 8:
            domains = [_text(x) for n, x in fields(value) if n == 1]
            if any(domains):
                raise GraphError(f"it uses operators of {domains[0]!r}")
        elif number in (20, 25):
            raise GraphError("it has functions of its own")
        elif number not in (1, 2, 3, 4, 5, 6, 14, 26):
            raise GraphError(f"it has a field {number}")
    if len(bodies) != 1:
        raise GraphError("it must have one graph")
    known: dict[str, Tensor] = {}
    expected = {"observation": (1, obs_dim), "remaining": (1,), "screen": ()}
    nodes: list[Any] = []
    made: list[str] = []
    given: list[str] = []
    for number, value in fields(bodies[0]):
        if number == 1:
            nodes.append(value)
        elif number == 5:
            name, tensor = _tensor(value)
            known[name] = tensor
        elif number in (11, 12):
            names = [_text(x) for n, x in fields(value) if n == 1]
            (given if number == 11 else made).extend(names)
        elif number not in (2, 10, 13, 16):
            raise GraphError(f"its graph has a field {number}")
    if set(given) != set(expected):
        raise GraphError(f"its inputs must be {', '.join(expected)}")
    if len(set(made)) < len(made) or not {"action", "proposed"} <= set(made) <= set(outputs):
        raise GraphError("its outputs are not those of a decision")
    if len(nodes) > MOST_NODES:
        raise GraphError(f"it has {len(nodes):,} operators")
    known |= {name: Tensor(shape, None) for name, shape in expected.items()}
    total = sum(math.prod(x.shape) for x in known.values())
    for node in nodes:
        name, tensor = _node(node, known)
        if name in known or not name:
            raise GraphError(f"{name!r} is made twice")
        known[name] = tensor
        number = math.prod(tensor.shape)
        total += number
        if number > MOST_NUMBERS or total > MOST_OF_ALL:
            raise GraphError("its tensors are too large")
    for name in made:
        if name not in known:
            raise GraphError(f"its output {name} is not made")
    return made


def _node(data: memoryview, known: dict[str, Tensor]) -> tuple[str, Tensor]:
    """Return the output of an operator and its shape."""
    taken: list[str] = []
    made: list[str] = []
    operator = ""
    about: dict[str, Any] = {}
    for number, value in fields(data):
        if number == 1:
            taken.append(_text(value))
        elif number == 2:
            made.append(_text(value))
        elif number == 4:
            operator = _text(value)
        elif number == 5:
            name, content = _attribute(value)
            about[name] = content
        elif number == 7:
            if len(value):
                raise GraphError(f"it uses operators of {_text(value)!r}")
        elif number not in (3, 6):
            raise GraphError(f"an operator has a field {number}")
    if operator not in ALLOWED or len(made) != 1:
        raise GraphError(f"it uses the operator {operator!r}, which no decision needs")
    if operator == "Constant":
        if set(about) != {"value"} or not isinstance(about["value"], Tensor):
            raise GraphError("a constant has no value")
        return made[0], about["value"]
    tensors = []
    for name in taken:
        if name and name not in known:
            raise GraphError(f"{name!r} is used before it is made")
        tensors.append(known[name] if name else Tensor((), None))
    if not tensors:
        raise GraphError(f"{operator} has no inputs")
    return made[0], Tensor(_shape(operator, tensors, about), None)


def _shape(operator: str, tensors: list[Tensor], about: dict[str, Any]) -> tuple[int, ...]:
    shapes = [x.shape for x in tensors]
    first = shapes[0]
    if operator in ELEMENTWISE:
        return np.broadcast_shapes(*shapes)
    if operator == "MatMul":
        left, right = shapes
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            raise GraphError("a product does not fit")
        return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    if operator == "Transpose":
        perm = about["perm"]
        if sorted(perm) != list(range(len(first))):
            raise GraphError("a transposition does not fit")
        return tuple(first[at] for at in perm)
    if operator == "Concat":
        axis = range(len(first))[about["axis"]]
        if any(len(x) != len(first) for x in shapes):
            raise GraphError("a concatenation does not fit")
        joined = sum(x[axis] for x in shapes)
        return (*first[:axis], joined, *first[axis + 1 :])
    if operator == "Gather":
        axis = range(len(first))[about.get("axis", 0)]
        return (*first[:axis], *shapes[1], *first[axis + 1 :])
    if operator in ("ArgMax", "ArgMin"):
        axis = range(len(first))[about.get("axis", 0)]
        kept = (1,) if about.get("keepdims", 1) else ()
        return (*first[:axis], *kept, *first[axis + 1 :])
    if operator == "Slice":
        starts, ends, *more = (_whole(x) for x in tensors[1:])
        axes = more[0] if more else list(range(len(starts)))
        steps = more[1] if len(more) > 1 else [1] * len(starts)
        sizes = list(first)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            sizes[axis] = len(range(*slice(start, end, step).indices(first[axis])))
        return tuple(sizes)
    axes = _whole(tensors[1]) if len(tensors) > 1 else list(range(len(first)))
    if operator == "Unsqueeze":
        size = len(first) + len(axes)
        at = {range(size)[axis] for axis in axes}
        rest = iter(first)
        return tuple(1 if place in at else next(rest) for place in range(size))
    at = {range(len(first))[axis] for axis in axes}
    if operator == "Squeeze" or not about.get("keepdims", 1):
        if operator == "Squeeze" and any(first[place] != 1 for place in at):
            raise GraphError("a squeezed axis is longer than 1")
        return tuple(n for place, n in enumerate(first) if place not in at)
    return tuple(1 if place in at else n for place, n in enumerate(first))


def _whole(tensor: Tensor) -> list[int]:
    if tensor.value is None:
        raise GraphError("an axis or a place is not constant")
    return tensor.value.ravel().tolist()


def _attribute(data: memoryview) -> tuple[str, Any]:
    name = ""
    content: Any = None
    for number, value in fields(data):
        if number == 1:
            name = _text(value)
        elif number == 3:
            content = _signed(value)
        elif number == 5:
            content = _tensor(value)[1]
        elif number == 8:
            if isinstance(value, int):
                content = [*(content or []), _signed(value)]
            else:
                content, at = list(content or []), 0
                while at < len(value):
                    item, at = _varint(value, at)
                    content.append(_signed(item))
        elif number not in (13, 20):
            raise GraphError(f"an operator has an attribute of kind {number}")
    return name, content


def _tensor(data: memoryview) -> tuple[str, Tensor]:
    """Return name, shape and small whole values of a constant; other files are refused."""
    shape: list[int] = []
    name, kind, typed = "", 0, 0
    raw: Any = None
    for number, value in fields(data):
        if number == 1:
            if isinstance(value, int):
                shape.append(value)
            else:
                at = 0
                while at < len(value):
                    item, at = _varint(value, at)
                    shape.append(item)
        elif number == 2:
            kind = value
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = value
        elif number in (4, 5, 7, 10):
            typed += len(value) if not isinstance(value, int) else 1
        elif number not in (12, 16):
            raise GraphError("a constant is in another file, or of another form")
    if kind not in TYPES or len(shape) > 8 or any(n > MOST_NUMBERS for n in shape):
        raise GraphError("a constant has another type or shape")
    number = math.prod(shape)
    if raw is None or typed or len(raw) != number * TYPES[kind].itemsize:
        raise GraphError("a constant has not the bytes of its shape")
    whole = kind in (6, 7) and number <= 64
    value = np.frombuffer(raw, TYPES[kind]).reshape(shape) if whole else None
    return name, Tensor(tuple(shape), value)
