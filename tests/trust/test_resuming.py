"""Runs that were killed, damaged or edited, and what `--resume` makes of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecritic import DDPG, cli
from safecritic.api import Agent
from safecritic.core import files
from safecritic.core.files import FileError
from safecritic.run.loop import Intervals


@pytest.fixture
def run(good_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, in the current folder."""
    shutil.copytree(good_run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "safecritic.api.draw_curves", lambda folder: (folder / "curves.png").touch()
    )
    return Path("run")


def test_a_run_killed_after_its_last_checkpoint_is_finished(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = files.read_json(run / "summary.json")
    (run / "summary.json").unlink()
    (run / "curves.png").unlink()
    assert cli.main(["train", "--resume", "run"]) == 0
    assert "run was complete but for its summary and curves: written" in capsys.readouterr().out
    assert files.read_json(run / "summary.json") == expected
    assert (run / "curves.png").exists()
    assert cli.main(["train", "--resume", "run"]) == 2
    assert "already has 212 steps" in capsys.readouterr().err


def test_a_setting_edited_by_hand_is_named(run: Path) -> None:
    content = json.loads((run / "config.json").read_text())
    content["config"]["gamma"] = 0.5
    (run / "config.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"config\.json was altered: its checksum"):
        Agent.load(run)
    files.write_json(run / "config.json", content)  # and a checksum that fits does not help
    with pytest.raises(FileError, match=r"was written with config\.gamma 0\.95 \(now 0\.5\)"):
        Agent.load(run)


def test_the_checkpoint_before_can_be_asked_for(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = files.read_json(run / "checkpoint" / "checkpoint.json")
    (run / "checkpoint" / index["arrays"]).write_bytes(b"nothing")
    assert cli.main(["train", "--resume", "run", "--steps", "240"]) == 2
    text = capsys.readouterr().err
    assert "is truncated" in text
    assert "the checkpoint before it (step 200) is still there: --state previous" in text
    assert cli.main([*["train", "--resume", "run", "--steps", "240", "--state", "previous"]]) == 0
    assert Agent.load(run).num_timesteps == 240
    steps = files.read_table(run / "episodes.csv")["step"]
    assert steps == sorted(set(steps))  # the lines after step 200 were written again


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("device/replay/cursor", 10**6, "replay cursor"),
        ("device/replay/cursor", -1, "replay cursor"),
        ("device/replay/size", 3, "replay rows"),
        ("device/replay/costly_start", -5, "replay costly_start"),
        ("device/replay/costly_size", 999, "replay costly_size"),
        ("device/replay/obs", 1e30, r"within 1e\+10"),
        ("device/replay/reward", np.nan, "not finite"),
        ("device/replay/cost", -1.0, "replay cost"),
        ("device/step", 7, "step in the checkpoint must be"),
        ("device/agent/actor/0/w", np.inf, "not finite"),
        ("stream0/obs", np.nan, "stream0/obs in the checkpoint must be finite"),
        ("pending", np.inf, "pending in the checkpoint must be finite"),
        ("window", -1.0, "window in the checkpoint"),
        ("stream0/env/sleep_body_awake_ind", 10**6, "sleeping bodies"),
        ("stream0/env/sleep_nv_awake", 10**6, "sleeping bodies"),
        ("stream0/env/steps", 10**6, "step 1000000"),
        ("stream0/env/phase", 9, "phase 9"),
        ("stream0/env/physics", "longer", "physics of shape"),
    ],
)
def test_arrays_that_cannot_be_are_refused_though_their_checksum_fits(
    run: Path, name: str, value: Any, message: str
) -> None:
    import hashlib

    import safetensors.numpy

    folder = run / "checkpoint"
    index = files.read_json(folder / "checkpoint.json")
    arrays = dict(safetensors.numpy.load((folder / index["arrays"]).read_bytes()))
    x = arrays[name].copy()
    arrays[name] = np.append(x, x) if isinstance(value, str) else x
    if not isinstance(value, str):
        x[...] = value
    blob = safetensors.numpy.save(arrays)
    sha256 = hashlib.sha256(blob).hexdigest()
    index |= {"arrays": f"arrays-{sha256[:16]}.safetensors", "arrays_sha256": sha256}
    (folder / index["arrays"]).write_bytes(blob)
    files.write_json(folder / "checkpoint.json", index | {"arrays_bytes": len(blob)})
    with pytest.raises(FileError, match=message):
        Agent.load(run)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": [50_000, 50_000]}, "half of this machine's memory"),
        ({"buffer_size": 10**11}, "config.buffer_size: expected a setting"),
        ({"buffer_size": 2 * 10**9}, "half of this machine's memory"),
        ({"hidden": [8] * 65}, "config.hidden: expected a setting"),
        ({"safety.steps": 10**8}, r"config\.safety\.steps: expected at most 1000"),
        ({"hidden": [16]}, "is float32"),
        ({"gamma": "high"}, "gamma must be a number"),
        ({"other": 1}, "unknown setting 'other'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_allocated(
    run: Path, settings: dict[str, Any], message: str
) -> None:
    config = files.read_json(run / "config.json")
    index = files.read_json(run / "checkpoint" / "checkpoint.json")
    for flat in (config["config"], index["settings"]["config"]):
        flat |= settings
    files.write_json(run / "config.json", config)
    files.write_json(run / "checkpoint" / "checkpoint.json", index)
    with pytest.raises(FileError, match=message):
        Agent.load(run)


def test_what_was_lost_is_said_when_it_learns_on(tmp_path: Path) -> None:
    from probes import SMALL, Point
    from safecritic.run.watch import RunWarning

    DDPG(Point(), seed=0, **SMALL).learn(75, out=tmp_path / "run")
    agent = DDPG.load(tmp_path / "run", env=Point())
    with pytest.warns(RunWarning, match=r"the open episode \(\d+ steps\) was dropped"):
        agent.learn(10)


def test_another_environment_is_recorded_with_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    from probes import SMALL, KeptPoint

    class Other(KeptPoint):
        pass

    run = tmp_path / "run"
    DDPG(KeptPoint(), seed=0, **SMALL).learn(75, out=run)
    agent = DDPG.load(run, env=Other())
    agent._open(run, False, 200, Intervals()).close()  # and killed before its first step
    assert files.read_json(run / "config.json")["task"] == "Other"
    assert DDPG.load(run, env=Other()).num_timesteps == 75
