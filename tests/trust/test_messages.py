"""What a new user sees: messages that are true, and advice that works when it is followed."""

import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from probes import SMALL, KeptPoint
from safecritic import CPO, DDPG, cli
from safecritic.run import callbacks
from safecritic.run.callbacks import Progress, fitting
from safecritic.run.folder import RunFolder, RunFolderError
from safecritic.study import grid
from safecritic.study.worker import work
from safecritic.tasks import adapt, make
from safecritic.tasks.drawing import save_animation
from studies import FILE, write_file


@pytest.fixture(scope="module")
def agent() -> DDPG:
    return DDPG(KeptPoint(), seed=0, **SMALL).learn(80)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_action_for_an_observation_that_was_not_seen(agent: DDPG, bad: float) -> None:
    with pytest.raises(
        ValueError, match=r"observation must be finite, got NaN or infinity at \[1\]"
    ):
        agent.predict(np.array([0.0, bad], np.float32))
    with pytest.raises(ValueError, match="observation must be finite"):
        agent.predict(np.array([[0.0, 0.0], [0.0, bad]], np.float32))
    assert np.isfinite(agent.predict(np.zeros(2))[0]).all()


def test_cpos_progress_ends_where_its_rollout_ends() -> None:
    small = {"hidden": (8,), "rollout_steps": 200, "batch_size": 50, "cost_limit": 1.0}
    agent = CPO(KeptPoint(), seed=0, **small)
    assert agent.training.last_step(250) == 400
    stream = io.StringIO()
    agent.learn(250, Progress(agent.training.last_step(250), stream, 0.0))
    assert agent.num_timesteps == 400
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("step")]
    assert lines[-1].startswith("step 400/400")
    assert "-" not in lines[-1].partition("left")[0]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 112, 200])
def test_there_is_a_bar_at_any_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    bar = callbacks._bar(console)
    parts = ["60,000/60,000", "1,234 steps/s", "0:10 left", "reward 12.34", "cost 1.00"]
    text = fitting([*parts, "success 100%", "multiplier 0.500"], width - callbacks.BAR_COLUMNS)
    with bar:
        bar.add_task("train", total=100, completed=50, text=text)
    lines = stream.getvalue()
    assert "50%" in lines
    assert "━" in lines
    assert "60,000/60,000" in lines or width == 40
    assert "…" not in lines or width == 40


def test_compiling_is_said_once() -> None:
    stream = io.StringIO()
    agent = DDPG(KeptPoint(), seed=0, **SMALL)
    agent.learn(100, Progress(100, stream))
    assert stream.getvalue().count("compiling the update") == 1


def test_no_checkpoint_is_called_intact_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run", ("a/one",))

    def full(*values: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder._open["updates"], "append", full)
    with pytest.raises(RunFolderError, match="No space left on device; there is no checkpoint yet"):
        folder.write_update(1, {})
    (tmp_path / "run" / "checkpoint").mkdir()
    (tmp_path / "run" / "checkpoint" / "checkpoint.json").touch()
    with pytest.raises(RunFolderError, match="the last checkpoint is intact"):
        folder.write_update(1, {})
    folder.close()


@pytest.mark.slow
def test_the_last_report_of_a_study_has_the_last_episode(tmp_path: Path) -> None:
    (job, *_) = grid.read(write_file(tmp_path, FILE.replace("steps = 900", "steps = 150")))
    said: list[dict[str, Any]] = []
    grid.open_folder(tmp_path, [job], "here")
    work(tmp_path, job, lambda **about: said.append(about))
    summary = (tmp_path / "runs" / job.name / "summary.json").read_text()
    last = [about for about in said if "step" in about][-1]
    assert last["step"] == 150
    assert f'"reward": {last["reward"]!r}'[:16] in summary


@pytest.mark.slow
def test_the_checkpoint_interval_of_a_study_is_a_setting(tmp_path: Path) -> None:
    text = FILE.replace("steps = 900", "steps = 150\ncheckpoint_every = 40")
    (job, *_) = grid.read(write_file(tmp_path, text))
    assert job.checkpoint_every == 40
    grid.open_folder(tmp_path, [job], "here")
    work(tmp_path, job)
    from safecritic.run import checkpoint

    folder = tmp_path / "runs" / job.name / "checkpoint"
    assert checkpoint.load(folder, "previous")[1]["step"] == 120
    for wrong in ("0", '"often"', "true", "1.5"):
        with pytest.raises(grid.StudyError, match="checkpoint_every must be a whole number >= 1"):
            grid.read(write_file(tmp_path, text.replace("every = 40", f"every = {wrong}")))


def test_the_advice_for_vector_environments_works() -> None:
    envs = gymnasium.make_vec("safecritic/HalfCheetah-v0", num_envs=2, vectorization_mode="sync")
    with pytest.raises(TypeError, match="pass one of those inside") as refused:
        DDPG(envs, **SMALL)  # type: ignore[arg-type]
    assert "one environment at a time" in str(refused.value)
    adapt(envs.envs[0]).reset(seed=0)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_films_skip_scenes_that_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("safecritic.tasks.fetch.FetchReach.horizons", {"benchmark": 20})
    env = make("FetchReach")
    seeds = range(10_000, 10_100)

    def distance(seed: int) -> float:
        return env.reset(seed=seed)[1]["goal_distance"]

    at_once = next(seed for seed in seeds if distance(seed) < 0.03)
    DDPG("FetchReach", seed=0, **SMALL).learn(70, out="run")
    capsys.readouterr()
    assert cli.main(["show", "run", "--seed", str(at_once), "--format", "png"]) == 0
    assert f"the scene of seed {at_once} ends at once" in capsys.readouterr().out


def test_an_mp4_warns_of_nothing(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((33, 47, 3), shade, np.uint8) for shade in range(0, 250, 25)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_animation(frames, tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "exit codes:" in text
    assert "130    stopped by Ctrl-C" in text


def test_an_error_that_nobody_foresaw_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(arguments: list[str]) -> int:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr("safecritic.cli.commands.methods", fails)
    assert cli.main(["methods"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ZeroDivisionError: by nothing (not foreseen")
    monkeypatch.setenv("SAFECRITIC_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["methods"])


def test_ctrl_c_is_answered_at_once() -> None:
    code = (
        "import os, signal\n"
        "from safecritic.run.loop import stop_signals\n"
        "with stop_signals() as received:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert received == [signal.SIGINT]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "stopping after this step, and saving; Ctrl-C again stops at once" in done.stderr
