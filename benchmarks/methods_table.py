"""Every method on one task over several seeds: trains what is missing, then prints the table.

    python benchmarks/methods_table.py --out runs/table

Running it again goes on where it stopped. Each run has one core to itself. Training columns are
means over the last 100 training episodes (with exploration noise), deployment columns over fresh
episodes without it; then mean and standard error over the seeds. Q_C / realised is the quotient
of the means over all seeds' steps, beside the smallest of any seed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from safecritic.methods import METHODS


def safecritic(*words: object, core: int) -> None:
    """Run a command of the tool on one core; its output is shown if it fails."""
    command = [sys.executable, "-m", "safecritic", *map(str, words)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {core})
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output.decode()[-2000:]}")


def finished(run: Path, steps: int) -> bool:
    summary = run / "summary.json"
    return summary.is_file() and json.loads(summary.read_text())["steps"] >= steps


def one_run(options: argparse.Namespace, method: str, seed: int, core: int) -> str:
    run = options.out / f"{method}-{options.task}-seed{seed}"
    started = time.perf_counter()
    steps = options.steps or METHODS[method].steps
    if not finished(run, steps):
        if (run / "checkpoint").is_dir():
            safecritic("train", "--resume", run, core=core)
        else:
            chosen = ("--steps", steps, "--seed", seed, "--out", run, "--overwrite")
            safecritic("train", method, options.task, *chosen, core=core)
    if not (run / "evaluation.json").is_file():
        safecritic("evaluate", run, "--episodes", options.episodes, core=core)
    return f"{method} seed {seed}: {time.perf_counter() - started:.0f} s"


def row_of(run: Path) -> dict[str, float]:
    """The figures of one finished run."""
    summary = json.loads((run / "summary.json").read_text())
    evaluation = json.loads((run / "evaluation.json").read_text())
    found = {name: summary[name] for name in ("success", "reward", "cost", "length")}
    found |= {f"deployed_{name}": evaluation["means"][name] for name in ("success", "cost")}
    found |= {
        name: value for name, value in evaluation["safety_critic"].items() if value is not None
    }
    return found


def cell(values: list[float], digits: int, percent: bool = False) -> str:
    """Mean and standard error."""
    if not values:
        return ""
    scale = 100.0 if percent else 1.0
    mean = scale * np.mean(values)
    error = scale * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def print_table(options: argparse.Namespace) -> None:
    print(f"\n{options.task}, seeds {options.seeds}, mean ± standard error")
    print(
        "| method | steps | success % | reward | cost | deployed success % | deployed cost | AUC "
        "| Q_C / realised (least seed) | u against error |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for method in options.methods:
        runs = {seed: options.out / f"{method}-{options.task}-seed{seed}" for seed in options.seeds}
        done = {s: row_of(run) for s, run in runs.items() if (run / "evaluation.json").is_file()}
        rows = list(done.values())
        if not rows:
            continue

        def column(name: str, rows: list[dict[str, float]] = rows) -> list[float]:
            return [row[name] for row in rows if name in row]

        ratio = ""
        if column("q_mean"):
            steps = np.array(column("steps"))
            pooled = (steps * column("q_mean")).sum() / (steps * column("realised_mean")).sum()
            ratio = f"{pooled:.2f} ({min(column('ratio')):.2f})"
        cells = [
            f"{options.steps or METHODS[method].steps:,}",
            cell(column("success"), 1, percent=True),
            cell(column("reward"), 2),
            cell(column("cost"), 2),
            cell(column("deployed_success"), 1, percent=True),
            cell(column("deployed_cost"), 2),
            cell(column("auc"), 2),
            ratio,
            cell(column("influence_error_correlation"), 2),
        ]
        print(f"| {method} | {' | '.join(cells)} |")
        for seed, row in done.items():
            figures = ", ".join(f"{name} {value:.3g}" for name, value in row.items())
            print(f"    seed {seed}: {figures}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/table"))
    parser.add_argument("--task", default="CarGoal1")
    parser.add_argument("--steps", type=int, help="default: what the method needs")
    parser.add_argument("--episodes", type=int, default=100, help="deployment episodes per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cores = list(range(options.workers))

    def work(job: tuple[str, int]) -> str:
        core = cores.pop()
        try:
            return one_run(options, *job, core)
        finally:
            cores.append(core)

    jobs = [(method, seed) for seed in options.seeds for method in reversed(options.methods)]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
            try:
                print(f"[{number}/{len(jobs)}] {future.result()}", file=sys.stderr, flush=True)
            except RuntimeError as error:
                failures.append(error)
                print(f"[{number}/{len(jobs)}] {error}", file=sys.stderr, flush=True)
    print_table(options)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
