"""A small study whose runs are written by hand, so that its numbers are known."""

import csv
from pathlib import Path

from safecritic.run.folder import EPISODE_COLUMNS, write_json
from safecritic.study import grid


def write_study(out: Path) -> Path:
    """Write two methods with two seeds on CarGoal1; the second run of SC has not begun."""
    content = {"methods": ["ddpg", "sc"], "tasks": ["CarGoal1"], "seeds": [0, 1], "steps": 900}
    jobs = grid.jobs_of(content | {"deployment_episodes": 1})
    grid.open_folder(out, jobs, "by hand")
    write_run(out, jobs[0], [0.0] * 100 + [1.0] * 100, deployed=3.0)
    write_run(out, jobs[2], [2.0] * 200, deployed=5.0)
    write_run(out, jobs[1], [1.0], deployed=1.0)
    return out


def write_run(out: Path, job: grid.Job, costs: list[float], deployed: float) -> None:
    """Write a finished run with these costs in training, and this one in deployment."""
    run = out / "runs" / job.name
    run.mkdir(parents=True)
    with (run / "episodes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EPISODE_COLUMNS, restval="")
        writer.writeheader()
        for number, cost in enumerate(costs, 1):
            row = {"episode": number, "step": 5 * number, "length": 5}
            writer.writerow(row | {"cost": cost, "reward": 2 * cost})
    write_json(run / "summary.json", {"steps": job.steps, "episodes": len(costs)})
    means = {"cost": deployed, "reward": 1.0, "success": None}
    episode = means | {"episode": 0, "hazard_distance_mean": None}
    content = {"means": means, "safety_critic": {"auc": 0.75}, "episodes": [episode]}
    write_json(run / "evaluation.json", content)
    write_json(run / "measures.json", {"seen": {"share": deployed / 10}})
