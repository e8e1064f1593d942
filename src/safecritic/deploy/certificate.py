"""Certify what the next episode may cost, from fresh episodes; and check a certificate again.

`runtime.certificate` has the bounds, the tests and the sentences. A tolerance is chosen on other
scenes than those that certify it, and how often the same parameters were certified is kept beside
the run, since the best of several certificates is worth less than each.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np

from safecritic.core import files
from safecritic.core.schema import Digest, Within, check
from safecritic.deploy.export import Exported, own_env, prepare, require_valid
from safecritic.deploy.network import trained_tolerance
from safecritic.run.folder import versions
from safecritic.run.rollout import Rollout
from safecritic.runtime import certificate as form
from safecritic.runtime.certificate import least_episodes, numbers, statement, verdict, wrong
from safecritic.runtime.file import Contents, read
from safecritic.runtime.policy import Policy
from safecritic.tasks import registry
from safecritic.tasks.adapter import is_ours, make_env
from safecritic.tasks.checks import layers, name_of
from safecritic.tasks.repeat import single_steps

EPISODES, CONFIDENCE = 99, 0.95
SEED = 1_000_000  # far from the seeds of training and of `evaluate`
CALIBRATION_SEED = 2_000_000
FACTORS = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0)  # of the tolerance, the largest first
LEDGER = "certificates.json"
SAME = 1e-6  # of a cost, relative: another machine rounds otherwise

Advance = Callable[[int, int], None]


def certify(
    agent: Any,
    *,
    episodes: int = EPISODES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
    choose_tolerance: bool = False,
    tolerance: float | None = None,
    env: Any = None,
    onnx: bool = True,
    ledger: Path | None = None,
    advance: Advance = lambda done, number: None,
) -> dict[str, Any]:
    """Return a certificate of an agent's exported policy, as JSON.

    Args:
        agent: the agent.
        episodes: fresh episodes with the screen on, and as many with it off.
        confidence: of both bounds.
        seed: episode i starts from this seed + i.
        choose_tolerance: take the largest tolerance whose conformal bound is within the limit, on
            calibration episodes of their own.
        tolerance: the screen's, instead of the one it was trained with.
        env: in place of a fresh environment made from the agent's id. The certificate is of it.
        onnx: certify the policy as it is exported with its ONNX graph, as `export` does.
        ledger: the file that counts certificates; without it the one beside the agent's run.
        advance: called with the episodes done and their number.
    """
    _require_enough(episodes, confidence)
    if choose_tolerance and tolerance is not None:
        raise ValueError("tolerance contradicts choose_tolerance: give one of the two")
    scenes = {"seed": seed, "episodes": episodes}
    calibration = {"seed": CALIBRATION_SEED, "episodes": episodes}
    if choose_tolerance and form.shared(scenes, calibration):
        raise ValueError(
            f"the tolerance is chosen on the scenes from seed {CALIBRATION_SEED:,}: certify on "
            f"others than from {seed:,} (--seed)"
        )
    if ledger is None and agent.run_folder is not None:
        ledger = agent.run_folder / LEDGER
    chosen: dict[str, Any] | None = None
    with agent._lent_env("certify", env) as (used, _), single_steps(used) as (stepped, _):
        known = env if env is None or isinstance(env, str) else ""
        about = world(stepped, agent.environment["id"] if known is None else known or None)

        def measure(exported: Exported, first: int, screen: bool = True) -> dict[str, Any]:
            policy = Policy(exported.contents, clock=None, screen=screen, on_fault=lambda *_: None)
            seeds = range(first, first + episodes)
            return _measure(policy, stepped, seeds, policy.limit, confidence, advance)

        if choose_tolerance:
            chosen = choose(agent, lambda exported: measure(exported, CALIBRATION_SEED))
            chosen |= calibration
            tolerance = chosen["tolerance"]
        exported = prepare(agent, tolerance=tolerance, onnx=onnx)
        contract = exported.contract
        entry = {"parameters_sha256": contract["parameters_sha256"], **scenes, "chosen": chosen}
        attempt = count(ledger, entry)
        has_screen = contract["network"]["screen"] is not None
        on = measure(exported, seed) if has_screen else None
        off = measure(exported, seed, screen=False)
    names = ("policy_sha256", "parameters_sha256", "method", "cost_limit")
    return _finished(
        {name: contract[name] for name in names},
        about,
        {"tolerance": tolerance, "confidence": confidence, **scenes},
        {"screen_on": on, "screen_off": off, "choice_of_tolerance": chosen, "attempt": attempt},
    )


def _require_enough(episodes: int, confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence} (--confidence)")
    least = least_episodes(confidence)
    if episodes < least:
        raise ValueError(
            f"episodes must be >= {least} for a confidence of {confidence:g}, got {episodes}: "
            "with fewer, no finite bound holds (--episodes)"
        )


def _finished(policy: Any, about: Any, how: Any, results: Any) -> dict[str, Any]:
    """Return a certificate with its verdict first, as its reader wants it."""
    made = {**policy, "environment": about, **how, **results}
    made = {"format": form.FORMAT, "verdict": verdict(made), **made}
    made |= {"versions": versions(), "signature": None}
    made = json.loads(json.dumps(made))
    if text := wrong(made):
        raise ValueError(f"these episodes cannot be certified, {text}")
    return made


def world(env: Any, known: str | None) -> dict[str, Any]:
    """Return what a certificate says of the environment that was run."""
    name = name_of(env)
    task = registry.find(name)
    own: Any = own_env(env)
    chain = [f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in layers(env)]
    arguments = repr(sorted((getattr(env.spec, "kwargs", None) or {}).items()))
    spaces = [repr(own.observation_space), repr(own.action_space)]
    return {
        "task": task.name if task else name.rpartition(":")[2],
        "id": known,
        "kind": chain[-1],
        "ours": known is not None and is_ours(known),
        "sha256": files.digest([name, chain, arguments, spaces]),
    }


def _measure(
    policy: Any,
    env: Any,
    seeds: Sequence[int],
    limit: float,
    confidence: float,
    advance: Advance = lambda done, number: None,
) -> dict[str, Any]:
    """Return the episodes of these seeds, step by step, and what follows from their costs."""
    costs, rewards = [], []
    for seed in seeds:
        cost, reward = run_episode(policy, env, seed)
        costs.append(cost)
        rewards.append(reward)
        advance(len(costs), len(seeds))
    made = {"faults": int(policy.counts["faults"]), "costs": costs, "rewards": rewards}
    return numbers(costs, rewards, limit, confidence) | made


def run_episode(policy: Any, env: Any, seed: int) -> tuple[float, float]:
    """Return cost and reward of an episode; every step's cost is checked."""
    rollout = Rollout(env)
    obs, reward = rollout.reset(seed=seed), 0.0
    policy.reset()
    while not rollout.episode.ended:
        rollout.require_end()
        policy(obs)
        step = rollout.step(policy.last.unit_action)
        policy.spend(step.cost)
        obs, reward = step.next_obs, reward + step.reward
    return float(policy.spent), float(reward)


