"""Weights & Biases: what it gets, how a resumed run continues there, and the error without it."""

import importlib.machinery
import json
import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from probes import SMALL, KeptPoint, Point
from safecritic import DDPG, SC, cli
from safecritic.run.callbacks import WandbCallback, WandbError
from safecritic.run.episode import Intervals
from safecritic.run.failure import NotFiniteError
from safecritic.run.folder import read_json, read_table

pytestmark = pytest.mark.usefixtures("quick_runs")

TASK = "probes:KeptPoint-v0"
EVERY = Intervals(log_every=50, critic_every=100, checkpoint_every=100)
FLAGS = ["--hidden", "16", "16", "--batch-size", "16", "--buffer-size", "400"]
FLAGS += ["--learning-starts", "60", "--log-every", "50", "--critic-every", "100"]
MISSING = "wandb is not installed: pip install wandb"


def curves(run: Path) -> dict[int, dict[str, float]]:
    """Return the numbers of both tables by step, without empty cells and the speed."""
    by_step: dict[int, dict[str, float]] = {}
    for name, prefix in (("episodes.csv", "episode/"), ("updates.csv", "")):
        table = read_table(run / name)
        for at, step in enumerate(table["step"]):
            for key in table.keys() - {"step", "episode", "time/steps_per_second"}:
                if math.isfinite(value := table[key][at]):
                    by_step.setdefault(int(step), {})[prefix + key] = value
    return by_step


# ---------------------------------------------------------------- the real one, offline


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder where W&B writes instead of uploading."""
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    settings = {"MODE": "offline", "SILENT": "true", "CONSOLE": "off", "ERROR_REPORTING": "false"}
    settings |= {f"{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CACHE", "CONFIG")}
    for name, value in (settings | {"DIR": str(tmp_path)}).items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # it reads these once
    yield tmp_path / "wandb"
    wandb.teardown()


def records(file: Path) -> Iterator[Any]:
    """Read a W&B file, a LevelDB log: records cut into fragments that fit blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at < len(data):
        if (left := -at % 32768) and left < 7:  # no room for the head of a fragment
            at += left
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last fragment
            yield Record.FromString(whole)
            whole = b""


def logged(file: Path) -> SimpleNamespace:
    import wandb

    wandb.teardown()  # the file is complete when the process that writes it has ended
    log = SimpleNamespace(history={}, exit_code=None)
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            log.run = record.run
            log.config = {x.key: json.loads(x.value_json) for x in record.run.config.update}
        elif kind == "history":
            items = {
                (x.key or x.nested_key[0]): json.loads(x.value_json) for x in record.history.item
            }
            step = items["_step"]
            items.pop("time/steps_per_second", None)
            log.history[step] = {k: v for k, v in items.items() if not k.startswith("_")}
        elif kind == "exit":
            log.exit_code = record.exit.exit_code
    return log


@pytest.mark.slow
def test_wandb_gets_the_tables_and_a_resumed_run_continues(offline: Path) -> None:
    run = Path("runs") / "one"
    agent = SC(TASK, seed=3, **SMALL)
    agent.learn(230, WandbCallback("probes", tags=["a"]), out=run, every=EVERY)
    kept = read_json(run / "wandb.json")
    (file,) = offline.glob("offline-run-*/*.wandb")
    first = logged(file)
    assert first.history == curves(run)
    updates = [step for step, values in first.history.items() if "actor/loss" in values]
    assert updates == [100, 150, 200]
    assert "critic/q_mean" in first.history[200]
    assert "critic/q_mean" not in first.history[150]
    assert kept == {"id": first.run.run_id, "project": "probes"}
    assert (first.run.display_name, first.run.project) == ("one", "probes")
    assert list(first.run.tags) == ["a"]
    assert (first.config["method"], first.config["seed"]) == ("sc", 3)
    assert first.config["config"]["hidden"] == [16, 16]
    assert first.config["environment"]["task"] == "KeptPoint-v0"
    assert first.exit_code == 0

    SC.load(run, env=TASK).learn(120, WandbCallback("probes"), out=run, every=EVERY)
    (file,) = set(offline.glob("offline-run-*/*.wandb")) - {file}
    second = logged(file)
    assert second.run.run_id == kept["id"]
    assert min(second.history) > 230
    assert first.history | second.history == curves(run)
    assert read_json(run / "wandb.json") == kept


@pytest.mark.slow
def test_from_the_command_line(offline: Path) -> None:
    run = Path("runs/ddpg-KeptPoint-v0-seed0")
    assert cli.main(["train", "ddpg", TASK, *FLAGS, "--steps", "150", "--wandb", "probes"]) == 0
    resume = ["train", "--resume", str(run), "--steps", "260", "--trust-env"]
    assert cli.main([*resume, "--wandb", "probes"]) == 0
    parts = [logged(file) for file in offline.glob("offline-run-*/*.wandb")]
    parts.sort(key=lambda part: min(part.history))
    assert len({part.run.run_id for part in parts}) == 1
    assert [part.run.display_name for part in parts] == [run.name] * 2
    assert parts[0].history | parts[1].history == curves(run)
    assert not any("episode/multiplier" in values for values in parts[0].history.values())


