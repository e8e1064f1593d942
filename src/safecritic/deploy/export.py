"""Write a policy file: description, arrays, graph, contract and certificate in one zip."""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from safecritic.agents import methods
from safecritic.core import files
from safecritic.deploy import contract as contracts
from safecritic.deploy import graph
from safecritic.deploy.network import extract
from safecritic.runtime import certificate as certificates
from safecritic.runtime import file as policy_file
from safecritic.runtime.contract import wrong
from safecritic.runtime.file import Contents, policy_hash
from safecritic.runtime.network import Network
from safecritic.tasks.adapter import Adapted
from safecritic.tasks.repeat import RepeatAction

CHECKED = 256  # rows on which the exported network is compared with the agent
CLOSE = 1e-5
TIES = 0.02  # share of rows that may differ: a tie falls either way, another policy differs in more
DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same policy


class Exported(NamedTuple):
    """A policy as it is written: what the file holds, and how far it is from the agent."""

    contents: Contents
    parameters: bytes  # the arrays as they are written
    difference: float  # largest of an action in [-1, 1] over the rows compared

    @property
    def contract(self) -> dict[str, Any]:
        """What goes in and out."""
        return self.contents.contract


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
    content = contracts.make(agent, own_env(agent.env), fallback, period)
    contents, blob = _described(agent, content, tolerance)
    network = Network(contents.contract["network"], contents.arrays)
    difference = compare(agent, network, tolerance is None)
    model = graph.build(network) if onnx else None
    sha256 = [None if x is None else hashlib.sha256(x).hexdigest() for x in (blob, model)]
    contents.contract.update(parameters_sha256=sha256[0], graph_sha256=sha256[1])
    contents.contract["policy_sha256"] = policy_hash(contents.contract)
    if text := wrong(contents.contract):  # as its reader will see it
        raise ValueError(f"this policy cannot be described in a file, {text}")
    return Exported(contents._replace(graph=model), blob, difference)


def in_memory(agent: Any) -> Contents:
    """Return an agent's policy without a file: it raises on bad input and needs no environment."""
    own = None if agent.env is None else own_env(agent.env)
    return _described(agent, contracts.plain(agent, own), None)[0]


def _described(agent: Any, content: dict[str, Any], tolerance: float | None) -> Any:
    """Return the contract with the network and its arrays, and the bytes of these."""
    about, arrays = extract(agent, tolerance)
    blob = safetensors.numpy.save({k: np.array(v, order="C") for k, v in sorted(arrays.items())})
    content |= {"network": about, "policy_sha256": hashlib.sha256(blob).hexdigest()}
    return Contents(content, arrays, None, None), blob


def own_env(env: Any) -> Any:
    """Return the environment inside the adapter, or the environment itself."""
    while isinstance(env, RepeatAction | Adapted):
        env = env.env
    return env


def compare(agent: Any, network: Network, same_screen: bool) -> float:
    """Compare the exported network with the agent; raise ValueError if they act differently.

    Where the agent draws candidates anew, or another tolerance is exported, it is the actor alone.
    """
    n, rng = network.obs_dim, np.random.default_rng(0)
    rows = contracts.replay_rows(agent)
    obs = rng.normal(size=(CHECKED, n)) if rows is None else rows[0][-CHECKED:]
    obs = obs.astype(np.float32)
    limit = np.float32(agent.config.cost_limit)
    spent = (limit * rng.random(len(obs))).astype(np.float32)
    decision = network.decide(obs, limit - spent)
    actions, screened = agent_decisions(agent, obs, spent)
    screen = network.about["screen"]
    if same_screen and (screen is None or not screen["around"]):
        mine, theirs = decision.unit_action, actions
    else:
        apart = decision.screened | screened
        mine, theirs = decision.proposed[~apart], actions[~apart]
    difference = np.abs(mine - theirs).max(axis=-1)
    number = np.count_nonzero(difference > CLOSE)
    if number > TIES * len(obs):
        raise ValueError(
            f"the exported network does not do what {agent.method} does: {number} of {len(obs)} "
            f"actions differ by more than {CLOSE:g}; this method has parts that an export does not "
            "know"
        )
    return float(difference[difference <= CLOSE].max(initial=0.0))


def agent_decisions(agent: Any, obs: np.ndarray, spent: np.ndarray) -> tuple[Any, Any]:
    """Return the actions (N, A) in [-1, 1] of the agent's `act`, and whether they were screened."""
    functions = methods.get(agent.method).load_agent(agent.config)
    state = agent.training.device.agent

    def one(row: jax.Array, cost: jax.Array) -> tuple[jax.Array, jax.Array]:
        action, _, info = functions.act(state, row, cost, agent.config, False)
        return action, jnp.asarray(info.get("screened", False), bool)

    action, screened = jax.jit(jax.vmap(one))(obs, spent)
    return np.asarray(action), np.asarray(screened)


def prepare_with_certificate(
    agent: Any, file: Path, *, tolerance: float | None = None, onnx: bool = True, **options: Any
) -> tuple[Exported, dict[str, Any] | None, str]:
    """Return a policy, its certificate if that is valid for it, and a note.

    Without another `tolerance` it has the one that was certified. That of a void certificate was
    chosen for another policy, and is left out with it.
    """
    if not files.is_there(file):
        made = prepare(agent, tolerance=tolerance, onnx=onnx, **options)
        return made, None, "no certificate (certify)"
    certificate = files.read_json(file)
    if text := certificates.wrong(certificate):
        raise ValueError(f"{file} was altered, {text}: certify again, or remove it")
    certified = certificate["tolerance"] if tolerance is None else tolerance
    exported = prepare(agent, tolerance=certified, onnx=onnx, **options)
    try:
        require_valid(certificate, exported)
    except ValueError as error:
        note = f"left out: {error}"
        if tolerance is None and certified is not None:
            exported = prepare(agent, onnx=onnx, **options)
            note += f"; the tolerance is the one it was trained with, not {certified:g}"
        return exported, None, note
    return exported, certificate, f"certificate: {certificates.statement(certificate)}"


def require_valid(certificate: dict[str, Any], exported: Exported) -> None:
    """Raise ValueError if a certificate was made for another policy or environment."""
    contract = exported.contract
    made_for, here = certificate["policy_sha256"], contract["policy_sha256"]
    world, task = certificate["environment"], contract["task"]
    if world["task"] != task:
        raise ValueError(
            f"the certificate is void: it was made on {world['task']}, this policy is for {task}; "
            "certify it there (safecritic certify)"
        )
    if made_for == here:
        return
    why = "other parameters"
    if certificate["parameters_sha256"] == contract["parameters_sha256"]:
        why = "another tolerance, fallback, period or ONNX graph"
    raise ValueError(
        f"the certificate is void: it was made for the policy {made_for[:12]}, this is "
        f"{here[:12]} ({why}); certify it again (safecritic certify)"
    )


def write(path: str | Path, exported: Exported, certificate: dict[str, Any] | None = None) -> Path:
    """Write a policy file, whole or not at all."""
    path, form = Path(path), policy_file
    members = {form.CONTRACT: _json(exported.contract), form.PARAMETERS: exported.parameters}
    if exported.contents.graph is not None:
        members[form.GRAPH] = exported.contents.graph
    if certificate is not None:
        members[form.CERTIFICATE] = _json(certificate)
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    }
    manifest = _json({"kind": form.KIND, "format": form.FORMAT, "files": listed})
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {form.MANIFEST: manifest, **members}.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), data)
    files.write_bytes(path, buffer.getvalue())
    return path


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
