"""A packed study: one Parquet file with a row for each run that finished or diverged.

    safecritic pack studies/tasks --out tasks.parquet
    pandas.read_parquet("tasks.parquet")

docs/study.md has its columns. Numbers of a run are exact; what figures draw is rounded and thinned.
"""

import dataclasses
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from safecritic.core import files
from safecritic.core.schema import check
from safecritic.evaluate import measures
from safecritic.run.failure import Failure
from safecritic.run.folder import locked
from safecritic.run.records import Measures
from safecritic.study import grid
from safecritic.study.grid import Job, StudyError
from safecritic.study.runs import NUMBERS, Run

SUFFIX = ".parquet"
REUSED = f"reused{SUFFIX}"  # in a study's folder: its runs that are from other studies
DIGITS = 3  # of what a deployment episode came to
COST_DIGITS = 4  # of the cost of a training episode
BITS = 8  # of a number in a map or of a step: an error of 1 in 256 at most
REWARD_BITS = 7  # of the reward of a training episode, which only curves show
STEPS = 300  # of a run
WHOLE = ("seed", "steps", "episodes", "taken")
TEXTS = ("run", "method", "task", "state")
JSONS = ("job", "settings", "versions", "measures", "shapes", "failure")
EPISODES = ("step", "reward", "cost", "success")
DEPLOYMENT = ("reward", "cost", "success", "hazard_distance_mean")
LISTS = {"training": EPISODES, "deployment": DEPLOYMENT}
ARRAY = "array/"  # before the name of an array of the measures
FLOATS = pa.list_(pa.float32())
COLUMNS: dict[str, Any] = {  # of every packed study
    **dict.fromkeys((*TEXTS, *JSONS), pa.string()),
    **dict.fromkeys(WHOLE, pa.int64()),
    **dict.fromkeys(("limit", *NUMBERS), pa.float64()),
    **{f"{kind}/{name}": FLOATS for kind, names in LISTS.items() for name in names},
    "training/step": pa.list_(pa.int32()),
}
SAME = (  # what a run's numbers come from
    *("method", "task", "seed", "steps", "train_episodes", "deployment_episodes"),
    *("settings", "declared", "paper_defaults"),
)
MOST_BYTES = 256 * 2**20
MOST_UNPACKED = 2**31
MOST_RUNS = 100_000
CHECKSUM = b"sha256 of this file with zeros here: "
ZEROS = b"0" * 64

About = dict[str, Any]  # source: the name of the study's file; toml: its text


class Packed(NamedTuple):
    """What is in a packed study."""

    total: int  # runs of the study
    done: int  # of them there
    new: int  # of them written now
    bytes: int


# ---------------------------------------------------------------- studies


def load(study: Path) -> tuple[About, list[Run]]:
    """Return what a study is, and its runs in whatever state: of a folder or of a packed study."""
    if study.is_file() or study.suffix == SUFFIX:
        return read(study)
    content = grid.read_study(study)
    about = {"source": content["source"], "toml": content.get("toml", "")}
    return about, _runs(study, grid.read_folder(study))


def reused(out: Path) -> dict[str, Run]:
    """Return the runs that a study's folder has from other studies."""
    path = out / REUSED
    return {_key(run.job): run for run in read(path)[1]} if files.is_there(path) else {}


def _runs(out: Path, jobs: Iterable[Job]) -> list[Run]:
    taken = reused(out)
    return [
        taken.get(_key(job)) or Run(job, out / "runs" / job.name, grid.done(out, job))
        for job in jobs
    ]


def results_of(out: Path, jobs: Iterable[Job]) -> dict[str, Run]:
    """Return those of the jobs that are done or have diverged, by name."""
    return {run.job.name: run for run in _runs(out, jobs) if run.ended}


def pack(study: Path, out: Path) -> Packed:
    """Write the results of a study into a Parquet file; keep the other runs that it has.

    So parts of a study, such as seeds from two machines, meet in one file.
    """
    if out.suffix != SUFFIX:
        raise StudyError(f"{out} must end with {SUFFIX} (--out)")
    about, runs = load(study)
    before = {run.job.name: run for run in (read(out)[1] if files.is_there(out) else [])}
    found = {run.job.name: run for run in runs if run.ended}
    every = before | {run.job.name: run for run in runs}
    kept = [run for name, run in before.items() if name not in found]
    written = [*kept, *found.values()]
    done = [run.job.name for run in written if run.done]
    size = write(out, about, written)
    return Packed(len(every), len(done), len(set(done) - set(before)), size)


