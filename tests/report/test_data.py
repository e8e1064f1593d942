"""What a report is made of: the paper's numbers."""

from safecritic.report import data


def test_the_papers_numbers_as_printed() -> None:
    paper = data.read_paper()
    assert len(paper) == 241
    assert paper["training", "usc", "CarGoal2", "reward"] == (8.84, 0.62)
    assert paper["training", "cpo", "HalfCheetah", "cost"] == (1.71, 1.93)
    assert paper["deployment", "usc", "CarGoal1", "cost"] == (0.70, 2.10)
    assert paper["deployment", "rcpo", "CarButton2", "success"].mean == 30
    assert paper["cost_map", "csc", "CarGoal2", "gradient_mse"] == (1.95, 1.37)
