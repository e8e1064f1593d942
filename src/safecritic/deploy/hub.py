"""Share exported policies: push one to the Hugging Face Hub or to a folder, and pull it again.

What is shared is the policy file of `safecritic export` with its contract and certificate beside
it, and a card that a person can read. A pulled file is checked byte by byte and runs no code.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safecritic.core.files import printable, write_bytes, write_text
from safecritic.runtime import certificate as certificates
from safecritic.runtime import file as policy_file

POLICY, CARD = "policy.safecritic", "README.md"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class HubError(ValueError):
    """The hub refused, was not reached, or has no policy under that name."""


def push(policy: str | Path, target: str) -> str:
    """Put a policy file, or that of a run's folder, into a repository or a folder; say where.

    `target` is a repository of the hub, OWNER/NAME, or a folder: ./NAME or /PATH.
    """
    path = Path(policy)
    path = path / POLICY if path.is_dir() else path
    if not path.is_file():
        raise HubError(f"{path} is no file: make one with `safecritic export RUN`")
    contents = policy_file.read(path)
    folder = _folder(target)
    if folder is not None:
        _write(folder, path, contents)
        return str(folder / POLICY)
    hub = _hub()
    with tempfile.TemporaryDirectory(prefix="safecritic-") as made:
        _write(Path(made), path, contents)
        try:
            hub.create_repo(target, exist_ok=True)
            done = hub.upload_folder(
                repo_id=target, folder_path=made, commit_message=f"Policy {_short(contents)}"
            )
        except Exception as error:  # of the network, the account or the repository
            raise _refused(target, error, "log in with `hf auth login`") from error
    return str(done)


def pull(source: str, out: str | Path = POLICY) -> Path:
    """Fetch a policy from a repository OWNER/NAME of the hub or a folder, check it, return it."""
    folder = _folder(source)
    if folder is not None:
        found = folder / POLICY
        if not found.is_file():
            raise HubError(f"{folder} holds no {POLICY}: push one with `safecritic push`")
    else:
        try:
            found = Path(_hub().hf_hub_download(source, POLICY))
        except Exception as error:
            raise _refused(source, error, "is the name right?") from error
    policy_file.read(found)  # raises unless every byte is the one that was written
    out = Path(out)
    out = out / POLICY if out.is_dir() else out
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, found.read_bytes())
    return out


def card(contents: policy_file.Contents) -> str:
    """Return the card of a policy: what it is, what was certified, and how to run it."""
    contract, certificate = contents.contract, contents.certificate
    task, method = (printable(str(contract[name])) for name in ("task", "method"))
    statement = "It has no certificate."
    if certificate is not None:
        statement = printable(certificates.statement(certificate))
    tags = ("reinforcement-learning", "safe-reinforcement-learning", "safecritic")
    front = {"library_name": "safecritic", "pipeline_tag": tags[0], "tags": [*tags[1:], task]}
    lines = [f"{name}: {json.dumps(value)}" for name, value in front.items()]
    screen = contract["network"]["screen"]
    return "\n".join(
        [
            "---",
            *lines,
            "---",
            f"# {method} on {task}",
            "",
            f"A policy of {contract['steps']:,} training steps, with its screen, in one file that "
            "holds no code.",
            "",
            "| | |",
            "|---|---|",
            f"| cost limit of an episode | {contract['cost_limit']:g} |",
            f"| screen | {'none' if screen is None else screen['tolerance']} |",
            f"| observation | {len(contract['observation']['names'])} numbers |",
            f"| action | {len(contract['action']['names'])} numbers |",
            f"| policy | `{_short(contents)}` |",
            "",
            "## Certificate",
            "",
            statement,
            "",
            "## Use",
            "",
            "```python",
            "from safecritic.runtime import load",
            "",
            f'policy = load("{POLICY}")  # needs NumPy alone',
            "policy.reset()",
            "action = policy(observation)",
            "policy.spend(cost)",
            "```",
            "",
        ]
    )


def _write(folder: Path, path: Path, contents: policy_file.Contents) -> None:
    """Write what is shared: the file, what it holds for people to read, and the card."""
    folder.mkdir(parents=True, exist_ok=True)
    if path.resolve() != (folder / POLICY).resolve():
        shutil.copyfile(path, folder / POLICY)
    write_text(folder / policy_file.CONTRACT, json.dumps(contents.contract, indent=1) + "\n")
    certificate = folder / policy_file.CERTIFICATE
    certificate.unlink(missing_ok=True)  # of an earlier policy
    if contents.certificate is not None:
        write_text(certificate, json.dumps(contents.certificate, indent=1) + "\n")
    write_text(folder / CARD, card(contents))


def _folder(place: str) -> Path | None:
    """Return the folder that is meant; None for a repository of the hub."""
    if place.startswith((".", "/", "~")) or Path(place).is_dir():
        return Path(place).expanduser()
    if not REPOSITORY.fullmatch(place):
        raise HubError(f"expected a repository OWNER/NAME or a folder ./NAME, got {place!r}")
    return None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            'huggingface_hub is not installed: pip install ".[hub]", or name a folder, ./NAME'
        ) from error
    return huggingface_hub.HfApi()


def _refused(place: str, error: Exception, advice: str) -> HubError:
    text = printable(" ".join(str(error).split())[:300])
    return HubError(f"the hub did not serve {place} ({type(error).__name__}: {text}); {advice}")


def _short(contents: policy_file.Contents) -> str:
    return str(contents.contract["policy_sha256"])[:12]
