"""Small studies: one whose runs are written by hand, so that its numbers are known, one to run."""

import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import PATIENCE
from probes import SMALL
from safecritic.evaluate.measures import Measure, measure_run
from safecritic.run import checkpoint
from safecritic.run.folder import EPISODE_COLUMNS, write_json
from safecritic.study import grid

# ---------------------------------------------------------------- by hand


def write_study(out: Path) -> Path:
    """Write two methods with two seeds on CarGoal1; the second run of SC has not begun."""
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1"], "seeds": [0, 1], "steps": 900}
    jobs = grid.jobs_of(content | {"deployment_episodes": 1})
    grid.open_folder(out, jobs, "by hand")
    write_run(out, jobs[0], [0.0] * 100 + [1.0] * 100, deployed=3.0)
    write_run(out, jobs[2], [2.0] * 200, deployed=5.0)
    write_run(out, jobs[1], [1.0], deployed=1.0)
    return out


LIMITS: dict[str, Any] = {
    "methods": ["ddpg", "sc", "usc"],
    "tasks": ["CarGoal1", "CarGoal2"],
    "seeds": [0, 1],
    "steps": 900,
    "deployment_episodes": 1,
    "task": {"CarGoal2": {"limits": [2, 0.5]}},
}


def write_limits_study(out: Path) -> Path:
    """Write a study with two limits on CarGoal2: SC costs seed + 0.5, USC 0.25, DDPG 9."""
    jobs = grid.jobs_of(LIMITS)
    grid.open_folder(out, jobs, "limits.toml")
    for job in jobs:
        cost = {"ddpg": 9.0, "sc": job.seed + 0.5, "usc": 0.25}[job.method]
        write_run(out, job, [cost, cost], cost, reward=job.limit, success=0.5)
    return out


Outcome = tuple[float, float | None, float]  # deployed cost, success, reward of a run


def write_outcomes(out: Path, outcomes: dict[str, list[Outcome]], **content: Any) -> Path:
    """Write a study of CarGoal1 (limit 1) in which the runs of each method end like this."""
    seeds = list(range(max(len(runs) for runs in outcomes.values())))
    grid_ = {"methods": list(outcomes), "tasks": ["CarGoal1"], "seeds": seeds, "steps": 900}
    jobs = grid.jobs_of(grid_ | {"deployment_episodes": 1} | content)
    grid.open_folder(out, jobs, "outcomes.toml")
    for job in jobs:
        if job.seed < len(outcomes[job.method]):
            cost, success, reward = outcomes[job.method][job.seed]
            write_run(out, job, [cost, cost], cost, reward, success)
    return out


