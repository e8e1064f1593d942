"""Pack a study: a small copy of its finished runs, with what tables and reports are made of.

    OUT/study.json      the grid, as in the study
    OUT/runs/NAME/
      config.json, measures.json, resources.json    as in the run, absolute paths cut to names
      evaluation.json.gz                            the same, compressed
      measures.safetensors.gz                       what figures show of it: the steps with their
                                                    uncertainty, and of each method's first seed the
                                                    maps of a scene; numbers with BITS bits
      episodes.csv.gz, updates.csv.gz               the columns that tables are made of; the cells
                                                    of the others are empty
      summary.json      with the checksums of these tables and, as `packed`, of the run's own
      error.txt         alone, and of a run that diverged: the line that says at which step

A packed study is a study's folder: it gives the same tables, and running the study there keeps the
packed runs and runs the others. What it cannot do without checkpoints is load a policy.

`reuse` packs single runs: those that a study would only repeat, from studies that have them.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from safecritic import files
from safecritic.evaluation import measures
from safecritic.run.folder import locked, read_config, read_episodes, read_run_bytes
from safecritic.run.records import EvaluationFile, Resources, SummaryFile
from safecritic.study import grid, table
from safecritic.study.grid import Job, StudyError
from safecritic.study.resources import TIME_COLUMNS, training_seconds

BITS = 11  # of an array's numbers, as in half precision: an error of 1 in 2,048 at most
SAME = (  # what a run's numbers come from
    *("method", "task", "seed", "steps", "train_episodes", "deployment_episodes"),
    *("settings", "declared"),
)
ARRAYS = f"measures.safetensors{files.PACKED}"
KEPT = {"episodes": ("episode", "step", *table.TRAINING), "updates": TIME_COLUMNS}


class Packed(NamedTuple):
    """What is in a packed study's folder."""

    total: int  # runs of the study
    done: int  # of them there
    new: int  # of them written now
    bytes: int  # of all files of the runs


def pack(study: Path, out: Path) -> Packed:
    """Write the finished runs of a study into `out`; add to what was packed there before."""
    jobs = grid.read_folder(study)
    if out.resolve() == study.resolve():
        raise StudyError(f"{out} is the study itself: give the copy another folder (--out)")
    finished = [job for job in jobs if grid.done(study, job)]
    to_pack = [job for job in finished if not _made_there(out, job)]
    all_jobs = jobs + _other_jobs(out, jobs)
    grid.open_folder(out, all_jobs, grid.read_study(study)["source"])
    drawn = _drawn_seeds([*finished, *(job for job in all_jobs if grid.done(out, job))])
    with locked(out):
        new = [
            job
            for job in to_pack
            if pack_run(_run(study, job), _run(out, job), maps=job.name in drawn)
        ]
        for job in jobs:
            if job not in finished:
                _pack_failure(_run(study, job), _run(out, job))
        table.write_tables(table.read(out))
    done = [job for job in all_jobs if grid.done(out, job)]
    return Packed(len(all_jobs), len(done), len(new), sum(_size(_run(out, job)) for job in done))


def reuse(out: Path, jobs: list[Job], source: str, studies: Iterable[Path]) -> list[str]:
    """Pack into a study those of its runs that other studies have finished; return their names.

    The same run has the same method, task, seed, budget and settings, and what is declared about
    its environment; its name may differ. Runs that have begun in `out` are left to continue.
    """
    others = [(study, job) for study in studies for job in _others(out, study)]
    grid.open_folder(out, jobs, source)
    kept: list[Job] = []
    taken: list[tuple[Job, Path]] = []
    with locked(out):
        for job in jobs:
            target = files.require_folder(_run(out, job))
            if grid.done(out, job):
                kept.append(job)
                continue
            if files.is_there(target / "episodes.csv"):
                continue
            for study, other in others:
                if any(getattr(job, name) != getattr(other, name) for name in SAME):
                    continue
                if grid.done(study, other):
                    taken.append((job, _run(study, other)))
                    break
                _pack_failure(_run(study, other), target)
        drawn = _drawn_seeds([*kept, *(job for job, _ in taken)])
        for job, run in taken:
            pack_run(run, _run(out, job), maps=job.name in drawn)
    return [job.name for job, _ in taken]


def _drawn_seeds(jobs: Iterable[Job]) -> set[str]:
    """Return the runs of which a report draws maps: of a method on a task, the lowest seed."""
    falling = sorted(jobs, key=lambda job: job.seed, reverse=True)
    lowest = {job.name.removesuffix(f"-seed{job.seed}"): job.name for job in falling}
    return set(lowest.values())


def _others(out: Path, study: Path) -> list[Job]:
    if out.resolve() == study.resolve():
        raise StudyError(f"{study} is the study itself: its finished runs are kept (--reuse)")
    return grid.read_folder(study)


def _run(out: Path, job: Job) -> Path:
    return out / "runs" / job.name


