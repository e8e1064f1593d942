"""A study as a page: tables, figures, the paper's numbers beside ours."""
