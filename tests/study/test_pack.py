"""A packed study: one small file with the same tables, in which parts of a study meet."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from safecritic import cli
from safecritic.core.files import FileError, write_json
from safecritic.evaluate import measures
from safecritic.report import data, figures
from safecritic.run.failure import NotFiniteError, write_failure
from safecritic.study import grid, table
from safecritic.study.driver import Driver
from safecritic.study.grid import StudyError
from safecritic.study.pack import pack, results_of, reuse
from safecritic.study.runs import Run
from studies import (
    Outcome,
    finish,
    write_measured_study,
    write_outcomes,
    write_run,
    write_study,
)

RUN = "sc-CarGoal1-seed0"


def run_of(study: Path, name: str) -> Run:
    return next(run for run in table.read(study).runs if run.job.name == name)


def test_the_file_is_a_table_with_a_row_for_each_run(tmp_path: Path, capsys: Any) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed.parquet"
    assert cli.main(["pack", str(study), "--out", str(out)]) == 0
    assert f"6 of 6 runs in {out}, 6 of them new" in capsys.readouterr().out
    rows = {cells["run"]: cells for cells in pq.read_table(out).to_pylist()}
    runs = {run.job.name: run.row for run in table.read(study).runs}
    assert set(rows) == set(runs)
    for name, row in runs.items():
        for column in ("method", "task", "seed", "steps", "reward", "cost", "deployed_cost"):
            assert rows[name][column] == row[column], (name, column)
    assert rows[RUN]["training/cost"] == pytest.approx([0.5, 0.0, 1.5, 1.0])
    assert json.loads(rows[RUN]["settings"]) == run_of(study, RUN).job.settings


def test_the_file_keeps_the_text_of_the_study(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('methods = ["sc"]\ntasks = ["CarGoal1"]\nseeds = [0]\n')
    jobs = grid.read(file)
    grid.open_folder(tmp_path / "study", jobs, file)
    write_run(tmp_path / "study", jobs[0], [0.5], deployed=0.5)
    pack(tmp_path / "study", tmp_path / "packed.parquet")
    metadata = pq.read_metadata(tmp_path / "packed.parquet").metadata
    about = json.loads(metadata[b"safecritic"])
    assert (about["source"], about["toml"]) == ("mine.toml", file.read_text())


def test_arrays_of_figures_are_rounded_and_those_from_outside_kept(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed.parquet"
    folder = study / "runs" / RUN
    ours = np.array([[1 / 3], [2 / 3]], np.float32)
    _write_arrays(folder, measures.read_arrays(folder) | {"ours/x": ours})
    pack(study, out)
    drawn, kept = run_of(study, RUN).arrays, run_of(out, RUN).arrays
    assert drawn.keys() == kept.keys()
    np.testing.assert_array_equal(kept["ours/x"], ours)
    for name, array in drawn.items():
        shown = array[:1] if name.startswith("map/") else array
        np.testing.assert_allclose(kept[name], shown, rtol=1 / 256, atol=0)


def test_figures_show_the_same_of_a_packed_study(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed.parquet"
    pack(study, out)
    whole, small = ([*figures.all_figures(data.read(one))] for one in (study, out))
    assert [figure.name for figure in whole] == [figure.name for figure in small]
    compared = 0
    for one, other in zip(whole, small, strict=True):
        for panel, again in zip(one.panels, other.panels, strict=True):
            for trace, same in zip(panel.plot.data, again.plot.data, strict=True):
                for axis in "xyz":
                    value = getattr(trace, axis, None)
                    if value is None:
                        continue
                    size = np.nanmax(np.abs(value), initial=0)
                    np.testing.assert_allclose(getattr(same, axis), value, 0.0, 0.1 * size)
                    compared += 1
    assert compared > 20


def test_arrays_that_no_figure_shows_are_left_out(tmp_path: Path) -> None:
    """Maps are those of the first seed that is there, steps those with their uncertainty."""
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed.parquet"
    with_maps, other_seed = (f"usc-CarGoal1-seed{seed}" for seed in (0, 1))
    _keep_arrays(study / "runs" / RUN, lambda name: name != "steps/influence")
    summary = study / "runs" / with_maps / "summary.json"
    summary.rename(tmp_path / "summary.json")  # not yet finished
    pack(study, out)
    assert kept_kinds(out, other_seed) == {"map", "steps"}
    (tmp_path / "summary.json").rename(summary)
    assert pack(study, out).new == 1
    assert kept_kinds(out, with_maps) == {"map", "steps"}
    assert kept_kinds(out, other_seed) == {"steps"}
    assert kept_kinds(out, RUN) == {"map"}


def kept_kinds(out: Path, name: str) -> set[str]:
    return {array.split("/")[0] for array in run_of(out, name).arrays}


def _keep_arrays(run: Path, wanted: Callable[[str], bool]) -> None:
    _write_arrays(run, {k: x for k, x in measures.read_arrays(run).items() if wanted(k)})


def _write_arrays(run: Path, arrays: dict[str, np.ndarray]) -> None:
    blob = save(arrays)
    (run / "measures.safetensors").write_bytes(blob)
    content = measures.read_measures(run) | {measures.ARRAYS: hashlib.sha256(blob).hexdigest()}
    write_json(run / "measures.json", content)


def test_a_packed_study_packs_to_itself(tmp_path: Path) -> None:
    study, out = write_measured_study(tmp_path / "study"), tmp_path / "packed.parquet"
    pack(study, out)
    pack(out, tmp_path / "again.parquet")
    again = pq.read_table(tmp_path / "again.parquet").to_pylist()
    assert repr(again) == repr(pq.read_table(out).to_pylist())  # of NaN too


def test_what_was_altered_is_never_packed_as_if_true(tmp_path: Path) -> None:
    study = write_measured_study(tmp_path / "study")
    path = study / "runs" / RUN / "episodes.csv"
    path.write_text(path.read_text().replace("1.5", "0.5"))
    with pytest.raises(FileError, match=r"episodes\.csv was altered"):
        pack(study, tmp_path / "packed.parquet")


def test_packing_again_adds_what_is_new(tmp_path: Path) -> None:
    study, out = write_study(tmp_path / "study"), tmp_path / "packed.parquet"
    assert pack(study, out)[:3] == (4, 3, 3)
    assert pack(study, out)[:3] == (4, 3, 0)
    write_run(study, grid.read_folder(study)[3], [0.5], deployed=1.5)
    assert pack(study, out)[:3] == (4, 4, 1)


def test_parts_of_a_study_meet_in_one_file(tmp_path: Path) -> None:
    """As when two machines have run one seed each."""
    whole, out = write_measured_study(tmp_path / "whole"), tmp_path / "packed.parquet"
    jobs = grid.read_folder(whole)
    for seed in (0, 1):
        part = tmp_path / f"seed{seed}"
        grid.open_folder(part, [job for job in jobs if job.seed == seed], "by hand.toml")
        for job in jobs:
            if job.seed == seed:
                shutil.copytree(whole / "runs" / job.name, part / "runs" / job.name)
        pack(part, out)
    row = {run.job.name: run.row for run in data.read(whole).runs}
    again = {run.job.name: run.row for run in data.read(out).runs}
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
    out, packed = tmp_path / "out", tmp_path / "other.parquet"
    pack(other, packed)
    for source in (other, packed):
        shutil.rmtree(out, ignore_errors=True)
        assert reuse(out, jobs, "more.toml", [source]) == [at_limit.name, renamed.name]
        assert list(results_of(out, jobs)) == [at_limit.name, renamed.name]
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
    write_failure(lost, NotFiniteError("action", 7, f"its state is in {tmp_path}/failed"))
    out, other = tmp_path / "packed.parquet", tmp_path / "other"
    assert pack(study, out)[:3] == (4, 3, 3)
    assert len(reuse(other, list(jobs.values()), "all.toml", [out])) == 3
    for copy in (study, out, other):
        read = data.read(copy)
        (run,) = read.diverged("usc", "CarGoal1")
        assert (run.job.seed, run.state) == (1, "failed")
        assert run.failure is not None
        assert run.failure.text == "action was not finite at step 7"
        assert read.within("usc", "CarGoal1") == (1, 2)
        assert not read.keeps("usc", "CarGoal1")
        assert read.within("sc", "CarGoal1") == (2, 2)
    driver = Driver(other, list(jobs.values()), 1)
    assert [one.state for one in driver.all] == ["done", "done", "done", "failed"]
    write_failure(lost, OSError("No space left on device"))  # says nothing of USC
    assert data.read(study).diverged("usc", "CarGoal1") == []
    assert pack(study, tmp_path / "again.parquet")[:3] == (4, 3, 3)
    assert len(table.read(tmp_path / "again.parquet").runs) == 3
    shutil.rmtree(lost)
    write_run(study, jobs[name], [0.5], deployed=0.5)  # a later version finishes it
    pack(study, out)
    assert run_of(out, name).done


def test_a_run_that_has_begun_is_left_to_continue(tmp_path: Path) -> None:
    other = write_measured_study(tmp_path / "other")
    job, out = grid.read_folder(other)[0], tmp_path / "out"
    begun = out / "runs" / job.name
    begun.mkdir(parents=True)
    (begun / "episodes.csv").write_bytes(b"")
    assert reuse(out, [job], "more.toml", [other]) == []
    assert [path.name for path in begun.iterdir()] == ["episodes.csv"]


def test_the_command_takes_runs_from_other_studies(tmp_path: Path, capsys: Any) -> None:
    outcomes: dict[str, list[Outcome]] = {"sc": [(0.5, 1.0, 1.0)] * 2}
    other, out = write_outcomes(tmp_path / "other", outcomes), tmp_path / "out"
    path = tmp_path / "more.toml"
    grid_ = 'methods = ["sc"]\ntasks = ["CarGoal1"]\nlimits = [1]\nseeds = [1]\nsteps = 900\n'
    path.write_text(f"{grid_}deployment_episodes = 1\n")
    assert cli.main(["study", str(path), "--out", str(out), "--reuse", str(other)]) == 0
    printed = capsys.readouterr().out
    assert f"1 of them taken from {other}" in printed
    assert "1 of 1 runs are done already" in printed
    assert "1 of 1 runs are done" in printed
    assert not (out / "runs").exists()  # it is in reused.parquet
    assert run_of(out, "sc-CarGoal1-limit1-seed1").row["deployed_cost"] == 0.5


def test_what_is_refused(tmp_path: Path) -> None:
    study, out = write_study(tmp_path / "study"), tmp_path / "packed.parquet"
    with pytest.raises(StudyError, match=r"must end with \.parquet \(--out\)"):
        pack(study, tmp_path / "packed")
    with pytest.raises(StudyError, match="not a study's folder"):
        pack(tmp_path / "nothing", out)
    with pytest.raises(StudyError, match=r"there is no file .*packed\.parquet"):
        pack(out, tmp_path / "again.parquet")
    pq.write_table(pa.table({"run": ["mine"]}), out)
    with pytest.raises(FileError, match="not a study that safecritic pack wrote"):
        pack(study, out)
    out.unlink()
    out.symlink_to(tmp_path / "precious")
    with pytest.raises(FileError, match="is a link"):
        pack(study, out)


@pytest.mark.slow
def test_a_study_continues_from_a_packed_one(whole: tuple[Path, Path], tmp_path: Path) -> None:
    file, study = whole
    half, packed, out = tmp_path / "half", tmp_path / "half.parquet", tmp_path / "out"
    shutil.copytree(study, half)
    missing = "rcpo-KeptPoint-v0-seed1"
    (half / "runs" / missing / "measures.json").unlink()
    assert pack(half, packed)[:3] == (4, 3, 3)
    assert len(reuse(out, grid.read(file), file, [packed])) == 3
    waiting = Driver(out, grid.read_folder(out), 1).waiting
    assert [one.job.name for one in waiting] == [missing]
    assert "4 of 4 runs are done" in finish(out, file)
    assert [path.name for path in (out / "runs").iterdir()] == [missing]
    times = dict.fromkeys(("seconds", "rate", "memory"))
    rows, again = ([row | times for row in table.read(one).rows] for one in (study, out))
    assert repr(again) == repr(rows)
    assert (out / "runs.csv").is_file()