def reuse(out: Path, jobs: list[Job], source: str | Path, studies: Iterable[Path]) -> list[str]:
    """Take those runs of a study that other studies have; return their names.

    The same run has the same method, task, seed, budget and settings, and what is declared about
    its environment; its name may differ. Runs that have begun in `out` are left to continue.
    """
    others: dict[str, Run] = {}
    for study in studies:
        if study.resolve() == out.resolve():
            raise StudyError(f"{study} is the study itself: its finished runs are kept (--reuse)")
        for run in sorted(load(study)[1], key=lambda run: not run.done):
            if run.ended:
                others.setdefault(_same(run.job), run)
    grid.open_folder(out, jobs, source)
    with locked(out):
        kept, taken = reused(out), []
        for job in jobs:
            begun = files.is_there(files.require_folder(out / "runs" / job.name) / "episodes.csv")
            if _key(job) not in kept and not begun and (other := others.get(_same(job))):
                taken.append(_renamed(other, job))
        if taken:
            write(out / REUSED, {"source": "", "toml": ""}, [*kept.values(), *taken])
    return [run.job.name for run in taken if run.done]


def _same(job: Job) -> str:
    """Return what two runs share if one stands for the other."""
    return json.dumps([getattr(job, name) for name in SAME], sort_keys=True)


def _key(job: Job) -> str:
    return f"{job.name} {_same(job)}"


def _renamed(run: Run, job: Job) -> Run:
    """Return a run under the name that another study gives it."""
    copy = dataclasses.replace(run, job=job)
    known = {name: x for name, x in vars(run).items() if name not in ("job", "row")}
    vars(copy).update(known)
    return copy


# ---------------------------------------------------------------- writing


def write(path: Path, about: About, runs: Sequence[Run]) -> int:
    """Write runs into a Parquet file; return its size in bytes."""
    falling = sorted((run.job for run in runs), key=lambda job: (-job.limit, -job.seed))
    # of a method on a task, the run of the lowest limit and seed keeps its maps
    drawn = {(job.label, job.task): job.name for job in falling}.values()
    rows = [_record(run, run.job.name in drawn) for run in runs]
    arrays = sorted({name for row in rows for name in row} - set(COLUMNS))
    fields = COLUMNS | dict.fromkeys(arrays, FLOATS)
    leaves = {name: f"{name}.list.element" if "/" in name else name for name in fields}
    # a third smaller than without
    encoding = {leaves[name]: "BYTE_STREAM_SPLIT" for name in (*arrays, "training/reward")}
    encoding[leaves["training/step"]] = "DELTA_BINARY_PACKED"
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 19}
    options["use_dictionary"] = [name for name in leaves.values() if name not in encoding]
    table = pa.Table.from_pylist(rows, pa.schema(list(fields.items())))
    data = io.BytesIO()
    with pq.ParquetWriter(data, table.schema, column_encoding=encoding, **options) as writer:
        writer.write_table(table, row_group_size=MOST_RUNS)
        content = json.dumps({"format": 1} | about)
        writer.add_key_value_metadata({"safecritic": content, "checksum": CHECKSUM + ZEROS})
    text = data.getvalue()
    files.write_bytes(path, text.replace(CHECKSUM + ZEROS, CHECKSUM + _digest(text)))
    return len(text)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _record(run: Run, maps: bool) -> dict[str, Any]:
    job = grid.record(run.job)
    settings = job.pop("settings")
    cells: dict[str, Any] = {"run": run.job.name, "method": run.method, "task": run.job.task}
    cells |= {"limit": run.limit, "seed": run.job.seed, "steps": run.job.steps}
    cells |= {"state": run.state, "job": json.dumps(job), "settings": json.dumps(settings)}
    if not run.done:
        assert run.failure is not None
        return cells | {"failure": json.dumps(dataclasses.asdict(run.failure))}
    cells |= run.numbers | {"taken": run.steps}
    cells |= {"versions": json.dumps(run.versions), "measures": json.dumps(run.measures)}
    cells["training/success"] = run.episodes["success"]
    cells["training/cost"] = _decimal(run.episodes["cost"], COST_DIGITS)
    cells["training/reward"] = _binary(run.episodes["reward"], REWARD_BITS)
    cells["training/step"] = run.episodes["step"].astype(np.int32)
    for name in DEPLOYMENT:
        column = np.array([row.get(name) for row in run.deployment], np.float64)
        cells[f"deployment/{name}"] = _decimal(column, DIGITS)
    arrays = _shown(run.arrays, maps)
    cells["shapes"] = json.dumps({name: x.shape for name, x in arrays.items()})
    return cells | {f"{ARRAY}{name}": x.ravel() for name, x in arrays.items()}


def _shown(arrays: dict[str, np.ndarray], maps: bool) -> dict[str, np.ndarray]:
    """Return what figures show of a run's arrays; those of a measure from outside as they are."""
    shown = {}
    for name, array in arrays.items():
        kind = name.partition("/")[0]
        if kind == "map" and maps:
            shown[name] = _binary(array[:1])
        elif kind == "steps" and "steps/influence" in arrays:  # without it no figure shows them
            at = np.linspace(0, len(array) - 1, min(len(array), STEPS)).astype(int)
            shown[name] = _binary(array[at])
        elif kind not in ("map", "steps"):
            shown[name] = array
    return shown


