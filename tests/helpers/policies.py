"""Policy files taken apart and put together again, with checksums that fit."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from safecritic.runtime import certificate
from safecritic.runtime.file import policy_hash


def members_of(path: Path) -> dict[str, bytes]:
    """Return the members of a policy file but its manifest."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    del members["manifest.json"]
    return members


def rewritten(path: Path, target: Path, changes: dict[str, Any], fits: bool = True) -> Path:
    """Write a policy file with other members (None: without one) and a manifest of these.

    If it `fits`, the contract's own checksums are made again as well.
    """
    members = {k: x for k, x in (members_of(path) | changes).items() if x is not None}
    if fits:
        members["contract.json"] = fitted(members)
    return write(target, members)


def fitted(members: dict[str, bytes]) -> bytes:
    """Return the contract with the checksums of the other members, if it is one."""
    try:
        contract = json.loads(members["contract.json"])
        for name, member in (("parameters", "parameters.safetensors"), ("graph", "policy.onnx")):
            if f"{name}_sha256" in contract:
                data = members.get(member)
                sha256 = None if data is None else hashlib.sha256(data).hexdigest()
                contract[f"{name}_sha256"] = sha256
        if "policy_sha256" in contract:
            contract["policy_sha256"] = policy_hash(contract)
        return json.dumps(contract).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return members["contract.json"]


def write(target: Path, members: dict[str, bytes], **manifest: Any) -> Path:
    """Write members and their manifest as a zip."""
    files = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    }
    about = {"kind": "safecritic policy", "format": 2, "files": files} | manifest
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(about))
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def certificate_of(contract: dict[str, Any], costs: list[float], **changes: Any) -> dict[str, Any]:
    """Return the certificate that these costs give, of episodes that nobody ran."""
    confidence, limit = 0.9, contract["cost_limit"]
    names = ("policy_sha256", "parameters_sha256", "method", "cost_limit")
    rewards = [1.0] * len(costs)
    made = certificate.numbers(costs, rewards, limit, confidence)
    made |= {"faults": 0, "costs": costs, "rewards": rewards}
    content: dict[str, Any] = {name: contract[name] for name in names}
    content |= {"format": 2, "screen_on": made, "screen_off": made, "confidence": confidence}
    content |= {"environment": {"task": contract["task"], "id": contract["task"], "ours": True,
                                "kind": "a.Task", "sha256": "0" * 64}}  # fmt: skip
    content |= {"tolerance": None, "episodes": len(costs), "seed": 1_000_000, "attempt": 1}
    content |= {"choice_of_tolerance": None, "versions": {}, "signature": None}
    content["verdict"] = certificate.verdict(content)
    return content | changes