def choose(agent: Any, measure: Callable[[Exported], dict[str, Any]]) -> dict[str, Any]:
    """Return the largest tolerance whose bound is within the limit, or that of least bound."""
    screen, limit = getattr(agent.config, "screen", None), float(agent.config.cost_limit)
    if not screen:
        raise ValueError(
            f"{agent.method} has no screen, so there is no tolerance to choose (--choose-tolerance)"
        )
    trained = trained_tolerance(agent)
    tried: list[dict[str, Any]] = []
    for factor in FACTORS:
        made = measure(prepare(agent, tolerance=factor * trained, onnx=False))
        row = {"tolerance": factor * trained, "bound": made["bound"], "reward": made["mean_reward"]}
        tried.append(row)
        if row["bound"] <= limit:
            break
    best = min(tried, key=lambda row: max(row["bound"], limit))
    within = best["bound"] <= limit
    return {"tolerance": best["tolerance"], "within_limit": within, "tried": tried}


# ---------------------------------------------------------------- how often


@dataclass
class Entry:
    parameters_sha256: Digest
    seed: Annotated[int, Within(0, 2**63)]
    episodes: Annotated[int, Within(1, 10**6)]
    chosen: dict[str, Any] | None


@dataclass
class Ledger:
    """certificates.json: every certificate that was begun."""

    certificates: Annotated[list[Entry], Within(0, 10_000)]


