"""The one reader of policy files: checked bytes in, a contract and arrays out. Nothing is run.

A policy file is a zip without compression of

    manifest.json            format, and length and SHA-256 of every other member
    contract.json            what goes in and out, the network's description, limits, versions
    parameters.safetensors   the network's arrays
    policy.onnx              the same network as one ONNX graph, if it was exported with one
    certificate.json         what the next episode may cost, if it was certified

Its size is known before it is read, every member has a bound, and what is no exact copy of such a
file is refused. Links, devices and pipes are no files here.
"""

import hashlib
import json
import math
import os
import stat
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import certificate as certificates
from .contract import wrong
from .schema import parse, printable, shown

KIND, FORMAT = "safecritic policy", 2
MANIFEST, CONTRACT, PARAMETERS = "manifest.json", "contract.json", "parameters.safetensors"
GRAPH, CERTIFICATE = "policy.onnx", "certificate.json"
REQUIRED, OPTIONAL = {MANIFEST, CONTRACT, PARAMETERS}, {GRAPH, CERTIFICATE}
LARGEST = 256 * 2**20  # bytes of a file
MOST = {  # bytes of a member
    MANIFEST: 2**14,
    CONTRACT: 2**23,
    PARAMETERS: 2**27,
    GRAPH: 2**27,
    CERTIFICATE: 2**23,
}
HEADER = 2**20  # bytes of the header of the arrays
ARRAYS = 1_000
UNHASHED = ("policy_sha256", "versions", "training")  # of a contract: they change no action
AGAIN = "copy it again, or make it with `safecritic export`"

_OPEN = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"))
_LOCAL, _CENTRAL = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")


class PolicyFileError(ValueError):
    """A file that is no policy file, is damaged, or was written by another version.

    Examples:
        >>> try:
        ...     load("README.md")
        ... except (PolicyFileError, OSError) as error:
        ...     print("not a policy")
        not a policy
    """


class Contents(NamedTuple):
    """What a policy file holds."""

    contract: dict[str, Any]
    arrays: dict[str, np.ndarray]
    graph: bytes | None
    certificate: dict[str, Any] | None


def read(path: str | Path) -> Contents:
    """Read a policy file; raise PolicyFileError unless every byte is the one that was written.

    Examples:
        >>> read("policy.safecritic").contract["task"]
        'CarGoal1'
    """
    members = _members(_bytes(path), path)
    if not members.keys() >= REQUIRED:
        raise PolicyFileError(
            f"{path} is a zip file but no policy file: expected {sorted(REQUIRED)}, got "
            f"{list(members)[:5]}; make one with `safecritic export`"
        )
    manifest = parse_json(members[MANIFEST], f"{MANIFEST} in {path}")
    kind, number = manifest.get("kind"), manifest.get("format")
    if (kind, number) != (KIND, FORMAT) or isinstance(number, bool):
        raise PolicyFileError(
            f"{path} is a {shown(kind)} of format {shown(number)}, this version reads a {KIND!r} "
            f"of format {FORMAT}: export the policy again with this version of safecritic, or use "
            "the runtime of the version that wrote it"
        )
    expected = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
        if name != MANIFEST
    }
    listed = manifest.get("files")
    if manifest.keys() != {"kind", "format", "files"} or not isinstance(listed, dict):
        raise PolicyFileError(f"{MANIFEST} in {path} is damaged: {AGAIN}")
    if listed.keys() != expected.keys() or members.keys() - REQUIRED - OPTIONAL:
        raise PolicyFileError(f"{path} does not hold the members that its manifest lists")
    for name, about in expected.items():
        if listed[name] != about:
            raise PolicyFileError(f"{name} in {path} was altered: its checksum does not match")
    contract = parse_json(members[CONTRACT], f"{CONTRACT} in {path}")
    if text := wrong(contract):
        raise PolicyFileError(
            f"{CONTRACT} in {path} describes no policy that this version can run, {text}; {AGAIN}"
        )
    blob, graph, certificate = members[PARAMETERS], members.get(GRAPH), None
    of_members = {"parameters_sha256": _sha256(blob), "graph_sha256": _sha256(graph)}
    if any(contract[name] != x for name, x in of_members.items()):
        raise PolicyFileError(
            f"{path} was altered: its parameters or its graph are not those its contract was "
            "written for; export it again"
        )
    if contract["policy_sha256"] != policy_hash(contract):
        raise PolicyFileError(f"{path} was altered: its contract has another hash; {AGAIN}")
    arrays = parse_arrays(blob, f"{PARAMETERS} in {path}")
    if CERTIFICATE in members:
        certificate = parse_json(members[CERTIFICATE], f"{CERTIFICATE} in {path}")
        if text := certificates.wrong(certificate):
            raise PolicyFileError(f"{CERTIFICATE} in {path} was altered, {text}; certify again")
        same = ("parameters_sha256", "method", "cost_limit")
        mine = certificate["policy_sha256"] == contract["policy_sha256"]
        if mine and any(certificate[name] != contract[name] for name in same):
            raise PolicyFileError(
                f"{CERTIFICATE} in {path} was altered: its method or limit is another than in the "
                "contract; certify again"
            )
    return Contents(contract, arrays, graph, certificate)