def _decimal(values: np.ndarray, digits: int) -> np.ndarray:
    size = np.abs(values)
    known = np.isfinite(size) & (size > 0)
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(size, where=known, out=np.zeros(size.shape))))
    return np.round(values * scale) / scale


def _binary(values: np.ndarray, bits: int = BITS) -> np.ndarray:
    """Round to so many significant bits."""
    part, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(part, bits)), exponent - bits).astype(np.float32)


# ---------------------------------------------------------------- reading


def read(path: Path) -> tuple[About, list[Run]]:
    """Return what a packed study is and its runs; refuse a file that was altered."""
    try:
        data = files.read_bytes(path, MOST_BYTES, "a packed study")
    except FileNotFoundError:
        raise StudyError(f"there is no file {path}") from None
    before, mark, rest = data.rpartition(CHECKSUM)
    if not mark:
        raise files.damaged(path, "it is not a study that safecritic pack wrote")
    if rest[: len(ZEROS)] != _digest(before + mark + ZEROS + rest[len(ZEROS) :]):
        raise files.damaged(path, "its checksum does not match")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > MOST_UNPACKED:
            raise files.damaged(path, "it unpacks to more than any study has")
        if file.metadata.num_rows > MOST_RUNS:
            raise files.damaged(path, f"it has more than {MOST_RUNS:,} runs")
        _check_types(path, file.schema_arrow)
        about = files.parse_json(path, file.metadata.metadata[b"safecritic"])
        table = file.read()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise files.damaged(path, f"it cannot be read ({error})") from error
    lists = [name for name in table.column_names if "/" in name]
    rows: list[dict[str, Any]] = table.drop_columns(lists).to_pylist()
    for name in lists:
        for cells, cell in zip(rows, table[name], strict=True):
            if cell.is_valid:
                cells[name] = cell.values.to_numpy(zero_copy_only=False)
    for cells in rows:
        for name in JSONS:
            cells[name] = files.parse_json(path, (cells[name] or "{}").encode())
        if isinstance(cells["job"], dict):
            cells["job"]["settings"] = cells["settings"]
    jobs = grid.jobs_in({**about, "jobs": [cells["job"] for cells in rows]}, path)
    return about, [_run(path, job, cells) for job, cells in zip(jobs, rows, strict=True)]


def _check_types(path: Path, schema: Any) -> None:
    for name, kind in COLUMNS.items():
        if name not in schema.names or schema.field(name).type != kind:
            raise files.damaged(path, f"it has no column {name} of {kind}")
    for name in schema.names:
        if name not in COLUMNS and schema.field(name).type != FLOATS:
            raise files.damaged(path, f"its column {files.shown(name)} must be lists of numbers")


def _run(path: Path, job: Job, cells: dict[str, Any]) -> Run:
    run = Run(job, None, cells["state"] == "done")
    if not run.done:
        check(Failure, cells["failure"], path, f"failure of {job.name}")
        vars(run)["failure"] = Failure(**cells["failure"])
        return run
    for name in COLUMNS:
        if cells.get(name) is None and name not in JSONS:
            raise files.damaged(path, f"{job.name} has no {name}")
    training, deployed = (
        {name: cells[f"{kind}/{name}"] for name in names} for kind, names in LISTS.items()
    )
    for lists in (training, deployed):
        if len({len(x) for x in lists.values()}) > 1:
            raise files.damaged(path, f"{job.name} must have lists of the same length")
    check(Measures, cells["measures"], path, f"measures of {job.name}")
    check(dict[str, str], cells["versions"], path, f"versions of {job.name}")
    episodes = {name: x.astype(np.float64) for name, x in training.items()}
    rows = zip(*deployed.values(), strict=True)
    vars(run).update(
        numbers={name: cells[name] for name in ("episodes", *NUMBERS)},
        # 0.2 as it was
        episodes=episodes | {"cost": _decimal(episodes["cost"], COST_DIGITS)},
        deployment=[
            {"episode": at} | dict(zip(DEPLOYMENT, map(_known, row), strict=True))
            for at, row in enumerate(rows)
        ],
        arrays=_arrays(path, cells),
        measures=cells["measures"],
        versions=cells["versions"],
        steps=cells["taken"],
    )
    return run


def _known(value: np.floating[Any]) -> float | None:
    return None if np.isnan(value) else float(value)


def _arrays(path: Path, cells: dict[str, Any]) -> dict[str, np.ndarray]:
    shapes = cells["shapes"]
    check(dict[str, list[int]], shapes, path, f"shapes of {cells['run']}")
    try:
        arrays = {name: cells[ARRAY + name].reshape(shape) for name, shape in shapes.items()}
    except (KeyError, ValueError) as error:
        raise files.damaged(path, f"an array of {cells['run']} has another shape") from error
    measures.check_arrays(path, arrays)
    return arrays