def count(ledger: Path | None, entry: dict[str, Any]) -> int | None:
    """Note that a certificate is begun; return its number for these parameters.

    Noted before the episodes run, so that one which is stopped half-way counts too.
    """
    if ledger is None:
        return None
    before: list[dict[str, Any]] = []
    if files.is_there(ledger):
        content = files.read_json(ledger)
        check(Ledger, content, ledger)
        before = content["certificates"]
    same = [x for x in before if x["parameters_sha256"] == entry["parameters_sha256"]]
    for earlier in same:
        if earlier["chosen"] is not None and form.shared(earlier["chosen"], entry):
            raise ValueError(
                f"a tolerance of this policy was chosen on scenes from {earlier['chosen']['seed']}"
                " on: certify on others (--seed)"
            )
    chosen = entry["chosen"] and {name: entry["chosen"][name] for name in ("seed", "episodes")}
    files.write_json(ledger, {"certificates": [*before, entry | {"chosen": chosen}]})
    return len(same) + 1


# ---------------------------------------------------------------- any policy


class Watched(gymnasium.Wrapper):
    """Keeps the last observation in the environment's own form."""

    observation: Any = None

    def reset(self, **options: Any) -> Any:
        result = self.env.reset(**options)
        self.observation = result[0]
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.observation = result[0]
        return result


class OfFunction:
    """A function from observation to action, in the environment's own form, as a policy here.

    If it has `reset` and `spend`, they are called as those of a policy of this package.
    """

    def __init__(self, function: Callable[[Any], Any], env: Watched, name: str):
        self.function, self.env, self.name = function, env, name
        box: Any = env.action_space
        self.low, self.high = (np.ravel(x).astype(np.float64) for x in (box.low, box.high))
        self.counts, self.spent = {"faults": 0}, 0.0
        self.last = self

    def reset(self) -> None:
        self.spent = 0.0
        if hasattr(self.function, "reset"):
            self.function.reset()

    def spend(self, cost: float) -> None:
        self.spent += cost
        if hasattr(self.function, "spend"):
            self.function.spend(cost)

    def __call__(self, _: Any) -> None:
        action = np.asarray(self.function(self.env.observation))
        flat = np.ravel(action)
        if (
            flat.shape != self.low.shape
            or flat.dtype.kind not in "fiu"
            or not (np.isfinite(flat.astype(np.float64)).all())
        ):
            raise ValueError(
                f"{self.name} must return {self.low.size} finite numbers, an action of the "
                f"environment, got {files.shown(action.tolist())}"
            )
        own = np.clip(flat.astype(np.float64), self.low, self.high)
        width = self.high - self.low
        share = np.divide(own - self.low, width, out=np.full_like(own, 0.5), where=width > 0)
        self.unit_action = (2.0 * share - 1.0).astype(np.float64)