def _sha256(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def policy_hash(contract: dict[str, Any]) -> str:
    """Return the identity of a policy: SHA-256 of all of its contract that decides an action.

    The contract has the checksums of the parameters and of the graph.
    """
    decides = {name: x for name, x in contract.items() if name not in UNHASHED}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------- bytes


def _bytes(path: str | Path) -> bytes:
    """Return the bytes of a regular file of at most LARGEST bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | _OPEN)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise PolicyFileError(f"{path} cannot be read ({error}): check the path") from error
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise PolicyFileError(f"{path} must be a regular file, and is a folder, pipe or device")
    with os.fdopen(handle, "rb") as file:
        if about.st_size > LARGEST:
            raise PolicyFileError(f"{path} has {about.st_size:,} bytes: more than any policy")
        data = file.read(about.st_size + 1)
    if len(data) != about.st_size:
        raise PolicyFileError(f"{path} changed while it was read: try again")
    return data


def _members(data: bytes, path: str | Path) -> dict[str, bytes]:
    """Return the members of a zip file whose every byte belongs to one, none compressed."""
    try:
        return _unzipped(data)
    except (ValueError, struct.error) as error:
        text = printable(str(error))
        raise PolicyFileError(
            f"{path} is not a policy file, or is damaged ({text}): {AGAIN}"
        ) from (error)


def _unzipped(data: bytes) -> dict[str, bytes]:
    *end, number, total, size, start, comment = _END.unpack(data[-_END.size :])
    if end[0] != b"PK\5\6" or end[1:] != [0, 0] or number != total or comment:
        raise ValueError("it does not end as a zip file does")
    if not 1 <= number <= len(MOST) + 1 or start + size + _END.size != len(data):
        raise ValueError(f"it has {number} members, or bytes of none")
    members: dict[str, bytes] = {}
    at, entry = 0, start
    for _ in range(number):
        fields = _CENTRAL.unpack_from(data, entry)
        sign, flags, method, place = fields[0], fields[3], fields[4], fields[16]
        crc, packed, length, letters = fields[7:11]
        name = _text(data[entry + _CENTRAL.size :][:letters])
        entry += _CENTRAL.size + letters
        if sign != b"PK\1\2" or flags & ~0x800 or method or packed != length or any(fields[11:14]):
            raise ValueError(f"{name} is compressed, encrypted, or has other fields")
        if name in members or place != at or length > MOST.get(name, MOST[MANIFEST]):
            raise ValueError(f"{name} is there twice, too large, or in another place")
        local = _LOCAL.unpack_from(data, at)
        begin = at + _LOCAL.size + local[9]
        same = (local[0], local[2], local[3], *local[6:11])
        if same != (b"PK\3\4", flags, 0, crc, packed, length, letters, 0):
            raise ValueError(f"{name} is described in two ways")
        if _text(data[at + _LOCAL.size : begin]) != name or begin + length > start:
            raise ValueError(f"{name} is cut off or has two names")
        members[name] = data[begin : begin + length]
        at = begin + length
    if at != start or entry != start + size:
        raise ValueError("it has bytes of no member")
    return members


def _text(name: bytes) -> str:
    if len(name) > 100:
        raise ValueError("a member has a name of more than 100 letters")
    return printable(name.decode("ascii"))  # UnicodeDecodeError is a ValueError


# ---------------------------------------------------------------- members


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; NaN and infinity, which are no JSON, are refused by its form."""
    try:
        content = parse(data)
    except ValueError as error:
        raise PolicyFileError(f"{name} is damaged: {printable(str(error)[:120])}") from error
    if not isinstance(content, dict):
        raise PolicyFileError(f"{name} is damaged: expected an object, got {shown(content)}")
    return content


def parse_arrays(data: bytes, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file: 8 bytes of length, a JSON header, numbers.

    They are float32, finite, and lie one after the other: no byte is of two arrays or of none.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, HEADER):
        raise PolicyFileError(f"{name} is truncated")
    header = parse_json(data[8 : 8 + size], f"header of {name}")
    if len(header) > ARRAYS:
        raise PolicyFileError(f"{name} has {len(header):,} arrays: more than any policy")
    arrays: dict[str, np.ndarray] = {}
    at = 0
    try:
        for key, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            shape, (start, stop) = entry["shape"], entry["data_offsets"]
            whole = [*shape, start, stop]
            if entry.keys() != {"dtype", "shape", "data_offsets"} or entry["dtype"] != "F32":
                raise ValueError("it must be float32")
            if any(type(n) is not int or not 0 <= n <= len(data) for n in whole) or len(shape) > 8:
                raise ValueError("its shape is none")
            if start != at or stop - start != 4 * math.prod(shape):
                raise ValueError("its bytes are not those of its shape")
            flat = np.frombuffer(data, "<f4", math.prod(shape), 8 + size + start)
            array = flat.reshape(shape).astype(np.float32)  # a copy is aligned
            if not np.isfinite(array).all():
                raise PolicyFileError(
                    f"{name} has an array {shown(key)} that is not finite: do not use it"
                )
            arrays[key], at = array, stop
        if at != len(data) - 8 - size:
            raise ValueError("there are bytes of no array")
    except PolicyFileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        text = printable(str(error)[:120])
        raise PolicyFileError(f"{name} is damaged ({text}): {AGAIN}") from error
    return arrays
