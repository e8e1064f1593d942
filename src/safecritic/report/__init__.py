"""A study as a page of tables and figures, with the paper's numbers beside ours."""
