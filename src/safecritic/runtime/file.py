"""Read a policy file: checked bytes in, a contract and arrays out. Nothing in a file is run.

A policy file is a zip of

    manifest.json            format, and length and SHA-256 of every other member
    contract.json            what goes in and out, the network's description, limits, versions
    parameters.safetensors   the network's arrays
    policy.onnx              the same network as one ONNX graph, if it was exported with one
    certificate.json         what the next episode may cost, if it was certified
"""

import hashlib
import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

KIND, FORMAT = "safecritic policy", 1
MANIFEST, CONTRACT, PARAMETERS = "manifest.json", "contract.json", "parameters.safetensors"
GRAPH, CERTIFICATE = "policy.onnx", "certificate.json"
REQUIRED, OPTIONAL = {MANIFEST, CONTRACT, PARAMETERS}, {GRAPH, CERTIFICATE}
LARGEST = 1 << 30  # bytes of all members: a small zip must not fill the memory
TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


class PolicyFileError(ValueError):
    """A file that is no policy file, is damaged, or was written by another version."""


class Contents(NamedTuple):
    """What a policy file holds."""

    contract: dict[str, Any]
    arrays: dict[str, np.ndarray]
    graph: bytes | None
    certificate: dict[str, Any] | None


def read(path: str | Path) -> Contents:
    """Read a policy file; raise PolicyFileError unless every byte is the one that was written."""
    members = read_members(path)
    contract = parse_json(members[CONTRACT], f"{CONTRACT} in {path}")
    blob = members[PARAMETERS]
    arrays = parse_arrays(blob, f"{PARAMETERS} in {path}")
    recorded = contract.get("policy_sha256")
    if recorded != policy_hash(blob, contract.get("network")):
        raise PolicyFileError(
            f"{path} was altered: its parameters are not those its contract was written for; "
            "export it again"
        )
    certificate = None
    if CERTIFICATE in members:
        certificate = parse_json(members[CERTIFICATE], f"{CERTIFICATE} in {path}")
    return Contents(contract, arrays, members.get(GRAPH), certificate)


def read_members(path: str | Path) -> dict[str, bytes]:
    """Return the checked members of a policy file."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if not set(names) >= REQUIRED or len(set(names)) < len(names):
                raise PolicyFileError(
                    f"{path} is a zip file but no policy file: expected {sorted(REQUIRED)}, "
                    f"got {names[:5]}; make one with `safecritic export`"
                )
            if sum(info.file_size for info in infos) > LARGEST:
                raise PolicyFileError(f"{path} holds more than {LARGEST >> 20} MB: not a policy")
            members = {name: archive.read(name) for name in names}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PolicyFileError(f"{path} cannot be read: {error.strerror or error}") from error
    # the last two: a compression or an encryption that nothing here writes
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PolicyFileError(
            f"{path} is not a policy file, or is damaged ({error}): copy it again, or make it with "
            "`safecritic export`"
        ) from error
    manifest = parse_json(members[MANIFEST], f"{MANIFEST} in {path}")
    if manifest.get("kind") != KIND:
        raise PolicyFileError(f"{path} is no policy file: its kind is {manifest.get('kind')!r}")
    if manifest.get("format") != FORMAT:
        raise PolicyFileError(
            f"{path} has format {manifest.get('format')!r}, this version reads {FORMAT}: use the "
            "runtime of the version of safecritic that wrote it"
        )
    listed = manifest.get("files")
    allowed = REQUIRED | OPTIONAL
    if not isinstance(listed, dict) or {MANIFEST, *listed} != set(names) or set(names) - allowed:
        raise PolicyFileError(f"{path} does not hold the members that its manifest lists")
    for name, expected in listed.items():
        data = members[name]
        if not isinstance(expected, dict) or expected.get("bytes") != len(data):
            raise PolicyFileError(f"{name} in {path} does not have the length that was written")
        if expected.get("sha256") != hashlib.sha256(data).hexdigest():
            raise PolicyFileError(f"{name} in {path} was altered: its checksum does not match")
    return members


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; NaN and infinity, which are no JSON, are refused."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        content = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise PolicyFileError(f"{name} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise PolicyFileError(
            f"{name} is damaged: expected an object, got {type(content).__name__}"
        )
    return content


def parse_arrays(data: bytes, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file: 8 bytes of length, a JSON header, numbers."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise PolicyFileError(f"{name} is truncated")
    header = parse_json(data[8 : 8 + size], f"header of {name}")
    header.pop("__metadata__", None)
    arrays = {}
    for key, entry in header.items():
        try:
            dtype, shape = TYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"])
            start, stop = (8 + size + int(n) for n in entry["data_offsets"])
            if min(shape, default=0) < 0 or not 8 + size <= start <= stop <= len(data):
                raise ValueError("places outside of the file")
            if stop - start != math.prod(shape) * dtype.itemsize:
                raise ValueError("a length that is not that of its shape")
            array = np.frombuffer(data[start:stop], dtype).reshape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyFileError(f"{name} is damaged: array {key!r} has {error!r}") from error
        if not np.isfinite(array).all():
            raise PolicyFileError(f"{name} has an array {key!r} that is not finite: do not use it")
        arrays[key] = array.astype(dtype.newbyteorder("="))
    return arrays


def policy_hash(parameters: bytes, network: Any) -> str:
    """Return the identity of a policy: SHA-256 of its parameters and its network's description.

    The description is part of it because tolerance, bounds and scales change what is done.
    """
    canonical = json.dumps(network, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(parameters + canonical.encode()).hexdigest()