def _other_jobs(out: Path, jobs: list[Job]) -> list[Job]:
    """Return the jobs that `out` has from another part of the study, such as other seeds."""
    if not files.is_there(out / "study.json"):
        return []
    names = {job.name for job in jobs}
    return [job for job in grid.read_folder(out) if job.name not in names]


def _made_there(out: Path, job: Job) -> bool:
    """Return whether a run was made in `out` itself and has ended; raise if it has only begun."""
    run = files.require_folder(_run(out, job))
    if not files.is_there(run / "episodes.csv"):
        return False
    if not grid.done(out, job):
        raise StudyError(
            f"{run} has begun there and is not finished: finish the study there, or remove this run"
        )
    return True


def _size(run: Path) -> int:
    return sum(os.lstat(path).st_size for path in run.iterdir())


def pack_run(run: Path, target: Path, *, maps: bool = True) -> bool:
    """Write the packed form of a finished run; return False if it is there already."""
    contents = _contents(run, maps)
    if all(_holds(target / name, data) for name, data in contents.items()):
        return False
    files.make_folder(target)
    # a run without a summary is not done: it goes first and comes last
    files.refuse_special(target / "summary.json")
    (target / "summary.json").unlink(missing_ok=True)
    for stale in {"error.txt", ARRAYS} - contents.keys():
        (target / stale).unlink(missing_ok=True)
    for name, data in contents.items():
        files.write_bytes(target / name, data)
    return True


def _pack_failure(run: Path, target: Path) -> None:
    """Write why a run diverged, unless the target has the run; no other failure is a result."""
    found = grid.failure(run)
    if found is None or not found.diverged or files.is_there(target / "summary.json"):
        return
    if not files.is_there(target / "episodes.csv"):
        files.write_text(files.make_folder(target) / "error.txt", f"{found.kind}: {found.about}\n")


def _holds(path: Path, data: bytes) -> bool:
    try:
        return files.read_bytes(path, measures.MOST_BYTES) == data
    except FileNotFoundError:
        return False


def _contents(run: Path, maps: bool) -> dict[str, bytes]:
    """Return the packed files of a run by name, each checked as a report would, summary last."""
    summary = files.read_json(run / "summary.json", SummaryFile)
    cuts = summary["tables"]
    read_episodes(run, cuts["episodes"], whole=True)
    training_seconds(run, cuts["updates"])
    contents = {}
    if files.is_there(run / "config.json"):
        config = read_config(run)
        if "command" in config:  # a copy is for others: no paths of this machine
            words = [str(word) for word in config["command"]]
            config |= {"command": [os.path.basename(x) if os.path.isabs(x) else x for x in words]}
        contents["config.json"] = files.json_bytes(config)
    packed: dict[str, Any] = {}
    for name, columns in KEPT.items():
        data = _only(read_run_bytes(run / f"{name}.csv", cuts[name]), columns)
        packed[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        contents[f"{name}.csv{files.PACKED}"] = files.packed(data)
    evaluation = files.json_bytes(files.read_json(run / "evaluation.json", EvaluationFile))
    contents[f"evaluation.json{files.PACKED}"] = files.packed(evaluation)
    numbers = files.read_json(run / "measures.json")
    arrays = _drawn(measures.read_arrays(run), maps)  # checks both files
    numbers.pop(measures.ARRAYS, None)
    if arrays:
        blob = save(arrays)
        contents[ARRAYS] = files.packed(blob)
        numbers[measures.ARRAYS] = hashlib.sha256(blob).hexdigest()
    contents["measures.json"] = files.json_bytes(numbers)
    if files.is_there(run / "resources.json"):
        resources = files.read_json(run / "resources.json", Resources)
        contents["resources.json"] = files.json_bytes(resources)
    summary |= {"tables": packed, "packed": summary.get("packed") or cuts}
    contents["summary.json"] = files.json_bytes(summary)
    return contents


def _only(data: bytes, columns: tuple[str, ...]) -> bytes:
    """Return a table in which the cells of all other columns are empty."""
    header, *lines = data.splitlines()
    kept = [name.decode() in columns for name in header.split(b",")]
    rows = [header]
    for line in lines:
        cells = zip(line.split(b","), kept, strict=True)
        rows.append(b",".join(cell if keep else b"" for cell, keep in cells))
    return b"".join(row + b"\r\n" for row in rows)


def _drawn(arrays: dict[str, np.ndarray], maps: bool) -> dict[str, np.ndarray]:
    """Return what figures show of a run's arrays; those of a measure from outside as they are."""
    drawn = {}
    for name, array in arrays.items():
        if name.startswith("map/"):
            if maps:
                drawn[name] = _rounded(array[:1])
        elif name.startswith("steps/"):
            if "steps/influence" in arrays:  # without it no figure shows them
                drawn[name] = _rounded(array)
        else:
            drawn[name] = array
    return drawn


def _rounded(array: np.ndarray) -> np.ndarray:
    part, exponent = np.frexp(array)
    return np.ldexp(np.round(np.ldexp(part, BITS)), exponent - BITS).astype(np.float32)
