"""Write a policy file: description, arrays, graph, contract and certificate in one zip."""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from safecritic import files
from safecritic.deploy import contract as contracts
from safecritic.deploy import graph
from safecritic.deploy.network import Arrays, extract
from safecritic.runtime.file import (
    CERTIFICATE,
    CONTRACT,
    FORMAT,
    GRAPH,
    KIND,
    MANIFEST,
    PARAMETERS,
    Contents,
    parse_arrays,
    policy_hash,
)
from safecritic.runtime.network import Network
from safecritic.tasks.adapter import Adapted
from safecritic.tasks.repeat import RepeatAction

CHECKED = 256  # rows on which the exported network is compared with the agent
CLOSE = 1e-5
DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same policy


class Exported(NamedTuple):
    """A policy as it is written: members of the file, and how far it is from the agent."""

    contract: dict[str, Any]
    arrays: Arrays
    parameters: bytes
    graph: bytes | None
    difference: float  # largest of an action in [-1, 1] over the rows compared

    def contents(self, certificate: dict[str, Any] | None = None) -> Contents:
        """Return what reading the file would."""
        return Contents(self.contract, self.arrays, self.graph, certificate)


def prepare(
    agent: Any,
    *,
    tolerance: float | None = None,
    fallback: Any = "hold",
    period: float | None = None,
    onnx: bool = True,
) -> Exported:
    """Return an agent's policy as it is deployed, compared with the agent itself.

    Args:
        agent: the agent, with its environment.
        tolerance: the screen's, instead of the one it was trained with.
        fallback: what answers a call that the policy cannot: "hold", "zero", or an action in the
            environment's own unit.
        period: seconds of a control step; without it, what the environment says.
        onnx: include the ONNX graph.
    """
    agent._require_env("export")
    agent.training.check()
    about, arrays = extract(agent, tolerance)
    blob = safetensors.numpy.save({k: np.array(v, order="C") for k, v in sorted(arrays.items())})
    arrays = parse_arrays(blob, PARAMETERS)
    network = Network(about, arrays)
    own = _own_env(agent.env)
    content = contracts.make(agent, own, fallback, period)
    content["network"] = about
    content["policy_sha256"] = policy_hash(blob, about)
    difference = compare(agent, network, tolerance is None)
    made = graph.build(network) if onnx else None
    return Exported(content, arrays, blob, made, difference)


def _own_env(env: Any) -> Any:
    """Return the environment inside the adapter, or the environment itself."""
    while isinstance(env, RepeatAction | Adapted):
        env = env.env
    return env


def compare(agent: Any, network: Network, same_screen: bool) -> float:
    """Compare the exported network with the agent; raise ValueError if they act differently.

    Where candidates are random in training, and where another tolerance is exported, only the
    actor's own actions are compared.
    """
    n, rng = network.obs_dim, np.random.default_rng(0)
    rows = contracts.replay_rows(agent)
    obs = rng.normal(size=(CHECKED, n)) if rows is None else rows[0][-CHECKED:]
    obs = obs.astype(np.float32)
    limit = np.float32(agent.config.cost_limit)
    spent = (limit * rng.random(len(obs))).astype(np.float32)
    decision = network.decide(obs, limit - spent)
    actions, screened = agent_decisions(agent, obs, spent)
    about = network.about["screen"]
    if same_screen and (about is None or about["source"] == "grid"):
        mine, theirs = decision.unit_action, actions
    else:
        apart = decision.screened | (screened > 0)
        mine, theirs = decision.proposed[~apart], actions[~apart]
    apart = np.abs(mine - theirs).max(axis=-1) > CLOSE
    # a tie may fall either way; a policy that is another one differs in more than a few rows
    if np.count_nonzero(apart) > 0.02 * len(obs):
        raise ValueError(
            f"the exported network does not do what {agent.method} does: {np.count_nonzero(apart)} "
            f"of {len(obs)} actions differ by more than {CLOSE:g}; this method has parts that an "
            "export does not know"
        )
    return float(np.abs(mine - theirs)[~apart].max(initial=0.0))


def agent_decisions(
    agent: Any, obs: np.ndarray, spent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the agent's own actions (N, A) in [-1, 1] and whether they were screened (N,)."""
    packed = agent.act_on_batch(obs, spent)
    dim = agent.training.spec.action_dim
    return packed[:, :dim], np.nan_to_num(packed[:, dim + 1])


def prepare_with_certificate(
    agent: Any, file: Path, *, tolerance: float | None = None, **options: Any
) -> tuple[Exported, dict[str, Any] | None, str]:
    """Return an agent's policy, its certificate if the file holds a valid one, and a note on it.

    A tolerance that the certificate chose is exported, unless another one is given.
    """
    try:
        certificate = files.read_json(file)
    except FileNotFoundError:
        return prepare(agent, tolerance=tolerance, **options), None, "no certificate (certify)"
    certified = certificate.get("tolerance") if tolerance is None else tolerance
    exported = prepare(agent, tolerance=certified, **options)
    try:
        require_valid(certificate, exported)
    except ValueError as error:
        return exported, None, f"left out: {error}"
    return exported, certificate, f"certificate: {certificate.get('statement')}"


def require_valid(certificate: dict[str, Any], exported: Exported) -> None:
    """Raise ValueError if a certificate was made for another policy."""
    made_for, here = certificate.get("policy_sha256"), exported.contract["policy_sha256"]
    if made_for != here:
        raise ValueError(
            f"the certificate is void: it was made for the policy {str(made_for)[:12]}, this is "
            f"{here[:12]}; certify it again (safecritic certify)"
        )


def write(path: str | Path, exported: Exported, certificate: dict[str, Any] | None = None) -> Path:
    """Write a policy file, whole or not at all."""
    path = Path(path)
    members = {CONTRACT: _json(exported.contract), PARAMETERS: exported.parameters}
    if exported.graph is not None:
        members[GRAPH] = exported.graph
    if certificate is not None:
        members[CERTIFICATE] = _json(certificate)
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    }
    manifest = _json({"kind": KIND, "format": FORMAT, "files": listed})
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {MANIFEST: manifest, **members}.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), data)
    files.write_bytes(path, buffer.getvalue())
    return path


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
