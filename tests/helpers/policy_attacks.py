"""Alterations of a policy file, generated from the forms of its members; checksums fit."""

import dataclasses
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np

from helpers import alterations
from helpers.policies import fitted, members_of, rewritten, write
from safecritic.runtime.certificate import Certificate
from safecritic.runtime.contract import Contract

ODD: list[Any] = [*alterations.ODD, 1e39, -1e39, 2**62, [None], ["nan"], {"layers": 2}]


def fields_of(kind: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the way to every field of a form, those of the forms inside it included."""
    for option in (kind, *get_args(kind)):
        if option is not kind and get_origin(option) is not None:
            yield from fields_of(option, at)
        elif dataclasses.is_dataclass(option):
            for field in dataclasses.fields(option):
                yield (*at, field.name)
                yield from fields_of(field.type, (*at, field.name))


def set_field(content: Any, way: tuple[str, ...], value: Any) -> bool:
    """Set a field, in the first of a list of objects; return whether it is there."""
    for key in way[:-1]:
        content = content.get(key) if isinstance(content, dict) else None
        content = content[0] if isinstance(content, list) and content else content
    if not isinstance(content, dict):
        return False
    content[way[-1]] = value
    return True


def every_field(path: Path, target: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file for every field of contract and certificate and some odd values of each."""
    members = members_of(path)
    forms = {"contract.json": Contract, "certificate.json": Certificate}
    rng = random.Random(0)
    for name, form in forms.items():
        if name not in members:
            continue
        for way in fields_of(form):
            for value in [None, *rng.sample(ODD, 3)]:
                content = json.loads(members[name])
                if set_field(content, way, value):
                    data = json.dumps(content).encode()
                    done = f"{name}: {'.'.join(way)} = {str(value)[:40]!r}"
                    yield done, rewritten(path, target, {name: data})


def attacked(path: Path, target: Path, number: int, graphs: list[bytes] = ()) -> str:  # type: ignore[assignment]
    """Write an altered copy of a policy file; return what was done."""
    rng = random.Random(number)
    members = members_of(path)
    kind = rng.choice(["json", "json", "arrays", "header", "graph", "bytes", "zip", "member"])
    if kind == "bytes":
        target.write_bytes(path.read_bytes())
        return alterations.alter_bytes(target, rng)
    if kind == "json":
        name = rng.choice([x for x in members if x.endswith(".json")])
        content = json.loads(members[name])
        done = alterations.change(content, rng)
        members[name] = json.dumps(content).encode()
    elif kind == "arrays":
        import safetensors.numpy

        name = "parameters.safetensors"
        arrays = {k: x.copy() for k, x in safetensors.numpy.load(members[name]).items()}
        done = alterations.change_arrays(arrays, rng)
        members[name] = safetensors.numpy.save(arrays)
    elif kind == "header":
        name, done = "parameters.safetensors", "header"
        members[name] = odd_header(members[name], rng)
    elif kind == "graph":
        name, done = "policy.onnx", "graph"
        graph = bytearray(rng.choice([members.get(name, b"x"), *graphs]))
        for _ in range(rng.choice([0, 1, 3, 30])):
            graph[rng.randrange(len(graph))] = rng.randrange(256)
        members[name] = bytes(graph)
    elif kind == "member":
        name = rng.choice([*members, "setup.py", "../x", "policy.onnx"])
        done = rng.choice(["removed", "empty", "large", "another"])
        if done == "removed":
            members.pop(name, None)
        else:
            others = {"empty": b"", "large": b" " * 20_000_000, "another": b"{}"}
            members[name] = others[done]
    else:
        name, done = "manifest.json", "zip"
        manifest: dict[str, Any] = rng.choice(
            [{}, {"format": 1}, {"format": True}, {"kind": None}, {"files": []}, {"more": 1}]
        )
        write(target, members, **manifest)
        data = bytearray(target.read_bytes())
        for _ in range(
            rng.choice([1, 2])
        ):  # in the directory at the end, where names and sizes are
            at = len(data) - 1 - rng.randrange(min(len(data), 400))
            data[at] = rng.randrange(256)
        target.write_bytes(bytes(data))
        return "the directory of the zip"
    if "contract.json" in members and rng.random() < 0.9:
        members["contract.json"] = fitted(members)
        done += ", checksums fit"
    write(target, members)
    return f"{name}: {done}"


def odd_header(data: bytes, rng: random.Random) -> bytes:
    """Return arrays whose header says something else: shapes, overlaps, sizes, types."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    key = rng.choice(sorted(header))
    entry = header[key]
    what = rng.randrange(7)
    if what == 0:
        entry["shape"] = rng.choice([[2**31, 2**31], [-1], [1.5], ["2"], [0], [], [10**30], None])
    elif what == 1:
        other = header[rng.choice(sorted(header))]
        entry["data_offsets"] = other["data_offsets"]  # two arrays of the same bytes
    elif what == 2:
        entry["data_offsets"] = rng.choice([[0, 2**40], [-4, 0], [8, 4], [0], None, ["0", "4"]])
    elif what == 3:
        entry["dtype"] = rng.choice(["F64", "I64", "BOOL", "", None, [1]])
    elif what == 4:
        for number in range(1_500):
            header[f"x{number}"] = entry
    elif what == 5:
        text = json.dumps(header).encode()
        return struct.pack("<Q", rng.choice([0, 2**63, len(text) * 2, 1])) + text + data[8 + size :]
    else:
        header[key] = rng.choice([None, 1, [], {}, "x"])
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def bad_graphs(obs_dim: int) -> dict[str, bytes]:
    """Return graphs that would loop, grow, read files, or answer what is no action."""
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h

    inputs = [
        h.make_tensor_value_info("observation", T.FLOAT, ["N", obs_dim]),
        h.make_tensor_value_info("remaining", T.FLOAT, ["N"]),
        h.make_tensor_value_info("screen", T.BOOL, []),
    ]
    names = ("action", "proposed", "q_cost", "q_proposed", "influence")

    def constant(name: str, value: Any) -> Any:
        tensor = onnx.numpy_helper.from_array(np.asarray(value), name)
        return h.make_node("Constant", [], [name], value=tensor)

    def model(nodes: list[Any], initial: Any = ()) -> bytes:
        made = {name for node in nodes for name in node.output}
        outputs = [h.make_tensor_value_info(x, T.FLOAT, None) for x in names if x in made]
        graph = h.make_graph(nodes, "g", inputs, outputs, list(initial))
        opsets = [h.make_opsetid("", 21)]
        return h.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def answers(value: Any) -> bytes:
        nodes = [constant("action", value), constant("proposed", value)]
        q = np.zeros(1, np.float32)
        return model([*nodes, constant("q_cost", q), constant("q_proposed", q)])

    big = np.full((1, 6), 1e9, np.float32)
    double = [constant("x0", np.zeros((1, 1024), np.float32))]
    double += [h.make_node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=1) for i in range(40)]
    long = np.zeros((30_000, 1), np.float32)
    wide = [constant("a", long), constant("b", long.T), h.make_node("Add", ["a", "b"], ["c"])]
    shape = [
        constant("s", np.array([2**29], np.int64)),
        h.make_node("ConstantOfShape", ["s"], ["c"]),
    ]
    body = h.make_graph(
        [h.make_node("Identity", ["go"], ["again"])], "body",
        [h.make_tensor_value_info("i", T.INT64, []), h.make_tensor_value_info("go", T.BOOL, [])],
        [h.make_tensor_value_info("again", T.BOOL, [])],
    )  # fmt: skip
    loop = [constant("m", np.array(2**62, np.int64)), constant("t", np.array(True)),
            h.make_node("Loop", ["m", "t"], [], body=body)]  # fmt: skip
    outside = T(name="w", data_type=T.FLOAT, dims=[1])
    outside.data_location = T.EXTERNAL
    outside.external_data.add(key="location", value="/etc/passwd")
    end = [constant("action", big), constant("proposed", big)]
    return {
        "answers 1e9": answers(big),
        "answers NaN": answers(np.full((1, 6), np.nan, np.float32)),
        "answers three numbers": answers(np.zeros((1, 3), np.float32)),
        "answers none": answers(np.zeros((1, 0), np.float32)),
        "concatenates": model([*double, *end]),
        "broadcasts": model([*wide, *end]),
        "a tensor of 2 GB": model([*shape, *end]),
        "loops": model([*loop, *end]),
        "reads a file": model(end, [outside]),
        "no graph": b"\x08\x08",
    }
