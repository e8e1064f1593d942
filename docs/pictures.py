"""The pictures of the documentation that need no training: `python docs/pictures.py`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import safecritic
from safecritic.report import data, figures, static
from safecritic.tasks import TASKS
from safecritic.tasks.drawing import save_png

HERE = Path(__file__).parent / "images"


def tasks(size: int = 360) -> None:
    """All six tasks from above (or the side), after a few steps."""
    frames = []
    for name in TASKS:
        env = safecritic.make(name)
        env.reset(seed=3)
        trail, trail_cost = [], []
        for step in range(30):
            turn = 0.02 * np.sin(step / 8)
            action = np.full(env.action_space.shape, 0.02)
            action[0] += turn
            _, _, terminated, _, info = env.step(action)
            trail.append(env.unwrapped.position)
            trail_cost.append(info["cost"])
            if terminated:
                break
        frames.append(env.unwrapped.draw(trail, trail_cost, caption=name, size=size))
    rows = [_beside(frames[:4]), _beside(frames[4:])]
    width = max(row.shape[1] for row in rows)
    save_png(
        np.concatenate([_padded(row, row.shape[0], width) for row in rows]), HERE / "tasks.png"
    )


def results() -> None:
    """Figures of the report on the committed runs: curves, cost maps, reward, cost and limits."""
    study, swept = (data.read(HERE.parents[1] / "results" / name) for name in ("tasks", "limits"))
    drawn = [*figures.curves(study), *figures.deployed_pareto(study), *figures.cost_maps(study)]
    drawn += figures.limits(swept)
    names = {
        "curves-CarButton1": "results-curves-CarButton1",
        "cost-maps-CarGoal2": "results-maps-CarGoal2",
        "pareto-deployed": "results-pareto",
        "limits-CarGoal2": "results-limits-CarGoal2",
        "limits-CarButton1": "results-limits-CarButton1",
    }
    with TemporaryDirectory() as folder:
        for figure in drawn:
            if figure.name in names:
                static.save(figure, Path(folder))
                made = Path(folder) / f"{figure.name}.png"
                (HERE / f"{names[figure.name]}.png").write_bytes(made.read_bytes())


def _beside(frames: list[np.ndarray]) -> np.ndarray:
    height = max(f.shape[0] for f in frames)
    return np.concatenate([_padded(f, height, f.shape[1] + 8) for f in frames], axis=1)


def _padded(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    cell = np.full((height, width, 3), frame[0, 0], dtype=np.uint8)
    left = (width - frame.shape[1]) // 2
    cell[: frame.shape[0], left : left + frame.shape[1]] = frame
    return cell


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    tasks()
    results()
