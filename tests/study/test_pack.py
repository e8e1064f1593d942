"""A packed study: small, the same tables, and a folder in which the study can continue."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from safecritic import cli
from safecritic.evaluation import measures
from safecritic.files import FileError, write_json
from safecritic.report import data, figures, tables
from safecritic.run.folder import read_episodes
from safecritic.run.loop import NotFiniteError
from safecritic.study import grid
from safecritic.study.driver import Driver
from safecritic.study.grid import StudyError
from safecritic.study.pack import pack, reuse
from studies import finish, write_measured_study, write_outcomes, write_run, write_study

RUN = "sc-CarGoal1-seed0"


def written_tables(study: Path, folder: Path) -> dict[str, bytes]:
    """Return every table of a report, as CSV and as LaTeX."""
    folder.mkdir()
    for table in tables.all_tables(data.read(study), study / "report"):
        table.write_csv(folder / f"{table.name}.csv")
        table.write_latex(folder / f"{table.name}.tex")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_tables_are_the_same_and_nothing_else_is_copied(tmp_path: Path, capsys: Any) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    run = study / "runs" / RUN
    (run / "checkpoint").mkdir()
    for name in ("checkpoint/arrays", "events.out.tfevents.1", "curves.png", "error.txt"):
        (run / name).write_bytes(bytes(100))
    assert cli.main(["pack", str(study), "--out", str(out)]) == 0
    assert "6 of 6 runs" in capsys.readouterr().out
    expected = written_tables(study, tmp_path / "before")
    assert "calibration.csv" in expected
    assert written_tables(out, tmp_path / "after") == expected
    names = {path.name for path in (out / "runs" / RUN).iterdir()}
    assert names == {
        "episodes.csv.gz",
        "updates.csv.gz",
        "evaluation.json.gz",
        "measures.json",
        "measures.safetensors.gz",
        "resources.json",
        "summary.json",
    }
    drawn, kept = data.read(study).runs[1].arrays, data.read(out).runs[1].arrays
    assert drawn.keys() == kept.keys()
    for name, array in drawn.items():
        shown = array[:1] if name.startswith("map/") else array
        np.testing.assert_allclose(kept[name], shown, rtol=2.0**-11, atol=0)


def test_figures_show_the_same_of_a_packed_study(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    pack(study, out)
    whole, small = ([*figures.all_figures(data.read(one))] for one in (study, out))
    assert [figure.name for figure in whole] == [figure.name for figure in small]
    compared = 0
    for one, other in zip(whole, small, strict=True):
        for panel, again in zip(one.panels, other.panels, strict=True):
            for mark, same in zip(panel.marks, again.marks, strict=True):
                for name, value in vars(mark).items():
                    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                        size = np.nanmax(np.abs(value), initial=0)
                        np.testing.assert_allclose(getattr(same, name), value, 0.0, 0.02 * size)
                        compared += 1
    assert compared > 20


def test_arrays_that_no_figure_shows_are_left_out(tmp_path: Path) -> None:
    """Maps are those of the first seed that is there, steps those with their uncertainty."""
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    with_maps, other_seed = (study / "runs" / f"usc-CarGoal1-seed{seed}" for seed in (0, 1))
    _keep_arrays(study / "runs" / RUN, lambda name: name != "steps/influence")
    (with_maps / "summary.json").rename(tmp_path / "summary.json")  # not yet finished
    pack(study, out)
    assert kept_kinds(out, other_seed) == {"map", "steps"}
    (tmp_path / "summary.json").rename(with_maps / "summary.json")
    assert pack(study, out).new == 2  # the second seed's maps are not drawn any more
    assert kept_kinds(out, with_maps) == {"map", "steps"}
    assert kept_kinds(out, other_seed) == {"steps"}
    assert kept_kinds(out, study / "runs" / RUN) == {"map"}
    no_arrays = study / "runs" / "sc-CarGoal1-seed1"
    _keep_arrays(no_arrays, lambda name: name != "steps/influence")
    pack(study, out)
    assert kept_kinds(out, no_arrays) == set()
    assert not (out / "runs" / no_arrays.name / "measures.safetensors.gz").exists()


def kept_kinds(out: Path, run: Path) -> set[str]:
    return {name.split("/")[0] for name in measures.read_arrays(out / "runs" / run.name)}


def _keep_arrays(run: Path, wanted: Callable[[str], bool]) -> None:
    _write_arrays(run, {k: x for k, x in measures.read_arrays(run).items() if wanted(k)})


def _write_arrays(run: Path, arrays: dict[str, np.ndarray]) -> None:
    blob = save(arrays)
    (run / "measures.safetensors").write_bytes(blob)
    content = measures.read_measures(run) | {measures.ARRAYS: hashlib.sha256(blob).hexdigest()}
    write_json(run / "measures.json", content)


def test_an_array_from_outside_is_packed_as_it_is(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    run = study / "runs" / RUN
    arrays = measures.read_arrays(run) | {"ours/x": np.float32([[1 / 3], [2 / 3]])}
    _write_arrays(run, arrays)
    pack(study, out)
    np.testing.assert_array_equal(
        measures.read_arrays(out / "runs" / RUN)["ours/x"], arrays["ours/x"]
    )


def test_a_packed_study_packs_to_itself(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    pack(study, out)
    pack(out, tmp_path / "again")
    for path in sorted(out.rglob("*.*")):
        assert (tmp_path / "again" / path.relative_to(out)).read_bytes() == path.read_bytes(), path


def test_columns_that_no_table_needs_are_empty(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed"
    path = study / "runs" / RUN / "episodes.csv"
    assert b",0.25," not in path.read_bytes()
    lines = path.read_text().splitlines()
    at = lines[0].split(",").index("discounted_cost")
    cells = lines[1].split(",")
    cells[at] = "0.25"
    lines[1] = ",".join(cells)
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    with pytest.raises(FileError, match=r"episodes\.csv was altered"):  # never packed as if true
        pack(study, out)
    _write_cuts(path)
    pack(study, out)
    run = out / "runs" / RUN
    before, after = (read_episodes(one / "runs" / RUN) for one in (study, out))
    assert before["discounted_cost"][0] == 0.25
    assert after["discounted_cost"][0] != after["discounted_cost"][0]
    assert after["cost"] == before["cost"]
    summaries = [json.loads((one / "summary.json").read_text()) for one in (path.parent, run)]
    assert summaries[1]["packed"] == summaries[0]["tables"]


def _write_cuts(path: Path) -> None:
    data, summary = path.read_bytes(), json.loads((path.parent / "summary.json").read_text())
    cut = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    summary["tables"]["episodes"] = cut
    write_json(path.parent / "summary.json", summary)


def test_packing_again_adds_what_is_new_and_mends_what_was_cut_short(tmp_path: Path) -> None:
    study, out = write_study(tmp_path / "study"), tmp_path / "packed"
    assert pack(study, out)[:3] == (4, 3, 3)
    assert pack(study, out)[:3] == (4, 3, 0)
    write_run(study, grid.read_folder(study)[3], [0.5], deployed=1.5)
    assert pack(study, out)[:3] == (4, 4, 1)
    summary = out / "runs" / RUN / "summary.json"
    summary.unlink()  # as after a kill: it is written last
    assert not grid.done(out, grid.read_folder(out)[1])
    assert pack(study, out)[:3] == (4, 4, 1)
    assert (out / "runs.csv").is_file()


def test_parts_of_a_study_meet_in_one_folder(tmp_path: Path) -> None:
    """As when two machines have run one seed each."""
    whole = write_measured_study(tmp_path / "whole")
    jobs = grid.read_folder(whole)
    for seed in (0, 1):
        part = tmp_path / f"seed{seed}"
        grid.open_folder(part, [job for job in jobs if job.seed == seed], "by hand.toml")
        for job in jobs:
            if job.seed == seed:
                shutil.copytree(whole / "runs" / job.name, part / "runs" / job.name)
        pack(part, tmp_path / "packed")
    assert {job.name for job in grid.read_folder(tmp_path / "packed")} == {x.name for x in jobs}
    row = {run.job.name: run.row for run in data.read(whole).runs}
    again = {run.job.name: run.row for run in data.read(tmp_path / "packed").runs}
    assert repr({name: again[name] for name in row}) == repr(row)


def test_runs_that_another_study_has_are_not_run_again(tmp_path: Path) -> None:
    other = write_measured_study(tmp_path / "other")
    have = grid.read_folder(other)
    longer = dataclasses.replace(have[0], steps=have[0].steps + 1)
    at_limit = dataclasses.replace(have[1], swept=True)  # the same run under another name
    renamed = dataclasses.replace(have[2], variant="again", retries=9)
    settings = have[3].settings | {"gamma": 0.5}
    changed = dataclasses.replace(have[3], settings=settings)
    jobs = [longer, at_limit, renamed, changed]
    out = tmp_path / "out"
    assert reuse(out, jobs, "more.toml", [other]) == [at_limit.name, renamed.name]
    assert [grid.done(out, job) for job in jobs] == [False, True, True, False]
    rows = {run.job.name: run.row for run in data.read(other).runs}
    for run in data.read(out).runs[1:3]:
        before = rows[dataclasses.replace(run.job, swept=False, variant="").name]
        same = before | {name: run.row[name] for name in ("run", "method")}
        assert repr(same) == repr(run.row)
    assert reuse(out, jobs, "more.toml", [other]) == []
    with pytest.raises(StudyError, match="is the study itself"):
        reuse(out, jobs, "more.toml", [out])
    with pytest.raises(StudyError, match="not a study's folder"):
        reuse(out, jobs, "more.toml", [tmp_path / "nothing"])


def test_a_run_that_diverged_is_a_result(tmp_path: Path) -> None:
    """It is told wherever the study goes, and counts as a seed that did not keep the limit."""
    study = write_outcomes(tmp_path / "study", {"sc": [(0.5, 1.0, 1.0)] * 2, "usc": [(0.5, 1, 1)]})
    jobs = {job.name: job for job in grid.read_folder(study)}
    lost, name = study / "runs" / "usc-CarGoal1-seed1", "usc-CarGoal1-seed1"
    lost.mkdir()
    line = f"{NotFiniteError.__module__}.NotFiniteError: {NotFiniteError('action', 7)}"
    (lost / "error.txt").write_text(f"Traceback ...\n{line}; its state is in {tmp_path}/failed\n")
    out, other = tmp_path / "packed", tmp_path / "other"
    assert pack(study, out)[:3] == (4, 3, 3)
    assert len(reuse(other, list(jobs.values()), "all.toml", [out])) == 3
    for copy in (study, out, other):
        table = data.read(copy)
        (run,) = table.diverged("usc", "CarGoal1")
        assert (run.job.seed, run.state) == (1, "failed")
        assert run.failure is not None
        assert run.failure.text == "action was not finite at step 7"
        assert table.within("usc", "CarGoal1") == (1, 2)
        assert not table.keeps("usc", "CarGoal1")
        assert table.within("sc", "CarGoal1") == (2, 2)
    assert str(tmp_path) not in (other / "runs" / name / "error.txt").read_text()
    (lost / "error.txt").write_text("OSError: No space left on device\n")  # says nothing of USC
    assert data.read(study).diverged("usc", "CarGoal1") == []
    pack(study, tmp_path / "again")
    assert not (tmp_path / "again" / "runs" / name).exists()
    shutil.rmtree(lost)
    write_run(study, jobs[name], [0.5], deployed=0.5)  # a later version finishes it
    assert pack(study, out)[:3] == (4, 4, 1)
    assert not (out / "runs" / name / "error.txt").exists()


def test_a_run_that_has_begun_is_left_to_continue(tmp_path: Path) -> None:
    other = write_measured_study(tmp_path / "other")
    job, out = grid.read_folder(other)[0], tmp_path / "out"
    begun = out / "runs" / job.name
    begun.mkdir(parents=True)
    (begun / "episodes.csv").write_bytes(b"")
    assert reuse(out, [job], "more.toml", [other]) == []
    assert [path.name for path in begun.iterdir()] == ["episodes.csv"]


def test_the_command_takes_runs_from_other_studies(tmp_path: Path, capsys: Any) -> None:
    outcomes = {"sc": [(0.5, 1.0, 1.0)] * 2}
    other = write_outcomes(tmp_path / "other", outcomes)
    path = tmp_path / "more.toml"
    grid_ = 'methods = ["sc"]\ntasks = ["CarGoal1"]\nlimits = [1]\nseeds = [1]\nsteps = 900\n'
    path.write_text(f"{grid_}deployment_episodes = 1\n")
    assert (
        cli.main(["study", str(path), "--out", str(tmp_path / "out"), "--reuse", str(other)]) == 0
    )
    printed = capsys.readouterr().out
    assert f"1 of them taken from {other}" in printed
    assert "1 of 1 runs are done already" in printed
    assert "1 of 1 runs are done" in printed
    assert (tmp_path / "out" / "runs" / "sc-CarGoal1-limit1-seed1" / "summary.json").is_file()


def test_what_is_refused(tmp_path: Path) -> None:
    study, out = write_study(tmp_path / "study"), tmp_path / "packed"
    with pytest.raises(StudyError, match="is the study itself"):
        pack(study, study)
    with pytest.raises(StudyError, match="not a study's folder"):
        pack(tmp_path / "nothing", out)
    pack(study, out)
    shutil.rmtree(out / "runs" / RUN)
    shutil.copytree(study / "runs" / RUN, out / "runs" / RUN)  # as if it had been run there
    assert pack(study, out).new == 0
    (out / "runs" / RUN / "evaluation.json").unlink()
    with pytest.raises(StudyError, match="has begun there and is not finished"):
        pack(study, out)
    shutil.rmtree(out / "runs" / RUN)
    (out / "runs" / RUN).symlink_to(tmp_path)
    with pytest.raises(FileError, match="is a link"):
        pack(study, out)
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.slow
def test_a_study_continues_in_a_packed_folder(whole: tuple[Path, Path], tmp_path: Path) -> None:
    file, study = whole
    half, out = tmp_path / "half", tmp_path / "packed"
    shutil.copytree(study, half)
    missing = "rcpo-KeptPoint-v0-seed1"
    (half / "runs" / missing / "measures.json").unlink()
    assert pack(half, out)[:3] == (4, 3, 3)
    assert not (out / "runs" / missing).exists()
    waiting = Driver(out, grid.read_folder(out), 1).waiting
    assert [one.job.name for one in waiting] == [missing]
    kept = {path: path.read_bytes() for path in out.glob("runs/*/*")}
    for config in out.glob("runs/*/config.json"):
        command = json.loads(config.read_text())["command"]
        assert command  # of the machine that ran it, without its folders
        assert not any(os.path.isabs(word) for word in command)
    assert "4 of 4 runs are done" in finish(out, file)
    assert {path: path.read_bytes() for path in kept} == kept  # config.json too
    assert (out / "runs" / missing / "checkpoint").is_dir()
    for name in ("runs.csv", "summary.csv"):
        assert (out / name).read_bytes() == (study / name).read_bytes()
    assert pack(half, out).new == 0  # the run that was made there stays
    assert os.listdir(out / "runs" / missing) != []

    text = file.read_text().replace("multiplier_lr = 0.5", "multiplier_lr = 0.25")
    (tmp_path / "other.toml").write_text(text)
    assert cli.main(["study", str(tmp_path / "other.toml"), "--out", str(out)]) == 2
