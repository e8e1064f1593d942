"""Policies that are shared: whole, with a card, checked, and without code. A folder is the hub."""

import json
from pathlib import Path

import numpy as np
import pytest

from deploy import ready
from probes import KeptPoint
from safecritic import SC, cli
from safecritic.deploy.certificate import certify
from safecritic.deploy.export import prepare, write
from safecritic.deploy.hub import HubError, pull, push
from safecritic.runtime import certificate as certificates
from safecritic.runtime import load
from safecritic.runtime.file import PolicyFileError

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.safecritic"
    return ready.point(SC).export(path, onnx=False)


def test_what_is_pulled_acts_as_what_was_pushed(exported: Path, tmp_path: Path) -> None:
    push(exported, str(tmp_path / "shared"))
    pulled = load(pull(str(tmp_path / "shared"), tmp_path / "mine.safecritic"))
    obs = KeptPoint().reset(seed=0)[0]
    np.testing.assert_array_equal(pulled(obs), load(exported)(obs))
    assert (tmp_path / "mine.safecritic").read_bytes() == exported.read_bytes()
    contract = json.loads((tmp_path / "shared/contract.json").read_text())
    assert contract["policy_sha256"] == pulled.contract["policy_sha256"]
    assert not (tmp_path / "shared/certificate.json").exists()
    assert not list((tmp_path / "shared").glob("*.p*kl*"))


def test_the_card_says_what_it_is(exported: Path, tmp_path: Path) -> None:
    push(exported.parent, str(tmp_path))
    _, front, text = (tmp_path / "README.md").read_text().split("---\n", 2)
    assert 'library_name: "safecritic"' in front
    assert text.startswith("# sc on KeptPoint")
    limit = load(exported).contract["cost_limit"]
    assert f"| cost limit of an episode | {limit:g} |" in text
    assert "It has no certificate." in text


def test_a_certificate_goes_along_and_leaves_with_its_policy(
    exported: Path, tmp_path: Path
) -> None:
    agent = ready.point(SC)
    certificate = certify(agent, episodes=19, onnx=False)
    made = prepare(agent, onnx=False)
    push(write(tmp_path / "certified", made, certificate), str(tmp_path / "shared"))
    assert json.loads((tmp_path / "shared/certificate.json").read_text()) == certificate
    assert certificates.statement(certificate) in (tmp_path / "shared/README.md").read_text()
    push(exported, str(tmp_path / "shared"))
    assert not (tmp_path / "shared/certificate.json").exists()


def test_an_altered_policy_is_not_pulled(exported: Path, tmp_path: Path) -> None:
    push(exported, str(tmp_path))
    altered = bytearray(exported.read_bytes())
    altered[len(altered) // 2] ^= 1
    (tmp_path / "policy.safecritic").write_bytes(altered)
    with pytest.raises(PolicyFileError):
        pull(str(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_place_or_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="safecritic export RUN"):
        push(tmp_path, "./x")
    with pytest.raises(HubError, match="OWNER/NAME or a folder"):
        pull("nothing", tmp_path / "out")
    with pytest.raises(HubError, match=r"holds no policy\.safecritic"):
        pull(str(tmp_path), tmp_path / "out")


def test_the_commands(
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["push", str(exported), "./shared"]) == 0
    assert cli.main(["pull", "./shared", "--out", "mine.safecritic"]) == 0
    text = capsys.readouterr().out
    assert "pushed to shared/policy.safecritic" in text
    assert "written to mine.safecritic, every byte checked" in text
