"""A figure of a safety critic: what it predicts against what happened."""

import io
from pathlib import Path

import numpy as np

from safecritic.core import files
from safecritic.core.style import COLOURS, GRID, INK, SOFT, STYLE
from safecritic.evaluate.episodes import Evaluation
from safecritic.run.episode import discounted_sums


def draw_critic(evaluation: Evaluation, gamma: float, title: str, path: str | Path) -> Path | None:
    """Draw Q_C against the discounted cost that followed; None if there is no Q_C to draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    q, truth = evaluation.steps.q_cost, evaluation.steps.realised
    if not len(q):
        return None
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
        figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        groups = [g for g in np.array_split(np.argsort(q, kind="stable"), 10) if len(g)]
        means = np.array([(q[g].mean(), truth[g].mean()) for g in groups])
        end = 1.08 * max(means.max(), 1e-3)
        left.plot([0, end], [0, end], color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        left.plot(*means.T, "o-", color=COLOURS["cost"], markersize=5)
        left.set(xlim=(0, end), ylim=(0, end))
        left.set_xlabel("mean Q_C of a tenth of the steps")
        left.set_title("discounted cost that followed", loc="left", fontsize=10.5)
        left.text(0.9, 0.95, "equal", transform=left.transAxes, ha="right", color=SOFT, fontsize=9)
        worst = int(np.argmax([episode.column("cost").sum() for episode in evaluation.traces]))
        episode = evaluation.traces[worst]
        steps = episode.starts
        followed = discounted_sums(episode.column("cost"), gamma)
        right.plot(steps, followed, color=INK, label="realised")
        right.plot(steps, episode.column("q_cost"), color=COLOURS["cost"], label="Q_C")
        costly = steps[episode.column("cost") > 0]
        right.plot(costly, np.zeros(len(costly)), "|", color=INK, markersize=9, label="cost")
        right.set_xlabel("step")
        name = f"discounted cost in the costliest episode ({worst})"
        right.set_title(name, loc="left", fontsize=10.5)
        right.legend(frameon=False, fontsize=9)
        for axis in (left, right):
            axis.grid(axis="y", color=GRID, linewidth=0.8)
            axis.set_axisbelow(True)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130)
        plt.close(figure)
    files.write_bytes(Path(path), image.getvalue())
    return Path(path)
