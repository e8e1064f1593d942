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
TYPES = {"F32": "<f4"}  # little-endian


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
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > LARGEST:
                raise PolicyFileError(f"{path} holds more than {LARGEST >> 20} MB: not a policy")
            members = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError:
        raise
    # the last, and what inherits from it: a compression or an encryption that nothing here writes
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise PolicyFileError(
            f"{path} is not a policy file, or is damaged ({error}): copy it again, or make it with "
            "`safecritic export`"
        ) from error
    if not members.keys() >= REQUIRED:
        raise PolicyFileError(
            f"{path} is a zip file but no policy file: expected {sorted(REQUIRED)}, got "
            f"{list(members)[:5]}; make one with `safecritic export`"
        )
    manifest, contract = (parse_json(members[x], f"{x} in {path}") for x in (MANIFEST, CONTRACT))
    if (manifest.get("kind"), manifest.get("format")) != (KIND, FORMAT):
        raise PolicyFileError(
            f"{path} is a {manifest.get('kind')!r} of format {manifest.get('format')!r}, this "
            f"version reads a {KIND!r} of format {FORMAT}: use the runtime of the version of "
            "safecritic that wrote it"
        )
    listed = manifest.get("files")
    names = members.keys()
    if not isinstance(listed, dict) or {MANIFEST, *listed} != names or names - REQUIRED - OPTIONAL:
        raise PolicyFileError(f"{path} does not hold the members that its manifest lists")
    for name, expected in listed.items():
        sha256 = expected.get("sha256") if isinstance(expected, dict) else None
        if sha256 != hashlib.sha256(members[name]).hexdigest():
            raise PolicyFileError(f"{name} in {path} was altered: its checksum does not match")
    blob = members[PARAMETERS]
    if contract.get("policy_sha256") != policy_hash(blob, contract.get("network")):
        raise PolicyFileError(
            f"{path} was altered: its parameters are not those its contract was written for; "
            "export it again"
        )
    arrays, certificate = parse_arrays(blob, f"{PARAMETERS} in {path}"), None
    if CERTIFICATE in members:
        certificate = parse_json(members[CERTIFICATE], f"{CERTIFICATE} in {path}")
    return Contents(contract, arrays, members.get(GRAPH), certificate)


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
            start, stop = (8 + size + int(n) for n in entry["data_offsets"])
            array = np.frombuffer(data[start:stop], TYPES[entry["dtype"]]).reshape(entry["shape"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PolicyFileError(f"{name} is damaged: array {key!r} has {error!r}") from error
        if not np.isfinite(array).all():
            raise PolicyFileError(f"{name} has an array {key!r} that is not finite: do not use it")
        arrays[key] = array.astype(np.float32)
    return arrays


def policy_hash(parameters: bytes, network: Any) -> str:
    """Return the identity of a policy: SHA-256 of its parameters and its network's description."""
    canonical = json.dumps(network, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(parameters + canonical.encode()).hexdigest()