def test_a_run_that_fails_is_finished_as_failed(offline: Path) -> None:
    import wandb

    with pytest.raises(NotFiniteError, match="reward was not finite"):
        DDPG(Point(bad_step=150), **SMALL).learn(200, WandbCallback("probes"), every=EVERY)
    assert wandb.run is None
    (file,) = offline.glob("offline-run-*/*.wandb")
    log = logged(file)
    assert log.exit_code == 1
    assert max(log.history) < 150


# ---------------------------------------------------------------- without it


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_without_wandb_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImportError) as raised:
        WandbCallback("probes")
    assert str(raised.value) == MISSING
    command = ["train", "ddpg", TASK, *FLAGS, "--steps", "100"]
    assert cli.main([*command, "--wandb", "probes"]) == 2
    assert capsys.readouterr().err == f"error: {MISSING}\n"
    assert list(tmp_path.iterdir()) == []

    assert cli.main([*command, "--out", "run"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    resume = ["train", "--resume", "run", "--steps", "200", "--trust-env"]
    assert cli.main([*resume, "--wandb", "probes"]) == 2
    assert capsys.readouterr().err == f"error: {MISSING}\n"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_folder_that_wandb_writes_is_not_mistaken_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ImportError, match="wandb is not installed"):
        WandbCallback("probes")


class Pretended:
    """A stand-in for the package; `sent` is what was logged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, starting_step: int = 0):
        self.sent: list[tuple[int, dict[str, float]]] = []
        self.ended: list[int] = []
        self.given: dict[str, Any] = {}
        self.starting_step, self.refusal = starting_step, ""
        self.id, self.project = "a1", "probes"
        module: Any = ModuleType("wandb")
        module.__spec__ = importlib.machinery.ModuleSpec("wandb", None, origin="here")
        module.Error, module.init = type("Error", (Exception,), {}), self.init
        self.module = module
        monkeypatch.setitem(sys.modules, "wandb", module)

    def init(self, **given: Any) -> Any:
        if self.refusal:
            raise self.module.Error(self.refusal)
        self.given = given
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.sent.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)


def test_steps_that_wandb_has_from_a_killed_run_are_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wandb = Pretended(monkeypatch, starting_step=120)
    DDPG(KeptPoint(), **SMALL).learn(200, WandbCallback("probes", name="mine"), every=EVERY)
    assert {150, 200} <= {step for step, _ in wandb.sent}
    assert min(step for step, _ in wandb.sent) >= 120
    assert all(math.isfinite(x) for _, values in wandb.sent for x in values.values())
    assert (wandb.given["name"], wandb.given["resume"], wandb.ended) == ("mine", "allow", [0])
    assert "id" not in wandb.given


def test_episodes_reported_late_keep_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Pretended(monkeypatch)
    callback = WandbCallback("probes")
    model = SimpleNamespace(num_timesteps=100, run_folder=None, _description=dict)
    callback.init_callback(model)
    callback.on_training_start({}, {})
    callback.on_episode_end({"episode": 1, "step": 40, "cost": 2.0, "multiplier": math.nan})
    callback.on_log({"actor/loss": 0.5, "critic/auc": math.nan})
    assert wandb.sent == [(40, {"episode/cost": 2.0}), (100, {"actor/loss": 0.5})]


def test_an_error_from_before_the_run_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Pretended(monkeypatch)
    try:
        raise ValueError("another matter")
    except ValueError:
        DDPG(KeptPoint(), **SMALL).learn(100, WandbCallback("probes"))
    assert wandb.ended == [0]


@pytest.mark.usefixtures("no_curves")
def test_a_refusal_of_wandb_is_one_line_and_frees_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = Pretended(monkeypatch)
    wandb.refusal = "no API key\nconfigured"
    monkeypatch.chdir(tmp_path)
    agent = DDPG(KeptPoint(), **SMALL)
    with pytest.raises(WandbError) as raised:  # kept, and with it the frames of `learn`
        agent.learn(100, WandbCallback("probes"), out="run")
    assert agent.num_timesteps == 0
    flags = [*FLAGS, "--steps", "100", "--out", "run", "--overwrite", "--wandb", "probes"]
    assert cli.main(["train", "ddpg", TASK, *flags]) == 2
    assert capsys.readouterr().err == f"error: {raised.value}\n"
    assert str(raised.value) == "W&B did not start: no API key configured"
    wandb.refusal = ""
    assert cli.main(["train", "ddpg", TASK, *flags]) == 0
    assert json.loads(Path("run/wandb.json").read_text())["id"] == "a1"