def write_run(
    out: Path,
    job: grid.Job,
    costs: list[float],
    deployed: float,
    reward: float = 1.0,
    success: float | None = None,
) -> None:
    """Write a finished run with these costs in training, and these numbers in deployment."""
    run = out / "runs" / job.name
    run.mkdir(parents=True)
    with (run / "episodes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EPISODE_COLUMNS, restval="")
        writer.writeheader()
        for number, cost in enumerate(costs, 1):
            row = {"episode": number, "step": 5 * number, "length": 5}
            writer.writerow(row | {"cost": cost, "reward": 2 * cost})
    (run / "updates.csv").write_text(f"step,time/steps_per_second\n{job.steps},100.0\n")
    tables = {}
    for name in ("episodes", "updates"):
        data = (run / f"{name}.csv").read_bytes()
        tables[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    summary = {"steps": job.steps, "episodes": len(costs), "tables": tables}
    write_json(run / "summary.json", summary)
    means = {"cost": deployed, "reward": reward, "success": success}
    episode = means | {"episode": 0, "hazard_distance_mean": None}
    content = {"means": means, "safety_critic": {"auc": 0.75}, "episodes": [episode]}
    write_json(run / "evaluation.json", content)
    write_json(run / "measures.json", {"seen": {"share": deployed / 10}})


def read_cells(path: Path) -> list[list[str]]:
    """Return the cells of a CSV file, header first."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# ---------------------------------------------------------------- to run

SETTINGS = "\n".join(
    f"{name} = {list(x) if isinstance(x, tuple) else x}" for name, x in SMALL.items()
)
FILE = f"""
methods = ["ddpg", "rcpo"]
tasks = ["probes:KeptPoint-v0"]
seeds = [0, 1]
steps = 900
deployment_episodes = 2
[settings]
{SETTINGS}
cost_limit = 1.0
[method.rcpo]
multiplier.lr = 0.5
"""


def write_file(folder: Path, text: str = FILE) -> Path:
    """Write a study's file."""
    path = folder / "small.toml"
    path.write_text(text)
    return path


def command(out: Path, file: Path, *more: str) -> dict[str, Any]:
    """Return what `subprocess` needs to run a study with two workers, or with other flags."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = ["study", str(file), "--out", str(out), *(more or ("--workers", "2"))]
    return {
        "args": [sys.executable, "-m", "safecritic", *words],
        "env": os.environ | {"PYTHONPATH": paths},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def finish(out: Path, file: Path) -> str:
    """Run a study to its end and return what it printed."""
    done = subprocess.run(**command(out, file), timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stdout}"
    return done.stdout


def workers_of(out: Path) -> list[int]:
    """Return the processes of workers that write somewhere below `out`, by their command line."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        below = any(word.startswith(str(out)) for word in words)
        if "safecritic.study.worker" in words and below:
            processes.append(int(path.parent.name))
    return processes


def wait_for_a_run(out: Path, process: subprocess.Popen) -> list[int]:
    """Wait until a run has written its table; return the study's workers."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        if list(out.glob("runs/*/episodes.csv")) and (workers := workers_of(out)):
            return workers
        time.sleep(0.05)
    raise AssertionError("no run was started")


def numbers(out: Path) -> dict[str, Any]:
    """Return every number of a study: parameters, episodes, deployments and measures."""
    content: dict[str, Any] = {}
    for run in sorted((out / "runs").iterdir()):
        arrays, about = checkpoint.load(run / "checkpoint")
        content[run.name] = (
            {name: x.tobytes() for name, x in arrays.items()},
            about["step"],
            (run / "episodes.csv").read_text(),
            json.loads((run / "evaluation.json").read_text())["episodes"],
            (run / "measures.json").read_text(),
        )
    return content


# ---------------------------------------------------------------- with measures, by hand


def write_measured_study(out: Path, task: str = "CarGoal1") -> Path:
    """Write a study of DDPG, SC and USC whose runs have every measure, from made-up numbers."""
    content = {"methods": ["ddpg", "sc", "usc"], "tasks": [task], "seeds": [0, 1], "steps": 900}
    jobs = grid.jobs_of(content | {"deployment_episodes": 2})
    grid.open_folder(out, jobs, "by hand.toml")
    for number, job in enumerate(jobs):
        write_run(out, job, [0.5, 0.0, 1.5, float(number)], deployed=1.0)
        run = out / "runs" / job.name
        _write_updates(run)
        row = {"reward": 1.0, "cost": 0.5, "success": 1.0, "hazard_distance_mean": 0.3}
        episodes = [row | {"episode": at} for at in range(2)]
        critic = {"auc": 0.75, "ratio": 1.0}
        whole = {"means": row, "safety_critic": critic, "episodes": episodes}
        write_json(run / "evaluation.json", whole)
        write_json(run / "resources.json", {"peak_memory_bytes": 2**28})
        if job.method != "ddpg":
            _write_measures(run, number)
    return out


def _write_updates(run: Path) -> None:
    data = b"step,time/steps_per_second\r\n100,50.0\r\n300,100.0\r\n"
    (run / "updates.csv").write_bytes(data)
    summary = json.loads((run / "summary.json").read_text())
    cut = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_json(run / "summary.json", summary | {"tables": summary["tables"] | {"updates": cut}})


def _write_measures(run: Path, number: int) -> None:
    rng = np.random.default_rng(number)
    errors = {"gradient_mse": 0.1, "contrast_error": 0.2, "entropy_error": 0.3}
    theorem = dict.fromkeys(
        ("premise", "left", "right", "larger", "holds", "says_something", "maxima_hold"), 0.5
    )
    numbers = {
        "calibration": dict.fromkeys(
            ("rank_correlation", "area", "random", "oracle", "excess"), 0.4
        ),
        "cost_map": {"extent": 1.5, "instant": errors, "discounted": errors},
        "theorem": [theorem | {"m": m, "mirrored_left": 0.1} for m in (2, 8)],
    }
    arrays = {f"steps/{name}": rng.random(40) for name in ("q_cost", "realised", "influence")}
    arrays |= {f"map/{name}": rng.random((2, 6, 6)) for name in ("instant", "predicted")}
    rolled = ("rolled_truth", "rolled_predicted", "rolled_instant")
    arrays |= {f"map/{name}": rng.random((1, 4, 4)) for name in rolled}
    measures: list[Any] = [(name, (numbers[name], {})) for name in numbers]
    measures.append(("arrays", (None, arrays)))
    rows = {name: Measure(name, lambda *_, result=result: result) for name, result in measures}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safecritic.evaluate.measures.MEASURES", rows)
        patch.setattr("safecritic.evaluate.measures.Critic.of", lambda agent: None)
        measure_run(None, None, run)  # type: ignore[arg-type]
