"""Evaluation of a trained policy."""

import numpy as np

from safecritic.evaluation.evaluate import influence_of


def test_influence_is_taken_in_batches_and_put_back_in_order() -> None:
    sizes = []

    def values(obs: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        sizes.append(len(obs))
        return {"influence": obs[:, 0] + action[:, 0]}

    obs, action = np.arange(10.0)[:, None], np.full((10, 1), 0.5)
    assert influence_of(values, obs, action, 4).tolist() == [i + 0.5 for i in range(10)]
    assert sizes == [4, 4, 4]