def function_of(name: str) -> tuple[Callable[[Any], Any], str]:
    """Return the function that `module:function` names, and the SHA-256 of its module's file.

    It is the user's own code: imported as `python -m` would, the current folder first.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"policy must be module:function, got {name!r} (--policy)")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    finally:
        sys.path.pop(0)
    function = getattr(loaded, attribute, None)
    if not callable(function):
        raise ValueError(f"{module} has no function {attribute!r} (--policy)")
    source = Path(loaded.__file__ or "")
    data = source.read_bytes() if source.is_file() else name.encode()
    return function, hashlib.sha256(data).hexdigest()


def certify_function(
    function: Callable[[Any], Any],
    env: str | gymnasium.Env,
    *,
    cost_limit: float,
    name: str = "",
    sha256: str = "",
    episodes: int = EPISODES,
    confidence: float = CONFIDENCE,
    seed: int = SEED,
    ledger: Path | None = None,
    advance: Advance = lambda done, number: None,
    **declared: Any,
) -> dict[str, Any]:
    """Return a certificate of any policy: a function from observation to action.

    Both are in the environment's own form. `declared` are the declarations of `adapt`; `sha256`
    identifies the policy, without it its name does.
    """
    _require_enough(episodes, confidence)
    if not 0.0 <= cost_limit < float("inf"):
        raise ValueError(f"cost_limit must be finite and >= 0, got {cost_limit} (--cost-limit)")
    name = name or f"{function.__module__}:{getattr(function, '__qualname__', 'policy')}"
    known = env if isinstance(env, str) else None
    own = own_env(make_env(env, **declared)[0])
    watched = Watched(own)
    adapted, _ = make_env(watched, **declared)
    with single_steps(adapted) as (stepped, _):
        about = world(own, known)
        policy = OfFunction(function, watched, name)
        entry = {"seed": seed, "episodes": episodes, "chosen": None}
        sha256 = sha256 or hashlib.sha256(name.encode()).hexdigest()
        attempt = count(ledger, {"parameters_sha256": sha256, **entry})
        seeds = range(seed, seed + episodes)
        made = _measure(policy, stepped, seeds, cost_limit, confidence, advance)
    return _finished(
        {"policy_sha256": sha256, "parameters_sha256": sha256, "method": name}
        | {"cost_limit": float(cost_limit)},
        about,
        {"tolerance": None, "confidence": confidence, "seed": seed, "episodes": episodes},
        {"screen_on": None, "screen_off": made, "choice_of_tolerance": None, "attempt": attempt},
    )


# ---------------------------------------------------------------- checking


def read_certificate(path: Path) -> dict[str, Any]:
    """Return the certificate in a file of its own; refuse one that its costs do not bear out."""
    content = files.read_json(path)
    if text := wrong(content):
        raise ValueError(f"{path} was altered, {text}: certify again (safecritic certify)")
    return content


def check_file(
    path: Path,
    load_agent: Callable[[Path], Any],
    replay: int = 3,
    key: Path | None = None,
    advance: Advance = lambda done, number: None,
) -> tuple[dict[str, Any], list[str]]:
    """Return a certificate that holds, and what was checked; ValueError if something does not.

    `path` is a policy file, or a certificate; where this lies in the folder of its run the policy
    is made from it by `load_agent`.
    """
    contents: Contents | None = None
    if not path.is_file():
        raise ValueError(f"there is no file {path} (--check)")
    with open(path, "rb") as file:
        packed = file.read(2) == b"PK"
    if packed:
        contents = read(path)
        if contents.certificate is None:
            raise ValueError(f"{path} has no certificate: make one (safecritic certify)")
        certificate = contents.certificate
    else:
        certificate = read_certificate(path)
    done = ["bounds, tests and verdict follow from the costs of its episodes"]
    if not packed and files.is_there(path.parent / "config.json"):
        agent = load_agent(path.parent)
        made = prepare(agent, tolerance=certificate["tolerance"], onnx=False)
        if certificate["policy_sha256"] != made.contract["policy_sha256"]:
            made = prepare(agent, tolerance=certificate["tolerance"])
        require_valid(certificate, made)
        contents = made.contents
    if contents is not None:
        require_valid(certificate, Exported(contents, b"", 0.0))
        done.append("it is of this policy")
    done.append(_signed(certificate, key))
    if contents is None:
        return certificate, [*done, "no episode was replayed: the policy is not beside it"]
    if not certificate["environment"]["ours"]:
        return certificate, [*done, "no episode was replayed: the environment is not ours"]
    seeds = _replayed(certificate, contents, replay, advance)
    if seeds:
        done.append(f"replayed with the same costs: seeds {', '.join(map(str, seeds))}")
    return certificate, done


def _replayed(
    certificate: dict[str, Any], contents: Contents, number: int, advance: Advance
) -> list[int]:
    """Run some of the episodes again; ValueError if one costs something else."""
    rng = np.random.default_rng()
    places = np.sort(rng.permutation(certificate["episodes"])[:number]).tolist()
    env, _ = make_env(certificate["environment"]["id"])
    with single_steps(env) as (stepped, _):
        if world(stepped, certificate["environment"]["id"]) != certificate["environment"]:
            raise ValueError(
                f"the certificate is of another {certificate['environment']['task']} than this "
                "version of safecritic has: certify again"
            )
        for name, screen in (("screen_on", True), ("screen_off", False)):
            made = certificate[name]
            if made is None:
                continue
            policy = Policy(contents, clock=None, screen=screen, on_fault=lambda *_: None)
            for done, place in enumerate(places):
                seed = certificate["seed"] + place
                cost, _ = run_episode(policy, stepped, seed)
                advance(done + 1, len(places))
                if not np.isclose(cost, made["costs"][place], SAME, SAME):
                    raise ValueError(
                        f"the episode of seed {seed} ({name.replace('_', ' ')}) costs {cost:g}, "
                        f"the certificate says {made['costs'][place]:g}: it was not made by this "
                        "policy and task"
                    )
    return [certificate["seed"] + place for place in places]


# ---------------------------------------------------------------- signatures


def _keys() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ImportError(
            "signatures need cryptography: pip install 'safecritic[sign]', or leave out --sign and "
            "--key"
        ) from error
    return serialization, ed25519


def sign(certificate: dict[str, Any], key: Path) -> dict[str, Any]:
    """Return a certificate signed with a private ed25519 key in a PEM file without a password."""
    import base64

    serialization, ed25519 = _keys()
    try:
        private = serialization.load_pem_private_key(files.read_bytes(key, 2**16, "a key"), None)
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise ValueError(f"{key} is no private key in a PEM file without a password") from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{key} must be an ed25519 key: openssl genpkey -algorithm ed25519")
    public = private.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    signature = private.sign(form.signed_bytes(certificate))
    encoded = {
        "public_key": base64.b64encode(public).decode(),
        "signature": base64.b64encode(signature).decode(),
    }
    return certificate | {"signature": {"algorithm": "ed25519", **encoded}}


def _signed(certificate: dict[str, Any], key: Path | None) -> str:
    """Return what is known of the signature; ValueError if it does not hold, or is of another."""
    import base64

    signature = certificate["signature"]
    if signature is None:
        if key is not None:
            raise ValueError("the certificate is not signed (--key)")
        return "it is not signed: nothing says who made it"
    serialization, ed25519 = _keys()
    try:
        raw = base64.b64decode(signature["public_key"], validate=True)
        public = ed25519.Ed25519PublicKey.from_public_bytes(raw)
        signed = base64.b64decode(signature["signature"], validate=True)
        public.verify(signed, form.signed_bytes(certificate))
    except Exception as error:  # its own type for a signature, ValueError for the rest
        raise ValueError("the signature does not fit the certificate: it was altered") from error
    if key is None:
        return f"signed with the key {signature['public_key']}; give --key to check whose it is"
    data = files.read_bytes(key, 2**16, "a key")
    try:
        expected = serialization.load_pem_public_key(data)
    except ValueError as error:
        raise ValueError(f"{key} is no public key in a PEM file") from error
    raw_expected = expected.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    if raw_expected != raw:
        raise ValueError(f"the certificate is signed with another key than {key}")
    return f"signed with the key in {key}"


__all__ = ["certify", "certify_function", "check_file", "choose", "sign", "statement", "world"]
